"""Reads a scan: measures its mean pattern, optic axis and scale, and streams its rows."""

import math
from collections.abc import Callable, Generator
from contextlib import closing

import numpy as np
from scipy import sparse

from namsa.arrays import Array
from namsa.checks import available_memory_bytes
from namsa.errors import InputError
from namsa.io.calibration import FourDData
from namsa.io.lost import Losses, mend
from namsa.physics.backend import available_cores

from ..experiment.conditions import Conditions
from ..input.readahead import ahead
from .models import Model
from .resampling import ResamplingPlan, resampled

AddNote = Callable[[str], None]  # takes a line about something that was done or assumed

PIECE_BYTES = 16 * 2**20  # patterns that a thread reads at once; processing takes three times as much memory
READERS = 4  # threads; HDF5 decompresses in one at a time
BAND_ROWS = 8  # scan rows that are read together, or more if the file's chunks hold more
SURVEY_ROWS = 16  # scan rows that the mean pattern is computed from

# Bytes that are held for each pixel of the detector, if it is turned for each of its parts, and for each position.
PIXEL_BYTES, TURNED_PIXEL_BYTES, POSITION_BYTES = 64, 2048, 128
LEAST_BYTES = 2**30  # so much is tried on any machine


def check_memory(data: FourDData, conditions: Conditions, name: str) -> None:
    """Raises InputError if what is held of a scan at once does not fit into memory, before anything is read."""
    sy, sx, dy, dx = data.shape
    height, width = _band_height(data), data.chunk[1]
    piece = max(PIECE_BYTES, height * width * dy * dx * data.data.dtype.itemsize)
    pixel_bytes = TURNED_PIXEL_BYTES if data.rotation_deg or data.flip or data.ellipse else PIXEL_BYTES
    band = height * sx * math.prod(conditions.detector_shape) * 4
    needed = dy * dx * pixel_bytes + sy * sx * POSITION_BYTES + 3 * READERS * piece + 3 * band
    available = available_memory_bytes()
    if needed > max(available, LEAST_BYTES):
        raise InputError(
            f"{name}: {sy}×{sx} patterns of {dy}×{dx} pixels, stored in pieces of {'×'.join(map(str, data.chunk))} "
            f"patterns, take {needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB are available: store them "
            "in smaller pieces (h5repack -l), or crop or bin them"
        )


# ---- Calibration ----------------------------------------------------------------------------------------------------


def mean_pattern(data: FourDData, name: str) -> Array:
    """Computes the mean of the recorded patterns of evenly spaced rows of a scan.

    Returns:
        Mean pattern, `(dy, dx)`, float64, in the data's units.

    Raises:
        InputError: If their sum is not positive.
    """
    total, count = np.zeros(data.shape[2:]), 0
    for row in survey_rows(data):
        for columns in _column_pieces(data, 1):
            found, recorded = recorded_sum(data.read(slice(row, row + 1), columns), math.prod(data.shape[:2]))
            total, count = total + found, count + recorded
    check_pattern(total, name)
    return total / count


def recorded_sum(patterns: Array, positions: int) -> tuple[Array, int]:
    """Returns sum, `(dy, dx)`, and number of the patterns `(rows, columns, dy, dx)` of a scan that were recorded."""
    mended = mend(patterns, positions)
    recorded = mended.patterns[~mended.lost]
    return recorded.sum(axis=0, dtype=np.float64), len(recorded)


def survey_rows(data: FourDData) -> list[int]:
    """Returns the evenly spaced rows that the mean pattern is computed from."""
    rows: list[int] = np.unique(np.linspace(0, data.shape[0] - 1, SURVEY_ROWS).round().astype(int)).tolist()
    return rows


def check_pattern(total: Array, name: str) -> None:
    """Raises InputError if a sum of patterns is not finite or not positive."""
    if not np.isfinite(total).all() or total.sum() <= 0:
        raise InputError(f"{name} holds patterns that are not finite or sum to nothing: --mask excludes bad pixels")


def optic_axis(data: FourDData, pattern: Array, note: AddNote) -> tuple[float, float]:
    """Returns the optic axis as the data say, or the centre of mass of the mean pattern `(dy, dx)`; (y, x), pixels."""
    if data.centre_pixels is not None:
        y, x = data.centre_pixels
        note(f"optic axis at pixel ({y:.2f}, {x:.2f}), as the file or the command says")
    else:
        y, x = (
            float(pattern.sum(axis=1 - axis) @ np.arange(n)) / pattern.sum() for axis, n in enumerate(pattern.shape)
        )
        note(f"optic axis taken at pixel ({y:.2f}, {x:.2f}), the mean pattern's centre of mass")
    return y, x


