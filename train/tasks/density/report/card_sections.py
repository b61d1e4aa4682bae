"""The sections of a density's model card: its scores, their uncertainty, and its limits.

Every statement follows from the configuration or from measured facts.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from namsa.base.text import plural
from namsa.figures.document import DocumentSection, Paragraph, Table, Text, code, strong

from ....experiment.conditions import has_films_alone
from ....experiment.experiment import Experiment
from ....measure.groups import measured, title
from ....reports.calibration_results import UncertaintyCalibration
from ....reports.card_sections import undrawn
from ....reports.held_out import unseen
from ....reports.words import fixed, zones
from ..results import ComparedScores, DoseRow, Evaluation, MetricName, SampleRow
from .summary import by_condition, sample_conditions, worst_first

WORST = 5  # samples that are listed
DECIMALS = {"mae": 2}  # of scores; 3 for the others


def scores(evaluation: Evaluation, experiment: Experiment) -> DocumentSection:
    """Returns the scores on held-out samples, by condition, and the worst of them."""
    ranked = worst_first(evaluation)
    materials = {row["material"] for row in ranked}
    ssims = [row["ssim"] for row in ranked if row["ssim"] is not None]
    text = (
        f"{plural(len(ranked), 'sample')} of {plural(len(materials), 'material')}, one pass of the "
        f"network{undrawn(experiment)}. In brackets: the mean image of the training samples, which "
        "does not depend on the patterns. “Least” is the least SSIM of a sample."
    )
    head = ("", "", "samples", "SSIM", "least", "Pearson", "MAE, e/Å²", "R")
    rows = _rows_by_condition(evaluation)
    least_ssim = ssims[0] if ssims else None
    rows.append(["", "all", str(len(ranked)), *_score_cells(_means(evaluation), least_ssim)])
    worst = [_worst_row(row) for row in ranked[:WORST]]
    split = evaluation["split"]
    return DocumentSection(
        f"Scores on materials {unseen(evaluation['run'])} ({split} split, as simulated)",
        (
            Paragraph(text),
            Table(head, rows, text_columns=2),
            *_quantiles(ssims),
            Paragraph("The worst samples:"),
            Table(("material", "zone axis", "conditions", "SSIM", "R"), worst, text_columns=3),
        ),
    )


def _rows_by_condition(evaluation: Evaluation) -> list[list[str]]:
    """Returns the mean scores of the samples of each condition as rows."""
    rows = []
    for condition in by_condition(evaluation):
        heading = [
            title(condition["by"]),
            condition["group"].replace("_", " "),
            str(condition["samples"]),
        ]
        rows.append(heading + _score_cells(condition, condition["least_ssim"]))
    return rows


def _means(evaluation: Evaluation) -> ComparedScores:
    """Returns the mean scores of all samples beside those of the mean image."""
    return {**evaluation["mean"], "mean_predictor": evaluation["mean_predictor"]}


def _score_cells(scores: ComparedScores, least_ssim: float | None) -> list[str]:
    """Returns the scores of a group of samples as cells."""
    return [
        _with_mean_image(scores, "ssim"),
        fixed(least_ssim),
        _with_mean_image(scores, "pearson"),
        _with_mean_image(scores, "mae"),
        _with_mean_image(scores, "r_factor"),
    ]


def _with_mean_image(scores: ComparedScores, metric: MetricName) -> str:
    """Returns a score of the network, and in brackets that of the mean image."""
    decimals = DECIMALS.get(metric, 3)
    network = fixed(scores[metric], decimals)
    mean_image = fixed(scores["mean_predictor"][metric], decimals)
    return f"{network} ({mean_image})"


def _quantiles(ssims: Sequence[float]) -> list[Paragraph]:
    """Returns a line about the distribution of the SSIM, the least first; none without samples."""
    if not ssims:
        return []
    last = len(ssims) - 1
    low = ssims[round(0.1 * last)]
    median = ssims[round(0.5 * last)]
    high = ssims[round(0.9 * last)]
    text = (
        f"The SSIM is below {low:.3f} for a tenth of the samples, below {median:.3f} for half of "
        f"them and below {high:.3f} for nine tenths."
    )
    return [Paragraph(text)]


def _worst_row(row: SampleRow) -> list[str]:
    """Returns a sample with its conditions."""
    conditions = sample_conditions(row) | {"thickness_angstrom": row["thickness_angstrom"]}
    words = []
    for name, value in conditions.items():
        if isinstance(value, str):
            words.append(value.replace("_", " "))
        else:
            words.append(measured(name, f"{value:.3g}"))
    return [
        row["material"],
        zones([row["zone_axis"]]),
        ", ".join(words),
        fixed(row["ssim"]),
        fixed(row["r_factor"]),
    ]


def scores_by_dose(
    doses: Sequence[DoseRow], calibration: UncertaintyCalibration, experiment: Experiment
) -> DocumentSection:
    """Returns the scores with counting noise, one row per dose."""
    samples = 0
    thicknesses = []
    cells_of: dict[float | None, list[str]] = {}  # by dose, in the order of thicknesses
    for row in doses:
        electrons = row["electrons"]
        if electrons is None:
            samples += row["samples"]
        if row["thickness_angstrom"] not in thicknesses:
            thicknesses.append(row["thickness_angstrom"])
        if electrons not in cells_of:
            cells_of[electrons] = ["noiseless" if electrons is None else f"{electrons:g}"]
        cells_of[electrons].append(f"{fixed(row['ssim'])} ({row['mae']:.2f})")
    if has_films_alone(experiment):
        titles = ["films"]
    else:
        titles = [f"{thickness} Å" for thickness in thicknesses]
    text = (
        f"{plural(samples, 'held-out sample')}, the mean of {calibration['method']}, as ",
        code("reconstruct"),
        " computes it. SSIM, and in brackets MAE in e/Å².",
    )
    rows = list(cells_of.values())
    table = Table(("electrons per pattern", *titles), rows, text_columns=1)
    return DocumentSection("Scores by dose", (Paragraph(text), table))


def random_conditions(calibration: UncertaintyCalibration) -> list[DocumentSection]:
    """Returns scores and coverage of windows, with what training draws and without.

    There is no section for calibrations of earlier versions, which have no groups of windows.
    """
    groups = calibration.get("groups", [])
    if not groups:
        return []
    heads = {}
    for key, words in (("ssim", "SSIM"), ("tenth_ssim", "tenth"), ("least_ssim", "least")):
        if any(key in group for group in groups):
            heads[key] = words
    rows = []
    for group in sorted(groups, key=lambda group: group["by"] != "window"):
        values = cast(Mapping[str, float], group)
        cells = [title(group["by"]), group["group"].replace("_", " "), str(group["windows"])]
        for key in heads:
            cells.append(fixed(values.get(key)))
        for key in ("coverage_68", "coverage_95", "least_68"):
            cells.append(f"{values[key]:.2f}")
        rows.append(cells)
    text: list[Text] = [
        "Windows of held-out materials, the mean of the symmetries, as ",
        code("reconstruct"),
        " computes it. “As in training” has the drawn dose and imperfections, “as simulated” "
        "neither. Rows of dose and imperfections have the former windows, all others both. ",
    ]
    if "tenth_ssim" in heads:
        text.append("“Tenth” is the SSIM that a tenth of the windows are below. ")
    text.append(
        "“Least” is that of one window. σ is the stated uncertainty: one should cover 0.68 of the "
        "errors, two 0.95."
    )
    split = f"{calibration.get('groups_split', 'dev')} split{_of_dataset(calibration)}"
    head = ("", "", "windows", *heads.values(), "one σ", "two σ", "least, one σ")
    table = Table(head, rows, text_columns=2)
    return [DocumentSection(f"Scores under random conditions ({split})", (Paragraph(text), table))]


def uncertainty(calibration: UncertaintyCalibration) -> DocumentSection:
    """Returns how the uncertainty was calibrated, and what it covers."""
    paragraphs = [_coverage(calibration)]
    flags = _flags(calibration)
    if flags:
        paragraphs.append(flags)
    blocks = [Paragraph(" ".join(sentences)) for sentences in paragraphs]
    return DocumentSection("Uncertainty", blocks)


def _coverage(calibration: UncertaintyCalibration) -> list[str]:
    """Returns sentences about the calibrated uncertainty and its coverage."""
    two_sigma = "two"
    if factor := calibration.get("two_sigma_factor"):
        two_sigma = (
            f"{factor:.3g} of them, which “two σ” stands for, since the errors are not Gaussian"
        )
    text = (
        f"One standard deviation is {calibration['scale']:.3g} times the spread of "
        f"{calibration['method']}. The factor was chosen on "
        f"{plural(calibration['samples'], 'window')} of the dev split{_of_dataset(calibration)}, "
        f"so that the errors of {calibration['coverage_68']:.1%} of the pixels are within one "
        f"standard deviation; {calibration['coverage_95']:.1%} are within "
        f"{two_sigma}"
    )
    if test := calibration.get("test"):
        text += (
            f". On the test split, the fractions are {test['coverage_68']:.1%} and "
            f"{test['coverage_95']:.1%}"
        )
    sentences = [
        f"{text}. These are means over pixels: the coverage of a single pixel is not known."
    ]
    if windows := calibration.get("windows_68"):
        low, high = windows
        sentences.append(
            f"In two of three windows, between {low:.0%} and {high:.0%} of the errors are within "
            "one."
        )
    return sentences


def _flags(calibration: UncertaintyCalibration) -> list[str]:
    """Returns sentences about windows that are flagged, or should be."""
    sentences = []
    flagged = calibration.get("test_flagged")
    if flagged is not None:
        sentences.append(
            "Windows that do not look like the training data are flagged: 5% of those of the dev "
            f"split by definition, {flagged:.1%} of those of the test split."
        )
    if wrong := calibration.get("wrong_windows"):
        sentences.append(
            f"Of {wrong['windows']} windows of the test split {wrong['wrong']} have a mean error "
            "above half of their contrast. The stated error over the contrast tells these from "
            f"the others with an AUROC of {wrong['auroc_contrast']:.3f}, and the distance of "
            f"familiarity with {wrong['auroc_familiarity']:.3f}."
        )
    if outside := calibration.get("outside"):
        sentences.append(
            f"Of {outside['windows_outside']} windows of the test split with one aberration, tilt, "
            f"imperfection or dose beyond its range, {outside['flagged_outside']:.1%} are flagged. "
            "The area under the curve (AUROC) between these windows and those within all ranges "
            f"is {outside['auroc']:.3f}; it would be {outside['auroc_alike']:.3f} if all features "
            "counted alike."
        )
    return sentences


def _of_dataset(calibration: UncertaintyCalibration) -> str:
    """Returns the dataset of a calibration, if it is not the run's: the end of a phrase."""
    if "data" in calibration:
        return f" of {calibration['data']}, not of the run's samples"
    return ""


