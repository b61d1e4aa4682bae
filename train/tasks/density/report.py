"""The results of the task density on the terminal and in the report."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, cast

from rich.table import Table

from namsa.arrays import Array
from namsa.dataset.entry import UNKNOWN

from ...measure.groups import title
from ...reports.figures import data_uri
from ...reports.report import ResultPart, read_if_there
from ...reports.report_tables import count, missing, number, table
from ..reporting import with_places
from . import depth_section, summary
from .figures import sample_figure
from .pictures import Picture, read_predictions
from .results import Evaluation, SampleRow, quantity_of, read_evaluation
from .score_tables import (
    HUBER,
    MAE,
    PEARSON,
    PSNR,
    R_FACTOR,
    SSIM,
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


def terminal(evaluation: Evaluation) -> Table:
    """Returns the mean scores of the network beside those of the mean image, and the sustained FLOP/s."""
    measured, caption = evaluation["run"].get("performance"), ""
    if measured and "wall_s" in measured:
        rate, steps = measured["sustained_flop_per_s"], measured["wall_s"]["steps"]
        caption = f"convolutions: sustained {rate:.3g} FLOP/s over {steps} steps, with reading and checkpoints\n"
    found = Table(title=f"Held-out materials ({evaluation['split'] or 'none'})", caption=caption)
    for heading in ("", "network", "mean image"):
        found.add_column(heading, justify="right")
    baseline = cast("dict[str, float | None]", evaluation["mean_predictor"])
    for name, score in cast("dict[str, float | None]", evaluation["mean"]).items():
        found.add_row(name, number(score, ".4g"), number(baseline[name], ".4g"))
    if by_depth := evaluation.get("by_depth"):
        errors = by_depth["network"], by_depth["mean_predictor"]
        found.add_row("by depth: r_factor", *(number(each["r_factor"], ".4g") for each in errors))
        found.add_row("true projected / n", number(by_depth["true_projected"]["r_factor"], ".4g"), "")
        found.add_row("own projected / n", number(by_depth["own_projected"]["r_factor"], ".4g"), "")
    return found


def _part(run_dir: Path) -> ResultPart:
    """Returns the part of the report: scores beside those of the mean image, and pictures."""
    evaluation = read_if_there(run_dir / "evaluation.json", read_evaluation)
    predictions = read_if_there(run_dir / "predictions.npz", read_predictions)
    run: Mapping[str, Any] = evaluation["run"] if evaluation else {}
    if evaluation and not evaluation["samples"]:
        evaluation = None
    no_sample = missing("No held-out sample has been evaluated.")
    shown = missing("No pictures: predictions.npz is missing.")
    if predictions:
        shown = reconstructions(*predictions, evaluation)
    parts: tuple[str, ...] = (
        headline(evaluation) if evaluation else no_sample,
        means(evaluation) if evaluation else "",
        "<h2>Reconstructions</h2>",
        shown,
        "<h2>By condition and material</h2>",
        groups(evaluation) if evaluation else no_sample,
    )
    by_depth = evaluation.get("by_depth") if evaluation else None
    bins = read_if_there(run_dir / depth_section.FILE_NAME, depth_section.read_bins)
    if by_depth:
        parts = (*parts, depth_section.section(by_depth, predictions[0] if predictions else [], bins or {}))
    listed = samples(evaluation) if evaluation else missing("None.")
    terms, settings = {"huber": "its Huber term"}, {"delta": "Huber\ndelta"}
    return ResultPart(KIND, "\n".join(parts), listed, run, terms, settings)


def headline(evaluation: Evaluation) -> str:
    """Returns the main result in one paragraph."""
    mean, mean_image = evaluation["mean"], evaluation["mean_predictor"]
    samples = [row for row in evaluation["samples"] if row["split"] == evaluation["split"]]
    pairs = [(row["ssim"], row["mean_predictor"]["ssim"]) for row in samples]
    defined = [(network, rival) for network, rival in pairs if network is not None and rival is not None]
    better = sum(network > rival for network, rival in defined)
    words, unit = quantity_of(evaluation)
    names = {row["material"] for row in samples}
    materials = f"{count(len(names), 'material')} that training never saw"
    if names == {UNKNOWN}:
        materials = "materials that the files do not name"
    titles = ((SSIM, "SSIM"), (PEARSON, "Pearson correlation"), (in_unit(MAE, unit), "mean absolute error"))
    ssim, pearson, mae = (
        f"{score} <strong>{metric.text(mean)}</strong> (mean image: {metric.text(mean_image)})"
        for metric, score in titles
    )
    return (
        f'<p class="headline">On {count(len(samples), "held-out sample")} of '
        f"{materials}, the network "
        f"reconstructs the {words} with {ssim}, {pearson} and {mae}. "
        f"That error is {ratio_or_difference(MAE, mean['mae'], mean_image['mae'])} than the error of the mean training "
        f"image; the SSIM is higher in {better} of {count(len(defined), 'sample')}.</p>"
    )


def means(evaluation: Evaluation) -> str:
    """Returns the mean scores over the reported split."""
    mean, mean_image = evaluation["mean"], evaluation["mean_predictor"]
    unit = quantity_of(evaluation).unit
    rows = [
        (
            f'{metric.title}<span class="note">{metric.meaning}</span>',
            metric.text(mean),
            metric.text(mean_image),
            ratio_or_difference(metric, mean[metric.key], mean_image[metric.key]),
        )
        for metric in (SSIM, PEARSON, in_unit(MAE, unit), R_FACTOR, PSNR, HUBER)
    ]
    head = ("", "Network", "Mean image", "The network's is")
    return table(f"Means over the {evaluation['split']} split", head, rows, text_columns=1)


def reconstructions(pictures: Sequence[Picture], mean_image: Array, evaluation: Evaluation | None = None) -> str:
    """Returns the pictures of some samples, beside the mean of the training targets, with their ranks in a run."""
    if not pictures:
        return missing("No pictures: no held-out sample has been evaluated.")
    ranked, unit = worst_first(evaluation) if evaluation else [], quantity_of(evaluation).unit
    rank_of = {row["id"]: _rank(rank, len(ranked)) for rank, row in enumerate(ranked)}
    return (
        "<p>These are the worst samples by SSIM of different materials, the median and the best one, and the worst of "
        "further kinds of specimens and of further materials, the worst first. The scores of the mean image are in "
        "brackets.</p>\n"
    ) + "\n".join(_figure(picture, mean_image, rank_of.get(picture.facts["id"], ""), unit) for picture in pictures)


def _rank(rank: int, ranked: int) -> str:
    """Returns what a sample is among `ranked` ones in words, the worst of which has the rank 0."""
    named = {ranked // 2: "the median", ranked - 1: "the best", 0: "the worst"}
    return f"{named.get(rank, f'number {rank + 1}')} of {count(ranked, 'sample')}"


def _figure(picture: Picture, mean_image: Array, rank: str, unit: str) -> str:
    """One sample with its caption."""
    facts = picture.facts
    scores = ", ".join(
        f"{metric.title} {metric.text(facts)} ({metric.text(facts['mean_predictor'])})"
        for metric in (SSIM, PEARSON, in_unit(MAE, unit))
    )
    others = conditions_text(_without_thickness(sample_conditions(facts)))
    source = data_uri(sample_figure(picture, mean_image, unit), "png")
    return (
        f"<figure><figcaption><strong>{escape(facts['material'])}</strong> along {zone_axis(facts['zone_axis'])}, "
        f"{facts['thickness_angstrom']:.1f} Å thick{others and f', {others}'}, {escape(facts['split'])} split"
        f"{rank and f', {rank}'}: {scores}</figcaption>"
        f'<img src="{source}" alt="Images and patterns of {escape(facts["id"])}"></figure>'
    )


def groups(evaluation: Evaluation) -> str:
    """Returns the mean scores by condition, by material and by split, and the worst samples."""
    by_condition = [
        (
            escape(title(row["by"])),
            escape(row["group"].replace("_", " ")).replace("-", "−"),
            str(row["samples"]),
            number(row["least_ssim"], SSIM.digits),
            *compared(row),
        )
        for row in summary.by_condition(evaluation)
    ]
    by_material = [
        (
            escape(row["material"]),
            space_group(row["space_group"]),
            escape(row["split"]),
            escape(str(row["samples"])),
            *compared(row),
        )
        for row in evaluation["by_material"]
    ]
    by_split = [(escape(row["split"]), escape(str(row["samples"])), *compared(row)) for row in evaluation["by_split"]]
    unit = quantity_of(evaluation).unit
    head = compared_head(unit)
    condition_head = ("Quantity", "Values", "Samples", "Least SSIM", *head)
    split = f"{evaluation['split']} split"
    return "\n".join(
        (
            "<p>Means over the samples of each group; those of the mean image are in grey.</p>",
            table(f"By condition, {split}", condition_head, by_condition, text_columns=2) if by_condition else "",
            _table_of_samples(f"The worst, {split}", worst_first(evaluation)[:WORST_ROWS], unit),
            table("By split", ("Split", "Samples", *head), by_split, text_columns=1),
            "<details><summary>By material</summary>",
            table("", ("Material", "Space group", "Split", "Samples", *head), by_material, text_columns=3),
            "</details>",
        )
    )


def samples(evaluation: Evaluation) -> str:
    """Returns the scores of every held-out sample, and of those that were calibrated the consistency."""
    return _table_of_samples("", evaluation["samples"], quantity_of(evaluation).unit)


def _table_of_samples(caption: str, rows: Sequence[SampleRow], unit: str) -> str:
    """Returns a table with a row per sample."""
    calibrated = any("consistency_r" in row for row in rows)
    varied = any(_without_thickness(sample_conditions(row)) for row in rows)
    cells = [
        (
            escape(row["id"]),
            escape(row["formula"]),
            zone_axis(row["zone_axis"]),
            escape(row["split"]),
            *[f'<div class="conditions">{conditions_text(_without_thickness(sample_conditions(row)))}</div>'] * varied,
            f"{row['thickness_angstrom']:.1f}",
            *compared(row),
            *([_consistency(row)] if calibrated else []),
        )
        for row in rows
    ]
    head = ["Sample", "Formula", "Zone", "Split", *["Conditions"] * varied, "Thickness, Å", *compared_head(unit)]
    head += ["R of the patterns (without specimen)"] * calibrated
    return table(caption, head, cells, text_columns=4 + varied)


def _without_thickness(conditions: Mapping[str, str | float]) -> dict[str, str | float]:
    """Returns the conditions that say more than that a perfect crystal has some thickness."""
    others = {name: value for name, value in conditions.items() if name != "thickness_angstrom"}
    return {} if others == {"kind": "crystal"} else others


def _consistency(row: SampleRow) -> str:
    """R factors of the patterns of the estimated density, and of no specimen; see `namsa.inverse.consistency`."""
    if "consistency_r" not in row:
        return number(None, ".3f")
    return f"{number(row['consistency_r'], '.3f')} ({number(row['consistency_empty_r'], '.3f')})"


class DensityReport:
    """A `train.tasks.reporting.RunReport` whose parts are shown as far as their files are there."""

    read, part = staticmethod(read_evaluation), staticmethod(_part)

    def table(self, evaluation: Mapping[str, Any], run_dir: Path, page: Path | None) -> Table:
        return with_places(terminal(cast(Evaluation, evaluation)), run_dir, page)


REPORT = DensityReport()
