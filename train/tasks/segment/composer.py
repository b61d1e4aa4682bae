"""Composite scans, in which the patterns of some positions are those of other samples; which
samples go together.

All samples of a composite are perfect crystals of one split, of one requested thickness, under the
same varied settings. A grain is the material of the matrix along another zone axis, a phase another
material.

A mask decides at each position of which sample the pattern is. It holds polygons and ellipses at
random places, which wrap around the scan. Patterns near a border are not true: a probe there would
see both specimens, within about its own width, and the specimens do not change where they meet.

The mean fraction of each class is exact. If shapes of mean area a are placed evenly and
independently on a periodic scan of n positions, with a Poisson number of mean m, the fraction that
none covers is exp(−m a/n) on average. Shapes of a later class lie upon those of earlier ones, which
are drawn more often to make up for it.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Floats
from namsa.dataset.entry import Entry

from ...input.views import SampleView
from .section import Inclusion, Segment

_COMPOSITE = 7  # stream of random numbers, beside those of `train.input`


class Composer:
    """Makes composites of samples of `scan` positions, each from the seed of its matrix and the
    number of an epoch.
    """

    def __init__(self, segment: Segment, scan: tuple[int, int], entries: Sequence[Entry]) -> None:
        self.segment = segment
        self.scan = scan
        self.entries = entries
        self._groups: dict[object, dict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
        for entry in sorted(entries, key=lambda entry: entry.id):
            if entry.kind == "crystal":
                self._groups[_conditions(entry)][entry.material].append(entry)

    def lacking(self, entry: Entry) -> list[str]:
        """Returns the classes of which no sample goes with an entry as the matrix."""
        materials = self._groups.get(_conditions(entry), {})
        there = {
            "grain": any(
                other.zone_axis != entry.zone_axis for other in materials.get(entry.material, [])
            ),
            "phase": bool(materials.keys() - {entry.material}),
        }
        return [name for name in self.segment.inclusions if not there[name]]

    def parts(self, entry: Entry, rng: np.random.Generator) -> list[Entry]:
        """Returns a sample of each class from 1 on; see `lacking`. Orientations and materials are
        equally likely.
        """
        materials = self._groups[_conditions(entry)]
        classes = []
        for name in self.segment.inclusions:
            if name == "grain":
                candidates = [
                    other
                    for other in materials[entry.material]
                    if other.zone_axis != entry.zone_axis
                ]
            else:
                names = list(materials)
                step = int(rng.integers(1, len(names)))  # from the matrix's own
                candidates = materials[names[(names.index(entry.material) + step) % len(names)]]
            classes.append(candidates[int(rng.integers(len(candidates)))])
        return classes

    def labels(self, entry: Entry, epoch: int) -> tuple[list[Entry], Array]:
        """Returns the samples of the classes from 1 on, and the class of each position, `(sy,
        sx)`.
        """
        rng = np.random.default_rng([entry.seed, epoch, _COMPOSITE])
        parts = self.parts(entry, rng)
        shaped = [(inclusion, SHAPES[name]) for name, inclusion in self.segment.inclusions.items()]
        return parts, draw_labels(self.scan, shaped, rng)

    def __call__(self, entry: Entry, epoch: int, find: Callable[[str], SampleView]) -> SampleView:
        """Returns the composite of an epoch, whose matrix is a sample; a
        `train.input.views.Compose`.
        """
        parts, labels = self.labels(entry, epoch)
        return composite(
            find(entry.id), [find(entry_of_part.id) for entry_of_part in parts], labels
        )


def composers(
    segment: Segment, scan: tuple[int, int], entries: Iterable[Entry]
) -> dict[str, Composer]:
    """Returns the composer of each split that has samples."""
    by_split: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_split[entry.split].append(entry)
    return {
        split: Composer(segment, scan, entries_of_split)
        for split, entries_of_split in by_split.items()
    }


def _conditions(entry: Entry) -> tuple[float, str]:
    """The properties that the samples of a composite have in common."""
    return entry.thickness_angstrom, repr(sorted(entry.varied.items()))


Labels = npt.NDArray[np.uint8]
# Which of the points at (y, x) from its middle, (sy, 1) and (1, sx), a shape covers: of a circle's
# diameter by area.
Shape = Callable[[Floats, Floats, float, np.random.Generator], npt.NDArray[np.bool_]]

CORNERS = (5, 9)  # of a polygon, from the first to below the second
MOST_ELONGATED = 2.0  # ratio of an ellipse's axes
# of a scan's side: a larger shape could meet its own image across the scan's edge
LARGEST_DIAMETER = 0.6


def polygon(
    y: Floats, x: Floats, diameter: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Returns which points are in a polygon of 5 to 8 corners on a circle, of which no side is much
    longer.
    """
    corners = int(rng.integers(*CORNERS))
    angles = 2 * np.pi * (np.arange(corners) + 0.6 * rng.random(corners) + rng.random()) / corners
    sides = np.diff(angles, append=angles[0] + 2 * np.pi)  # as angles from the circle's middle
    radius = diameter * math.sqrt(np.pi / (2 * np.sin(sides).sum()))
    inside = np.ones(np.broadcast_shapes(y.shape, x.shape), bool)
    for angle, side in zip(angles, sides, strict=True):
        normal = angle + side / 2
        inside &= y * np.sin(normal) + x * np.cos(normal) <= radius * np.cos(side / 2)
    return inside


