"""Spreading of a dataset's samples over splits, and within them over elements, symmetries,
thicknesses and the rest.

All counts are counts of samples, except those of materials and formulas.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NotRequired, TypedDict

import spglib

from namsa.dataset.entry import SPLITS, Entry, feasible_entries

Counts = dict[str, int]  # by split
CRYSTAL_SYSTEMS = (
    "triclinic",
    "monoclinic",
    "orthorhombic",
    "tetragonal",
    "trigonal",
    "hexagonal",
    "cubic",
)
LAST_SPACE_GROUPS = (2, 15, 74, 142, 167, 194, 230)  # the last space group of each crystal system
TABLE_VALUES = 12  # values per row of the table


class Strata(TypedDict):
    """Counts by split; JSON types."""

    samples: Counts  # samples
    materials: Counts  # materials
    formulas: Counts  # formulas
    sources: dict[str, Counts]  # samples by kind of source
    crystal_systems: dict[str, Counts]  # samples by crystal system
    space_groups: dict[str, Counts]  # samples by Hermann–Mauguin symbol
    elements: dict[str, Counts]  # samples by element; a sample counts for each of its elements
    elements_not_in_train: list[str]  # elements of which no sample is in the training split
    thickness_angstrom: dict[str, Counts]  # samples by requested thickness, Å, as text
    zone_axes: dict[str, Counts]  # samples by zone axis, as "[u v w]"
    # samples by what was made of the crystal; absent if all are perfect crystals
    kinds: NotRequired[dict[str, Counts]]


def count_strata(entries: Sequence[Entry]) -> Strata:
    """Counts by split what `entries` consist of. Entries that cannot be built are left out."""
    feasible = feasible_entries(entries)
    systems = crystal_systems()
    elements = _counts_by(feasible, _elements)
    thicknesses = _counts_by(feasible, lambda entry: [f"{entry.thickness_angstrom:g}"])
    strata: Strata = {
        "samples": _distinct_by_split(feasible, lambda entry: entry.id),
        "materials": _distinct_by_split(feasible, lambda entry: entry.material),
        "formulas": _distinct_by_split(feasible, lambda entry: entry.formula),
        "sources": _counts_by(feasible, lambda entry: [entry.source or "unknown"]),
        "crystal_systems": _counts_by(
            feasible, lambda entry: [systems.get(entry.space_group, "unknown")]
        ),
        "space_groups": _counts_by(feasible, lambda entry: [entry.space_group]),
        "elements": elements,
        "elements_not_in_train": [name for name in elements if not elements[name]["train"]],
        "thickness_angstrom": {key: thicknesses[key] for key in sorted(thicknesses, key=float)},
        "zone_axes": _counts_by(feasible, _zone_axis),
    }
    if any(entry.kind != "crystal" for entry in feasible):
        strata["kinds"] = _counts_by(feasible, lambda entry: [entry.kind])
    return strata


def _counts_by(
    entries: Sequence[Entry], values: Callable[[Entry], Iterable[str]]
) -> dict[str, Counts]:
    """Returns the counts of entries by split for each value that an entry can have."""
    counts: dict[str, Counts] = defaultdict(lambda: dict.fromkeys(SPLITS, 0))
    for entry in entries:
        for value in values(entry):
            counts[value][entry.split] += 1
    return dict(sorted(counts.items()))


def _distinct_by_split(entries: Sequence[Entry], value: Callable[[Entry], str]) -> Counts:
    """Returns the number of distinct values by split."""
    distinct: dict[str, set[str]] = {split: set() for split in SPLITS}
    for entry in entries:
        distinct[entry.split].add(value(entry))
    return {split: len(values) for split, values in distinct.items()}


def _elements(entry: Entry) -> set[str]:
    """Returns the elements of a formula."""
    return set(re.findall("[A-Z][a-z]?", entry.formula))


def _zone_axis(entry: Entry) -> list[str]:
    """Returns the zone axis as "[u v w]"."""
    return [f"[{' '.join(map(str, entry.zone_axis))}]"]


def space_group_numbers() -> dict[str, int]:
    """Returns the number of the space group by Hermann–Mauguin symbol, in all settings, the
    standard one first.
    """
    types = (spglib.get_spacegroup_type(hall_number) for hall_number in range(1, 531))
    return {group.international_short: group.number for group in types if group}


def crystal_systems() -> dict[str, str]:
    """Returns the crystal system by Hermann–Mauguin symbol, in all settings."""
    systems = {}
    for symbol, group_number in space_group_numbers().items():
        systems[symbol] = CRYSTAL_SYSTEMS[bisect_left(LAST_SPACE_GROUPS, group_number)]
    return systems


def table_rows(strata: Strata) -> list[tuple[str, str]]:
    """Returns strata as (name, value) for a table.

    Counts are in the order train/dev/test. Of many values only the most frequent are named.
    """
    formulas = f"{_slashed(strata['materials'])} of {_slashed(strata['formulas'])} formulas"
    rows = [
        ("by split", f"{_slashed(strata['samples'])} ({'/'.join(SPLITS)})"),
        ("materials", formulas),
        ("sources", _values(strata["sources"])),
        ("crystal systems", _values(strata["crystal_systems"])),
        ("space groups", _values(strata["space_groups"])),
        ("elements", _values(strata["elements"])),
        ("thickness, Å", _values(strata["thickness_angstrom"])),
        ("zone axes", _values(strata["zone_axes"])),
    ]
    if "kinds" in strata:
        rows.append(("kinds", _values(strata["kinds"])))
    if strata["elements_not_in_train"]:
        rows.append(("not in train", ", ".join(strata["elements_not_in_train"])))
    return rows


def _values(counts_by_value: dict[str, Counts]) -> str:
    """Returns the most frequent values with their counts, in their own order, as text."""

    def rarity(value: str) -> tuple[int, str]:
        return -sum(counts_by_value[value].values()), value

    frequent = set(sorted(counts_by_value, key=rarity)[:TABLE_VALUES])
    texts = [
        f"{value}: {_slashed(counts)}"
        for value, counts in counts_by_value.items()
        if value in frequent
    ]
    if len(counts_by_value) > TABLE_VALUES:
        texts.append(f"and {len(counts_by_value) - TABLE_VALUES} more")
    return ", ".join(texts)


def _slashed(counts: Counts) -> str:
    return "/".join(str(counts[split]) for split in SPLITS)
