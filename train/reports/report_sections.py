"""The sections of the report, as HTML."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from ..measure.groups import title
from ..measure.profile_results import Profile
from ..measure.validation_rows import PLACE
from . import figures, summary
from .performance_section import performance
from .pictures import Picture
from .report_tables import (
    COMPARED_HEAD,
    HUBER,
    MAE,
    PEARSON,
    PSNR,
    R_FACTOR,
    SSIM,
    compared,
    conditions_text,
    count,
    hours_minutes,
    missing,
    number,
    plain,
    ratio_or_difference,
    space_group,
    table,
    zone_axis,
)
from .results import Evaluation, SampleRow
from .runs import Steps
from .summary import sample_conditions, worst_first

WORST_ROWS = 10  # of the table of the worst samples

# ---- Held-out samples -----------------------------------------------------------------------------------------------


def headline(evaluation: Evaluation) -> str:
    """Returns the main result in one paragraph."""
    mean, mean_image = evaluation["mean"], evaluation["mean_predictor"]
    samples = [row for row in evaluation["samples"] if row["split"] == evaluation["split"]]
    pairs = [(row["ssim"], row["mean_predictor"]["ssim"]) for row in samples]
    defined = [(network, rival) for network, rival in pairs if network is not None and rival is not None]
    better = sum(network > rival for network, rival in defined)
    ssim, pearson, mae = (
        f"{words} <strong>{metric.text(mean)}</strong> (mean image: {metric.text(mean_image)})"
        for metric, words in ((SSIM, "SSIM"), (PEARSON, "Pearson correlation"), (MAE, "mean absolute error"))
    )
    return (
        f'<p class="headline">On {count(len(samples), "held-out sample")} of '
        f"{count(len({row['material'] for row in samples}), 'material')} that training never saw, the network "
        f"reconstructs the projected electron density with {ssim}, {pearson} and {mae}. "
        f"That error is {ratio_or_difference(MAE, mean['mae'], mean_image['mae'])} than the error of the mean training "
        f"image; the SSIM is higher in {better} of {len(defined)} samples.</p>"
    )


def means(evaluation: Evaluation) -> str:
    """Returns the mean scores over the reported split."""
    mean, mean_image = evaluation["mean"], evaluation["mean_predictor"]
    rows = [
        (
            f'{metric.title}<span class="note">{metric.meaning}</span>',
            metric.text(mean),
            metric.text(mean_image),
            ratio_or_difference(metric, mean[metric.key], mean_image[metric.key]),
        )
        for metric in (SSIM, PEARSON, MAE, R_FACTOR, PSNR, HUBER)
    ]
    head = ("", "Network", "Mean image", "The network's is")
    return table(f"Means over the {evaluation['split']} split", head, rows, text_columns=1)


def reconstructions(
    pictures: Sequence[Picture], mean_image: npt.NDArray[Any], evaluation: Evaluation | None = None
) -> str:
    """Returns the pictures of some samples.

    Args:
        pictures: The samples, in the order of display.
        mean_image: Mean of the training targets, (h, w), e/Å².
        evaluation: Results on all samples, among which these have a rank. `None` if they are not at hand.
    """
    if not pictures:
        return missing("No pictures: no held-out sample has been evaluated.")
    ranked = worst_first(evaluation) if evaluation else []
    rank_of = {row["id"]: _rank(rank, len(ranked)) for rank, row in enumerate(ranked)}
    return (
        "<p>These are the worst samples by SSIM of different materials, the median and the best one, and the worst of "
        "further kinds of specimens and of further materials, the worst first. The scores of the mean image are in "
        "brackets.</p>\n"
    ) + "\n".join(_figure(picture, mean_image, rank_of.get(picture.facts["id"], "")) for picture in pictures)


def _rank(rank: int, ranked: int) -> str:
    """Returns what a sample is among `ranked` ones in words, the worst of which has the rank 0."""
    named = {ranked // 2: "the median", ranked - 1: "the best", 0: "the worst"}
    return f"{named.get(rank, f'number {rank + 1}')} of {count(ranked, 'sample')}"


def _figure(picture: Picture, mean_image: npt.NDArray[Any], rank: str) -> str:
    """One sample with its caption."""
    facts = picture.facts
    scores = ", ".join(
        f"{metric.title} {metric.text(facts)} ({metric.text(facts['mean_predictor'])})"
        for metric in (SSIM, PEARSON, MAE)
    )
    others = conditions_text(_without_thickness(sample_conditions(facts)))
    source = figures.data_uri(figures.sample_figure(picture, mean_image), "png")
    return (
        f"<figure><figcaption><strong>{escape(facts['material'])}</strong> along {zone_axis(facts['zone_axis'])}, "
        f"{facts['thickness_angstrom']:.1f} Å thick{others and f', {others}'}, {escape(facts['split'])} split"
        f"{rank and f', {rank}'}: {scores}</figcaption>"
        f'<img src="{source}" alt="Densities and patterns of {escape(facts["id"])}"></figure>'
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
    condition_head = ("Quantity", "Values", "Samples", "Least SSIM", *COMPARED_HEAD)
    split = f"{evaluation['split']} split"
    return "\n".join(
        (
            "<p>Means over the samples of each group; those of the mean image are in grey.</p>",
            table(f"By condition, {split}", condition_head, by_condition, text_columns=2) if by_condition else "",
            _table_of_samples(f"The worst, {split}", worst_first(evaluation)[:WORST_ROWS]),
            table("By split", ("Split", "Samples", *COMPARED_HEAD), by_split, text_columns=1),
            "<details><summary>By material</summary>",
            table("", ("Material", "Space group", "Split", "Samples", *COMPARED_HEAD), by_material, text_columns=3),
            "</details>",
        )
    )


def samples(rows: Sequence[SampleRow]) -> str:
    """Returns the scores of every held-out sample, and of those that were calibrated the consistency."""
    return _table_of_samples("", rows)


def _table_of_samples(caption: str, rows: Sequence[SampleRow]) -> str:
    """Returns a table with a row per sample."""
    calibrated = any("consistency_r" in row for row in rows)
    varied = any(_without_thickness(sample_conditions(row)) for row in rows)
    cells = [
        (
            escape(row["id"]),
            escape(row["formula"]),
            zone_axis(row["zone_axis"]),
            escape(row["split"]),
            *(
                [f'<div class="conditions">{conditions_text(_without_thickness(sample_conditions(row)))}</div>']
                * varied
            ),
            f"{row['thickness_angstrom']:.1f}",
            *compared(row),
            *([_consistency(row)] if calibrated else []),
        )
        for row in rows
    ]
    head = ["Sample", "Formula", "Zone", "Split", *(["Conditions"] if varied else []), "Thickness, Å", *COMPARED_HEAD]
    head += ["R of the patterns (without specimen)"] if calibrated else []
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


# ---- The run --------------------------------------------------------------------------------------------------------


def training(steps: Steps, terms: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """Returns how the loss developed. The arguments are those of `train.reports.figures.loss_figure`."""
    _, loss = figures.epoch_means(steps, "loss")
    skipped = int(np.count_nonzero(~np.isfinite(steps["loss"])))
    length = f"{count(len(loss), 'epoch')}, {count(len(steps['step']), 'step')}"
    text = f"The mean loss per epoch went from {loss[0]:.3g} to {loss[-1]:.3g} in {length}."
    if skipped:
        text += f" {count(skipped, 'step')} had no finite loss."
    below = ", ".join(["Loss", "learning rate", *(label.replace("\n", " ") for label in settings.values())])
    return f"<p>{text}</p>{_plot(figures.loss_figure(steps, terms, settings), f'{below} over the steps')}"


def validation(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the rows of validation.jsonl as a table; nothing if there are none."""
    if not rows:
        return ""
    names = [name for name in rows[-1] if name not in PLACE]
    cells = [
        (f"{row['epoch']}", f"{row['step']}", f"{row['samples']}", *(number(row.get(name), ".4g") for name in names))
        for row in rows
    ]
    head = ("Epochs", "Steps", "Samples", *(escape(name.replace("_", " ")) for name in names))
    return table("Validation, dev split", head, cells, text_columns=0)


