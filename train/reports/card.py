"""The model card: what a network is for, what it was trained on, how good it is and where its limits are.

Every statement follows from the configuration or from measured facts. Names and words that come from files are written
so that they are neither Markdown nor HTML.
"""

from collections.abc import Iterator, Mapping

from namsa.config.instrument import KINDS
from namsa.dataset.strata import Strata
from namsa.text import duration, plural
from train.experiment.conditions import (
    defocus_angstrom,
    describe_dose,
    describe_imperfections,
    describe_varied,
    format_range,
    thickness_angstrom,
)
from train.experiment.experiment import Experiment
from train.measure.groups import measured, title
from train.measure.results import RunFacts
from train.reports.calibration_results import Calibration
from train.reports.markdown import number, pair, plain, table, times, zones
from train.reports.results import (
    CardFacts,
    ComparedScores,
    Evaluation,
    MetricName,
    SampleRow,
    WeightsFacts,
)
from train.reports.summary import by_condition, sample_conditions, worst_first

WORST = 5  # samples that are listed
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
    thickness = format_range(thickness_angstrom(experiment))
    ranges = describe_varied(experiment) | describe_imperfections(experiment.training.inputs)
    defocus = format_range(defocus_angstrom(experiment))
    yield f"# {plain(name)}"
    yield ""
    yield "From 4D-STEM patterns to the projected electron density of a thin specimen, in e/Å²."
    yield ""
    yield f"    python -m train reconstruct DATA.h5 --checkpoint {name} --out DENSITY.h5"
    yield ""
    yield from table(
        ("", "trained for", "`reconstruct` accepts"),
        [
            ("energy", f"{trained.energy_ev / 1e3:g} keV", "± 2 %"),
            ("convergence semiangle", f"{trained.semiangle_mrad:g} mrad", "± 5 %"),
            ("scan step", f"{pair(trained.scan_step_angstrom)} Å", "up to twice that; resampled"),
            (
                "detector",
                f"{times(trained.detector_shape)} pixels of {pair(trained.pixel_mrad)} mrad",
                f"pixels up to twice that; must reach {trained.reach_mrad:g} mrad",
            ),
            ("window", f"{times(trained.scan_shape)} positions", "any scan, in overlapping windows"),
            ("specimens", _kinds(experiment), "not checked"),
            ("thickness", f"{thickness} Å", "not checked: not in data files"),
            ("defocus at the entrance, underfocus > 0", f"{defocus} Å", "not checked"),
            ("other aberrations, Å", str(others or "none"), "not checked"),
            ("dose, electrons per pattern", describe_dose(experiment.training.inputs) or "noiseless", "not checked"),
            *((title(name), limits, "not checked") for name, limits in ranges.items()),
        ],
    )


def _scores(evaluation: Evaluation) -> Iterator[str]:
    """Scores on held-out samples, by condition, and the worst of them."""
    split, ranked = evaluation["split"], worst_first(evaluation)
    materials = len({row["material"] for row in ranked})
    yield f"## Scores on materials that training never saw ({plain(split)} split, as simulated)"
    yield ""
    yield (
        f"{plural(len(ranked), 'sample')} of {plural(materials, 'material')}, one pass of the network, without "
        "the noise and imperfections that training draws. In brackets: the mean image of the training samples, which "
        "does not depend on the patterns. “Least” is the least SSIM of a sample."
    )
    yield ""
    least = next((row["ssim"] for row in ranked if row["ssim"] is not None), None)
    rows: list[tuple[str, str, int, float | None, ComparedScores]] = [
        (title(row["by"]), row["group"].replace("_", " "), row["samples"], row["least_ssim"], row)
        for row in by_condition(evaluation)
    ]
    rows.append(("", "all", len(ranked), least, {**evaluation["mean"], "mean_predictor": evaluation["mean_predictor"]}))
    metrics: tuple[MetricName, ...] = ("ssim", "pearson", "mae", "r_factor")
    yield from table(
        ("", "", "samples", "SSIM", "least", "Pearson", "MAE, e/Å²", "R"),
        [
            (plain(by), plain(group), str(count), ssim, number(worst), *others)
            for by, group, count, worst, scores in rows
            for ssim, *others in [[_with_mean_image(scores, metric) for metric in metrics]]
        ],
    )
    yield ""
    ssims = [row["ssim"] for row in ranked if row["ssim"] is not None]
    if ssims:
        low, median, high = (ssims[round(part * (len(ssims) - 1))] for part in (0.1, 0.5, 0.9))
        yield (
            f"The SSIM is below {low:.3f} for a tenth of the samples, below {median:.3f} for half of them and below "
            f"{high:.3f} for nine tenths."
        )
        yield ""
    yield "The worst samples:"
    yield ""
    yield from table(("material", "zone axis", "conditions", "SSIM", "R"), map(_worst_row, ranked[:WORST]))


