"""`namsa.read`: opens measured or simulated patterns, whatever their format."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError
from namsa.io.calibration import CalibrationOverrides, FourDData, calibrate, override
from namsa.io.dead_regions import described, found_in, pixels_of
from namsa.io.formats import open_file
from namsa.io.layout import arrange
from namsa.io.mask import read_mask
from namsa.io.read_options import ReadOptions, read_options
from namsa.io.recording import ArrayPatterns, Opened, Recording
from namsa.io.scan_order import forwards, reordered
from namsa.io.window import PartOption, windowed


def read(
    data: str | Path | npt.ArrayLike | Recording,
    *,
    dataset: str | None = None,
    scan_shape: tuple[int, int] | str | None = None,
    dtype: npt.DTypeLike | None = None,
    detector_shape: tuple[int, int] | str | None = None,
    offset_bytes: int = 0,
    flyback: int | None = None,
    skip_frames: int | tuple[int, int] = 0,
    dropped_frames: Sequence[int] = (),
    axes: str | Sequence[str] | None = None,
    index: int | None = None,
    mask: str | Path | npt.ArrayLike | None = None,
    region: PartOption = None,
    crop: PartOption = None,
    binning: int | None = None,
    growing: bool = False,
    calibration: CalibrationOverrides | None = None,
    **overrides: Any,
) -> Recording:
    """Opens the scan in a file, or an array as a scan. Patterns are read when they are sliced.

    The recording may be used in a `with` statement, which closes the file at its end, or without
    one.

    Args:
        data: Path of a file, of a folder of frames, or a pattern of names such as "frame_*.mib";
            patterns `(sy, sx, dy, dx)` as an array or an object that is sliced as one; or a
            recording.
        dataset: Name of the dataset, in a file that holds several.
        scan_shape: Rows and columns of the scan, for frames `(n, dy, dx)` of which the file does
            not say it.
        dtype: Type of the numbers with its byte order, such as ">u2", in a file without a format.
        detector_shape: Rows and columns of the detector, or the name of a preset such as "arina",
            in a file without a format.
        offset_bytes: Where the first pattern begins, in a file without a format.
        flyback: Frames at the end of each row of the scan that were recorded while the beam flew
            back; `None` if that is not known.
        skip_frames: Frames before the scan, or before and after it, that are no part of it.
        dropped_frames: Numbers of the frames that the detector dropped, among all that were due,
            from 0; an empty pattern takes their place.
        axes: Names of the stored axes, such as "dy,dx,sy,sx": rows and columns of scan and
            detector; "n" is the number of a frame, and "t" that of a scan in a series. `None` for
            what the file says, or else scan before detector.
        index: Which scan of a series (five axes), or which counter of several, from 0.
        mask: Pixels of the detector that do not measure: an array `(dy, dx)`, which is not 0 there,
            or a file of one (`namsa.io.mask`).
        region: The part of the scan to read, "Y0:Y1,X0:X1" or ((y0, y1), (x0, x1)), counted from 0
            without the last one.
        crop: The part of each pattern to read, likewise, or "DYxDX" about the optic axis, or about
            the detector's middle where that is not known.
        binning: Pixels along a side of the squares that are added. Optic axis, pixel, mask and
            other numbers that are given are of the whole detector as it is stored.
        growing: Whether the file is still being written; then the scan is as many complete rows as
            it holds.
        calibration: What the caller knows better than the file.
        overrides: The same, number by number: `energy_ev=300e3`, `serpentine=True`; they take
            precedence over `calibration`.

    Returns:
        The recording.

    Raises:
        InputError: If the data are no scan of patterns, if the file cannot be read, or if an option
            does not go with it.

    Example:
        >>> np.save("counts.npy", np.ones((4, 5, 8, 8), "uint16"))
        >>> with namsa.read("counts.npy") as recording:
        ...     print(recording.data.shape, recording.energy_ev)
        (4, 5, 8, 8) None
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    known = replace(calibration or CalibrationOverrides(), **given)
    options = read_options(
        dataset=dataset or known.dataset,
        scan_shape=scan_shape,
        dtype=dtype,
        detector_shape=detector_shape,
        offset_bytes=offset_bytes,
        flyback=flyback,
        skip_frames=skip_frames,
        dropped_frames=dropped_frames,
        axes=axes,
        index=index,
        growing=growing,
    )
    with Opened() as stack:
        recording = _opened(data, options, stack)
        if growing:
            _check_growing(known, region)
        recording = forwards(recording)
        recording = reordered(recording, bool(known.serpentine), known.flip_scan or "")
        if not growing and isinstance(data, str | Path | np.ndarray):  # others are not read here
            recording = _without_dead_regions(recording)
        masked = () if mask is None else read_mask(mask, recording.shape[2:])
        corrected = data.bad_pixels if isinstance(data, Recording) else ()
        recording = _calibrated(recording, known, masked, corrected)
        recording = windowed(recording, region, crop, binning)
        opened = stack.pop_all()
        patterns = ArrayPatterns(recording.data, opened)
        return replace(recording, data=patterns, opened=opened)


