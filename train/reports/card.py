"""The model card: what a network is for, what it was trained on, how good it is and where its limits are.

Every statement follows from the configuration or from measured facts. Names and words that come from files are written
so that they are neither Markdown nor HTML.
"""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from namsa.dataset.strata import Strata
from namsa.text import duration, plural
from train.experiment.conditions import defocus_angstrom, describe_dose, describe_imperfections, format_range
from train.experiment.experiment import Experiment
from train.measure.results import RunFacts
from train.reports.results import Calibration, CardFacts, ComparedScores, Evaluation, MetricName, WeightsFacts

DIGITS = {"mae": 2}  # of scores; 3 for the others


def card(name: str, experiment: Experiment, facts: CardFacts) -> str:
    """Returns a model card as Markdown.

    Args:
        name: Name of the model.
        experiment: Configuration of the run.
        facts: Measured facts.
    """
    sections = (
        _purpose(name, experiment),
        _scores(facts.evaluation),
        _scores_by_dose(facts),
        _uncertainty(facts.calibration),
        _limits(experiment, facts),
        _data(experiment, facts.strata),
        _training(experiment, facts),
    )
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


# ---- Sections -------------------------------------------------------------------------------------------------------


def _purpose(name: str, experiment: Experiment) -> Iterator[str]:
    """What the network does, and the data that it takes."""
    trained = experiment.conditions()
    others = {key: value for key, value in experiment.microscope.aberrations.items() if key != "C10" and value}
    thickness = format_range(experiment.specimen.thickness_angstrom)
    defocus = format_range(defocus_angstrom(experiment))
    yield f"# {_plain(name)}"
    yield ""
    yield "From 4D-STEM patterns to the projected electron density of a crystalline specimen, in e/Å²."
    yield ""
    yield f"    python -m train reconstruct DATA.h5 --checkpoint {name} --out DENSITY.h5"
    yield ""
    yield from _table(
        ("", "trained for", "`reconstruct` accepts"),
        [
            ("energy", f"{trained.energy_ev / 1e3:g} keV", "± 2 %"),
            ("convergence semiangle", f"{trained.semiangle_mrad:g} mrad", "± 5 %"),
            ("scan step", f"{_pair(trained.scan_step_angstrom)} Å", "up to twice that; resampled"),
            (
                "detector",
                f"{_times(trained.detector_shape)} pixels of {_pair(trained.pixel_mrad)} mrad",
                f"pixels up to twice that; must reach {trained.reach_mrad:g} mrad",
            ),
            ("window", f"{_times(trained.scan_shape)} positions", "any scan, in overlapping windows"),
            ("thickness", f"{thickness} Å", "not checked: not in data files"),
            ("defocus at the entrance, underfocus > 0", f"{defocus} Å", "not checked"),
            ("other aberrations, Å", str(others or "none"), "not checked"),
            ("dose, electrons per pattern", describe_dose(experiment.training.inputs) or "noiseless", "not checked"),
            *(
                (name.replace("_", " "), limits, "not checked")
                for name, limits in describe_imperfections(experiment.training.inputs).items()
            ),
        ],
    )


def _scores(evaluation: Evaluation) -> Iterator[str]:
    """Scores on held-out samples, by thickness."""
    split = evaluation["split"]
    held_out = [row for row in evaluation["samples"] if row["split"] == split]
    materials = len({row["material"] for row in held_out})
    yield f"## Scores on materials that training never saw ({_plain(split)} split, noiseless)"
    yield ""
    yield (
        f"{plural(len(held_out), 'sample')} of {plural(materials, 'material')}, one pass of the network. In brackets: "
        "the mean image of the training samples, which does not depend on the patterns."
    )
    yield ""
    rows: list[tuple[str, int, ComparedScores]] = [
        (f"{row['wanted_thickness_angstrom']:g}", row["samples"], row) for row in evaluation["by_thickness"]
    ]
    rows.append(("all", len(held_out), {**evaluation["mean"], "mean_predictor": evaluation["mean_predictor"]}))
    metrics: tuple[MetricName, ...] = ("ssim", "pearson", "mae", "r_factor")
    yield from _table(
        ("thickness, Å", "samples", "SSIM", "Pearson", "MAE, e/Å²", "R"),
        [
            (thickness, str(count), *(_with_mean_image(scores, metric) for metric in metrics))
            for thickness, count, scores in rows
        ],
    )
    yield ""
    ranked = sorted(((row["ssim"], row) for row in held_out if row["ssim"] is not None), key=lambda pair: pair[0])
    if ranked:
        low, median, high = (ranked[round(part * (len(ranked) - 1))][0] for part in (0.1, 0.5, 0.9))
        yield (
            f"The SSIM is below {low:.3f} for a tenth of the samples, below {median:.3f} for half of them and below "
            f"{high:.3f} for nine tenths."
        )
    yield "The worst samples: " + "; ".join(
        f"{_plain(row['material'])} {html.escape(str(row['zone_axis']))}, {row['thickness_angstrom']:.0f} Å: {ssim:.3f}"
        for ssim, row in ranked[:3]
    )