def _worst_row(row: SampleRow) -> tuple[str, ...]:
    """A sample with its conditions."""
    conditions = sample_conditions(row) | {"thickness_angstrom": row["thickness_angstrom"]}
    words = (
        value.replace("_", " ") if isinstance(value, str) else measured(name, f"{value:.3g}")
        for name, value in conditions.items()
    )
    zone_axis = f"[{' '.join(map(str, row['zone_axis']))}]"
    return (
        plain(row["material"]),
        plain(zone_axis),
        plain(", ".join(words)),
        *map(number, (row["ssim"], row["r_factor"])),
    )


def _scores_by_dose(facts: CardFacts) -> Iterator[str]:
    """Scores with counting noise."""
    thicknesses = list(dict.fromkeys(row["thickness_angstrom"] for row in facts.doses))
    row_of = {(row["electrons"], row["thickness_angstrom"]): row for row in facts.doses}
    samples = sum(row["samples"] for row in facts.doses if row["electrons"] is None)
    yield "## Scores by dose"
    yield ""
    yield (
        f"{plural(samples, 'held-out sample')}, the mean of {plain(facts.calibration['method'])}, as `reconstruct` "
        "computes it. SSIM, and in brackets MAE in e/Å²."
    )
    yield ""
    yield from table(
        ("electrons per pattern", *(f"{plain(thickness)} Å" for thickness in thicknesses)),
        [
            (
                "noiseless" if electrons is None else f"{electrons:g}",
                *(f"{number(row['ssim'])} ({row['mae']:.2f})" for row in (row_of[electrons, t] for t in thicknesses)),
            )
            for electrons in dict.fromkeys(row["electrons"] for row in facts.doses)
        ],
    )


