"""Means of the scores of held-out samples, by group, and the choice of the samples that the report shows."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from train.measure.atomic_columns import mean_column_metrics
from train.measure.metrics import mean_metrics
from train.reports.results import MaterialRow, SampleRow, Scores, SplitRow, Summary, ThicknessRow

PICTURES = 8  # samples that the report shows


def summarise(samples: Sequence[SampleRow]) -> Summary:
    """Returns means over the reported split, and by split, by material and by thickness.

    Args:
        samples: All held-out samples.
    """
    split = reported_split(samples)
    reported = [row for row in samples if row["split"] == split]
    mean, mean_predictor = _means(reported)
    return {
        "split": split,
        "mean": mean,
        "mean_predictor": mean_predictor,
        "by_split": cast(list[SplitRow], _grouped(samples, ("split",))),
        "by_material": cast(list[MaterialRow], _grouped(samples, ("material", "formula", "space_group", "split"))),
        "by_thickness": cast(list[ThicknessRow], _grouped(reported, ("wanted_thickness_angstrom",))),
    }


def reported_split(samples: Iterable[SampleRow]) -> str | None:
    """Returns "test" if a sample is of that split, otherwise "dev"; `None` if no sample is of either."""
    splits = {row["split"] for row in samples}
    return next((split for split in ("test", "dev") if split in splits), None)


def choose(samples: Sequence[SampleRow]) -> list[str]:
    """Chooses the samples that the report shows.

    The best, the median and the worst sample by SSIM are chosen first, then one sample of each further material, then
    samples that are evenly spaced in SSIM.

    Args:
        samples: All held-out samples.

    Returns:
        At most `PICTURES` ids of the reported split, best SSIM first.
    """
    split = reported_split(samples)
    ranked = sorted((row for row in samples if row["split"] == split), key=_by_ssim)
    if not ranked:
        return []
    extremes = [ranked[0], ranked[len(ranked) // 2], ranked[-1]]
    materials = {row["material"] for row in extremes}
    others = [row for row in ranked if row["material"] not in materials]
    best_of_others = list({row["material"]: row for row in reversed(others)}.values())
    candidates = [*extremes, *_spaced(sorted(best_of_others, key=_by_ssim), PICTURES - 3), *_spaced(ranked, PICTURES)]
    ids = list(dict.fromkeys(row["id"] for row in candidates))[:PICTURES]
    return [row["id"] for row in ranked if row["id"] in ids]


def _means(rows: Sequence[SampleRow]) -> tuple[Scores, Scores]:
    """Mean scores of the network and of the mean-image predictor."""
    network = cast(Sequence[dict[str, Any]], rows)
    mean_image = cast(Sequence[dict[str, Any]], [row["mean_predictor"] for row in rows])
    return (
        cast(Scores, mean_metrics(network) | mean_column_metrics(network)),
        cast(Scores, mean_metrics(mean_image) | mean_column_metrics(mean_image)),
    )


def _grouped(rows: Sequence[SampleRow], keys: Sequence[str]) -> list[dict[str, Any]]:
    """One row per combination of the values of `keys`, in order, with the number of samples and their mean scores."""
    groups: dict[tuple[Any, ...], list[SampleRow]] = {}
    for row in rows:
        groups.setdefault(tuple(cast(dict[str, Any], row)[key] for key in keys), []).append(row)
    table = []
    for values in sorted(groups):
        mean, mean_predictor = _means(groups[values])
        facts = dict(zip(keys, values, strict=True)) | {"samples": len(groups[values])}
        table.append(facts | cast(dict[str, Any], mean) | {"mean_predictor": mean_predictor})
    return table


def _by_ssim(row: SampleRow) -> tuple[float, str]:
    """Sort key: best SSIM first, undefined SSIM last."""
    return -row["ssim"] if row["ssim"] is not None else np.inf, row["id"]


def _spaced(rows: Sequence[SampleRow], count: int) -> list[SampleRow]:
    """At most `count` rows, evenly spaced."""
    return [rows[round(index)] for index in np.linspace(0, len(rows) - 1, min(count, len(rows)))]
