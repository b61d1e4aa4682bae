"""MATLAB: .mat of versions 4 to 7, read by SciPy; version 7.3 is HDF5 (`namsa.io.formats.hdf5`).

MATLAB has no units, and no usual order of a scan's axes: of arrays of four axes, (scan y, scan x,
detector y, detector x) is assumed and noted; of three, the scan's shape tells the frames' axis. An
array is read into memory as a whole. Variables of other classes, such as objects and functions, are
not read.
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from namsa.base.errors import InputError
from namsa.base.files import open_regular
from namsa.base.memory import available_memory_bytes
from namsa.base.text import shorten
from namsa.io.layout import arrange
from namsa.io.read_options import FRAME_AXES, SCAN_AXES, ReadOptions
from namsa.io.recording import ArrayPatterns, Recording

NAME = "MATLAB"
SUFFIXES = (".mat",)

CLASSES = {  # bytes of a number of each class
    "double": 8,
    "single": 4,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
}
COMPRESSION = 1032  # largest ratio of zlib


class Variable(NamedTuple):
    """A variable of a file."""

    name: str
    shape: tuple[int, ...]
    kind: str  # its class, as "uint16"

    @property
    def may_be_patterns(self) -> bool:
        """Whether it is an array of numbers with as many axes as patterns can have."""
        return self.kind in CLASSES and 3 <= len(self.shape) <= 5 and 0 not in self.shape


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are those of version 5 to 7, or it is named as a file of
    MATLAB.
    """
    return head.startswith(b"MATLAB 5.0 MAT-file") or path.suffix.lower() in SUFFIXES


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the scan in a file."""
    from scipy import io

    open_regular(path).close()
    try:
        listed = []
        for name, shape, kind in io.whosmat(os.fspath(path), appendmat=False):
            listed.append(Variable(str(name), shape, str(kind)))
        chosen = _chosen(listed, path, options.dataset)
        name = chosen.name
        needed = math.prod(chosen.shape) * CLASSES[chosen.kind]
        size = path.stat().st_size
        if needed > COMPRESSION * size or 2 * needed > available_memory_bytes():
            raise InputError(
                f"{path} declares {needed / 1e9:.3g} GB of {shorten(name)}, which is read as a "
                "whole: save it with -v7.3, or smaller"
            )
        values = io.loadmat(os.fspath(path), variable_names=[name], appendmat=False)[name]
    except InputError:
        raise
    except Exception as error:  # SciPy raises what its parsers raise
        raise InputError(f"cannot read {path} as a file of MATLAB: {shorten(error, 200)}") from None
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "uif":
        raise InputError(f"{path} holds no real numbers in {shorten(name)}")
    order, notes = matlab_order(values.shape, path, options)
    layout = arrange(ArrayPatterns(values), options, path, order=order)
    yield layout.recording(NAME, path, notes=notes, metadata={"dataset": name})


def _chosen(listed: Sequence[Variable], path: Path, name: str | None) -> Variable:
    """Returns the variable that is named, or the only one of the most axes, three or more."""
    arrays = {variable.name: variable for variable in listed if variable.may_be_patterns}
    if name in arrays:
        return arrays[name]
    if name is not None:
        known = "it has none of three to five axes"
        if arrays:
            known = f"it has {shorten(', '.join(arrays), 200)}"
        raise InputError(f"{path} has no array {shorten(name)} of patterns: {known}")
    if not arrays:
        raise InputError(f"{path} holds no patterns")
    by_axes: dict[int, list[str]] = {}
    for variable in arrays.values():
        by_axes.setdefault(len(variable.shape), []).append(variable.name)
    candidates = by_axes[max(by_axes)]
    if len(candidates) > 1:
        several = shorten(", ".join(candidates), 200)
        raise InputError(f"{path} holds several arrays: choose one with --dataset: {several}")
    return arrays[candidates[0]]


def matlab_order(
    shape: tuple[int, ...], path: Path, options: ReadOptions
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Returns an array's axes in MATLAB's order, and a line about it. Raises InputError if it is
    unclear.
    """
    if options.axes is not None:
        return None, ()
    if len(shape) == 4:
        return SCAN_AXES, (
            "the axes are taken as (scan y, scan x, detector y, detector x): --axes says others",
        )
    if len(shape) != 3:
        return None, ()
    orders = (FRAME_AXES, ("dy", "dx", "n"))
    count = math.prod(options.scan_shape or (0,))
    if not count:
        raise InputError(
            f"{path} holds frames in an array of {shape}: give --scan-shape, and --axes n,dy,dx or "
            "dy,dx,n"
        )
    fitting = [order for order in orders if shape[order.index("n")] == count]
    if len(fitting) != 1:
        raise InputError(
            f"{path} holds an array of {shape}: say which axis counts frames: --axes n,dy,dx or "
            "dy,dx,n"
        )
    return fitting[0], ()