def _uncertainty(calibration: Calibration) -> Iterator[str]:
    """How the uncertainty was calibrated, and what it covers."""
    yield "## Uncertainty"
    yield ""
    text = (
        f"One standard deviation is {calibration['scale']:.3g} times the spread of {plain(calibration['method'])}. "
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
            f"SSIM and coverage of the windows of the {plain(calibration.get('groups_split', 'dev'))} split, as "
            "simulated and with drawn dose and imperfections. “Least” is that of the window with the least."
        )
        yield ""
        yield from table(
            ("", "", "windows", "SSIM", "least SSIM", "one σ", "two σ", "least, one σ"),
            [
                (
                    plain(title(row["by"])),
                    plain(row["group"].replace("_", " ")),
                    str(row["windows"]),
                    number(row.get("ssim")),
                    number(row.get("least_ssim")),
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
        ("thermal vibration", _vibrates(experiment)),
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
    count = specimen.simplest_zone_axes
    axes = f"one of the {count} simplest of each" if count else zones(specimen.zone_axes)
    tilts = [measured(name, limits) for name, limits in describe_varied(experiment).items() if "tilt" in name]
    listed = experiment.varied_quantities().get("thickness_angstrom") is None and len(specimen.thickness_angstrom) > 1
    thicknesses = (
        ", ".join(f"{t:g}" for t in specimen.thickness_angstrom)
        if listed
        else format_range(thickness_angstrom(experiment))
    )
    unlearnt = [kind.replace("_", " ") for kind in KINDS if kind not in _shares(experiment)]
    yield "## Limits"
    yield ""
    yield "- The network was trained on simulations only. It has not been tried on measured data."
    if left_out:
        yield f"- The training data leave out {', '.join(left_out)}."
    if tilts:
        yield f"- Crystals were near a zone axis, {axes}: {', '.join(tilts)}."
    else:
        yield f"- Specimen and beam were not tilted: crystals were on a zone axis, {axes}."
    if list(_shares(experiment)) == ["crystal"]:
        yield "- Training saw perfect, periodic crystals: no defects, surfaces, interfaces or amorphous specimens."
    elif unlearnt:
        yield f"- Kinds of specimens that training did not see: {', '.join(unlearnt)}."
    yield (
        f"- Training saw thicknesses of {thicknesses} Å. Nothing is known of thicker or much thinner specimens. Data "
        "files do not state the thickness, so it is not checked."
    )
    yield (
        f"- The density is band-limited at {experiment.target.max_q_per_angstrom or 'the probe’s limit'} 1/Å and is "
        "that of independent atoms, without bonding and charge transfer."
    )
    if missing := facts.strata["elements_not_in_train"]:
        yield f"- Elements that are held out and not in the training samples: {', '.join(map(plain, missing))}."
    if ssim is not None and ssim < 0.8:
        yield (
            f"- **The mean SSIM on unseen materials is {ssim:.2f}** (mean image {number(mean_image_ssim, 2)}): expect "
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
    yield from table(
        ("", *map(plain, splits)),
        [(name, *(str(counts[split]) for split in splits)) for name, counts in numbers.items()],
    )
    yield ""
    yield f"{separation[experiment.split.by]} Crystals: {', '.join(map(plain, strata['sources']))}."
    yield f"Crystal systems of the training samples: {_counts(strata['crystal_systems'])}."
    if "kinds" in strata:
        yield f"Kinds of the training samples: {_counts(strata['kinds'])}."
    yield f"{len(elements)} elements in training: {', '.join(map(plain, elements))}."
    yield (
        f"Simulated by multislice, {experiment.simulation.form_factors} form factors, slices of "
        f"{experiment.simulation.slice_thickness_angstrom:g} Å; hash of the samples {experiment.samples_hash()}, seed "
        f"{experiment.seed}."
    )


def _training(experiment: Experiment, facts: CardFacts) -> Iterator[str]:
    """The run and the weights."""
    run: RunFacts = facts.evaluation["run"]
    machine = f" of {plain(run['machine'])}" if run.get("machine") else ""
    yield "## Training"
    yield ""
    yield from table(
        ("", ""),
        [
            (
                "network",
                f"FC-DenseNet, {run['parameters']:,} parameters, {experiment.training.inputs.channel_summary()}",
            ),
            ("trained", f"{run['epochs']} epochs, {run['steps']:,} steps, {run['training_samples']:,} samples"),
            ("started from", plain(experiment.training.start_from or "random weights")),
            ("time in steps", duration(facts.training_s)),
            ("on", f"{plural(run['ranks'], 'rank')}, each on {plain(run['device'])}{machine}"),
            ("versions", ", ".join(f"{plain(name)} {plain(number)}" for name, number in run["versions"].items())),
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


def _shares(experiment: Experiment) -> Mapping[str, float]:
    """The shares of the kinds of specimens."""
    return {kind: share for kind, share in (experiment.specimen.kinds or {"crystal": 1.0}).items() if share}


def _kinds(experiment: Experiment) -> str:
    """The kinds of specimens that were trained for, with their shares."""
    shares = _shares(experiment)
    parts = (f"{kind.replace('_', ' ')} {share / sum(shares.values()):.0%}" for kind, share in shares.items())
    return ", ".join(parts) if len(shares) > 1 else "crystals, perfect and periodic"


def _vibrates(experiment: Experiment) -> bool:
    """Whether atoms were displaced by a temperature."""
    phonons, varied = experiment.specimen.frozen_phonons, experiment.varied_quantities()
    still = phonons is None or not (phonons.rms_angstrom or phonons.b_factor_angstrom2)
    return not still or "rms_displacement_angstrom" in varied


def _with_mean_image(scores: ComparedScores, metric: MetricName) -> str:
    """A score of the network, and in brackets that of the mean image."""
    digits = DIGITS.get(metric, 3)
    return f"{number(scores[metric], digits)} ({number(scores['mean_predictor'][metric], digits)})"


def _counts(by_value: Mapping[str, Mapping[str, int]]) -> str:
    """Training samples by value."""
    return ", ".join(f"{plain(value)} {counts['train']}" for value, counts in by_value.items() if counts["train"])