def _scores_by_dose(facts: CardFacts) -> Iterator[str]:
    """Scores with counting noise."""
    thicknesses = sorted({row["thickness_angstrom"] for row in facts.doses})
    row_of = {(row["electrons"], row["thickness_angstrom"]): row for row in facts.doses}
    samples = sum(row["samples"] for row in facts.doses if row["electrons"] is None)
    yield "## Scores by dose"
    yield ""
    yield (
        f"{plural(samples, 'held-out sample')}, the mean of {_plain(facts.calibration['method'])}, as `reconstruct` "
        "computes it. SSIM, and in brackets MAE in e/Å²."
    )
    yield ""
    yield from _table(
        ("electrons per pattern", *(f"{thickness:g} Å" for thickness in thicknesses)),
        [
            (
                "noiseless" if electrons is None else f"{electrons:g}",
                *(f"{_number(row['ssim'])} ({row['mae']:.2f})" for row in (row_of[electrons, t] for t in thicknesses)),
            )
            for electrons in dict.fromkeys(row["electrons"] for row in facts.doses)
        ],
    )


def _uncertainty(calibration: Calibration) -> Iterator[str]:
    """How the uncertainty was calibrated, and what it covers."""
    yield "## Uncertainty"
    yield ""
    text = (
        f"One standard deviation is {calibration['scale']:.3g} times the spread of {_plain(calibration['method'])}. "
        f"The factor was chosen on {plural(calibration['samples'], 'window')} of the dev split, so that the errors of "
        f"{calibration['coverage_68']:.1%} of the pixels are within one standard deviation; "
        f"{calibration['coverage_95']:.1%} are within two"
    )
    if test := calibration.get("test"):
        text += f". On the test split, the fractions are {test['coverage_68']:.1%} and {test['coverage_95']:.1%}"
    yield text + ". These are means over pixels: the coverage of a single pixel is not known."
    if factor := calibration.get("two_sigma_factor"):
        yield (
            f"Two standard deviations stand for {factor:.3g} times the uncertainty: within that are 95.45% of the "
            "errors of the dev split, which are not Gaussian."
        )
    if groups := calibration.get("groups"):
        yield ""
        yield (
            f"Coverage of the windows of the {_plain(calibration.get('groups_split', 'dev'))} split, as simulated and "
            "with drawn dose and imperfections. “Least” is that of the window with the least."
        )
        yield ""
        yield from _table(
            ("", "", "windows", "one σ", "two σ", "least, one σ"),
            [
                (
                    _plain(row["by"].replace("_", " ")),
                    _plain(row["group"]),
                    str(row["windows"]),
                    *(f"{row[key]:.2f}" for key in ("coverage_68", "coverage_95", "least_68")),
                )
                for row in groups
            ],
        )
    if (flagged := calibration.get("test_flagged")) is not None:
        yield ""
        yield (
            "Windows that do not look like the training data are flagged: 5% of those of the dev split by definition, "
            f"{flagged:.1%} of those of the test split."
        )


