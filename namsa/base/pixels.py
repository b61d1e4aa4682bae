"""The coordinates of the pixels of a sample's arrays, derived from its provenance.

Pairs are (y, x). Images are in Å from the cell's origin, patterns in mrad from the optic axis.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.provenance_values import LARGEST, Provenance, provenance_error, value

UNITS = {"cbed": "fraction of the beam", "density": "e/Å²", "projected_potential": "V·Å"}
OPTIONAL_UNITS = {"density_by_depth": "e/Å²"}  # of arrays that some samples have


class SampleArrays(Protocol):
    """The arrays and the provenance of a sample, as of `namsa.samples.sample.Sample`."""

    @property
    def cbed(self) -> Array: ...
    @property
    def density(self) -> Array: ...
    @property
    def projected_potential(self) -> Array: ...
    @property
    def provenance(self) -> Provenance: ...
    @property
    def density_by_depth(self) -> Array | None: ...


class ArrayAxis(NamedTuple):
    """One axis of an array."""

    name: str  # as "ky"
    units: str  # as "mrad"; empty for a plain index
    coordinates: npt.NDArray[np.float64]  # coordinate of each index, `(n,)`, in `units`


class PixelGrid(NamedTuple):
    """A regular grid of pixels: pixel [i, j] of an image is centred on origin + (i, j)·step.

    Attributes:
        step: Distance between neighbouring pixels, (y, x), Å or mrad.
        origin: Centre of pixel [0, 0], (y, x), Å or mrad.
        limit: Distance from (0, 0) where the image ends: the band limit of simulated patterns.
            Infinite where none is known, as of measured ones.

    Example:
        >>> namsa.PixelGrid(step=(0.5, 0.5), origin=(0.0, 0.0)).extent((10, 20))
        (-0.25, 9.75, 4.75, -0.25)
    """

    step: Sequence[float]
    origin: Sequence[float]
    limit: float = math.inf

    def extent(self, shape: Sequence[int]) -> tuple[float, float, float, float]:
        """Returns the outer edges (left, right, bottom, top) of an image of `shape`, with y
        downwards.
        """
        dy, dx = self.step
        y, x = self.origin
        ny, nx = shape
        return x - dx / 2, x + (nx - 0.5) * dx, y + (ny - 0.5) * dy, y - dy / 2

    def finer(self, times: int) -> "PixelGrid":
        """Returns pixels that are so many times smaller over the same area."""
        step = [size / times for size in self.step]
        y, x = self.origin
        dy, dx = step
        before_centre = (times - 1) / 2
        origin = [y - before_centre * dy, x - before_centre * dx]
        return PixelGrid(step, origin, self.limit)

    def aspect(self, shape: Sequence[int]) -> float:
        """Returns the ratio of height to width of an image of `shape`."""
        return shape[0] * self.step[0] / (shape[1] * self.step[1])

    def coordinates(
        self, shape: Sequence[int]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the y of an image's rows, `(ny,)`, and the x of its columns, `(nx,)`."""
        y, x = (self.origin[axis] + self.step[axis] * np.arange(shape[axis]) for axis in (0, 1))
        return y, x

    def distance(self, shape: Sequence[int]) -> npt.NDArray[np.float64]:
        """Returns each pixel's distance from (0, 0), as an array of `shape`."""
        y, x = self.coordinates(shape)
        return np.hypot(y[:, None], x[None, :])

    def emptiness(self, shape: Sequence[int]) -> str | None:
        """Returns which pixels of patterns of `shape` lie beyond the band limit; `None` if no pixel
        does.
        """
        beyond = float((self.distance(shape) > self.limit).mean())
        if not beyond:
            return None
        return (
            f"{beyond:.1%} of the detector's pixels lie beyond the simulation's band limit of "
            f"{self.limit:.1f} mrad, where patterns are empty"
        )


def detector_grid(
    pixel_mrad: Sequence[float], centre: Sequence[float], limit_mrad: float = math.inf
) -> PixelGrid:
    """Returns a detector's pixels of a size (y, x), mrad, in mrad from the optic axis (y, x),
    pixels.
    """
    return PixelGrid(
        pixel_mrad, [-at * size for at, size in zip(centre, pixel_mrad, strict=True)], limit_mrad
    )