def _opened(
    data: str | Path | npt.ArrayLike | Recording, options: ReadOptions, stack: Opened
) -> Recording:
    """Returns the data as a recording, which `stack` closes."""
    if isinstance(data, Recording):
        if options != ReadOptions():
            raise InputError(
                "a recording has its layout already: give its options where its file is read"
            )
        return replace(data, opened=stack)  # it stays its owner's to close
    if isinstance(data, str | Path):
        return stack.enter_context(open_file(Path(data), options))
    return _from_array(data, options)


def _check_growing(known: CalibrationOverrides, region: PartOption) -> None:
    """Raises InputError for options that need the last row of a file that is being written."""
    if "y" in (known.flip_scan or ""):
        raise InputError(
            "--flip-scan y reads the last row first, which a growing file does not hold: flip it "
            "when it is complete"
        )
    if region is not None:
        raise InputError(
            "--region takes the rows of a complete scan, and a growing file has not all of them: "
            "give it when the file is complete"
        )


def _calibrated(
    recording: Recording,
    known: CalibrationOverrides,
    masked: Iterable[tuple[int, int]],
    corrected: Iterable[tuple[int, int]],
) -> Recording:
    """Returns a recording with what the caller knows, and all of its bad pixels.

    Args:
        masked: Pixels that the caller's mask excludes.
        corrected: Bad pixels whose values are corrected already.
    """
    excluded = {*known.bad_pixels, *masked, *recording.bad_pixels} - {*corrected}
    recording = override(recording, replace(known, bad_pixels=tuple(sorted(excluded))))
    bad_pixels = tuple(sorted({*excluded, *recording.bad_pixels}))
    return replace(recording, bad_pixels=bad_pixels)


def _without_dead_regions(recording: Recording) -> Recording:
    """Returns a recording whose dead lines and regions are among its bad pixels."""
    dead = found_in(recording)
    if dead is None:
        return recording
    bad_pixels = tuple(sorted({*recording.bad_pixels, *pixels_of(dead)}))
    notes = (*recording.notes, described(dead))
    return replace(recording, bad_pixels=bad_pixels, notes=notes)


def open_patterns(
    data: str | Path | npt.ArrayLike | Recording,
    overrides: CalibrationOverrides | None = None,
    **options: Any,
) -> FourDData:
    """Opens a calibrated scan: `read`, and every number of the calibration is known.

    Args:
        data: As for `read`.
        overrides: What the caller knows better than the file.
        options: How the patterns lie in the file, as for `read`.

    Returns:
        The scan. It may be used in a `with` statement, which closes the file, or without one.

    Raises:
        InputError: If the file cannot be read, holds no scan or several, or if its calibration is
            neither in the file nor in `overrides`.

    Example:
        >>> sample.save("scan.h5")
        >>> with namsa.open_patterns("scan.h5") as data:
        ...     print(data.energy_ev, data.semiangle_mrad)
        200000.0 20.0
    """
    recording = read(data, calibration=overrides, **options)
    try:
        return calibrate(recording)
    except InputError:
        recording.close()
        raise


def _from_array(data: npt.ArrayLike, options: ReadOptions) -> Recording:
    """Returns an array as a recording that says nothing of itself."""
    values: Any = (
        data
        if all(hasattr(data, name) for name in ("shape", "dtype", "__getitem__"))
        else np.asarray(data)
    )
    patterns = ArrayPatterns(values)
    expected = (
        "(scan y, scan x, detector y, detector x), or (frame, detector y, detector x) with "
        "scan_shape"
    )
    if options.dataset is not None or options.is_raw:
        raise InputError(
            "dataset, dtype, detector_shape and offset_bytes describe a file, and the data are an "
            "array"
        )
    if not 3 <= len(patterns.shape) <= 5 or patterns.dtype.kind not in "uif":
        raise InputError(
            f"the array has {len(patterns.shape)} axes and type {patterns.dtype}: give numbers "
            f"{expected}"
        )
    if 0 in patterns.shape:
        raise InputError(f"the array holds no patterns: its shape is {patterns.shape}")
    if len(patterns.shape) == 3 and options.scan_shape is None and patterns.shape[0] > 1:
        raise InputError(f"the array has 3 axes and no scan_shape: give numbers {expected}")
    layout = arrange(patterns, options, "the array")
    return layout.recording("array", "the array")
