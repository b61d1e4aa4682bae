"""The symmetries of a square, applied to a sample's patterns, scan and density alike.

If a specimen is rotated or mirrored about the beam axis, its patterns, its probe positions and its
density are rotated or mirrored with it. One operation on the planes of scan, detector and density
therefore makes another valid sample. The conditions are:

- The lens is round (C10, C30, C50), so that the probe is the same in all directions, or its
  directions and those of tilts are drawn from all directions evenly: the mirrored sample is then
  that of another, equally likely lens or tilt.
- A reflection at one common line maps the grids of scan and density onto themselves, possibly by
  wrapping around the periodic cell, and a reflection at the optic axis maps the detector's grid
  onto itself.
- For the exchange of y and x, both axes of all three planes have the same pixels.

A sample has 4 symmetries (mirrors of y and x) or 8 (with the exchange), numbered by bits: 1 mirrors
y, 2 mirrors x, 4 then exchanges them.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.pixels import density_grid, pattern_grid, raster_shape, scan_positions
from namsa.base.provenance_values import Provenance, provenance_error, value

_TOLERANCE = 1e-3  # of a pixel: a smaller shift is rounding
_SMALLEST_STEP = 1e-6  # of probe positions, Å


class GridAxis(NamedTuple):
    """Points of one axis, at origin + i · step."""

    size: int  # number of points
    origin: float  # position of the first point
    step: float  # distance of points

    @property
    def middle(self) -> float:
        """Position half-way between the first and the last point."""
        return self.origin + (self.size - 1) * self.step / 2

    def matches(self, other: "GridAxis") -> bool:
        """Returns whether both axes have the same points, up to rounding."""
        near = _TOLERANCE * abs(self.step)
        return (
            self.size == other.size
            and abs(self.origin - other.origin) < near
            and abs(self.step - other.step) < near
        )

    def reflected(self, at: float, period: float) -> npt.NDArray[np.intp] | None:
        """Returns the index of each point's image under a reflection, or `None` if a point has
        none.

        Args:
            period: Length of the periodic cell. Images outside wrap if the points fill it evenly.
        """
        start = 2 * (at - self.origin) / self.step
        indices = round(start) - np.arange(self.size)
        if abs(start - round(start)) > _TOLERANCE:
            return None
        if indices.min() >= 0 and indices.max() < self.size:
            return indices
        fills = abs(self.size * self.step - period) <= _TOLERANCE * self.step
        return indices % self.size if fills else None


class Mirrors(NamedTuple):
    """A mirror along one axis, as indices into the points of each plane."""

    scan: npt.NDArray[np.intp]  # `(sy,)` or `(sx,)`
    detector: npt.NDArray[np.intp]  # `(dy,)` or `(dx,)`
    density: npt.NDArray[np.intp]  # `(ty,)` or `(tx,)`


class Symmetries(NamedTuple):
    """The symmetries of a sample."""

    y: Mirrors  # the mirror of y
    x: Mirrors  # the mirror of x
    exchange: bool  # whether y and x may be exchanged

    @property
    def order(self) -> int:
        """Number of symmetries."""
        return 8 if self.exchange else 4


def sample_symmetries(
    provenance: Provenance,
    detector: tuple[int, ...],  # shape of a pattern
    density: tuple[int, ...],  # shape of the density
    # Settings whose direction is drawn from all evenly; see
    # `SimulationConfig.drawn_in_all_directions`.
    drawn: Collection[str] = (),
) -> Symmetries:
    """Finds the symmetries of a sample. Raises InputError, with the reason, if it has none or a
    wrong provenance.
    """
    for name in ("aberrations", *_TILTS):
        value(provenance, name, None)
    if reason := broken_by(provenance, drawn):
        raise InputError(reason)
    along_y = _axes(provenance, detector, density, 0)
    along_x = _axes(provenance, detector, density, 1)
    extent = value(provenance, "extent_angstrom")
    mirrors_y = _mirrors(*along_y, extent[0], "y")
    mirrors_x = _mirrors(*along_x, extent[1], "x")
    exchange = all(y.matches(x) for y, x in zip(along_y, along_x, strict=True))
    return Symmetries(mirrors_y, mirrors_x, exchange)


def broken_by(microscope: Mapping[str, Any], drawn: Collection[str] = ()) -> str | None:
    """Returns why aberrations or tilts break the symmetries of all samples. `None` if they do not.

    They are those of the section microscope or of a provenance; a tilt may have several values.
    Whether the grids of a sample allow symmetries is known when it exists; see `sample_symmetries`.
    """
    aberrations = microscope.get("aberrations", {})
    directed = [name for name, value in aberrations.items() if value and not name.endswith("0")]
    lens = [name for name in directed if _VARIED_AS.get(name) not in drawn]
    for name in sorted(set(_VARIED_AS.values())):
        if microscope.get(name) and name not in drawn:
            lens.append(name)
    if lens:
        return (
            f"aberrations {', '.join(lens)} are not round, so mirrored samples are not true ones: "
            f"{_REMEDY}"
        )
    tilts = {}
    for name in _TILTS:
        if name not in drawn and np.any(microscope.get(name, 0)):
            tilts[name] = microscope[name]
    if tilts:
        return f"tilts {tilts} have a direction, so mirrored samples are not true ones: {_REMEDY}"
    return None


# The varied setting that gives a coefficient or its azimuth.
_VARIED_AS = {
    "C12": "C12_angstrom",
    "phi12": "C12_angstrom",
    "C21": "C21_angstrom",
    "phi21": "C21_angstrom",
}
_TILTS = ("beam_tilt_mrad", "specimen_tilt_mrad")
_REMEDY = "set training.inputs.augment=false"


def _axes(
    provenance: Provenance, detector: tuple[int, ...], density: tuple[int, ...], axis: int
) -> tuple[GridAxis, GridAxis, GridAxis]:
    """Returns the y axis (0) or the x axis (1) of scan, detector and density."""
    positions = scan_positions(provenance)
    raster = positions.reshape(*raster_shape(provenance, len(positions)), 2)
    line = np.moveaxis(raster[..., axis], axis, 0)[:, 0]
    if len(line) > 1:
        step = float(line[1] - line[0])
    else:
        step = float(value(provenance, "extent_angstrom")[axis])
    if abs(step) < _SMALLEST_STEP:
        raise provenance_error(
            provenance, f"has probe positions that are {step:g} Å apart along {'yx'[axis]}"
        )
    pixels = pattern_grid(provenance)
    image = density_grid(provenance)
    return (
        GridAxis(len(line), float(line[0]), step),
        GridAxis(detector[axis], pixels.origin[axis], pixels.step[axis]),
        GridAxis(density[axis], image.origin[axis], image.step[axis] or step),
    )


def _mirrors(
    scan: GridAxis, detector: GridAxis, density: GridAxis, period: float, name: str
) -> Mirrors:
    """Returns the mirror along the axis called `name`. Raises InputError if there is none."""
    pattern = detector.reflected(0.0, detector.size * detector.step)
    if pattern is None:
        raise InputError(f"the detector is not centred on the optic axis along {name}: {_REMEDY}")
    for at in (scan.middle, density.middle, scan.origin):
        probes = scan.reflected(at, period)
        image = density.reflected(at, period)
        if probes is not None and image is not None:
            return Mirrors(probes, pattern, image)
    raise InputError(
        f"scan and density have no common mirror along {name}: start the scan at a density pixel, "
        f"let it fill the cell (no scan.step_angstrom), or {_REMEDY}"
    )


def apply(
    symmetry: int, symmetries: Symmetries, patterns: Array, density: Array
) -> tuple[Array, Array]:
    """Returns patterns `(sy, sx, dy, dx)` and density `(ty, tx)`, or `(n, ty, tx)` by depth, under
    a symmetry.
    """
    out = np.empty_like(patterns), np.empty_like(density)
    apply_into(symmetry, symmetries, patterns, density, *out)
    return out


def apply_into(
    symmetry: int,
    symmetries: Symmetries,
    patterns: Array,
    density: Array,
    patterns_out: Array,
    density_out: Array,
) -> None:
    """Applies a symmetry as `apply` does, into given arrays of the same shapes.

    It is one pass over the data, without the interpreter's lock if the arrays are large.
    """
    y = symmetries.y if symmetry & 1 else None
    x = symmetries.x if symmetry & 2 else None
    if symmetry & 4:
        patterns_out = patterns_out.transpose(1, 0, 3, 2)
        density_out = density_out.swapaxes(-1, -2)
    _mirror(
        patterns, (y and y.scan, x and x.scan, y and y.detector, x and x.detector), patterns_out
    )
    bins = (None,) * (density.ndim - 2)
    _mirror(density, (*bins, y and y.density, x and x.density), density_out)


def _mirror(array: Array, mirrors: Sequence[npt.NDArray[np.intp] | None], out: Array) -> None:
    """Writes array[mirrors[0]][:, mirrors[1]]... to `out`, by slices, which copy several times
    faster than indices.
    """
    for slices in product(*(_slices(indices) for indices in mirrors)):
        target, source = zip(*slices, strict=True)
        np.copyto(out[target], array[source])


def _slices(indices: npt.NDArray[np.intp] | None) -> list[tuple[slice, slice]]:
    """Returns (target, source) for indices that descend to 0 and, if they wrap, continue from the
    last.
    """
    if indices is None:
        return [(slice(None), slice(None))]
    start = int(indices[0])
    size = len(indices)
    until_zero = slice(0, start + 1), slice(start, None, -1)
    if start + 1 < size:
        return [until_zero, (slice(start + 1, None), slice(size - 1, start, -1))]
    return [until_zero]
