"""A scan of diffraction patterns in an open file, and what the file says of it.

A `Recording` is what every reader of `namsa.io.formats` returns. Patterns are read by slices, so
that a scan may be larger than memory. Numbers that the file does not say are `None`:
`namsa.io.calibration` completes them.
"""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Pair
from namsa.base.errors import InputError, WorkError
from namsa.base.files import Closing
from namsa.base.text import described
from namsa.io.confined_library import DamagedFileError
from namsa.io.part import Window


class CalibrationFacts(TypedDict, total=False):
    """The scan and the detector that the axes of a file describe; see `Recording`."""

    scan_step_angstrom: Pair | None
    scan_origin_angstrom: Pair
    pixel_mrad: Pair | None
    pixel_inverse_angstrom: Pair | None
    centre_pixels: Pair | None
    rotation_deg: float | None
    flip: bool | None
    ellipse: Pair | None
    centre_slope: tuple[Pair, Pair] | None
    reasons: Mapping[str, str]


class RecordingFacts(CalibrationFacts, total=False):
    """Facts about a scan that a file states; see `Recording`."""

    energy_ev: float | None
    semiangle_mrad: float | None
    normalised: bool
    metadata: Mapping[str, object]
    limit_mrad: float
    thickness_angstrom: float | None
    aperture_edge: str
    bad_pixels: tuple[tuple[int, int], ...]


class PatternArray(Protocol):
    """Interface of the patterns of a scan: a dataset of a file, or an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of the numbers."""

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the pieces that are stored together, if there are any."""

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part."""


class Opened(ExitStack):
    """Files and processes that are open as long as patterns are read."""

    closed = False  # whether it was closed

    def close(self) -> None:
        """Closes it."""
        super().close()
        self.closed = True


@dataclass(frozen=True)
class PatternView:
    """Patterns that are read from others: a `PatternArray` but for its parts."""

    stored: PatternArray  # the others

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.stored.dtype

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return self.stored.chunks


