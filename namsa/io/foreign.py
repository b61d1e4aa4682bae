"""4D-STEM files of other programs, read piece by piece: where the patterns are, and what their axes mean.

py4DSTEM (0.12 to 0.14), HyperSpy (.hspy and EMD), EMD in general and namsa's own files say units; a plain HDF5 file
says nothing, and neither does a file whose axes are in pixels: then the caller must. py4DSTEM's own numbers come before
its axes, which mix pixels and units (0.14.18). A detector is turned into the scan's frame as py4DSTEM has it: where its
y and x are to be exchanged, first that, then by the angle, y' = y cos − x sin and x' = y sin + x cos.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from namsa.errors import InputError, WorkError
from namsa.physics.optics import wavelength_angstrom
from namsa.pixels import UNITS

Pair = tuple[float, float]

_ANGSTROM = {"Å": 1.0, "A": 1.0, "angstrom": 1.0, "pm": 0.01, "nm": 10.0, "um": 1e4, "m": 1e10}
_MRAD = {"mrad": 1.0, "rad": 1e3, "urad": 1e-3}
_SPELLINGS = {
    "\u212b": "Å",
    "µ": "u",
    "μ": "u",
    "⁻¹": "^-1",
    "**-1": "^-1",
    "Ang": "ang",
    "stroms": "strom",
}


@dataclass(frozen=True)
class Given:
    """What the caller says, which counts more than what the file says."""

    dataset: str | None = None
    scan_step_angstrom: Pair | None = None
    pixel_mrad: Pair | None = None
    energy_ev: float | None = None
    semiangle_mrad: float | None = None
    centre_pixels: Pair | None = None
    rotation_deg: float | None = None


class Axis(NamedTuple):
    """Coordinates origin + i · step, in `units` as the file spells them."""

    units: str
    step: float
    origin: float


@dataclass(frozen=True)
class Patterns:
    """A scan of patterns in an open file; pairs are (y, x).

    shape: (sy, sx, dy, dx), whatever the order in the file
    centre_pixels: the optic axis, in pixels from the first one's centre; None where the file does not say
    rotation_deg, flip: from the detector's frame to the scan's, see above
    fractions: whether intensities are fractions of the incident beam already
    """

    data: h5py.Dataset
    backwards: bool
    scan_step_angstrom: Pair
    scan_origin_angstrom: Pair
    pixel_mrad: Pair
    energy_ev: float
    semiangle_mrad: float
    centre_pixels: Pair | None
    rotation_deg: float
    flip: bool
    fractions: bool

    @property
    def shape(self) -> tuple[int, int, int, int]:
        sy, sx, dy, dx = self._forwards(self.data.shape)
        return sy, sx, dy, dx

    @property
    def chunk(self) -> tuple[int, int]:
        """Scan rows and columns that the file keeps in one piece; 1 and 1 where it keeps nothing together."""
        return self._forwards(self.data.chunks or (1, 1, 1, 1))[:2]

    def read(self, rows: slice, columns: slice) -> npt.NDArray[Any]:
        """The patterns (rows, columns, dy, dx) in the file's type. Raises WorkError where HDF5 cannot unpack them."""
        try:
            if self.backwards:
                return np.asarray(self.data[:, :, columns, rows]).transpose(3, 2, 1, 0)
            return np.asarray(self.data[rows, columns])
        except OSError as error:
            raise WorkError(
                f"cannot read {self.data.file.filename} from scan row {rows.start} on, it is damaged or packed by a "
                f"filter that h5py lacks (h5repack makes it plain): {' '.join(str(error).split())}"
            ) from None

    def _forwards(self, values: Any) -> Any:
        return tuple(values[::-1] if self.backwards else values)


