"""The model card of a density: what a network is for, what it was trained on, how good it is and where its limits are.

Every statement follows from the configuration or from measured facts. Names and words that come from files are written
so that they are neither Markdown nor HTML.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np

from namsa.arrays import Array
from namsa.dataset.entry import Entry
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset
from namsa.pixels import raster_shape
from namsa.text import plural

from ...apply import familiarity
from ...apply.aberrations import MEASURED
from ...apply.card import CardFacts, OnSample, Packed, Rounding, TaskCard
from ...apply.ensemble import Predict
from ...apply.models import Model, load_model
from ...experiment.conditions import has_films_alone
from ...experiment.experiment import Experiment
from ...input import noise
from ...input.windows import middle
from ...measure.groups import group_labels, title
from ...measure.groups import measured as measured_fact
from ...measure.metrics import image_metrics, mean_metrics
from ...reports.calibration_results import Calibration, read_calibration
from ...reports.card_sections import Usage, undrawn
from ...reports.markdown import number, plain, section, table
from .calibrate import trained_ensemble
from .results import ComparedScores, DoseRow, Evaluation, MetricName, SampleRow
from .summary import by_condition, sample_conditions, worst_first

WORST = 5  # samples that are listed
DOSES = (None, 1e5, 1e4, 1e3)  # electrons per pattern
DIGITS = {"mae": 2}  # of scores; 3 for the others


class Measured(NamedTuple):
    """What is measured of a packed density, beside its evaluation."""

    calibration: Calibration  # calibration of the uncertainty
    doses: list[DoseRow]  # one row per dose and thickness


# ---- Sections -------------------------------------------------------------------------------------------------------


def _scores(evaluation: Evaluation, experiment: Experiment) -> Iterator[str]:
    """Scores on held-out samples, by condition, and the worst of them."""
    split, ranked = evaluation["split"], worst_first(evaluation)
    materials = len({row["material"] for row in ranked})
    least = next((row["ssim"] for row in ranked if row["ssim"] is not None), None)
    rows: list[tuple[str, str, int, float | None, ComparedScores]] = [
        (title(row["by"]), row["group"].replace("_", " "), row["samples"], row["least_ssim"], row)
        for row in by_condition(evaluation)
    ]
    rows.append(("", "all", len(ranked), least, {**evaluation["mean"], "mean_predictor": evaluation["mean_predictor"]}))
    metrics: tuple[MetricName, ...] = ("ssim", "pearson", "mae", "r_factor")
    cells = [
        (plain(by), plain(group), str(count), ssim, number(worst), *others)
        for by, group, count, worst, scores in rows
        for ssim, *others in [[_with_mean_image(scores, metric) for metric in metrics]]
    ]
    quantiles: list[str] = []
    if ssims := [row["ssim"] for row in ranked if row["ssim"] is not None]:
        low, median, high = (ssims[round(part * (len(ssims) - 1))] for part in (0.1, 0.5, 0.9))
        quantiles = [
            f"The SSIM is below {low:.3f} for a tenth of the samples, below {median:.3f} for half of them and below "
            f"{high:.3f} for nine tenths."
        ]
    return section(
        f"Scores on materials that training never saw ({plain(split)} split, as simulated)",
        f"{plural(len(ranked), 'sample')} of {plural(materials, 'material')}, one pass of the network"
        f"{undrawn(experiment)}. In brackets: the mean image of the training samples, which does not depend on the "
        "patterns. “Least” is the least SSIM of a sample.",
        table(("", "", "samples", "SSIM", "least", "Pearson", "MAE, e/Å²", "R"), cells),
        *quantiles,
        "The worst samples:",
        table(("material", "zone axis", "conditions", "SSIM", "R"), map(_worst_row, ranked[:WORST])),
    )


def _worst_row(row: SampleRow) -> tuple[str, ...]:
    """A sample with its conditions."""
    conditions = sample_conditions(row) | {"thickness_angstrom": row["thickness_angstrom"]}
    words = (
        value.replace("_", " ") if isinstance(value, str) else measured_fact(name, f"{value:.3g}")
        for name, value in conditions.items()
    )
    zone_axis = f"[{' '.join(map(str, row['zone_axis']))}]"
    return (
        plain(row["material"]),
        plain(zone_axis),
        plain(", ".join(words)),
        *map(number, (row["ssim"], row["r_factor"])),
    )


def _scores_by_dose(measured: Measured, experiment: Experiment) -> Iterator[str]:
    """Scores with counting noise."""
    thicknesses = list(dict.fromkeys(row["thickness_angstrom"] for row in measured.doses))
    row_of = {(row["electrons"], row["thickness_angstrom"]): row for row in measured.doses}
    titles = ["films"] if has_films_alone(experiment) else [f"{plain(thickness)} Å" for thickness in thicknesses]
    samples = sum(row["samples"] for row in measured.doses if row["electrons"] is None)
    rows = [
        (
            "noiseless" if electrons is None else f"{electrons:g}",
            *(f"{number(row['ssim'])} ({row['mae']:.2f})" for row in (row_of[electrons, t] for t in thicknesses)),
        )
        for electrons in dict.fromkeys(row["electrons"] for row in measured.doses)
    ]
    return section(
        "Scores by dose",
        f"{plural(samples, 'held-out sample')}, the mean of {plain(measured.calibration['method'])}, as `reconstruct` "
        "computes it. SSIM, and in brackets MAE in e/Å².",
        table(("electrons per pattern", *titles), rows),
    )


def _random_conditions(calibration: Calibration) -> Iterator[str]:
    """Scores and coverage of windows, with what training draws and without."""
    groups = calibration.get("groups", [])
    if not groups:
        return
    ssims = {"ssim": "SSIM", "tenth_ssim": "tenth", "least_ssim": "least"}
    ssims = {key: words for key, words in ssims.items() if any(key in row for row in groups)}
    rows = [
        (
            plain(title(row["by"])),
            plain(row["group"].replace("_", " ")),
            str(row["windows"]),
            *(number(cast(Mapping[str, float], row).get(key)) for key in ssims),
            *(f"{row[key]:.2f}" for key in ("coverage_68", "coverage_95", "least_68")),
        )
        for row in sorted(groups, key=lambda row: row["by"] != "window")
    ]
    explained = (
        "Windows of materials that training never saw, the mean of the symmetries, as `reconstruct` computes it. “As "
        "in training” has the drawn dose and imperfections, “as simulated” neither. Rows of dose and imperfections "
        "have the former windows, all others both.",
        "“Tenth” is the SSIM that a tenth of the windows are below." if "tenth_ssim" in ssims else "",
        "“Least” is that of one window. σ is the stated uncertainty: one should cover 0.68 of the errors, two 0.95.",
    )
    yield from section(
        f"Scores under random conditions ({plain(calibration.get('groups_split', 'dev'))} "
        f"split{_of_dataset(calibration)})",
        " ".join(filter(None, explained)),
        table(("", "", "windows", *ssims.values(), "one σ", "two σ", "least, one σ"), rows),
    )


def _uncertainty(calibration: Calibration) -> Iterator[str]:
    """How the uncertainty was calibrated, and what it covers."""
    yield "## Uncertainty"
    yield ""
    two = calibration.get("two_sigma_factor")
    text = (
        f"One standard deviation is {calibration['scale']:.3g} times the spread of {plain(calibration['method'])}. "
        f"The factor was chosen on {plural(calibration['samples'], 'window')} of the dev "
        f"split{_of_dataset(calibration)}, so that the errors of {calibration['coverage_68']:.1%} of the pixels "
        f"are within one standard deviation; {calibration['coverage_95']:.1%} are within "
        f"{f'{two:.3g} of them, which “two σ” stands for, since the errors are not Gaussian' if two else 'two'}"
    )
    if test := calibration.get("test"):
        text += f". On the test split, the fractions are {test['coverage_68']:.1%} and {test['coverage_95']:.1%}"
    yield text + ". These are means over pixels: the coverage of a single pixel is not known."
    if windows := calibration.get("windows_68"):
        yield "In two of three windows, between {:.0%} and {:.0%} of the errors are within one.".format(*windows)
    if (flagged := calibration.get("test_flagged")) is not None:
        yield ""
        yield (
            "Windows that do not look like the training data are flagged: 5% of those of the dev split by definition, "
            f"{flagged:.1%} of those of the test split."
        )
    if wrong := calibration.get("wrong_windows"):
        yield (
            f"Of {wrong['windows']} windows of the test split {wrong['wrong']} have a mean error above half of their "
            f"contrast. The stated error over the contrast tells these from the others with an AUROC of "
            f"{wrong['auroc_contrast']:.3f}, and the distance of familiarity with {wrong['auroc_familiarity']:.3f}."
        )
    if outside := calibration.get("outside"):
        yield (
            f"Of {outside['windows_outside']} windows of the test split with one aberration, tilt, imperfection or "
            f"dose beyond its range, {outside['flagged_outside']:.1%} are flagged. The area under the curve (AUROC) "
            f"between these windows and those within all ranges is {outside['auroc']:.3f}; it would be "
            f"{outside['auroc_alike']:.3f} if all features counted alike."
        )


def _of_dataset(calibration: Calibration) -> str:
    """Names the dataset of a calibration, if it is not the run's: the end of a phrase."""
    return f" of {plain(calibration['data'])}, not of the run's samples" if "data" in calibration else ""