def _limits(experiment: Experiment, facts: CardFacts) -> Iterator[str]:
    """Where the network must not be trusted."""
    specimen, microscope = experiment.specimen, experiment.microscope
    drawn = describe_imperfections(experiment.training.inputs) | experiment.varied_quantities()
    effects = (
        ("thermal vibration", specimen.frozen_phonons),
        ("the source size", microscope.source_size_angstrom or "source_size_angstrom" in drawn),
        (
            "the energy spread",
            microscope.focal_spread_angstrom or microscope.chromatic_aberration_mm or "focal_spread_angstrom" in drawn,
        ),
        (
            "the point spread of the detector",
            (experiment.detector and experiment.detector.point_spread_pixels) or "detector_spread_pixels" in drawn,
        ),
        ("inelastic scattering", "background_fraction" in drawn),
        ("drift", "drift_angstrom" in drawn),
    )
    left_out = [effect for effect, simulated in effects if not simulated]
    ssim, mean_image_ssim = facts.evaluation["mean"]["ssim"], facts.evaluation["mean_predictor"]["ssim"]
    yield "## Limits"
    yield ""
    yield "- The network was trained on simulations only. It has not been tried on measured data."
    if left_out:
        yield f"- The training data leave out {', '.join(left_out)} and amorphous layers."
    tilted = any("tilt" in key for key in experiment.varied_quantities())
    if not tilted:
        count = specimen.simplest_zone_axes
        axes = f"one of the {count} simplest of each" if count else _zones(specimen.zone_axes)
        yield f"- Specimen and beam were not tilted: crystals were on a zone axis, {axes}."
    yield "- Training saw perfect, periodic crystals: no defects, surfaces, interfaces or amorphous specimens."
    yield (
        f"- Training saw thicknesses of {', '.join(f'{t:g}' for t in specimen.thickness_angstrom)} Å. Nothing is known "
        "of thicker or much thinner specimens. Data files do not state the thickness, so it is not checked."
    )
    yield (
        f"- The density is band-limited at {experiment.target.max_q_per_angstrom or 'the probe’s limit'} 1/Å and is "
        "that of independent atoms, without bonding and charge transfer."
    )
    if missing := facts.strata["elements_not_in_train"]:
        yield f"- Elements that are held out and not in the training samples: {', '.join(map(_plain, missing))}."
    if ssim is not None and ssim < 0.8:
        yield (
            f"- **The mean SSIM on unseen materials is {ssim:.2f}** (mean image {_number(mean_image_ssim, 2)}): expect "
            "the positions of strong columns rather than exact densities, and consult the uncertainty."
        )


def _data(experiment: Experiment, strata: Strata) -> Iterator[str]:
    """The dataset."""
    separation = {
        "formula": "No formula is in two splits.",
        "prototype": "No formula and no prototype (kind of formula and space group) is in two splits.",
    }
    splits = list(strata["samples"])
    elements = [element for element, counts in strata["elements"].items() if counts["train"]]
    numbers = {name: strata[name] for name in ("samples", "materials", "formulas")}
    yield "## Data"
    yield ""
    yield from _table(
        ("", *map(_plain, splits)),
        [(name, *(str(counts[split]) for split in splits)) for name, counts in numbers.items()],
    )
    yield ""
    yield f"{separation[experiment.split.by]} Crystals: {', '.join(map(_plain, strata['sources']))}."
    yield f"Crystal systems of the training samples: {_counts(strata['crystal_systems'])}."
    yield f"{len(elements)} elements in training: {', '.join(map(_plain, elements))}."
    yield (
        f"Simulated by multislice, {experiment.simulation.form_factors} form factors, slices of "
        f"{experiment.simulation.slice_thickness_angstrom:g} Å; hash of the samples {experiment.samples_hash()}, seed "
        f"{experiment.seed}."
    )


def _training(experiment: Experiment, facts: CardFacts) -> Iterator[str]:
    """The run and the weights."""
    run: RunFacts = facts.evaluation["run"]
    machine = f" of {_plain(run['machine'])}" if run.get("machine") else ""
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
            ("time in steps", duration(facts.training_s)),
            ("on", f"{plural(run['ranks'], 'rank')}, each on {_plain(run['device'])}{machine}"),
            ("versions", ", ".join(f"{_plain(name)} {_plain(number)}" for name, number in run["versions"].items())),
            *_weights(facts.weights),
        ],
    )


def _weights(weights: WeightsFacts) -> Iterator[tuple[str, str]]:
    """Rows about the weights file."""
    yield (
        "weights",
        f"{weights['bytes'] / 1e6:.2f} MB, {weights['dtype']}: compared with float32, the answers change by "
        f"{weights['rms_change']:.2g} e/Å² (rms; at most {weights['largest_change']:.2g}); the rms error is "
        f"{weights['rms_error']:.3g}",
    )
    yield "SHA-256", f"`{weights['sha256']}`"
    yield "digest", f"`{weights['digest']}`, which `reconstruct` writes into its results"


# ---- Pieces ---------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _plain(text: object) -> str:
    """Returns a text in which Markdown and HTML have no meaning, on one line."""
    words = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*|\[\]])", r"\\\1", words)


def _with_mean_image(scores: ComparedScores, metric: MetricName) -> str:
    """A score of the network, and in brackets that of the mean image."""
    digits = DIGITS.get(metric, 3)
    return f"{_number(scores[metric], digits)} ({_number(scores['mean_predictor'][metric], digits)})"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _counts(by_value: Mapping[str, Mapping[str, int]]) -> str:
    """Training samples by value."""
    return ", ".join(f"{_plain(value)} {counts['train']}" for value, counts in by_value.items() if counts["train"])


def _zones(axes: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"[{' '.join(map(str, axis))}]" for axis in axes)


def _pair(values: Sequence[float]) -> str:
    """(y, x), or one number if they are equal."""
    y, x = values
    return f"{y:g}" if y == x else f"{y:g} and {x:g}"


def _times(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
