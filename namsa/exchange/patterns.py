"""Copies the patterns of a scan, a few rows at a time."""

import warnings
from collections.abc import Callable
from typing import Protocol

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import SimulationWarning
from namsa.base.text import plural
from namsa.io.calibration import FourDData

READ_BYTES = 2**26  # of patterns at once


class PatternTarget(Protocol):
    """What takes patterns by slices along the scan's rows."""

    def __setitem__(self, rows: slice, patterns: Array, /) -> None: ...


def copy_patterns(
    scan: FourDData, target: PatternTarget, on_rows: Callable[[], None] = lambda: None
) -> None:
    """Copies the patterns of a scan, unchanged.

    Args:
        target: A dataset of h5py or an array of Zarr.
        on_rows: Called after some rows.

    Warns:
        SimulationWarning: If values are not finite.
    """
    row_bytes = int(np.prod(scan.shape[1:])) * scan.data.dtype.itemsize
    rows_per_part = max(1, READ_BYTES // row_bytes)
    wrong = 0
    for start in range(0, scan.shape[0], rows_per_part):
        rows = slice(start, min(start + rows_per_part, scan.shape[0]))
        patterns = scan.read(rows, slice(0, scan.shape[1]))
        wrong += int((~np.isfinite(patterns)).any(axis=(2, 3)).sum())
        target[rows] = patterns
        on_rows()
    if wrong:
        warnings.warn(
            f"{plural(wrong, 'pattern')} with values that are not finite, written as they are: "
            "mask or replace them in the other program",
            SimulationWarning,
            stacklevel=3,
        )
