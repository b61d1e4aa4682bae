"""Where the pixels of a sample's arrays are, from its provenance."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Axis = tuple[str, str, npt.NDArray[np.float64]]  # name, units, coordinates
UNITS = {"cbed": "fraction of the beam", "density": "e/Å²", "projected_potential": "V·Å"}


class Frame(NamedTuple):
    """Pixel [i, j] of an image is centred on origin + (i, j)·step; all (y, x), in Å or mrad."""

    step: Sequence[float]
    origin: Sequence[float]

    def extent(self, shape: Sequence[int]) -> tuple[float, float, float, float]:
        """(left, right, bottom, top) edges of an image of `shape`, y downwards."""
        (dy, dx), (y, x), (ny, nx) = self.step, self.origin, shape
        return x - dx / 2, x + (nx - 0.5) * dx, y + (ny - 0.5) * dy, y - dy / 2

    def aspect(self, shape: Sequence[int]) -> float:
        """Height over width of an image of `shape`."""
        return shape[0] * self.step[0] / (shape[1] * self.step[1])

    def coordinates(self, shape: Sequence[int]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """(y, x) of an image's rows and columns, shapes (ny,) and (nx,)."""
        y, x = (self.origin[axis] + self.step[axis] * np.arange(shape[axis]) for axis in (0, 1))
        return y, x

    def distance(self, shape: Sequence[int]) -> npt.NDArray[np.float64]:
        """Every pixel's distance from (0, 0), of `shape`."""
        y, x = self.coordinates(shape)
        return np.hypot(y[:, None], x[None, :])


def pattern_frame(provenance: Mapping[str, Any]) -> Frame:
    """A pattern's pixels, mrad from the optic axis."""
    return Frame(provenance["detector_sampling_mrad"], provenance["detector_origin_mrad"])


def density_frame(provenance: Mapping[str, Any]) -> Frame:
    """The density's pixels, Å from the cell's origin."""
    return Frame(provenance["density_sampling_angstrom"], provenance["density_origin_angstrom"])


def potential_frame(provenance: Mapping[str, Any]) -> Frame:
    """The projected potential's pixels, Å from the cell's origin."""
    extent, shape = provenance["extent_angstrom"], provenance["grid_shape"]
    return Frame([length / n for length, n in zip(extent, shape, strict=True)], (0.0, 0.0))


def scan_frame(provenance: Mapping[str, Any]) -> Frame | None:
    """The probe positions as pixels, Å; None where they are no grid, or a line, whose pixels have no height."""
    shape = provenance.get("scan_shape")
    if not shape or min(shape) < 2:
        return None
    positions = np.asarray(provenance["positions_angstrom"], float).reshape(*shape, 2)
    return Frame((positions[1, 1] - positions[0, 0]).tolist(), positions[0, 0].tolist())


def fills_cell(scan: Frame, provenance: Mapping[str, Any]) -> bool:
    """Whether the scan's last row and column are one step before its first come again."""
    lengths = np.multiply(scan.step, provenance["scan_shape"])
    return bool(np.allclose(lengths, provenance["extent_angstrom"], rtol=1e-6))


def axes(provenance: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> dict[str, list[Axis]]:
    """The axes of the arrays of `shapes`, slowest first; patterns of a raster have its two in place of their number.

    shapes: those of the sample's arrays by name; of the patterns' the last two numbers count
    """
    positions = np.asarray(provenance["positions_angstrom"], float)
    scan: list[Axis] = [("position", "", np.arange(len(positions), dtype=np.float64))]
    if provenance["scan_shape"]:
        raster = positions.reshape(*provenance["scan_shape"], 2)
        scan = [("y", "Å", raster[:, 0, 0]), ("x", "Å", raster[0, :, 1])]
    return {
        "cbed": scan + _plane(("ky", "kx"), "mrad", pattern_frame(provenance), shapes["cbed"][-2:]),
        "density": _plane(("y", "x"), "Å", density_frame(provenance), shapes["density"]),
        "projected_potential": _plane(("y", "x"), "Å", potential_frame(provenance), shapes["projected_potential"]),
    }


def _plane(names: tuple[str, str], units: str, frame: Frame, shape: Sequence[int]) -> list[Axis]:
    return [(name, units, along) for name, along in zip(names, frame.coordinates(shape), strict=True)]