def time(steps: Steps) -> str:
    """Returns where the time of the steps went, without the first step, which builds the graph."""
    later = {name: column[1:] for name, column in steps.items()} if len(steps["step"]) > 1 else steps
    parts = {name: float(np.nansum(seconds)) for name, seconds in figures.time_parts(later).items()}
    whole = sum(parts.values()) or 1.0
    shares = ", ".join(f"{seconds / whole:.1%} {name}" for name, seconds in parts.items())
    text = (
        f"The time per step is {shares}. The median step takes {np.nanmedian(later['step_s']) * 1e3:.3g} ms on rank 0. "
        "Communication is the part that did not overlap with computing, including the wait for the slowest rank. The "
        "first step, which builds the graph, is left out."
    )
    return f"<p>{text}</p>{_plot(figures.time_figure(later), 'The parts of the time per step, over the steps')}"


def facts(run: Mapping[str, Any], steps: Steps | None, profile: Profile | None = None) -> str:
    """Returns the facts about the run as a table.

    Args:
        run: Facts of `evaluation.json`; empty if there is no such file.
        steps: Columns of `metrics.jsonl`; `None` without steps.
        profile: Contents of `profile.json`; `None` without one.
    """
    known: dict[str, Any] = {key: value for key, value in run.items() if key != "performance"}
    if run.get("performance"):
        known |= performance(run, profile)
    if steps:
        known |= {"steps": len(steps["step"]), "time in steps": hours_minutes(float(np.nansum(steps["step_s"])))}
    if not known:
        return missing("Nothing about the run has been recorded.")
    rows = [(escape(key.replace("_", " ")), escape(plain(value))) for key, value in known.items()]
    return table("", (), rows, text_columns=2)


def _plot(figure: Any, alt: str) -> str:
    return f'<figure><img class="plot" src="{figures.data_uri(figure, "svg")}" alt="{alt}"></figure>'