def binned(patterns: Array, binning: int) -> npt.NDArray[np.float32]:
    """Returns sums of `binning` × `binning` pixels of `(..., dy, dx)`; what does not fill one is
    left out.
    """
    h, w = (length // binning for length in patterns.shape[-2:])
    trimmed = patterns[..., : h * binning, : w * binning]
    if binning == 1:
        return np.asarray(trimmed, np.float32)
    rows = trimmed.reshape(*trimmed.shape[:-2], h, binning, w * binning).sum(
        axis=-2, dtype=np.float32
    )
    return np.asarray(rows.reshape(*rows.shape[:-1], w, binning).sum(axis=-1))


def binned_grid(grid: PixelGrid, binning: int) -> PixelGrid:
    """Returns the pixels of `binned` patterns."""
    y, x = grid.origin
    dy, dx = grid.step
    origin = [y + dy * (binning - 1) / 2, x + dx * (binning - 1) / 2]
    return PixelGrid([dy * binning, dx * binning], origin, grid.limit)


def pattern_grid(provenance: Mapping[str, object]) -> PixelGrid:
    """Returns the detector's pixels, in mrad from the optic axis, and the simulation's band
    limit.
    """
    return PixelGrid(
        value(provenance, "detector_sampling_mrad"),
        value(provenance, "detector_origin_mrad"),
        band_limit(provenance),
    )


def band_limit(provenance: Mapping[str, object]) -> float:
    """Returns the angle beyond which a simulation has no electrons, mrad; infinite if the
    provenance does not say.

    The accuracy of a ring falls towards it: a detector should end at 2/3 of it.
    """
    shape = value(provenance, "grid_shape", None)
    extent = value(provenance, "extent_angstrom", None)
    energy_ev = value(provenance, "energy_ev", None)
    if not (shape and extent and energy_ev):
        return math.inf
    pixel = max(length / n for length, n in zip(extent, shape, strict=True))
    # h/√(2meE(1 + eE/2mc²)), Å
    wavelength = 12.264259 / math.sqrt(energy_ev * (1 + 0.97847641e-6 * energy_ev))
    return float(1e3 * wavelength * value(provenance, "band_fraction", 2 / 3) / (2 * pixel))


def density_grid(provenance: Mapping[str, object]) -> PixelGrid:
    """Returns the density's pixels, in Å from the cell's origin."""
    return PixelGrid(
        value(provenance, "density_sampling_angstrom"), value(provenance, "density_origin_angstrom")
    )


def potential_grid(provenance: Mapping[str, object]) -> PixelGrid:
    """Returns the projected potential's pixels, in Å from the cell's origin."""
    extent = value(provenance, "extent_angstrom")
    shape = value(provenance, "grid_shape")
    return PixelGrid([length / n for length, n in zip(extent, shape, strict=True)], (0.0, 0.0))


def raster_shape(provenance: Mapping[str, object], patterns: int) -> tuple[int, int]:
    """Returns rows and columns of a sample's scan. Raises InputError if its positions form no such
    raster.
    """
    shape = value(provenance, "scan_shape")
    if not shape:
        raise provenance_error(provenance, "has scan_shape null, and a network needs a raster")
    if shape[0] * shape[1] != patterns:
        raise provenance_error(
            provenance, f"has a scan of {shape[0]} × {shape[1]} and {patterns} patterns"
        )
    return shape[0], shape[1]


def scan_grid(provenance: Mapping[str, object]) -> PixelGrid | None:
    """Returns the probe positions as pixels, in Å; `None` if they form no raster, or a line, which
    has no height.
    """
    shape = value(provenance, "scan_shape", None)
    if not shape or min(shape) < 2:
        return None
    positions = _raster(provenance, shape)
    return PixelGrid((positions[1, 1] - positions[0, 0]).tolist(), positions[0, 0].tolist())


def fills_cell(scan: PixelGrid, provenance: Mapping[str, object]) -> bool:
    """Returns whether the scan covers the periodic cell: one step after the last row and column it
    starts again.
    """
    lengths = np.multiply(scan.step, value(provenance, "scan_shape"))
    return bool(np.allclose(lengths, value(provenance, "extent_angstrom"), rtol=1e-6))


def scan_positions(provenance: Mapping[str, object]) -> npt.NDArray[np.float64]:
    """Returns the probe positions (n, 2) as (y, x), Å. Raises InputError if they are no list of
    pairs of numbers.
    """
    listed = value(provenance, "positions_angstrom")
    try:
        positions = np.asarray(listed, float)
    except (TypeError, ValueError, OverflowError):
        positions = np.empty(0)
    if (
        positions.ndim != 2
        or positions.shape[1] != 2
        or not len(positions)
        or not abs(positions).max() <= LARGEST
    ):
        raise provenance_error(
            provenance, "has positions_angstrom that are no list of pairs of numbers (y, x)"
        )
    return positions


def _raster(provenance: Mapping[str, object], shape: Sequence[int]) -> npt.NDArray[np.float64]:
    """Returns the probe positions in the shape of the scan, `(sy, sx, 2)`."""
    positions = scan_positions(provenance)
    if len(positions) != shape[0] * shape[1]:
        raise provenance_error(
            provenance,
            f"has {len(positions)} positions_angstrom for a scan of {shape[0]} × {shape[1]}",
        )
    return positions.reshape(*shape, 2)


def array_axes(
    provenance: Mapping[str, object], shapes: Mapping[str, Sequence[int]]
) -> dict[str, list[ArrayAxis]]:
    """Returns the axes of a sample's arrays, the slowest first.

    The patterns of a raster have the raster's two axes in place of a running number.

    Raises:
        InputError: If the provenance does not describe the arrays.
    """
    positions = scan_positions(provenance)
    scan_shape = value(provenance, "scan_shape", None)
    if len(positions) != math.prod(shapes["cbed"][:-2]):
        raise provenance_error(
            provenance,
            f"has {len(positions)} positions_angstrom for {math.prod(shapes['cbed'][:-2])} "
            "patterns",
        )
    scan = [ArrayAxis("position", "", np.arange(len(positions), dtype=np.float64))]
    if scan_shape:
        raster = _raster(provenance, scan_shape)
        scan = [ArrayAxis("y", "Å", raster[:, 0, 0]), ArrayAxis("x", "Å", raster[0, :, 1])]
    axes = {}
    # No set: files have the arrays in this order, which is the same in each process.
    for name in [*UNITS, *(name for name in OPTIONAL_UNITS if name in shapes)]:
        names, units, grid = image_plane(name, provenance)
        y, x = grid.coordinates(shapes[name][-2:])
        axes[name] = [ArrayAxis(names[0], units, y), ArrayAxis(names[1], units, x)]
    axes["cbed"] = scan + axes["cbed"]
    if "density_by_depth" in axes:
        depth = depth_axis(shapes["density_by_depth"][0], value(provenance, "thickness_angstrom"))
        axes["density_by_depth"].insert(0, depth)
    return axes


def image_plane(
    name: str, provenance: Mapping[str, object]
) -> tuple[tuple[str, str], str, PixelGrid]:
    """Returns the names of the last two axes of a sample's array, their units, and the pixels."""
    if name == "cbed":
        return ("ky", "kx"), "mrad", pattern_grid(provenance)
    if name == "projected_potential":
        return ("y", "x"), "Å", potential_grid(provenance)
    return ("y", "x"), "Å", density_grid(provenance)


def depth_axis(bins: int, thickness_angstrom: float) -> ArrayAxis:
    """Returns the middles of equal bins along the beam, from where it enters, Å."""
    return ArrayAxis("depth", "Å", (np.arange(bins) + 0.5) * (thickness_angstrom / bins))


def sample_arrays(sample: SampleArrays) -> dict[str, Array]:
    """Returns the arrays of a sample or a record by name: those of `UNITS`, and of `OPTIONAL_UNITS`
    if it has them.
    """
    arrays = {name: getattr(sample, name) for name in UNITS | OPTIONAL_UNITS}
    return {name: array for name, array in arrays.items() if array is not None}


def stack_shape(sample: SampleArrays) -> tuple[int, ...]:
    """Returns the shape of a sample's patterns: (sy, sx, dy, dx) of a raster scan, otherwise (n,
    dy, dx).

    Raises:
        InputError: If the provenance has a raster of another number of positions.
    """
    raster = value(sample.provenance, "scan_shape", None)
    count = len(sample.cbed)
    if raster and raster[0] * raster[1] != count:
        raise provenance_error(sample.provenance, f"has scan_shape {raster} for {count} patterns")
    return (*(raster or (count,)), *sample.cbed.shape[1:])


def tiles_problem(patterns: Sequence[int], tiles: Sequence[int]) -> str | None:
    """Returns why patterns (sy, sx, dy, dx) cannot be stored in so many equal tiles per axis;
    `None` if they can.
    """
    axes = ("scan y", "scan x", "detector y", "detector x")
    for axis, size, count in zip(axes, patterns, tiles, strict=True):
        if size % count:
            divisors = [tiles for tiles in range(1, min(size, count) + 1) if size % tiles == 0]
            return (
                f"{count} tiles along {axis} do not divide its {size}: set data.tiles to "
                f"{max(divisors)} there"
            )
    return None
