"""Means of the scores of held-out samples, by group, and the choice of the samples that the report
shows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

import numpy as np

from ....measure.atomic_columns import mean_column_metrics
from ....measure.groups import MOST_VALUES, Facts, groups
from ....measure.metrics import mean_metrics
from ..results import (
    ConditionRow,
    HeldOutResults,
    MaterialRow,
    SampleRow,
    Scores,
    SplitRow,
    Summary,
    ThicknessRow,
)

PICTURES = 12  # samples that the report shows
WORST = 3  # of them, each of another material


def summarise(samples: Sequence[SampleRow]) -> Summary:
    """Returns means over the reported split, and by split, by material and by thickness."""
    split = reported_split(samples)
    reported = [row for row in samples if row["split"] == split]
    mean, mean_predictor = _means(reported)
    thicknesses = {row["wanted_thickness_angstrom"] for row in reported}
    if len(thicknesses) <= MOST_VALUES:
        by_thickness = _grouped(reported, ("wanted_thickness_angstrom",))
    else:
        by_thickness = []
    return {
        "split": split,
        "mean": mean,
        "mean_predictor": mean_predictor,
        "by_split": cast(list[SplitRow], _grouped(samples, ("split",))),
        "by_material": cast(
            list[MaterialRow], _grouped(samples, ("material", "formula", "space_group", "split"))
        ),
        "by_thickness": cast(list[ThicknessRow], by_thickness),
    }


def by_condition(results: HeldOutResults) -> list[ConditionRow]:
    """Returns means by kind of specimen, by thickness and by each varied quantity, over the
    reported split.

    Quantities with many values are divided into ranges of equally many values.
    """
    reported = [row for row in results["samples"] if row["split"] == results["split"]]
    table: list[ConditionRow] = []
    for name, label, indices in groups([sample_conditions(row) for row in reported]):
        members = [reported[index] for index in indices]
        mean, mean_predictor = _means(members)
        ssims = [row["ssim"] for row in members if row["ssim"] is not None]
        least = min(ssims, default=None)
        facts = {"by": name, "group": label, "samples": len(members), "least_ssim": least}
        table.append(cast(ConditionRow, facts | mean | {"mean_predictor": mean_predictor}))
    return table


def sample_conditions(row: SampleRow) -> Facts:
    """Returns the conditions of a sample; of files of earlier versions, its thickness."""
    of_earlier: Facts = {"thickness_angstrom": row["wanted_thickness_angstrom"]}
    return row.get("conditions", of_earlier)


def worst_first(results: HeldOutResults) -> list[SampleRow]:
    """Returns the samples of the reported split, the least SSIM first; an undefined one is the
    least.
    """
    return sorted(
        (row for row in results["samples"] if row["split"] == results["split"]), key=_by_ssim
    )


def reported_split(samples: Iterable[SampleRow]) -> str | None:
    """Returns "test" if a sample is of that split, otherwise "dev"; `None` if no sample is of
    either.
    """
    splits = {row["split"] for row in samples}
    return next((split for split in ("test", "dev") if split in splits), None)


def choose(samples: Sequence[SampleRow]) -> list[str]:
    """Chooses the samples that the report shows.

    The worst samples by SSIM, of `WORST` materials, the median and the best are chosen first. Then
    come the worst sample of each further kind of specimen, the worst of each further material,
    evenly spaced in SSIM, and samples that are evenly spaced in SSIM.

    Returns:
        At most `PICTURES` ids of the reported split, worst SSIM first.
    """
    split = reported_split(samples)
    ranked = sorted((row for row in samples if row["split"] == split), key=_by_ssim)
    if not ranked:
        return []
    material = itemgetter("material")
    median = ranked[len(ranked) // 2]
    chosen = [*_first_of_each(ranked, material)[:WORST], median, ranked[-1]]
    chosen += _first_of_further(ranked, chosen, _kind)
    others = _first_of_further(ranked, chosen, material)
    candidates = [
        *chosen,
        *_spaced(others, max(PICTURES - len(chosen), 0)),
        *_spaced(ranked, PICTURES),
    ]
    ids = list(dict.fromkeys(row["id"] for row in candidates))[:PICTURES]
    return [row["id"] for row in ranked if row["id"] in ids]


def _kind(row: SampleRow) -> str | float:
    return row.get("conditions", {}).get("kind", "")


def _first_of_each(
    rows: Sequence[SampleRow], key: Callable[[SampleRow], str | float]
) -> list[SampleRow]:
    """Returns the first row with each value of `key`."""
    row_of_value: dict[str | float, SampleRow] = {}
    for row in rows:
        row_of_value.setdefault(key(row), row)
    return list(row_of_value.values())


def _first_of_further(
    rows: Sequence[SampleRow],
    chosen: Sequence[SampleRow],
    key: Callable[[SampleRow], str | float],
) -> list[SampleRow]:
    """Returns the first row with each value of `key` that no chosen row has."""
    known = {key(row) for row in chosen}
    return _first_of_each([row for row in rows if key(row) not in known], key)


def _means(rows: Sequence[SampleRow]) -> tuple[Scores, Scores]:
    """Mean scores of the network and of the mean-image predictor."""
    of_mean_image = [row["mean_predictor"] for row in rows]
    return _mean(rows), _mean(of_mean_image)


def _mean(rows: Sequence[Scores]) -> Scores:
    """Returns mean scores."""
    scores = cast(Sequence[Mapping[str, float | None]], rows)
    return cast(Scores, mean_metrics(scores) | mean_column_metrics(scores))


def _grouped(rows: Sequence[SampleRow], keys: Sequence[str]) -> list[dict[str, object]]:
    """One row per combination of the values of `keys`, in order, with the number of samples and
    their mean scores.
    """
    groups: dict[tuple[Any, ...], list[SampleRow]] = {}
    for row in rows:
        values = tuple(cast(dict[str, object], row)[key] for key in keys)
        groups.setdefault(values, []).append(row)
    table = []
    for values in sorted(groups):
        mean, mean_predictor = _means(groups[values])
        facts = dict(zip(keys, values, strict=True)) | {"samples": len(groups[values])}
        table.append(facts | cast(dict[str, object], mean) | {"mean_predictor": mean_predictor})
    return table


def _by_ssim(row: SampleRow) -> tuple[float, str]:
    """Sort key: undefined SSIM first, then the worst."""
    return row["ssim"] if row["ssim"] is not None else -np.inf, row["id"]


def _spaced(rows: Sequence[SampleRow], count: int) -> list[SampleRow]:
    """At most `count` rows, evenly spaced."""
    return [rows[round(index)] for index in np.linspace(0, len(rows) - 1, min(count, len(rows)))]
