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
from namsa.io.formats import find_format
from namsa.io.frames import scan_of_frames
from namsa.io.read_options import ReadOptions, read_options
from namsa.io.recording import ArrayPatterns, Recording


@contextmanager
def read(
    data: str | Path | npt.ArrayLike,
    *,
    dataset: str | None = None,
    scan_shape: tuple[int, int] | str | None = None,
    dtype: npt.DTypeLike | None = None,
    detector_shape: tuple[int, int] | str | None = None,
    offset_bytes: int = 0,
    flyback: int = 0,
    growing: bool = False,
    calibration: CalibrationOverrides | None = None,
    **overrides: Any,
) -> Iterator[Recording]:
    """Opens the scan in a file, or an array as a scan. Patterns are read when they are sliced.

    Args:
        data: Path of a file, or patterns `(sy, sx, dy, dx)`: an array, or an object that is sliced as one.
        dataset: Name of the dataset, in a file that holds several.
        scan_shape: Rows and columns of the scan, for frames `(n, dy, dx)` of which the file does not say it.
        dtype: Type of the numbers with its byte order, such as ">u2", in a file without a format.
        detector_shape: Rows and columns of the detector, in a file without a format.
        offset_bytes: Where the first pattern begins, in a file without a format.
        flyback: Frames at the end of each row of the scan that were recorded while the beam flew back.
        growing: Whether the file is still being written; then the scan is as many complete rows as it holds.
        calibration: What the caller knows better than the file.
        overrides: The same, number by number: `energy_ev=300e3`; they take precedence over `calibration`.

    Yields:
        The recording. It is valid until the `with` statement ends.

    Raises:
        InputError: If the data are no scan of patterns, or if the file cannot be read.
    """
    known = replace(calibration or CalibrationOverrides(), **overrides)
    options = read_options(
        dataset=dataset or known.dataset,
        scan_shape=scan_shape,
        dtype=dtype,
        detector_shape=detector_shape,
        offset_bytes=offset_bytes,
        flyback=flyback,
        growing=growing,
    )
    if isinstance(data, str | Path):
        path = Path(data)
        with find_format(path, options).open_recording(path, options) as recording:
            yield override(recording, known)
    else:
        yield override(_from_array(data, options), known)


@contextmanager
def open_patterns(
    data: str | Path | npt.ArrayLike,
    overrides: CalibrationOverrides | None = None,
    **options: Any,
) -> Iterator[FourDData]:
    """Opens a calibrated scan: `read`, and every number of the calibration is known.

    Args:
        data: As for `read`.
        overrides: What the caller knows better than the file.
        options: How the patterns lie in the file, as for `read`.

    Yields:
        The scan. It is read piece by piece while the file is open.

    Raises:
        InputError: If the file cannot be read, holds no scan or several, or if its calibration is neither in the file
            nor in `overrides`.
    """
    with read(data, calibration=overrides, **options) as recording:
        yield calibrate(recording)


def _from_array(data: npt.ArrayLike, options: ReadOptions) -> Recording:
    """Returns an array as a recording that says nothing of itself."""
    values: Any = data if all(hasattr(data, name) for name in ("shape", "dtype", "__getitem__")) else np.asarray(data)
    patterns = ArrayPatterns(values)
    frames = len(patterns.shape) == 3 and options.scan_shape is not None
    if (len(patterns.shape) != 4 and not frames) or patterns.dtype.kind not in "uif":
        raise InputError(
            f"the array has {len(patterns.shape)} axes and type {patterns.dtype}: give numbers (scan y, scan x, "
            "detector y, detector x), or (frame, detector y, detector x) with scan_shape"
        )
    if 0 in patterns.shape:
        raise InputError(f"the array holds no patterns: its shape is {patterns.shape}")
    if frames:
        return Recording(data=scan_of_frames(patterns, options, "the array"), format="array", name="the array")
    return Recording(data=patterns, format="array", name="the array")
