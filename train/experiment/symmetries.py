"""The symmetries of a square, applied to a sample's patterns, scan and density alike.

Turn or mirror a specimen about the beam's axis and its patterns turn or mirror with it, at probe positions and over a
density that did too: one plane operation on scan, detector and density makes another true sample. That holds where

- the lens is round (C10, C30, C50): the probe looks the same from all sides;
- scan and density are mapped onto their own grids by a reflection at one and the same line, about which the periodic
  cell may wrap, and the detector's by one at the optic axis;
- for the exchange of y and x, both axes of all three planes have the same pixels.

A sample has 4 symmetries (mirrors of y and x) or 8 (with the exchange), numbered by bits: 1 mirrors y, 2 mirrors x, 4
then exchanges them.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError

_TOLERANCE = 1e-3  # of a pixel: a smaller shift is rounding


class Axis(NamedTuple):
    """`size` points at origin + i · step."""

    size: int
    origin: float
    step: float

    @property
    def middle(self) -> float:
        return self.origin + (self.size - 1) * self.step / 2

    def like(self, other: "Axis") -> bool:
        near = _TOLERANCE * abs(self.step)
        return self.size == other.size and abs(self.origin - other.origin) < near and abs(self.step - other.step) < near

    def reflected(self, at: float, period: float) -> npt.NDArray[np.intp] | None:
        """The index of each point's image under reflection at `at`, or None where a point has none.

        Images outside wrap where the points fill the `period` evenly.
        """
        first = 2 * (at - self.origin) / self.step
        indices = round(first) - np.arange(self.size)
        if abs(first - round(first)) > _TOLERANCE:
            return None
        if indices.min() >= 0 and indices.max() < self.size:
            return indices
        fills = abs(self.size * self.step - period) <= _TOLERANCE * self.step
        return indices % self.size if fills else None


class Mirrors(NamedTuple):
    """What mirrors each plane along one axis: indices into the scan's, detector's and density's points."""

    scan: npt.NDArray[np.intp]
    detector: npt.NDArray[np.intp]
    density: npt.NDArray[np.intp]


class Symmetries(NamedTuple):
    """A sample's mirrors of y and of x, and whether y and x may be exchanged."""

    y: Mirrors
    x: Mirrors
    exchange: bool

    @property
    def order(self) -> int:
        return 8 if self.exchange else 4


def symmetries(provenance: dict[str, Any], detector: tuple[int, ...], density: tuple[int, ...]) -> Symmetries:
    """The symmetries of a sample with patterns of shape `detector` and a target of shape `density`.

    Raises InputError where it has none, naming the reason.
    """
    if reason := directed(provenance):
        raise InputError(reason)
    axes = [_axes(provenance, detector, density, axis) for axis in (0, 1)]
    mirrors = [_mirrors(*axes[axis], provenance["extent_angstrom"][axis], "yx"[axis]) for axis in (0, 1)]
    same = all(a.like(b) for a, b in zip(*axes, strict=True))
    return Symmetries(mirrors[0], mirrors[1], same)


def directed(microscope: Mapping[str, Any]) -> str | None:
    """Why no sample of a microscope with these values, which may be several a tilt, has symmetries; None where some do.

    What the samples' grids allow besides is known when they are there: see `symmetries`.
    """
    lens = {name: value for name, value in microscope["aberrations"].items() if value and not name.endswith("0")}
    if lens:
        return f"aberrations {lens} are not round, so mirrored samples are not true ones: {_REMEDY}"
    tilts = {name: microscope[name] for name in _TILTS if np.any(microscope.get(name, 0))}
    return f"tilts {tilts} have a direction, so mirrored samples are not true ones: {_REMEDY}" if tilts else None


_TILTS = ("beam_tilt_mrad", "specimen_tilt_mrad")
_REMEDY = "set training.inputs.augment=false"


def _axes(p: dict[str, Any], detector: tuple[int, ...], density: tuple[int, ...], axis: int) -> tuple[Axis, Axis, Axis]:
    raster = np.asarray(p["positions_angstrom"], np.float64).reshape(*p["scan_shape"], 2)
    line = np.moveaxis(raster[..., axis], axis, 0)[:, 0]
    step = float(line[1] - line[0]) if len(line) > 1 else float(p["extent_angstrom"][axis])
    return (
        Axis(len(line), float(line[0]), step),
        Axis(detector[axis], p["detector_origin_mrad"][axis], p["detector_sampling_mrad"][axis]),
        Axis(density[axis], p["density_origin_angstrom"][axis], p["density_sampling_angstrom"][axis] or step),
    )


def _mirrors(scan: Axis, detector: Axis, density: Axis, period: float, name: str) -> Mirrors:
    pattern = detector.reflected(0.0, detector.size * detector.step)
    if pattern is None:
        raise InputError(f"the detector is not centred on the optic axis along {name}: {_REMEDY}")
    for at in (scan.middle, density.middle, scan.origin):
        probes, image = scan.reflected(at, period), density.reflected(at, period)
        if probes is not None and image is not None:
            return Mirrors(probes, pattern, image)
    raise InputError(
        f"scan and density have no common mirror along {name}: start the scan at a density pixel, let it fill the cell "
        f"(no scan.step_angstrom), or {_REMEDY}"
    )


def apply(
    symmetry: int, of: Symmetries, patterns: npt.NDArray[Any], density: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """`patterns` (sy, sx, dy, dx) and `density` (ty, tx) under symmetry number `symmetry` of `of`."""
    out = np.empty_like(patterns), np.empty_like(density)
    place(symmetry, of, patterns, density, *out)
    return out


def place(
    symmetry: int,
    of: Symmetries,
    patterns: npt.NDArray[Any],
    density: npt.NDArray[Any],
    patterns_out: npt.NDArray[Any],
    density_out: npt.NDArray[Any],
) -> None:
    """As `apply`, into arrays of the same shapes: one pass, without the interpreter's lock where arrays are large."""
    y = of.y if symmetry & 1 else None
    x = of.x if symmetry & 2 else None
    if symmetry & 4:
        patterns_out, density_out = patterns_out.transpose(1, 0, 3, 2), density_out.T
    _mirror(patterns, (y and y.scan, x and x.scan, y and y.detector, x and x.detector), patterns_out)
    _mirror(density, (y and y.density, x and x.density), density_out)


def _mirror(array: npt.NDArray[Any], mirrors: Sequence[npt.NDArray[np.intp] | None], out: npt.NDArray[Any]) -> None:
    """array[mirrors[0]][:, mirrors[1]]... to `out`, in slices: they copy several times faster than lists of indices."""
    for pieces in product(*(_pieces(indices) for indices in mirrors)):
        to, of = zip(*pieces, strict=True)
        np.copyto(out[to], array[of])


def _pieces(indices: npt.NDArray[np.intp] | None) -> list[tuple[slice, slice]]:
    """Where to, and where from, for indices that fall from the first to 0 and, where they wrap, on from the last."""
    if indices is None:
        return [(slice(None), slice(None))]
    first, size = int(indices[0]), len(indices)
    until_zero = slice(0, first + 1), slice(first, None, -1)
    return [until_zero, (slice(first + 1, None), slice(size - 1, first, -1))] if first + 1 < size else [until_zero]
