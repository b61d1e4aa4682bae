"""`namsa.read`: opens measured or simulated patterns, whatever their format."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError
from namsa.io.calibration import CalibrationOverrides, FourDData, calibrate, override
from namsa.io.formats import hdf5
from namsa.io.formats.options import ReadOptions
from namsa.io.recording import ArrayPatterns, Recording


@contextmanager
def read(
    data: str | Path | npt.ArrayLike,
    *,
    dataset: str | None = None,
    calibration: CalibrationOverrides | None = None,
    **overrides: Any,
) -> Iterator[Recording]:
    """Opens the scan in a file, or an array as a scan. Patterns are read when they are sliced.

    Args:
        data: Path of a file, or patterns `(sy, sx, dy, dx)`: an array, or an object that is sliced as one.
        dataset: Name of the dataset, for a file that holds several.
        calibration: What the caller knows better than the file.
        overrides: The same, number by number: `energy_ev=300e3`; they take precedence over `calibration`.

    Yields:
        The recording. It is valid until the `with` statement ends.

    Raises:
        InputError: If the data are no scan of patterns, or if the file cannot be read.
    """
    known = replace(calibration or CalibrationOverrides(), **overrides)
    if isinstance(data, str | Path):
        with hdf5.open_recording(Path(data), ReadOptions(dataset or known.dataset)) as recording:
            yield override(recording, known)
    else:
        yield override(_from_array(data), known)


@contextmanager
def open_patterns(
    data: str | Path | npt.ArrayLike, overrides: CalibrationOverrides | None = None
) -> Iterator[FourDData]:
    """Opens a calibrated scan: `read`, and every number of the calibration is known.

    Args:
        data: As for `read`.
        overrides: What the caller knows better than the file.

    Yields:
        The scan. It is read piece by piece while the file is open.

    Raises:
        InputError: If the file cannot be read, holds no scan or several, or if its calibration is neither in the file
            nor in `overrides`.
    """
    with read(data, calibration=overrides) as recording:
        yield calibrate(recording)


def _from_array(data: npt.ArrayLike) -> Recording:
    """Returns an array as a recording that says nothing of itself."""
    values: Any = data if all(hasattr(data, name) for name in ("shape", "dtype", "__getitem__")) else np.asarray(data)
    patterns = ArrayPatterns(values)
    if len(patterns.shape) != 4 or patterns.dtype.kind not in "uif":
        raise InputError(
            f"the array has {len(patterns.shape)} axes and type {patterns.dtype}: give numbers (scan y, scan x, "
            "detector y, detector x)"
        )
    if 0 in patterns.shape:
        raise InputError(f"the array holds no patterns: its shape is {patterns.shape}")
    return Recording(data=patterns, format="array", name="the array")