def _limits(experiment: Experiment, evaluation: Evaluation, calibration: Calibration) -> Iterator[str]:
    """Where the network must not be trusted."""
    flagged = f"{outside['flagged_outside']:.0%}" if (outside := calibration.get("outside")) else "an unknown share"
    yield (
        f"- Of windows with one quantity beyond its range, familiarity flags {flagged}: a scan that it does not flag "
        "may be outside."
    )
    ssim, mean_image_ssim = evaluation["mean"]["ssim"], evaluation["mean_predictor"]["ssim"]
    yield (
        f"- The density is band-limited at {experiment.target.max_q_per_angstrom or 'the probe’s limit'} 1/Å and is "
        "that of independent atoms, without bonding and charge transfer."
    )
    if by_depth := evaluation.get("by_depth"):
        yield (
            f"- It is also given in {by_depth['bins']} equal bins along the beam, with an R of "
            f"{number(by_depth['network']['r_factor'], 3)} where equal parts of the true projected density have "
            f"{number(by_depth['true_projected']['r_factor'], 3)}; all other scores are those of the sum."
        )
    if ssim is not None and ssim < 0.8:
        yield (
            f"- **The mean SSIM on unseen materials is {ssim:.2f}** (mean image {number(mean_image_ssim, 2)}): expect "
            "the positions of strong columns rather than exact densities, and consult the uncertainty."
        )