def intensity_scale(
    data: FourDData, pattern: Array, beam_intensity: float | None, model: Model, note: AddNote
) -> float:
    """Returns the factor from the data's intensities to fractions of the incident beam.

    If neither the caller nor the data say it, the mean pattern is assumed to hold the same fraction of the beam as the
    mean training pattern.

    Args:
        pattern: Its mean pattern, `(dy, dx)`.
        beam_intensity: Sum of a pattern without a specimen, in the data's units. `None` if it is not known.
    """
    if beam_intensity is not None:
        fraction = pattern.sum() / beam_intensity
        note(f"intensities over the given {beam_intensity:g}: the mean pattern is {fraction:.3f} of the beam")
        return 1 / beam_intensity
    if data.normalised:
        note(f"intensities are fractions of the beam: {pattern.sum():.3f} of it in the mean pattern")
        return 1.0
    trained = model.calibration.transmitted_fraction
    fraction = 1.0 if trained is None else trained
    note(
        f"assumed: the mean pattern, {pattern.sum():.4g} in the file's units, is {fraction:g} of the beam; "
        "where the beam's own sum is known, give --beam-intensity"
    )
    return fraction / float(pattern.sum())


# ---- Rows -----------------------------------------------------------------------------------------------------------


def read_bands(
    data: FourDData, plan: ResamplingPlan, scale: float, on_row: Callable[[int], None], losses: Losses
) -> Generator[Array, None, None]:
    """Yields the scan in bands of rows, on the network's detector and, along x, at the network's positions.

    Threads read and bin ahead of the network. The generator must be closed before the file.

    Args:
        scale: Factor from intensities to fractions of the beam.
        losses: To which is added what was not recorded.

    Yields:
        `(rows, positions along x, network's pixels)`, float32; NaN at positions whose pattern is lost.

    Raises:
        InputError: If patterns are not finite.
    """
    binning, positions = scaled_binning(plan, scale), math.prod(data.shape[:2])
    height = _band_height(data)
    bands = [slice(first, min(first + height, data.shape[0])) for first in range(0, data.shape[0], height)]
    pieces = _column_pieces(data, height)

    def binned(piece: tuple[slice, slice]) -> tuple[Array, Losses]:
        return bin_recorded(data.read(*piece), binning, piece, positions)

    threads = min(READERS, available_cores())
    tasks = [(rows, columns) for rows in bands for columns in pieces]
    with closing(ahead(binned, tasks, threads, 2 * threads)) as ready:
        for rows in bands:
            parts = [next(ready) for _ in pieces]
            for _, found in parts:
                losses.add(found)
            yield resampled_band(np.concatenate([part for part, _ in parts], axis=1), plan, rows.start)
            on_row(rows.stop)


def scaled_binning(plan: ResamplingPlan, scale: float) -> sparse.csr_array:
    """Returns the matrix from the data's pixels to fractions of the beam on the network's."""
    return plan.binning * np.float32(scale)


def bin_recorded(
    patterns: Array, binning: sparse.csr_array, place: tuple[slice, slice], positions: int
) -> tuple[Array, Losses]:
    """Returns patterns on the network's detector, NaN where one is lost, and what was not recorded.

    Args:
        patterns: A part of a scan, `(rows, columns, dy, dx)`.
        binning: From the data's pixels to the network's.
        place: Rows and columns of the part.
        positions: Number of the patterns of the whole scan.
    """
    mended = mend(patterns, positions)
    binned = bin_patterns(mended.patterns, binning)
    binned[mended.lost] = np.nan
    return binned, Losses.of(mended, *place)


def bin_patterns(patterns: Array, binning: sparse.csr_array) -> Array:
    """Returns patterns `(rows, columns, dy, dx)` on the network's detector, `(rows, columns, network's pixels)`."""
    flat = patterns.reshape(-1, patterns.shape[2] * patterns.shape[3]).astype(np.float32, copy=False)
    binned: Array = (binning @ flat.T).T
    return binned.reshape(*patterns.shape[:2], -1)


def resampled_band(band: Array, plan: ResamplingPlan, first_row: int) -> Array:
    """Returns whole rows, `(rows, columns, network's pixels)`, at the network's positions along x.

    Args:
        band: The rows; NaN at positions whose pattern is lost.
        first_row: The first of the rows in the scan, for the message.

    Raises:
        InputError: If patterns are not finite.
    """
    if np.isinf(band).any():
        last = first_row + len(band) - 1
        raise InputError(f"patterns in scan rows {first_row} to {last} are not finite: mask bad pixels")
    unchanged = plan.along_x.shape[0] == plan.along_x.shape[1] == plan.along_x.nnz
    return band if unchanged else np.stack([resampled(plan.along_x, row[:, None])[:, 0] for row in band])


def _band_height(data: FourDData) -> int:
    """Returns the number of scan rows that are read together: whole chunks, at least `BAND_ROWS`."""
    return data.chunk[0] * -(-BAND_ROWS // data.chunk[0])


def _column_pieces(data: FourDData, rows: int) -> list[slice]:
    """Divides the scan's columns into pieces of at most `PIECE_BYTES` and of whole chunks of the file."""
    _, sx, dy, dx = data.shape
    width = data.chunk[1]
    size = max(1, PIECE_BYTES // (rows * width * dy * dx * data.data.dtype.itemsize)) * width
    return [slice(first, min(first + size, sx)) for first in range(0, sx, size)]
