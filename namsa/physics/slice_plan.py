"""Cuts of a specimen along the beam: slices of one thickness, or slices that follow its layers
of atoms.

A slice acts at its front. Equal slices put all atoms between two faces there, and so move layers
that fall anywhere in them by up to their thickness. Where the layers and the faces have different
periods, the moved layers have a period of their own along the beam, which is the crystal's only in
the simulation. Its Laue zone is a ring of false intensity at √(2λ/period). Slices that follow the
layers have their fronts there, at any distances. Layers that are closer together than the detector
can tell are merged, in the same way in every period of the crystal.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Booleans, Floats, Integers
from namsa.base.errors import InputError

MOST_SLICES = 100_000
EDGE_ANGSTROM = 1e-9  # an atom this close below the edge of a slice belongs to the next slice
_SAME_LAYER_ANGSTROM = 2e-3  # rounding of coordinates in files
_DECIMALS = 6  # of thicknesses, so that equal ones share a propagator
# Fronts of slices without a period are multiples of this part of the largest extent of a slice, so
# that few thicknesses differ.
_FRONTS_PER_EXTENT = 8
# Of the largest extent, for specimens without a period, of whose layers most share a slice.
_WITHOUT_PERIOD = 0.5
# Of slices of the finite projection, from one to the next, and at most, in extents of a layer.
_GROWTH = 1.7
_THICKEST_EXTENTS = 2.0


@dataclass(frozen=True)
class SlicePlan:
    """Slices of a specimen."""

    # where each slice begins and acts, (n,), Å from the entrance; the first is 0
    fronts_angstrom: Floats
    depth_angstrom: float  # thickness of the specimen, Å: where the last slice ends
    slice_of_atom: Integers  # the slice of each atom, (n_atoms,)
    # Heights between which each slice has what it contains, (n + 1,), Å, if that is part of an
    # atom (`namsa.physics.finite`); `None`: whole atoms.
    faces_angstrom: Floats | None = None

    @property
    def count(self) -> int:
        """Number of slices."""
        return len(self.fronts_angstrom)

    @property
    def ends_angstrom(self) -> Floats:
        """End of each slice, (n,), Å: the thickness of the specimen up to there."""
        return np.append(self.fronts_angstrom[1:], self.depth_angstrom)

    def slices_up_to(self, thickness_angstrom: float) -> int:
        """Returns the number of slices whose end is closest to a thickness, Å; 0 if that is the
        entrance.
        """
        ends = np.append(0.0, self.ends_angstrom)
        return int(np.argmin(np.abs(np.round(ends - thickness_angstrom, _DECIMALS))))

    def depths(self, thicknesses_angstrom: Sequence[float] | None) -> tuple[int, ...]:
        """Returns the number of slices up to each thickness, Å; `None` stands for the whole
        specimen.

        Raises:
            InputError: If thicknesses do not increase by a slice at least, or exceed the specimen.
        """
        if thicknesses_angstrom is None:
            return (self.count,)
        depths = tuple(self.slices_up_to(thickness) for thickness in thicknesses_angstrom)
        lz = self.depth_angstrom
        mean = self.depth_angstrom / self.count
        beyond = thicknesses_angstrom and max(thicknesses_angstrom) > lz + mean / 2
        if not depths or beyond or depths[0] < 1 or np.any(np.diff(depths) < 1):
            raise InputError(
                f"thicknesses_angstrom is {list(thicknesses_angstrom)}; they must increase, by a "
                f"slice of {mean:.3g} Å at least, from one slice to the cell's {lz:g} Å"
            )
        return depths

    def distinct_thicknesses(self) -> tuple[Floats, Integers]:
        """Returns the distinct thicknesses of slices, (m,), Å, and the index of each slice among
        them, (n,).
        """
        thicknesses = np.round(self.ends_angstrom - self.fronts_angstrom, _DECIMALS)
        distinct, index = np.unique(thicknesses, return_inverse=True)
        return distinct, index.astype(np.int64)


def slice_count(depth_angstrom: float, slice_thickness_angstrom: float) -> int:
    """Returns how many equal slices within a thickness fill the cell. Raises InputError if more
    than `MOST_SLICES`.
    """
    count = max(1, int(np.ceil(depth_angstrom / slice_thickness_angstrom - EDGE_ANGSTROM)))
    if count > MOST_SLICES:
        raise InputError(
            f"slice_thickness_angstrom {slice_thickness_angstrom:g} divides {depth_angstrom:g} Å "
            f"into {count} slices; use {depth_angstrom / MOST_SLICES:.2g} Å or more, for "
            f"{MOST_SLICES} or fewer"
        )
    return count


def slice_index(z: Floats, depth_angstrom: float, n_slices: int) -> Integers:
    """Returns the index of the slice that each height `z` (n,) lies in: above the cell the first,
    below it the last.
    """
    index = np.floor((z + EDGE_ANGSTROM) / (depth_angstrom / n_slices)).astype(np.int64)
    return np.clip(index, 0, n_slices - 1)


def equal_slices(z: Floats, depth_angstrom: float, slice_thickness_angstrom: float) -> SlicePlan:
    """Returns equally thick slices, at most `slice_thickness_angstrom`. Slice i has atoms with i·dz
    <= z < (i + 1)·dz.

    Atoms that thermal displacement moves across the faces of the cell stay in its first and last
    slice: the beam comes from vacuum and leaves into it.

    Args:
        z: Heights of the atoms (n,), Å.
        slice_thickness_angstrom: Largest thickness of a slice, Å.

    Raises:
        InputError: As `slice_count`.
    """
    count = slice_count(depth_angstrom, slice_thickness_angstrom)
    fronts = np.arange(count) * (depth_angstrom / count)
    return SlicePlan(fronts, depth_angstrom, slice_index(z, depth_angstrom, count))


def layer_slices(z: Floats, depth_angstrom: float, largest_extent_angstrom: float) -> SlicePlan:
    """Returns slices that begin at the layers of atoms.

    Layers that lie within `largest_extent_angstrom` may share a slice, which then begins amid them.
    If the layers have a period, the slices have it, too. Atoms of one layer lie within 2 mÅ of its
    first atom, so that dense heights never chain into a thick layer.

    Args:
        z: Heights of the atoms at rest (n,), Å. Those above or below the cell stay in the first or
            last slice.
        largest_extent_angstrom: Largest distance along the beam between atoms of one slice, Å; half
            of it if the layers have no period.

    Raises:
        InputError: If the slices are more than `MOST_SLICES`.
    """
    inside = np.clip(z, 0.0, depth_angstrom)
    by_height = np.argsort(inside, kind="stable")
    new_layer = _group(inside[by_height], _SAME_LAYER_ANGSTROM)
    levels = inside[by_height][new_layer]
    period = _period(levels)
    if period is None:
        largest_extent_angstrom *= _WITHOUT_PERIOD
        begins_slice = _group(levels, largest_extent_angstrom)
    else:
        begins_slice = _first_layers(levels, period, largest_extent_angstrom)
    first_layers = np.flatnonzero(begins_slice)
    last_layers = np.append(first_layers, len(levels))[1:] - 1  # none in vacuum
    fronts = (levels[first_layers] + levels[last_layers]) / 2
    if period is None and largest_extent_angstrom > 0:
        step = largest_extent_angstrom / _FRONTS_PER_EXTENT
        fronts = np.minimum(np.rint(fronts / step) * step, depth_angstrom)
    slice_of_layer = np.cumsum(begins_slice) - 1
    slice_of_atom = np.empty(len(z), np.int64)
    slice_of_atom[by_height] = slice_of_layer[np.cumsum(new_layer) - 1]
    if not len(fronts) or fronts[0] > largest_extent_angstrom / 2 + _SAME_LAYER_ANGSTROM:
        # nothing, from the entrance to the atoms
        fronts = np.append(0.0, fronts)
        slice_of_atom = slice_of_atom + 1
    fronts[0] = 0.0
    if len(fronts) > MOST_SLICES:
        raise InputError(
            f"the specimen has {len(fronts)} layers of atoms along the beam, and {MOST_SLICES} "
            "slices are the most: give slice_thickness_angstrom, "
            f"{depth_angstrom / MOST_SLICES:.2g} Å or more"
        )
    return SlicePlan(fronts, depth_angstrom, slice_of_atom)


def centred_slices(
    z: Floats, depth_angstrom: float, largest_extent_angstrom: float, thinnest_angstrom: float
) -> SlicePlan:
    """Returns slices for the finite projection, each of which acts in its middle.

    A nucleus is in the middle of a thin slice, as the potential changes fast along the beam only
    there. Each slice farther from a layer is thicker than the one before it, by `_GROWTH` and to
    `_THICKEST_EXTENTS` times the largest extent of a layer at most.

    Args:
        z: Heights of the atoms at rest (n,), Å.
        largest_extent_angstrom: As for `layer_slices`.
        thinnest_angstrom: Thickness of the slices about the layers, Å.

    Raises:
        InputError: If the slices are more than `MOST_SLICES`.
    """
    layers = layer_slices(z, depth_angstrom, largest_extent_angstrom).fronts_angstrom.tolist()
    thickest = _THICKEST_EXTENTS * largest_extent_angstrom
    faces = [0.0]
    for start, stop in itertools.pairwise(layers):
        half = (stop - start) / 2
        outward = _growing(half, thinnest_angstrom, thickest)
        faces += [start + distance for distance in outward]
        faces += [stop - distance for distance in outward[-2::-1]]
    outward = _growing(depth_angstrom - layers[-1], thinnest_angstrom, thickest)
    faces += [layers[-1] + distance for distance in outward]
    faces[-1] = depth_angstrom
    if len(faces) > MOST_SLICES:
        raise InputError(
            f"the finite projection divides {depth_angstrom:g} Å into {len(faces) - 1} slices, and "
            f"{MOST_SLICES} are the most: give slice_thickness_angstrom"
        )
    edges = np.array(faces)
    fronts = (edges[:-1] + edges[1:]) / 2
    fronts[0] = 0.0
    return SlicePlan(fronts, depth_angstrom, slice_between(z, edges), edges)


def _growing(length: float, thinnest: float, thickest: float) -> list[float]:
    """Returns the faces between a layer and a distance from it, Å, of which the last is there.

    The first is half a slice away.
    """
    start = thinnest / 2
    if length <= thinnest:
        return [length]
    distances = [start]
    step = thinnest
    while distances[-1] < length:
        step = min(_GROWTH * step, thickest)
        distances.append(distances[-1] + step)
    scale = (length - start) / (distances[-1] - start)
    return [start + (distance - start) * scale for distance in distances]


def slice_between(z: Floats, faces_angstrom: Floats) -> Integers:
    """Returns the slice that each height (n,) lies in, between faces (m + 1,), Å; heights beyond
    the outer faces are in the first or last slice.
    """
    inner = faces_angstrom[1:-1]
    return np.searchsorted(inner, z + EDGE_ANGSTROM, side="right").astype(np.int64)


class _Grouping(NamedTuple):
    """One way to group the layers of a period into slices. Fewer and thinner slices are better."""

    slices: int  # number of slices
    largest_extent: float  # largest distance between layers of one slice, Å
    start: int  # the layer that begins the period
    begins: Booleans  # which layers of the period begin a slice


def _first_layers(levels: Floats, period: int, extent: float) -> Booleans:
    """Returns which of the layers are the first of a slice, alike in each period.

    Of the ways to group the layers of a period, the one with the fewest slices is repeated. Of
    periods that are shorter than a slice, several are grouped as one.

    Args:
        period: Number of layers after which their distances repeat.
    """
    period = _periods_of_slice(levels, period, extent)
    layers = np.append(levels[:period], levels[:period] + levels[period] - levels[0])
    groupings = []
    for start in range(period):
        of_period = layers[start : start + period]
        begins = _group(of_period, extent)
        last_layers = np.append(np.flatnonzero(begins)[1:], period) - 1
        extents = of_period[last_layers] - of_period[begins]
        largest = float(extents.max().round(_DECIMALS))
        groupings.append(_Grouping(int(begins.sum()), largest, start, begins))
    best = min(groupings, key=lambda grouping: grouping[:3])
    is_first = best.begins[(np.arange(len(levels)) - best.start) % period]
    is_first[:1] = True
    return is_first


def _periods_of_slice(levels: Floats, period: int, extent: float) -> int:
    """Returns the number of layers of as many periods as share a slice, or of one period.

    As most of their layers then share a slice, it is as thick as one without a period.
    """
    height = float(levels[period] - levels[0])
    periods = int(_WITHOUT_PERIOD * extent / height)
    return period * max(1, min(periods, (len(levels) - 1) // period))


def _group(heights: Floats, extent: float) -> Booleans:
    """Returns which of ascending heights begin a group, if each takes as many as lie within
    `extent` of its first.
    """
    begins = np.zeros(len(heights), np.bool_)
    index = 0
    while index < len(heights):
        begins[index] = True
        end = heights[index] + extent + EDGE_ANGSTROM
        index = max(index + 1, int(np.searchsorted(heights, end, side="right")))
    return begins


def _period(levels: Floats) -> int | None:
    """Returns the number of layers after which their distances repeat; `None` if they do not within
    half of them.

    Of heights as dense as layers can be told apart, any distances are equal, and there is none.
    """
    if len(levels) and np.ptp(levels) < 2 * _SAME_LAYER_ANGSTROM * (len(levels) - 1):
        return None
    for count in range(1, len(levels) // 2 + 1):
        steps = levels[count:] - levels[:-count]
        if np.all(np.abs(steps - steps[0]) <= 2 * _SAME_LAYER_ANGSTROM):
            return count
    return None