def _with_mean_image(scores: ComparedScores, metric: MetricName) -> str:
    """A score of the network, and in brackets that of the mean image."""
    digits = DIGITS.get(metric, 3)
    return f"{number(scores[metric], digits)} ({number(scores['mean_predictor'][metric], digits)})"


# ---- The card, and what is measured for it ---------------------------------------------------------------------------


class DensityCard(TaskCard):
    """The card of a density. It states the evaluation and the calibration of the run, whose newest weights it packs."""

    copied = ("calibration.json", "transfer.json", familiarity.FILE)

    def usage(self, experiment: Experiment) -> Usage:
        answer = "From 4D-STEM patterns to the projected electron density of a thin specimen, in e/Å²."
        checks = {"thickness_angstrom": "not in data files; `--pacbed` fits it"}
        if experiment.training.inputs.layout == "scan":
            checks |= dict.fromkeys(sorted(MEASURED), "measured from the patterns")
        return Usage(answer, "reconstruct", "DENSITY.h5", checks=checks, other_checks="by familiarity, all together")

    def sections(self, facts: CardFacts) -> Iterable[Iterable[str]]:
        calibration, experiment = facts.measured.calibration, facts.experiment
        return (
            _random_conditions(calibration),
            _scores(cast(Evaluation, facts.evaluation), experiment),
            _scores_by_dose(facts.measured, experiment),
            _uncertainty(calibration),
        )

    def limits(self, facts: CardFacts) -> Iterator[str]:
        return _limits(facts.experiment, cast(Evaluation, facts.evaluation), facts.measured.calibration)

    def answers(self, model: Model, dataset: Dataset, entries: Sequence[Entry]) -> Array:
        """Returns the errors of the mean predictions, `(n, h, w)`, e/Å²."""
        records = _windows(model, dataset, entries)
        truth = np.stack([record.density for record in records]).astype(np.float64)
        return np.asarray(mean_predictions(trained_ensemble(model).predict, records) - truth)

    def rounding(self, before: Array, after: Array, evaluation: Mapping[str, Any]) -> Rounding:
        change, error = (float(np.sqrt(np.mean(values**2))) for values in (after - before, before))
        words = (
            f"the answers change by {change:.2g} e/Å² (rms; at most {float(np.abs(after - before).max()):.2g}); the "
            f"rms error is {error:.3g}"
        )
        return Rounding(change, error, words)

    def evaluate(self, packed: Packed) -> Mapping[str, Any]:
        return packed.evaluation

    def measure(self, packed: Packed, on_sample: OnSample) -> Measured:
        calibration = read_calibration(packed.model.folder / "calibration.json")
        return Measured(calibration, list(_measure_doses(load_model(packed.model.folder), packed, on_sample)))


