"""Where a specimen is cut along the beam: slices of one thickness, or slices that follow its layers of atoms.

A slice acts at its front. Equal slices put all atoms between two faces there, and so move layers that fall anywhere in
them by up to their thickness. Where the layers and the faces have different periods, the moved layers have a period of
their own along the beam, which is the crystal's only in the simulation. Its Laue zone is a ring of false intensity at
√(2λ/period). Slices that follow the layers have their fronts there, at any distances. Layers that are closer together
than the detector can tell are merged, in the same way in every period of the crystal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from namsa.arrays import Booleans, Floats, Integers
from namsa.errors import InputError

MOST_SLICES = 100_000
EDGE_ANGSTROM = 1e-9  # an atom this close below the edge of a slice belongs to the next slice
_SAME_LAYER_ANGSTROM = 2e-3  # rounding of coordinates in files
_DECIMALS = 6  # of thicknesses, so that equal ones share a propagator


@dataclass(frozen=True)
class SlicePlan:
    """How a specimen is cut."""

    fronts_angstrom: Floats  # where each slice begins and acts, (n,), Å from the entrance; the first is 0
    depth_angstrom: float  # thickness of the specimen, Å: where the last slice ends
    slice_of_atom: Integers  # the slice of each atom, (n_atoms,)

    @property
    def count(self) -> int:
        """Number of slices."""
        return len(self.fronts_angstrom)

    @property
    def ends_angstrom(self) -> Floats:
        """Where each slice ends, (n,), Å: the thickness of the specimen up to there."""
        return np.append(self.fronts_angstrom[1:], self.depth_angstrom)

    def slices_up_to(self, thickness_angstrom: float) -> int:
        """Returns the number of slices whose end is closest to a thickness, Å; 0 if that is the entrance."""
        ends = np.append(0.0, self.ends_angstrom)
        return int(np.argmin(np.abs(np.round(ends - thickness_angstrom, _DECIMALS))))

    def depths(self, thicknesses_angstrom: Sequence[float] | None) -> tuple[int, ...]:
        """Returns the number of slices up to each thickness, Å; `None` stands for the whole specimen.

        Raises:
            InputError: If thicknesses do not increase by a slice at least, or exceed the specimen.
        """
        if thicknesses_angstrom is None:
            return (self.count,)
        depths = tuple(self.slices_up_to(thickness) for thickness in thicknesses_angstrom)
        lz, mean = self.depth_angstrom, self.depth_angstrom / self.count
        beyond = thicknesses_angstrom and max(thicknesses_angstrom) > lz + mean / 2
        if not depths or beyond or depths[0] < 1 or np.any(np.diff(depths) < 1):
            raise InputError(
                f"thicknesses_angstrom is {list(thicknesses_angstrom)}; they must increase, by a slice of "
                f"{mean:.3g} Å at least, from one slice to the cell's {lz:g} Å"
            )
        return depths

    def distinct_thicknesses(self) -> tuple[Floats, Integers]:
        """Returns the distinct thicknesses of slices, (m,), Å, and the index of each slice among them, (n,)."""
        thicknesses = np.round(self.ends_angstrom - self.fronts_angstrom, _DECIMALS)
        distinct, index = np.unique(thicknesses, return_inverse=True)
        return distinct, index.astype(np.int64)


def slice_count(depth_angstrom: float, slice_thickness_angstrom: float) -> int:
    """Returns how many equal slices within a thickness fill the cell. Raises InputError if more than `MOST_SLICES`."""
    count = max(1, int(np.ceil(depth_angstrom / slice_thickness_angstrom - EDGE_ANGSTROM)))
    if count > MOST_SLICES:
        raise InputError(
            f"slice_thickness_angstrom {slice_thickness_angstrom:g} divides {depth_angstrom:g} Å into {count} slices; "
            f"use {depth_angstrom / MOST_SLICES:.2g} Å or more, for {MOST_SLICES} or fewer"
        )
    return count


def slice_index(z: Floats, depth_angstrom: float, n_slices: int) -> Integers:
    """Returns the index of the slice that each height `z` (n,) lies in: above the cell the first, below it the last."""
    index = np.floor((z + EDGE_ANGSTROM) / (depth_angstrom / n_slices)).astype(np.int64)
    return np.clip(index, 0, n_slices - 1)


def equal_slices(z: Floats, depth_angstrom: float, slice_thickness_angstrom: float) -> SlicePlan:
    """Returns equally thick slices, at most `slice_thickness_angstrom`. Slice i has atoms with i·dz <= z < (i + 1)·dz.

    Atoms that thermal displacement moves across the faces of the cell stay in its first and last slice: the beam comes
    from vacuum and leaves into it.

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

    Layers that lie within `largest_extent_angstrom` may share a slice, which then begins amid them. If the layers have
    a period, the slices have it, too.

    Args:
        z: Heights of the atoms at rest (n,), Å. Those above or below the cell stay in the first or last slice.
        largest_extent_angstrom: Largest distance along the beam between atoms of one slice, Å.

    Raises:
        InputError: If the slices are more than `MOST_SLICES`.
    """
    inside = np.clip(z, 0.0, depth_angstrom)
    by_height = np.argsort(inside, kind="stable")
    new_layer = np.diff(inside[by_height], prepend=-np.inf) > _SAME_LAYER_ANGSTROM
    levels = inside[by_height][new_layer]
    first = _first_layers(levels, largest_extent_angstrom)
    starts = np.flatnonzero(first)
    last = np.append(starts, len(levels))[1:] - 1  # none in vacuum
    fronts = (levels[starts] + levels[last]) / 2
    slice_of_atom = np.empty(len(z), np.int64)
    slice_of_atom[by_height] = (np.cumsum(first) - 1)[np.cumsum(new_layer) - 1]
    if not len(fronts) or fronts[0] > largest_extent_angstrom / 2 + _SAME_LAYER_ANGSTROM:
        fronts, slice_of_atom = np.append(0.0, fronts), slice_of_atom + 1  # nothing, from the entrance to the atoms
    fronts[0] = 0.0
    if len(fronts) > MOST_SLICES:
        raise InputError(
            f"the specimen has {len(fronts)} layers of atoms along the beam, and {MOST_SLICES} slices are the most: "
            f"give slice_thickness_angstrom, {depth_angstrom / MOST_SLICES:.2g} Å or more"
        )
    return SlicePlan(fronts, depth_angstrom, slice_of_atom)


def _first_layers(levels: Floats, extent: float) -> Booleans:
    """Returns which of the layers are the first of a slice.

    Of a crystal's period, the grouping with the fewest slices is repeated. Layers without a period are grouped from the
    entrance down.
    """
    period = _period(levels)
    if period is None:
        return _group(levels, 0, extent)
    layers = np.append(levels[:period], levels[:period] + levels[period] - levels[0])
    options = []
    for start in range(period):
        own = layers[start : start + period]
        grouped = _group(own, 0, extent)
        ends = np.append(np.flatnonzero(grouped)[1:], period) - 1
        options.append((int(grouped.sum()), float((own[ends] - own[grouped]).max().round(_DECIMALS)), start, grouped))
    _, _, start, grouped = min(options, key=lambda option: option[:3])
    first = grouped[(np.arange(len(levels)) - start) % period]
    first[:1] = True
    return first


def _group(levels: Floats, start: int, extent: float) -> Booleans:
    """Returns which layers begin a slice, if each slice takes as many layers as lie within `extent`."""
    first = np.zeros(len(levels), np.bool_)
    while start < len(levels):
        first[start] = True
        start = max(start + 1, int(np.searchsorted(levels, levels[start] + extent + EDGE_ANGSTROM, side="right")))
    return first


def _period(levels: Floats) -> int | None:
    """Returns the number of layers after which their distances repeat; `None` if they do not within half of them."""
    for count in range(1, len(levels) // 2 + 1):
        steps = levels[count:] - levels[:-count]
        if np.all(np.abs(steps - steps[0]) <= 2 * _SAME_LAYER_ANGSTROM):
            return count
    return None
