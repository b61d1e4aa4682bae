"""How a dataset's samples are spread over splits, and in them over elements, symmetries, thicknesses and the rest.

Counts are of samples, but for materials and formulas.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import spglib

from namsa.dataset.manifest import SPLITS, Entry

Tree = dict[str, Any]
Counts = dict[str, int]  # by split
SYSTEMS = ("triclinic", "monoclinic", "orthorhombic", "tetragonal", "trigonal", "hexagonal", "cubic")
LAST = (2, 15, 74, 142, 167, 194, 230)  # space group of each
MOST = 12  # values of one kind that are told to a reader


def strata(entries: Sequence[Entry]) -> Tree:
    """Counts by split of what `entries` are of; JSON types. Entries that cannot be built are left out."""
    made = [entry for entry in entries if not entry.skipped]
    systems = _crystal_systems()

    def counted(values: Callable[[Entry], Iterable[str]]) -> dict[str, Counts]:
        found: dict[str, Counts] = defaultdict(lambda: dict.fromkeys(SPLITS, 0))
        for entry in made:
            for value in values(entry):
                found[value][entry.split] += 1
        return dict(sorted(found.items()))

    elements = counted(lambda entry: set(re.findall("[A-Z][a-z]?", entry.formula)))
    thicknesses = counted(lambda entry: [f"{entry.thickness_angstrom:g}"])
    return {
        "samples": {split: sum(entry.split == split for entry in made) for split in SPLITS},
        "materials": {split: len({e.material for e in made if e.split == split}) for split in SPLITS},
        "formulas": {split: len({e.formula for e in made if e.split == split}) for split in SPLITS},
        "sources": counted(lambda entry: [entry.source or "unknown"]),
        "crystal_systems": counted(lambda entry: [systems.get(entry.space_group, "unknown")]),
        "space_groups": counted(lambda entry: [entry.space_group]),
        "elements": elements,
        "elements_not_in_train": [element for element, counts in elements.items() if not counts["train"]],
        "thickness_angstrom": {key: thicknesses[key] for key in sorted(thicknesses, key=float)},
        "zone_axes": counted(lambda entry: [f"[{' '.join(map(str, entry.zone_axis))}]"]),
    }


def _crystal_systems() -> dict[str, str]:
    """By Hermann–Mauguin symbol, in all settings."""
    systems = {}
    for hall_number in range(1, 531):
        if found := spglib.get_spacegroup_type(hall_number):
            systems[found.international_short] = SYSTEMS[bisect_left(LAST, found.number)]
    return systems


def rows(found: Tree) -> list[tuple[str, str]]:
    """`strata` in words, as (name, value): counts in the order train/dev/test, of many values the most frequent."""
    told = [
        (name.replace("_", " ").replace("thickness angstrom", "thickness, Å"), _values(found[name]))
        for name in ("sources", "crystal_systems", "space_groups", "elements", "thickness_angstrom", "zone_axes")
    ]
    formulas = f"{_slashed(found['materials'])} of {_slashed(found['formulas'])} formulas"
    unseen = [("not in train", ", ".join(found["elements_not_in_train"]))] if found["elements_not_in_train"] else []
    return [("by split", f"{_slashed(found['samples'])} ({'/'.join(SPLITS)})"), ("materials", formulas), *told, *unseen]


def _values(counted: dict[str, Counts]) -> str:
    frequent = set(sorted(counted, key=lambda value: (-sum(counted[value].values()), value))[:MOST])
    told = [f"{value}: {_slashed(counts)}" for value, counts in counted.items() if value in frequent]
    more = [f"and {len(counted) - MOST} more"] if len(counted) > MOST else []
    return ", ".join([*told, *more])


def _slashed(counts: Counts) -> str:
    return "/".join(str(counts[split]) for split in SPLITS)