def ellipse(
    y: Floats, x: Floats, diameter: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Returns which points are in an ellipse in any direction."""
    elongation = math.sqrt(rng.uniform(1, MOST_ELONGATED))
    angle = rng.uniform(0, np.pi)
    along = y * np.sin(angle) + x * np.cos(angle)
    across = y * np.cos(angle) - x * np.sin(angle)
    return np.asarray((along / elongation) ** 2 + (across * elongation) ** 2 <= (diameter / 2) ** 2)


SHAPES: dict[str, Shape] = {"grain": polygon, "phase": ellipse}


def draw_labels(
    scan: tuple[int, int], inclusions: Sequence[tuple[Inclusion, Shape]], rng: np.random.Generator
) -> Labels:
    """Returns the class of each position of a scan: 0, and from 1 on those of the inclusions."""
    labels = np.zeros(scan, np.uint8)
    left = 1.0
    drawn = []
    for inclusion, _ in reversed(
        inclusions
    ):  # which fraction the shapes of each class cover before the later ones
        drawn.append(inclusion.fraction / left)
        left -= inclusion.fraction
    for class_index, ((inclusion, shape), fraction) in enumerate(
        zip(inclusions, reversed(drawn), strict=True), start=1
    ):
        mean_number = -math.log1p(-fraction) * labels.size / mean_area(inclusion)
        for _ in range(int(rng.poisson(mean_number))):
            diameter = float(rng.uniform(*inclusion.diameter_positions))
            y, x = (
                (np.arange(size) - size * rng.random() + size / 2) % size - size / 2
                for size in scan
            )
            labels[shape(y[:, None], x[None], diameter, rng)] = class_index
    return labels


def mean_area(inclusion: Inclusion) -> float:
    """Returns the mean area of an inclusion, positions."""
    least, most = inclusion.diameter_positions
    return math.pi / 4 * (least**2 + least * most + most**2) / 3


def composite(matrix: SampleView, others: Sequence[SampleView], labels: Labels) -> SampleView:
    """Returns a scan of the patterns of several samples, with its labels in place of the density.

    Args:
        matrix: The sample of class 0, whose symmetries and geometry the composite has.
        others: Those of the classes from 1 on, with scans of the same shape.
        labels: Class of each position, `(sy, sx)`.
    """
    views: list[tuple[int, SampleView]] = [
        (n, view) for n, view in enumerate(others, start=1) if (labels == n).any()
    ]
    # Factors are powers of two. With the smallest, no value leaves the range of float16.
    scale = min([matrix.scale, *(view.scale for _, view in views)])
    patterns = _scaled(matrix.patterns, scale / matrix.scale)
    for class_index, view in views:
        chosen = labels == class_index
        patterns[chosen] = _scaled(view.patterns[chosen], scale / view.scale)
    return matrix._replace(patterns=patterns, scale=scale, density=labels.astype(np.float32))


def _scaled(patterns: Array, factor: float) -> Array:
    """Returns a copy of patterns, times a factor, in their own type."""
    if factor == 1:
        return patterns.copy()
    return patterns * patterns.dtype.type(factor)
