"""The results of the task density on the terminal and in the report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from rich.console import Group
from rich.table import Table as TerminalTable

from namsa.base.arrays import Array
from namsa.dataset.entry import UNKNOWN
from namsa.figures.document import (
    Block,
    DocumentSection,
    Fold,
    Note,
    Paragraph,
    Picture,
    Table,
    Text,
    note,
    strong,
    wide,
)

from ....measure.groups import title
from ....reports.figures import data_uri
from ....reports.held_out import unseen
from ....reports.report import ResultPart, read_if_there
from ....reports.words import count, number
from ...reporting import with_places
from ..results import ConditionRow, Evaluation, SampleRow, quantity_of, read_evaluation
from . import depth_section, summary
from .figures import sample_figure
from .pictures import SamplePicture, read_predictions
from .score_tables import (
    HUBER,
    MAE,
    PEARSON,
    PSNR,
    R_FACTOR,
    SSIM,
    Metric,
    compared,
    compared_head,
    conditions_text,
    in_unit,
    ratio_or_difference,
    space_group,
    zone_axis,
)
from .summary import sample_conditions, worst_first

KIND = "Electron density from 4D-STEM: reconstruction report"
WORST_ROWS = 10  # of the table of the worst samples


def terminal(evaluation: Evaluation) -> TerminalTable:
    """Returns the mean scores of the network beside those of the mean image, and the sustained
    FLOP/s.
    """
    performance = evaluation["run"].get("performance")
    caption = ""
    if performance and "wall_s" in performance:
        rate = performance["sustained_flop_per_s"]
        steps = performance["wall_s"]["steps"]
        caption = (
            f"convolutions: sustained {rate:.3g} FLOP/s over {steps} steps, with reading and "
            "checkpoints\n"
        )
    table = TerminalTable(
        title=f"Held-out materials ({evaluation['split'] or 'none'})", caption=caption
    )
    for heading in ("", "network", "mean image"):
        table.add_column(heading, justify="right")
    baseline = cast("dict[str, float | None]", evaluation["mean_predictor"])
    for name, score in cast("dict[str, float | None]", evaluation["mean"]).items():
        table.add_row(name, number(score, ".4g"), number(baseline[name], ".4g"))
    if by_depth := evaluation.get("by_depth"):
        network = number(by_depth["network"]["r_factor"], ".4g")
        mean_image = number(by_depth["mean_predictor"]["r_factor"], ".4g")
        true_projected = number(by_depth["true_projected"]["r_factor"], ".4g")
        own_projected = number(by_depth["own_projected"]["r_factor"], ".4g")
        table.add_row("by depth: r_factor", network, mean_image)
        table.add_row("true projected / n", true_projected, "")
        table.add_row("own projected / n", own_projected, "")
    return table


NO_SAMPLE = Note("No held-out sample has been evaluated.")


def _part(run_dir: Path) -> ResultPart:
    """Returns the part of the report: scores beside those of the mean image, and pictures."""
    evaluation = read_if_there(run_dir / "evaluation.json", read_evaluation)
    predictions = read_if_there(run_dir / "predictions.npz", read_predictions)
    bins = read_if_there(run_dir / depth_section.FILE_NAME, depth_section.read_bins)
    run = None
    if evaluation:
        run = evaluation["run"]
    evaluated = None  # the evaluation, if there are samples in it
    if evaluation and evaluation["samples"]:
        evaluated = evaluation
    pictures: Sequence[SamplePicture] = ()
    shown: Sequence[Block] = (Note("No pictures: predictions.npz is missing."),)
    if predictions:
        pictures, mean_image = predictions
        shown = reconstructions(pictures, mean_image, evaluated)
    results: list[Block]
    if evaluated is None:
        results = [
            NO_SAMPLE,
            DocumentSection("Reconstructions", shown),
            DocumentSection("By condition and material", (NO_SAMPLE,)),
        ]
    else:
        results = [
            headline(evaluated),
            means(evaluated),
            DocumentSection("Reconstructions", shown),
            DocumentSection("By condition and material", groups(evaluated)),
        ]
        by_depth = evaluated.get("by_depth")
        if by_depth:
            results.append(depth_section.section(by_depth, pictures, bins or {}))
    return ResultPart(
        KIND,
        results,
        samples(evaluated) if evaluated else Note("None."),
        run,
        terms={
            "huber": "its Huber term",
            "mse": "its mean square",
            "mae": "its mean error",
            "function": "its own function",
        },
        settings={"delta": "Huber\ndelta"},
    )


def headline(evaluation: Evaluation) -> Paragraph:
    """Returns the main result in one paragraph."""
    mean = evaluation["mean"]
    mean_image = evaluation["mean_predictor"]
    samples = [row for row in evaluation["samples"] if row["split"] == evaluation["split"]]
    compared_samples = 0
    better = 0
    for row in samples:
        network = row["ssim"]
        rival = row["mean_predictor"]["ssim"]
        if network is not None and rival is not None:
            compared_samples += 1
            better += network > rival
    words, unit = quantity_of(evaluation)
    names = {row["material"] for row in samples}
    materials = f"{count(len(names), 'material')} {unseen(evaluation['run'])}"
    if names == {UNKNOWN}:
        materials = "materials that the files do not name"

    def score(name: str, metric: Metric) -> Text:
        """A score of the network, and in brackets that of the mean image."""
        return (f"{name} ", strong(metric.text(mean)), f" (mean image: {metric.text(mean_image)})")

    return Paragraph(
        (
            f"On {count(len(samples), 'held-out sample')} of {materials}, the network reconstructs "
            f"the {words} with ",
            score("SSIM", SSIM),
            ", ",
            score("Pearson correlation", PEARSON),
            " and ",
            score("mean absolute error", in_unit(MAE, unit)),
            f". That error is {ratio_or_difference(MAE, mean['mae'], mean_image['mae'])} than the "
            f"error of the mean training image; the SSIM is higher in {better} of "
            f"{count(compared_samples, 'sample')}.",
        ),
        role="headline",
    )


def means(evaluation: Evaluation) -> Table:
    """Returns the mean scores over the reported split."""
    mean = evaluation["mean"]
    mean_image = evaluation["mean_predictor"]
    unit = quantity_of(evaluation).unit
    rows: list[Sequence[Text]] = []
    for metric in (SSIM, PEARSON, in_unit(MAE, unit), R_FACTOR, PSNR, HUBER):
        relative = ratio_or_difference(metric, mean[metric.key], mean_image[metric.key])
        title = (metric.title, note(metric.meaning))
        rows.append((title, metric.text(mean), metric.text(mean_image), relative))
    head = ("", "Network", "Mean image", "The network's is")
    return Table(head, rows, 1, caption=f"Means over the {evaluation['split']} split")


def reconstructions(
    pictures: Sequence[SamplePicture], mean_image: Array, evaluation: Evaluation | None = None
) -> list[Block]:
    """Returns the pictures of some samples, beside the mean of the training targets, with their
    ranks in a run.
    """
    if not pictures:
        return [Note("No pictures: no held-out sample has been evaluated.")]
    ranked = worst_first(evaluation) if evaluation else []
    unit = quantity_of(evaluation).unit
    rank_of = {row["id"]: _rank(rank, len(ranked)) for rank, row in enumerate(ranked)}
    text = (
        "These are the worst samples by SSIM of different materials, the median and the best one, "
        "and the worst of further kinds of specimens and of further materials, the worst first. "
        "The scores of the mean image are in brackets."
    )
    blocks: list[Block] = [Paragraph(text)]
    for picture in pictures:
        rank = rank_of.get(picture.facts["id"], "")
        blocks.append(_picture(picture, mean_image, rank, unit))
    return blocks


def _rank(rank: int, samples: int) -> str:
    """Returns the rank of a sample among some in words; that of the worst is 0."""
    named = {samples // 2: "the median", samples - 1: "the best", 0: "the worst"}
    return f"{named.get(rank, f'number {rank + 1}')} of {count(samples, 'sample')}"


def _picture(picture: SamplePicture, mean_image: Array, rank: str, unit: str) -> Picture:
    """Returns one sample with its caption."""
    facts = picture.facts
    scores = []
    for metric in (SSIM, PEARSON, in_unit(MAE, unit)):
        rival = metric.text(facts["mean_predictor"])
        scores.append(f"{metric.title} {metric.text(facts)} ({rival})")
    details = [f"{zone_axis(facts['zone_axis'])}, {facts['thickness_angstrom']:.1f} Å thick"]
    conditions = _without_thickness(sample_conditions(facts))
    if conditions:
        details.append(conditions_text(conditions))
    details.append(f"{facts['split']} split")
    if rank:
        details.append(rank)
    source = data_uri(sample_figure(picture, mean_image, unit), "png")
    caption = (
        strong(facts["material"]),
        f" along {', '.join(details)}: {', '.join(scores)}",
    )
    return Picture(source, f"Images and patterns of {facts['id']}", caption)


def groups(evaluation: Evaluation) -> list[Block]:
    """Returns the mean scores by condition, by material and by split, and the worst samples."""
    unit = quantity_of(evaluation).unit
    split = f"{evaluation['split']} split"
    text = "Means over the samples of each group; those of the mean image are in grey."
    blocks: list[Block] = [Paragraph(text)]
    conditions = summary.by_condition(evaluation)
    if conditions:
        blocks.append(_condition_table(f"By condition, {split}", conditions, unit))
    worst = worst_first(evaluation)[:WORST_ROWS]
    blocks.append(_table_of_samples(f"The worst, {split}", worst, unit))
    by_split: list[Sequence[Text]] = []
    for row in evaluation["by_split"]:
        by_split.append((row["split"], str(row["samples"]), *compared(row)))
    head = ("Split", "Samples", *compared_head(unit))
    blocks.append(Table(head, by_split, 1, caption="By split"))
    blocks.append(Fold("By material", (_material_table(evaluation, unit),)))
    return blocks


def _condition_table(caption: str, conditions: Sequence[ConditionRow], unit: str) -> Table:
    """Returns the mean scores by condition."""
    rows: list[Sequence[Text]] = []
    for row in conditions:
        group = row["group"].replace("_", " ").replace("-", "−")
        least = number(row["least_ssim"], SSIM.digits)
        rows.append((title(row["by"]), group, str(row["samples"]), least, *compared(row)))
    head = ("Quantity", "Values", "Samples", "Least SSIM", *compared_head(unit))
    return Table(head, rows, 2, caption=caption)


def _material_table(evaluation: Evaluation, unit: str) -> Table:
    """Returns the mean scores by material."""
    rows: list[Sequence[Text]] = []
    for row in evaluation["by_material"]:
        group = space_group(row["space_group"])
        rows.append((row["material"], group, row["split"], str(row["samples"]), *compared(row)))
    head = ("Material", "Space group", "Split", "Samples", *compared_head(unit))
    return Table(head, rows, 3)


def samples(evaluation: Evaluation) -> Table:
    """Returns the scores of every held-out sample, and of those that were calibrated the
    consistency.
    """
    return _table_of_samples("", evaluation["samples"], quantity_of(evaluation).unit)


def _table_of_samples(caption: str, rows: Sequence[SampleRow], unit: str) -> Table:
    """Returns a table with a row per sample."""
    calibrated = any("consistency_r" in row for row in rows)
    varied = any(_without_thickness(sample_conditions(row)) for row in rows)
    head = ["Sample", "Formula", "Zone", "Split"]
    if varied:
        head.append("Conditions")
    text_columns = len(head)
    head += ["Thickness, Å", *compared_head(unit)]
    if calibrated:
        head.append("R of the patterns (without specimen)")
    table_rows = []
    for row in rows:
        cells: list[Text] = [row["id"], row["formula"], zone_axis(row["zone_axis"]), row["split"]]
        if varied:
            conditions = _without_thickness(sample_conditions(row))
            cells.append(wide(conditions_text(conditions)))
        cells += [f"{row['thickness_angstrom']:.1f}", *compared(row)]
        if calibrated:
            cells.append(_consistency(row))
        table_rows.append(cells)
    return Table(head, table_rows, text_columns, caption)


def _without_thickness(conditions: Mapping[str, str | float]) -> dict[str, str | float]:
    """Returns the conditions that say more than that a perfect crystal has some thickness."""
    others = {name: value for name, value in conditions.items() if name != "thickness_angstrom"}
    return {} if others == {"kind": "crystal"} else others


def _consistency(row: SampleRow) -> str:
    """R factors of the patterns of the estimated density, and of no specimen; see
    `namsa.inverse.consistency`.
    """
    if "consistency_r" not in row:
        return number(None, ".3f")
    return f"{number(row['consistency_r'], '.3f')} ({number(row['consistency_empty_r'], '.3f')})"


class DensityReport:
    """A `train.tasks.reporting.RunReport` whose parts are shown as far as their files are there."""

    read = staticmethod(read_evaluation)
    part = staticmethod(_part)

    def table(self, evaluation: Mapping[str, object], run_dir: Path, page: Path | None) -> Group:
        return with_places(terminal(cast(Evaluation, evaluation)), run_dir, page)


REPORT = DensityReport()
