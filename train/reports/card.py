"""A model's card: what it is for, what it was trained on, how good it is and where not, from measured facts alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from namsa.text import duration, plural
from train.experiment.conditions import conditions, defocus, dose, span
from train.experiment.experiment import Experiment

Facts = Mapping[str, Any]


def card(name: str, experiment: Experiment, facts: Facts) -> str:
    """Markdown. facts: what `pack` gathers: evaluation, calibration, training_s, strata, weights, doses."""
    sections = (
        _for_what(name, experiment),
        _numbers(facts["evaluation"]),
        _doses(facts),
        _uncertainty(facts["calibration"]),
        _limits(experiment, facts),
        _data(experiment, facts["strata"]),
        _training(experiment, facts),
    )
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _for_what(name: str, experiment: Experiment) -> Iterator[str]:
    at = conditions(experiment)
    others = {key: value for key, value in experiment.microscope.aberrations.items() if key != "C10" and value}
    yield f"# {name}"
    yield ""
    yield "From 4D-STEM patterns to the projected electron density of a crystalline specimen, in e/Å²."
    yield ""
    yield f"    python -m train reconstruct DATA.h5 --checkpoint {name} --out DENSITY.h5"
    yield ""
    yield from _table(
        ("", "trained for", "`reconstruct` accepts"),
        [
            ("energy", f"{at.energy_ev / 1e3:g} keV", "± 2 %"),
            ("convergence semiangle", f"{at.semiangle_mrad:g} mrad", "± 5 %"),
            ("scan step", f"{_pair(at.scan_step_angstrom)} Å", "up to twice that; resampled"),
            (
                "detector",
                f"{_times(at.detector_shape)} pixels of {_pair(at.pixel_mrad)} mrad",
                f"pixels up to twice that; must reach {at.reach_mrad:g} mrad",
            ),
            ("window", f"{_times(at.scan_shape)} positions", "any scan, in overlapping windows"),
            ("thickness", f"{span(experiment.specimen.thickness_angstrom)} Å", "not checked: no file says it"),
            ("defocus, underfocus > 0, of the entrance", f"{span(defocus(experiment))} Å", "not checked"),
            ("other aberrations, Å", str(others or "none"), "not checked"),
            ("dose, electrons a pattern", dose(experiment.training.inputs) or "noiseless", "not checked"),
        ],
    )


def _numbers(evaluation: Facts) -> Iterator[str]:
    split = evaluation["split"]
    held_out = [row for row in evaluation["samples"] if row["split"] == split]
    materials = len({row["material"] for row in held_out})
    yield f"## On materials it never saw ({split} split, noiseless)"
    yield ""
    yield (
        f"{plural(len(held_out), 'sample')} of {plural(materials, 'material')}; in brackets the mean image of the "
        "training samples, which has looked at nothing. One pass of the network."
    )
    yield ""
    rows = [(f"{row['wanted_thickness_angstrom']:g}", row["samples"], row) for row in evaluation["by_thickness"]]
    rows.append(("all", len(held_out), {**evaluation["mean"], "mean_predictor": evaluation["mean_predictor"]}))
    yield from _table(
        ("thickness, Å", "samples", "SSIM", "Pearson", "MAE, e/Å²", "R"),
        [
            (thickness, str(count), *(_beside(row, key) for key in ("ssim", "pearson", "mae", "r_factor")))
            for thickness, count, row in rows
        ],
    )
    yield ""
    known = sorted(row["ssim"] for row in held_out if row["ssim"] is not None)
    if known:
        low, middle, high = (known[round(part * (len(known) - 1))] for part in (0.1, 0.5, 0.9))
        yield f"SSIM of a tenth of the samples is below {low:.3f}, of half {middle:.3f}, of nine tenths {high:.3f}."
    worst = sorted((row for row in held_out if row["ssim"] is not None), key=lambda row: row["ssim"])[:3]
    yield "The worst: " + "; ".join(
        f"{row['material']} {row['zone_axis']}, {row['thickness_angstrom']:.0f} Å: {row['ssim']:.3f}" for row in worst
    )


def _doses(facts: Facts) -> Iterator[str]:
    rows = facts["doses"]
    thicknesses = sorted({row["thickness_angstrom"] for row in rows})
    found = {(row["electrons"], row["thickness_angstrom"]): row for row in rows}
    of = sum(row["samples"] for row in rows if row["electrons"] is None)
    yield "## By dose"
    yield ""
    yield (
        f"Of {plural(of, 'held-out sample')}, the mean of {facts['calibration']['method']}, which is what "
        "`reconstruct` gives: SSIM, and in brackets MAE in e/Å²."
    )
    yield ""
    yield from _table(
        ("electrons a pattern", *(f"{thickness:g} Å" for thickness in thicknesses)),
        [
            (
                "noiseless" if dose is None else f"{dose:g}",
                *(f"{_number(row['ssim'])} ({row['mae']:.2f})" for row in (found[dose, t] for t in thicknesses)),
            )
            for dose in dict.fromkeys(row["electrons"] for row in rows)
        ],
    )


def _uncertainty(found: Facts) -> Iterator[str]:
    yield "## Uncertainty"
    yield ""
    text = (
        f"One standard deviation is {found['scale']:.3g} times the spread of {found['method']}. The factor was chosen "
        f"so that {found['coverage_68']:.1%} of the dev pixels' errors lie within it "
        f"({plural(found['samples'], 'sample')}; within twice that {found['coverage_95']:.1%})"
    )
    if test := found.get("test"):
        text += f"; of the test pixels it is {test['coverage_68']:.1%}, and {test['coverage_95']:.1%} within twice that"
    yield text + ". It holds in the mean over pixels; of no pixel is its own coverage known."


def _limits(experiment: Experiment, facts: Facts) -> Iterator[str]:
    specimen, microscope, strata = experiment.specimen, experiment.microscope, facts["strata"]
    left_out = [
        what
        for what, there in (
            ("thermal vibration", specimen.frozen_phonons),
            ("the source's size", microscope.source_size_angstrom),
            ("the spread of energy", microscope.focal_spread_angstrom or microscope.chromatic_aberration_mm),
            ("the detector's point spread", experiment.detector and experiment.detector.point_spread_pixels),
        )
        if not there
    ]
    ssim, rival = facts["evaluation"]["mean"]["ssim"], facts["evaluation"]["mean_predictor"]["ssim"]
    yield "## Limits"
    yield ""
    yield "- It has seen simulations only, and no measured data have been tried with it."
    if left_out:
        yield f"- The simulations leave out {', '.join(left_out)}, inelastic scattering, amorphous layers and drift."
    tilted = any("tilt" in key for key in experiment.varied_quantities())
    if not tilted:
        yield "- Specimen and beam were not tilted: crystals lay on a zone axis, " + (
            f"{_zones(experiment.specimen.zone_axes)}."
        )
    yield "- Perfect, periodic crystals: no defect, no surface, no interface, no amorphous specimen was learnt from."
    yield (
        f"- Thicknesses of {', '.join(f'{t:g}' for t in specimen.thickness_angstrom)} Å. Of thicker or much thinner "
        "specimens nothing is known; the file does not say the thickness, so nothing warns of it."
    )
    yield (
        f"- The density is band-limited at {experiment.target.max_q_per_angstrom or 'the probe’s limit'} 1/Å and is "
        "that of independent atoms: no bonding, no charge transfer."
    )
    if missing := strata["elements_not_in_train"]:
        yield f"- Held out but never learnt from: {', '.join(missing)}."
    if ssim is not None and ssim < 0.8:
        yield (
            f"- **The mean SSIM on unseen materials is {ssim:.2f}** (mean image {_number(rival, 2)}): expect the "
            "places of strong columns rather than exact densities, and look at the uncertainty."
        )


def _data(experiment: Experiment, strata: Facts) -> Iterator[str]:
    together = {
        "formula": "No formula is in two splits.",
        "prototype": "No formula and no prototype (kind of formula and space group) is in two splits.",
    }
    splits = list(strata["samples"])
    elements = [element for element, counts in strata["elements"].items() if counts["train"]]
    yield "## Data"
    yield ""
    yield from _table(
        ("", *splits),
        [(what, *(str(strata[what][split]) for split in splits)) for what in ("samples", "materials", "formulas")],
    )
    yield ""
    yield f"{together[experiment.split.by]} Crystals: {', '.join(strata['sources'])}."
    yield f"Crystal systems of the training samples: {_counts(strata['crystal_systems'])}."
    yield f"{len(elements)} elements in training: {', '.join(elements)}."
    yield (
        f"Simulated by multislice, {experiment.simulation.form_factors} form factors, slices of "
        f"{experiment.simulation.slice_thickness_angstrom:g} Å; samples of hash {experiment.samples_hash()}, seed "
        f"{experiment.seed}."
    )


def _training(experiment: Experiment, facts: Facts) -> Iterator[str]:
    run, weights = facts["evaluation"]["run"], facts["weights"]
    versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    yield "## Training"
    yield ""
    yield from _table(
        ("", ""),
        [
            (
                "network",
                f"FC-DenseNet, {run['parameters']:,} parameters, {experiment.training.inputs.channel_summary()}",
            ),
            ("trained", f"{run['epochs']} epochs, {run['steps']:,} steps, {run['training_samples']:,} samples"),
            ("time in steps", duration(facts["training_s"])),
            ("on", f"{plural(run['ranks'], 'rank')}, each on {run['device']}" + _machine(run)),
            ("versions", versions),
            (
                "weights",
                f"{weights['bytes'] / 1e6:.2f} MB, {weights['dtype']}: against float32 the answers change by "
                f"{weights['rms_change']:.2g} e/Å² (rms; at most {weights['largest_change']:.2g}), where the rms error "
                f"is {weights['rms_error']:.3g}",
            ),
            ("SHA-256", f"`{weights['sha256']}`"),
            ("digest", f"`{weights['digest']}`, which `reconstruct` writes into its results"),
        ],
    )


# ---- Pieces ---------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _beside(row: Facts, key: str) -> str:
    digits = 2 if key == "mae" else 3
    return f"{_number(row[key], digits)} ({_number(row['mean_predictor'][key], digits)})"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _counts(of: Mapping[str, Mapping[str, int]]) -> str:
    return ", ".join(f"{name} {counts['train']}" for name, counts in of.items() if counts["train"])


def _zones(axes: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"[{' '.join(map(str, axis))}]" for axis in axes)


def _machine(run: Facts) -> str:
    return f" of {run['machine']}" if run.get("machine") else ""


def _pair(pair: Sequence[float]) -> str:
    y, x = pair
    return f"{y:g}" if y == x else f"{y:g} and {x:g}"


def _times(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