@contextmanager
def opened(path: Path, given: Given = Given()) -> Iterator[Patterns]:
    """The patterns in `path`. Raises InputError where there are none, or what they need is neither there nor given."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"cannot read {path} as HDF5: {' '.join(str(error).split())}") from None
    with file:
        data = _find(file, path, given.dataset)
        yield _understood(data, given, path)


def _find(file: h5py.File, path: Path, name: str | None) -> h5py.Dataset:
    if name is not None:
        found = file.get(name)
        if isinstance(found, h5py.Group):
            found = found.get("data")
        if not isinstance(found, h5py.Dataset) or found.ndim != 4:
            raise InputError(f"{path} has no dataset {name} of four axes: {_listed(_datasets(file))}")
        return found
    scans = _datasets(file)
    if len(scans) != 1:
        reason = "several" if scans else "no"
        raise InputError(f"{path} holds {reason} datasets of four axes: {_listed(scans)}")
    return scans[0]


def _datasets(file: h5py.File) -> list[h5py.Dataset]:
    found: list[h5py.Dataset] = []

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.ndim == 4 and item.dtype.kind in "uif":
            found.append(item)

    file.visititems(visit)
    return found


def _listed(scans: list[h5py.Dataset]) -> str:
    names = ", ".join(scan.name.removeprefix("/") for scan in scans)
    return f"choose one with --dataset: {names}" if scans else "a scan is stored as (y, x, detector y, detector x)"


def _understood(data: h5py.Dataset, given: Given, path: Path) -> Patterns:
    axes = _axes(data)
    calibration, facts = _calibration(data), _facts(data)
    energy_ev, semiangle = (
        given.energy_ev or facts.get("energy_ev"),
        given.semiangle_mrad or facts.get("semiangle_mrad"),
    )
    if energy_ev is None:
        raise InputError(f"{path} does not say the beam's energy: give --energy-ev")
    if semiangle is None:
        raise InputError(f"{path} does not say the probe's semiangle: give --semiangle-mrad")
    wavelength = wavelength_angstrom(energy_ev)
    lengths = [_angstrom(axis.units) for axis in axes]
    angles = [_mrad(axis.units, wavelength) for axis in axes]
    backwards = all(angles[:2]) and all(lengths[2:])  # as HyperSpy writes EMD
    if backwards:
        axes, lengths, angles = axes[::-1], lengths[::-1], angles[::-1]
    step = _pair([axis.step * (unit or np.nan) for axis, unit in zip(axes[:2], lengths[:2], strict=True)])
    pixel = _pair([axis.step * (unit or np.nan) for axis, unit in zip(axes[2:], angles[2:], strict=True)])
    centre = _pair([-axis.origin / axis.step for axis in axes[2:]])
    sizes = data.shape[::-1] if backwards else data.shape
    inside = all(0 < at < size - 1 for at, size in zip(centre, sizes[2:], strict=True))
    middle: Pair | None = centre if inside and not np.isnan(pixel).any() else None
    if calibration:
        length, angle = _angstrom(_units(calibration, "R")), _mrad(_units(calibration, "Q"), wavelength)
        step = _pair([_number(calibration, "R_pixel_size") * (length or np.nan)] * 2)
        pixel = _pair([_number(calibration, "Q_pixel_size") * (angle or np.nan)] * 2)
        origin = [_number(calibration, f"{name}_mean", _number(calibration, name)) for name in ("qx0", "qy0")]
        middle = None if np.isnan(origin).any() else _pair(origin)
    step, pixel = given.scan_step_angstrom or step, given.pixel_mrad or pixel
    if not min(step) > 0:
        units = _units(calibration, "R") if calibration else axes[0].units
        raise InputError(
            f"{path}: the scan's step is in {units or 'no units'}, not a length: give --scan-step-angstrom"
        )
    if not min(pixel) > 0:
        units = _units(calibration, "Q") if calibration else axes[2].units
        raise InputError(f"{path}: the detector's pixel is in {units or 'no units'}, not an angle: give --pixel-mrad")
    turned = _number(calibration, "QR_rotation_degrees", 0.0) if calibration else 0.0
    return Patterns(
        data,
        bool(backwards),
        step,
        _pair([a.origin * (unit or 0.0) for a, unit in zip(axes[:2], lengths[:2], strict=True)]),
        pixel,
        float(energy_ev),
        float(semiangle),
        given.centre_pixels or middle,
        turned if given.rotation_deg is None else given.rotation_deg,
        bool(_number(calibration, "QR_flip", 0.0)) if calibration else False,
        _text(data.attrs.get("units", "")) == UNITS["cbed"],
    )


# ---- What files say -------------------------------------------------------------------------------------------------


def _axes(data: h5py.Dataset) -> list[Axis]:
    """HyperSpy's axis-0 to axis-3, EMD's dim0 to dim3 or dim1 to dim4, or four axes without units."""
    group = data.parent
    if "axis-0" in group:
        found = [group[f"axis-{number}"].attrs for number in range(4)]
        return [Axis(_text(a.get("units", "")), float(a["scale"]), float(a["offset"])) for a in found]
    first = 0 if "dim0" in group else 1
    vectors = [group[f"dim{first + number}"] for number in range(4) if f"dim{first + number}" in group]
    if len(vectors) < 4 or any(len(vector) < 2 for vector in vectors):
        return [Axis("", 1.0, 0.0)] * 4
    return [Axis(_text(v.attrs.get("units", "")), float(v[1]) - float(v[0]), float(v[0])) for v in vectors]


def _parents(data: h5py.Dataset) -> Iterator[h5py.Group]:
    group = data.parent
    while True:
        yield group
        if group.name == "/":
            return
        group = group.parent


def _calibration(data: h5py.Dataset) -> h5py.Group | None:
    """py4DSTEM's: beside the patterns (0.13), or in the metadata of what they are in (0.14, 0.12)."""
    for group in _parents(data):
        for name in ("calibration", "metadatabundle/calibration", "metadata/calibration"):
            if "R_pixel_size" in group.get(name, ()):
                return group[name]
    return None


