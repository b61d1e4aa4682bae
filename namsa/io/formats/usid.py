"""USID (pycroscopy): a matrix of positions by spectroscopic values in an HDF5 file, which is a scan
of patterns if both have two dimensions.

Attributes of the matrix refer to `Position_Indices` and `Position_Values` (positions, dimensions),
and to `Spectroscopic_Indices` and `Spectroscopic_Values` (dimensions, values), which have `labels`
and `units`. The indices say which dimension is the fastest.

Source: pycroscopy.github.io/USID/usid_model.html.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.io.file_axes import FileAxis, axis_of_coordinates
from namsa.io.hdf5_items import Hdf5Dataset
from namsa.io.layout import arrange, facts_of
from namsa.io.read_options import ReadOptions
from namsa.io.recording import CalibrationFacts, PatternView, Recording
from namsa.io.safe_hdf5 import Hdf5File
from namsa.io.stored_calibration import calibration_of_axes, stored_beam

NAME = "USID"
MATRIX = 2  # axes
DIMENSIONS = 2  # of positions, and of a pattern
INDICES = ("Position_Indices", "Spectroscopic_Indices")
MOST_INDICES = 2**26


class UsidGrid(NamedTuple):
    """A grid of two dimensions, the slow one first."""

    shape: tuple[int, int]
    axes: tuple[FileAxis, FileAxis]


@dataclass(frozen=True)
class MatrixFrames(PatternView):
    """The rows of a matrix as frames `(n, dy, dx)`."""

    frame_shape: tuple[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, dy, dx)."""
        return (self.stored.shape[0], *self.frame_shape)

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the pieces that are stored together: whole frames."""
        if self.stored.chunks is None:
            return None
        return (self.stored.chunks[0], *self.frame_shape)

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns consecutive frames, or a part of each."""
        rows = self.stored[index[0], slice(None)]
        return rows.reshape(-1, *self.frame_shape)[(slice(None), *index[1:])]


def matrices(file: Hdf5File) -> list[str]:
    """Returns the names of the matrices of patterns in a file."""
    return [name for name in file.scans(MATRIX)[0] if is_matrix(file.find(name))]


def is_matrix(item: object) -> bool:
    """Returns whether it is a matrix that refers to its indices."""
    if not isinstance(item, Hdf5Dataset) or len(item.shape) != MATRIX or not item.is_numeric:
        return False
    return all(isinstance(item.referred(name), Hdf5Dataset) for name in INDICES)


def describe(data: Hdf5Dataset, path: Path, options: ReadOptions) -> Recording:
    """Returns the scan in a matrix.

    Raises:
        InputError: If positions or values are no full grid of two dimensions.
    """
    scan = _grid(data, "Position", data.shape[0], path)
    detector = _grid(data, "Spectroscopic", data.shape[1], path)
    frames = MatrixFrames(data, detector.shape)
    layout = arrange(frames, options, path, stated=scan.shape)
    axes = [*scan.axes, *detector.axes]
    calibration: CalibrationFacts = {}
    if layout.data.shape[:2] == scan.shape:
        calibration = facts_of(calibration_of_axes(axes, layout.data.shape), axes)
    beam = stored_beam(data)
    notes = dict.fromkeys(axis.note for axis in axes if axis.note)
    return layout.recording(
        NAME,
        path,
        notes=tuple(notes),
        energy_ev=beam.energy_ev,
        semiangle_mrad=beam.semiangle_mrad,
        metadata={"dataset": data.name.removeprefix("/")},
        **calibration,
    )


def _grid(data: Hdf5Dataset, kind: str, count: int, path: Path) -> UsidGrid:
    """Returns the grid that positions or spectroscopic values are of."""
    place = f"{path}: {kind}_Indices of {shorten(data.name)}"
    indices = _table(data.referred(f"{kind}_Indices"), kind, count)
    values = _table(data.referred(f"{kind}_Values"), kind, count)
    if indices is None:
        raise InputError(f"{place} are not those of its {count} {kind.lower()} values")
    sizes = [int(column.max()) + 1 for column in indices]
    used = [dimension for dimension, size in enumerate(sizes) if size > 1]
    if len(used) != DIMENSIONS:
        raise InputError(
            f"{place} have {len(used)} dimensions of more than one value: a scan of patterns has "
            f"{DIMENSIONS} of positions and {DIMENSIONS} of pixels"
        )
    changes = [np.count_nonzero(np.diff(indices[dimension])) for dimension in used]
    if changes[0] <= changes[1]:
        slow, fast = used
    else:
        fast, slow = used
    shape = (sizes[slow], sizes[fast])
    expected = np.indices(shape).reshape(DIMENSIONS, -1)
    if math.prod(shape) != count or not np.array_equal(indices[[slow, fast]], expected):
        raise InputError(
            f"{place} are no full grid of {shape[0]}x{shape[1]} in rows: {count} values are stored"
        )
    slow_axis = _axis(data, kind, slow, indices, values, shape[0])
    fast_axis = _axis(data, kind, fast, indices, values, shape[1])
    return UsidGrid(shape, (slow_axis, fast_axis))


def _table(stored: object, kind: str, count: int) -> Array | None:
    """Returns indices or values `(dimensions, count)`; `None` for others."""
    if not isinstance(stored, Hdf5Dataset) or not stored.is_numeric:
        return None
    if len(stored.shape) != MATRIX or math.prod(stored.shape) > MOST_INDICES:
        return None
    table = stored[:, :]
    if kind == "Position":
        table = table.T
    return table if table.shape[1] == count and table.shape[0] else None


def _axis(
    data: Hdf5Dataset,
    kind: str,
    dimension: int,
    indices: Array,
    values: Array | None,
    size: int,
) -> FileAxis:
    """Returns one dimension of a grid."""
    described = data.referred(f"{kind}_Values")
    labels = _texts(described, "labels")
    units = _texts(described, "units")
    name = labels[dimension] if dimension < len(labels) else ""
    unit = units[dimension] if dimension < len(units) else ""
    if values is None or len(values) <= dimension:
        return FileAxis(unit, np.nan, np.nan, name)
    _, places = np.unique(indices[dimension], return_index=True)
    return axis_of_coordinates(values[dimension][places], size, unit, name)


def _texts(described: object, name: str) -> list[str]:
    """Returns the texts of an attribute."""
    if not isinstance(described, Hdf5Dataset):
        return []
    stored = described.attribute(name)
    listed = stored if isinstance(stored, list) else [stored]
    return [shorten(str(text or ""), 40) for text in listed]