def limits(
    experiment: Experiment, evaluation: Evaluation, calibration: UncertaintyCalibration
) -> list[Text]:
    """Returns where the network must not be trusted."""
    flagged = "an unknown share"
    if outside := calibration.get("outside"):
        flagged = f"{outside['flagged_outside']:.0%}"
    ssim = evaluation["mean"]["ssim"]
    mean_image_ssim = evaluation["mean_predictor"]["ssim"]
    items: list[Text] = [
        f"Of windows with one quantity beyond its range, familiarity flags {flagged}: a scan "
        "that it does not flag may be outside.",
        "The density is band-limited at "
        f"{experiment.target.max_q_per_angstrom or 'the probe’s limit'} 1/Å and is that of "
        "independent atoms, without bonding and charge transfer.",
    ]
    if by_depth := evaluation.get("by_depth"):
        items.append(
            f"It is also given in {by_depth['bins']} equal bins along the beam, with an R of "
            f"{fixed(by_depth['network']['r_factor'])} where equal parts of the true projected "
            f"density have {fixed(by_depth['true_projected']['r_factor'])}; all other scores "
            "are those of the sum."
        )
    if ssim is not None and ssim < 0.8:
        items.append(
            (
                strong(f"The mean SSIM on held-out materials is {ssim:.2f}"),
                f" (mean image {fixed(mean_image_ssim, 2)}): expect the positions of strong "
                "columns rather than exact densities, and consult the uncertainty.",
            )
        )
    return items