class PatternScan(Closing):
    """A scan whose patterns are read by slices: what a `Recording` and a calibrated scan have in
    common.

    Its file is closed by `close`, at the end of a `with` statement, or when nothing refers to the
    scan any more.
    """

    data: PatternArray
    opened: Opened

    def close(self) -> None:
        """Closes the file. Patterns cannot be read any more."""
        self.opened.close()

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape (scan y, scan x, detector y, detector x)."""
        sy, sx, dy, dx = self.data.shape
        return sy, sx, dy, dx

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.data.dtype

    @property
    def chunk(self) -> tuple[int, int]:
        """Scan rows and columns that the file stores in one piece; (1, 1) if it is not chunked."""
        rows, columns = (self.data.chunks or (1, 1))[:2]
        return rows, columns

    def read(self, rows: slice, columns: slice) -> Array:
        """Reads patterns of a part of the scan; returns patterns in the file's type, `(rows,
        columns, dy, dx)`.

        Raises:
            WorkError: If they cannot be unpacked.
        """
        try:
            return self.data[rows, columns]
        except DamagedFileError as error:
            raise WorkError(
                f"cannot read {error.path} from scan row {rows.start} on{error.hint}: "
                f"{error.reason}"
            ) from None


@dataclass(frozen=True, repr=False)
class Recording(PatternScan):
    """Patterns of a scan in an open file, and what the file says of them; `None` is unknown. Pairs
    are (y, x).

    Attributes:
        data: The patterns, `(scan y, scan x, detector y, detector x)`; they are read when they are
            indexed, as an array of NumPy is, and their file stays open as long as they are referred
            to, unless it is closed.
        format: Name of the format, such as "HDF5" or "Merlin"; "array" for an array in memory.
        name: The file, as messages name it.
        scan_step_angstrom: Step of the scan, Å.
        scan_origin_angstrom: First position of the scan, Å.
        pixel_mrad: Pixel of the detector, mrad.
        pixel_inverse_angstrom: Pixel of the detector, 1/Å, where the file has it in place of an
            angle. It becomes an angle where the energy is known.
        energy_ev: Energy of the beam, eV.
        semiangle_mrad: Convergence semiangle of the probe, mrad.
        centre_pixels: Optic axis, in pixels from the centre of the first one.
        rotation_deg: Rotation from the detector's frame to the scan's, degrees; see
            `namsa.io.calibration`.
        flip: Whether the detector's y and x are exchanged before the rotation; `None` counts as
            not.
        normalised: Whether intensities are fractions of the incident beam.
        ellipse: The bright disk's major semiaxis over the minor, and the direction of the major one
            on the detector, degrees from +x towards +y; `None` for a circle.
        notes: What was left out or assumed, and what is corrected as patterns are read, one line
            each.
        metadata: What else the file says, as JSON values.
        limit_mrad: Band limit of simulated patterns, mrad; infinite if it is not known, as of
            measured ones.
        thickness_angstrom: Thickness of a simulated specimen, Å.
        aperture_edge: What falls linearly over the edge of a simulated aperture, "intensity" or
            "amplitude"; "" if it is not known, as of measured patterns.
        reasons: Why a number is unknown of which the file says something, by its name.
        bad_pixels: Pixels (row, column) that the file excludes.
        centre_slope: Movement of the disk that the file states, detector (y, x) by scan (row,
            column), pixels per step, as long as patterns are not shifted back.
        serpentine: Whether rows in alternate directions were put in order.
        flip_scan: The scan's axes that were flipped: "", "y", "x" or "yx".
        window: The part of the stored scan and detector that is read (`namsa.io.part.Window`);
            `None` for all of it.
        opened: What is closed with the recording.
    """

    data: PatternArray
    format: str
    name: str
    scan_step_angstrom: Pair | None = None
    scan_origin_angstrom: Pair = (0.0, 0.0)
    pixel_mrad: Pair | None = None
    pixel_inverse_angstrom: Pair | None = None
    energy_ev: float | None = None
    semiangle_mrad: float | None = None
    centre_pixels: Pair | None = None
    rotation_deg: float | None = None
    flip: bool | None = None
    normalised: bool = False
    ellipse: Pair | None = None
    notes: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    limit_mrad: float = math.inf
    thickness_angstrom: float | None = None
    aperture_edge: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    bad_pixels: tuple[tuple[int, int], ...] = ()
    centre_slope: tuple[tuple[float, float], tuple[float, float]] | None = None
    serpentine: bool = False
    flip_scan: str = ""
    window: Window | None = None
    opened: Opened = field(default_factory=Opened, compare=False)

    def __repr__(self) -> str:
        """Returns shape, type, step and pixel with their units, and the beam, in a line."""
        return f"<Recording: {', '.join(self.facts)}>"

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows: the same facts, and the notes. It reads no
        patterns.
        """
        rows = [*(("", fact) for fact in self.facts), *(("note", note) for note in self.notes)]
        return described("Recording", self.name, rows)

    @property
    def facts(self) -> tuple[str, ...]:
        """Lines on the recording: format, shape, type, beam, step and pixel with their units."""
        sy, sx, dy, dx = self.shape
        shape = f"{sy} × {sx} patterns of {dy} × {dx} pixels"
        energy = "energy unknown"
        if self.energy_ev:
            energy = f"{self.energy_ev / 1e3:g} keV"
        semiangle = "semiangle unknown"
        if self.semiangle_mrad:
            semiangle = f"semiangle {self.semiangle_mrad:.4g} mrad"
        step = "step unknown"
        if self.scan_step_angstrom:
            step = f"steps of {_times(self.scan_step_angstrom)} Å"
        pixel = "pixel unknown"
        if self.pixel_mrad:
            pixel = f"pixels of {_times(self.pixel_mrad)} mrad"
        elif self.pixel_inverse_angstrom:
            pixel = f"pixels of {_times(self.pixel_inverse_angstrom)} 1/Å"
        return self.format, shape, str(self.dtype), energy, semiangle, step, pixel


def _times(pair: Pair) -> str:
    """Returns a pair as text; one number if both are equal."""
    return " × ".join(f"{value:.4g}" for value in dict.fromkeys(pair))


@dataclass(frozen=True)
class ArrayPatterns:
    """An array in memory, or an object that is read by slices as one, which is indexed as NumPy's
    arrays are.
    """

    values: Any  # the array: of NumPy, h5py, Zarr, another library or a file's reader
    opened: Opened | None = None  # what stays open as long as something refers to the patterns

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(self.values.dtype)

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the pieces that are stored together; `None` for pieces of different
        sizes.
        """
        chunks = getattr(self.values, "chunks", None)
        if chunks and all(isinstance(size, int) for size in chunks):
            return tuple(chunks)
        return None

    def __getitem__(self, index: object) -> Array:
        """Returns a part. Whole numbers are read as slices, which is all that readers know."""
        if self.opened is not None and self.opened.closed:
            raise InputError(
                "the file is closed: read patterns before `close` or the end of the `with` "
                "statement"
            )
        parts = index if isinstance(index, tuple) else (index,)
        if Ellipsis in parts:
            at = parts.index(Ellipsis)
            all_others = (slice(None),) * (len(self.shape) + 1 - len(parts))
            parts = (*parts[:at], *all_others, *parts[at + 1 :])
        if len(parts) > len(self.shape):
            raise IndexError(f"{len(parts)} indices for {len(self.shape)} axes")
        slices = []  # of all axes that are named
        kept: list[slice | int] = []  # without those of which one index is wanted
        for axis_index, size in zip(parts, self.shape, strict=False):
            if isinstance(axis_index, slice):
                slices.append(axis_index)
                kept.append(slice(None))
            else:
                position = range(size)[axis_index]
                slices.append(slice(position, position + 1))
                kept.append(0)
        return np.asarray(self.values[tuple(slices)])[tuple(kept)]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Returns all patterns: what `np.asarray` takes."""
        return np.asarray(self[...], dtype)