def _facts(data: h5py.Dataset) -> dict[str, float]:
    """The energy in eV and the semiangle in mrad, where namsa, HyperSpy or py4DSTEM 0.12 wrote them."""
    for group in _parents(data):
        if "provenance" in group.attrs:
            provenance = json.loads(group.attrs["provenance"])
            return {key: provenance[key] for key in ("energy_ev", "semiangle_mrad") if key in provenance}
        if "metadata/Acquisition_instrument/TEM" in group:
            said = group["metadata/Acquisition_instrument/TEM"].attrs
            found = {"energy_ev": 1e3 * said.get("beam_energy", 0), "semiangle_mrad": said.get("convergence_angle", 0)}
            return {key: float(value) for key, value in found.items() if value}
        if "beam_energy" in group.get("metadata/microscope", ()):
            return {"energy_ev": float(group["metadata/microscope/beam_energy"][()])}
    return {}


def _units(calibration: h5py.Group, space: str) -> str:
    for name in (f"{space}_pixel_units", f"{space}_pixel_size_units"):
        if name in calibration:
            return _text(calibration[name][()])
    return ""


def _number(group: h5py.Group, name: str, default: float = np.nan) -> float:
    value = group[name][()] if name in group else default
    return float(value) if np.ndim(value) == 0 and not isinstance(value, bytes | str) else np.nan


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _pair(values: list[float]) -> Pair:
    return float(values[0]), float(values[1])


# ---- Units ----------------------------------------------------------------------------------------------------------


def _plain(units: str) -> str:
    for mark in "[]_ ":
        units = units.replace(mark, "")
    for spelling, plain in _SPELLINGS.items():
        units = units.replace(spelling, plain)
    return units


def _angstrom(units: str) -> float | None:
    """Å in one of `units`; None where they are no length."""
    return _ANGSTROM.get(_plain(units))


def _mrad(units: str, wavelength: float) -> float | None:
    """mrad in one of `units`, angles or, by α = λk, reciprocal lengths; None where they are neither."""
    plain = _plain(units)
    length = _ANGSTROM.get(plain.removeprefix("1/")) if plain.startswith("1/") else None
    if plain.endswith("^-1"):
        length = _ANGSTROM.get(plain.removesuffix("^-1"))
    return _MRAD.get(plain) if length is None else 1e3 * wavelength / length
