"""Which samples make a composite scan together.

All samples of a composite are perfect crystals of one split, of one requested thickness, under the same varied
settings. A grain is the material of the matrix along another zone axis, a phase another material.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from namsa.dataset.entry import Entry

from ...input.views import SampleView
from .composites import SHAPES, composite, draw_labels
from .section import Segment

_COMPOSITE = 7  # stream of random numbers, beside those of `train.input`


@dataclass(frozen=True)
class Composer:
    """Makes composites, each from the seed of its matrix's sample and the number of an epoch."""

    segment: Segment  # the section training.segment
    scan: tuple[int, int]  # positions of a sample, (y, x)
    entries: Sequence[Entry]  # the samples that composites are made of
    _groups: dict[Any, dict[str, list[Entry]]] = field(init=False)

    def __post_init__(self) -> None:
        groups: dict[Any, dict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
        for entry in sorted(self.entries, key=lambda entry: entry.id):
            if entry.kind == "crystal":
                groups[_conditions(entry)][entry.material].append(entry)
        object.__setattr__(self, "_groups", groups)

    def lacking(self, entry: Entry) -> list[str]:
        """Returns the classes of which no sample goes with an entry as the matrix."""
        materials = self._groups.get(_conditions(entry), {})
        there = {
            "grain": any(other.zone_axis != entry.zone_axis for other in materials.get(entry.material, [])),
            "phase": bool(materials.keys() - {entry.material}),
        }
        return [name for name in self.segment.inclusions if not there[name]]

    def parts(self, entry: Entry, rng: np.random.Generator) -> list[Entry]:
        """Returns a sample of each class from 1 on; see `lacking`. Orientations and materials are equally likely."""
        materials = self._groups[_conditions(entry)]
        found = []
        for name in self.segment.inclusions:
            if name == "grain":
                candidates = [other for other in materials[entry.material] if other.zone_axis != entry.zone_axis]
            else:
                names = list(materials)
                step = int(rng.integers(1, len(names)))  # from the matrix's own
                candidates = materials[names[(names.index(entry.material) + step) % len(names)]]
            found.append(candidates[int(rng.integers(len(candidates)))])
        return found

    def labels(self, entry: Entry, epoch: int) -> tuple[list[Entry], Any]:
        """Returns the samples of the classes from 1 on, and the class of each position, `(sy, sx)`."""
        rng = np.random.default_rng([entry.seed, epoch, _COMPOSITE])
        parts = self.parts(entry, rng)
        shaped = [(inclusion, SHAPES[name]) for name, inclusion in self.segment.inclusions.items()]
        return parts, draw_labels(self.scan, shaped, rng)

    def __call__(self, entry: Entry, epoch: int, find: Callable[[str], SampleView]) -> SampleView:
        """Returns the composite of an epoch, whose matrix is a sample; a `train.input.views.Compose`."""
        parts, labels = self.labels(entry, epoch)
        return composite(find(entry.id), [find(part.id) for part in parts], labels)


def composers(segment: Segment, scan: tuple[int, int], entries: Iterable[Entry]) -> dict[str, Composer]:
    """Returns the composer of each split that has samples."""
    by_split: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_split[entry.split].append(entry)
    return {split: Composer(segment, scan, found) for split, found in by_split.items()}


def _conditions(entry: Entry) -> tuple[float, str]:
    """What the samples of a composite have in common."""
    return entry.thickness_angstrom, repr(sorted(entry.varied.items()))