def _windows(model: Model, dataset: Dataset, entries: Sequence[Entry]) -> list[Record]:
    """Returns the middle windows of samples."""
    return [middle(dataset.read(entry.id), model.conditions.scan_shape) for entry in entries]


def _measure_doses(model: Model, packed: Packed, on_sample: OnSample) -> Iterator[DoseRow]:
    """Yields the mean scores of the predictions, one row per dose and thickness, or range of thicknesses."""
    predict, huber_delta = trained_ensemble(model).predict, model.experiment.training.loss.huber_delta
    chosen = _windows(model, packed.dataset, packed.compared)
    doses = DOSES[:1] if noise.describe_dose(chosen[0].header["provenance"]) else DOSES
    labels = group_labels([entry.thickness_angstrom for entry in packed.compared])
    for done, (dose, label) in enumerate(product(doses, dict.fromkeys(labels)), start=1):
        records = [record for record, other in zip(chosen, labels, strict=True) if other == label]
        rows = [
            image_metrics(density, record.density, huber_delta=huber_delta)
            for density, record in zip(mean_predictions(predict, records, dose), records, strict=True)
        ]
        row = {"electrons": dose, "thickness_angstrom": label, "samples": len(rows)} | mean_metrics(rows)
        yield cast(DoseRow, row)
        on_sample(done, len(doses) * len(set(labels)))


def mean_predictions(predict: Predict, records: Sequence[Record], dose: float | None = None) -> Array:
    """Returns the mean prediction for each sample, `(n, h, w)`, e/Å², with the noise of a dose per pattern."""
    densities = []
    for index, record in enumerate(records):
        scale = record.header["arrays"]["cbed"]["scale"]
        patterns = noise.count_electrons(record.cbed, scale, dose, index, 0) if dose else record.patterns()
        scan = raster_shape(record.header["provenance"], len(record.cbed))
        window = patterns.reshape(1, *scan, *record.cbed.shape[1:])
        densities.append(predict(window).density[:, 0].mean(axis=0, dtype=np.float64))
    return np.stack(densities)


CARD = DensityCard()
