"""Reads a scan: measures its mean pattern, optic axis and scale, and streams its rows."""

import math
from collections.abc import Callable, Generator
from contextlib import closing

import numpy as np
from scipy import ndimage, sparse

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.memory import available_memory_bytes
from namsa.io.calibration import FourDData
from namsa.io.lost import Losses, repair_missing
from namsa.physics.backend import available_cores

from ..experiment.conditions import Conditions
from ..input.readahead import ahead
from .models import Model
from .resampling import ResamplingPlan, resampled

AddNote = Callable[[str], None]  # takes a line about something that was done or assumed

# patterns that a thread reads at once; processing takes three times as much memory
PIECE_BYTES = 16 * 2**20
READERS = 4  # threads; HDF5 decompresses in one at a time
BAND_ROWS = 8  # scan rows that are read together, or more if the file's chunks hold more
MOST_INTENSITY = 1e6  # of a pattern, times the beam: what is above was not recorded by electrons
SURVEY_ROWS = 16  # scan rows that the mean pattern is computed from

# Bytes that are held for each pixel of the detector, if it is turned for each of its parts, and for
# each position.
PIXEL_BYTES = 64
TURNED_PIXEL_BYTES = 2048
POSITION_BYTES = 128
LEAST_BYTES = 2**30  # so much is tried on any machine


def check_memory(data: FourDData, conditions: Conditions, name: str) -> None:
    """Raises InputError if what is held of a scan at once does not fit into memory, before anything
    is read.
    """
    sy, sx, dy, dx = data.shape
    height = _band_height(data)
    width = data.chunk[1]
    piece = max(PIECE_BYTES, height * width * dy * dx * data.data.dtype.itemsize)
    if data.rotation_deg or data.flip or data.ellipse:
        pixel_bytes = TURNED_PIXEL_BYTES
    else:
        pixel_bytes = PIXEL_BYTES
    band = height * sx * math.prod(conditions.detector_shape) * 4
    needed = dy * dx * pixel_bytes + sy * sx * POSITION_BYTES + 3 * READERS * piece + 3 * band
    available = available_memory_bytes()
    if needed > max(available, LEAST_BYTES):
        raise InputError(
            f"{name}: {sy}×{sx} patterns of {dy}×{dx} pixels, stored in pieces of "
            f"{'×'.join(map(str, data.chunk))} patterns, take {needed / 1e9:.1f} GB of memory, and "
            f"{available / 1e9:.1f} GB are available: store them in smaller pieces (h5repack -l), "
            "or crop or bin them"
        )


# ---- Calibration
# --------------------------------------------------------------------------------------------------


def mean_pattern(data: FourDData, name: str) -> Array:
    """Computes the mean of the recorded patterns of evenly spaced rows of a scan.

    Returns:
        Mean pattern, `(dy, dx)`, float64, in the data's units.

    Raises:
        InputError: If their sum is not positive.
    """
    total = np.zeros(data.shape[2:])
    count = 0
    for row in survey_rows(data):
        for columns in _column_pieces(data, 1):
            beam, recorded = recorded_sum(
                data.read(slice(row, row + 1), columns), math.prod(data.shape[:2])
            )
            total = total + beam
            count = count + recorded
    check_pattern(total, name)
    return total / count


def recorded_sum(patterns: Array, positions: int) -> tuple[Array, int]:
    """Returns sum, `(dy, dx)`, and number of the patterns `(rows, columns, dy, dx)` of a scan that
    were recorded.
    """
    repaired = repair_missing(patterns, positions)
    recorded = repaired.patterns[~repaired.lost]
    return recorded.sum(axis=0, dtype=np.float64), len(recorded)


HOT = 10.0  # times its second brightest neighbour, from which a pixel of the mean pattern is hot
HOT_SHARE = 1e-4  # of the pattern's sum, from which it matters
MOST_HOT = 16  # with more, the pattern has sharp peaks


def survey_rows(data: FourDData) -> list[int]:
    """Returns the evenly spaced rows that the mean pattern is computed from."""
    rows: list[int] = np.unique(
        np.linspace(0, data.shape[0] - 1, SURVEY_ROWS).round().astype(int)
    ).tolist()
    return rows


def check_pattern(total: Array, name: str) -> None:
    """Raises InputError if a sum of patterns is not finite or not positive."""
    if not np.isfinite(total).all() or total.sum() <= 0:
        raise InputError(
            f"{name} holds patterns that are not finite or sum to nothing: --mask excludes bad "
            "pixels"
        )


def without_hot_pixels(data: FourDData, pattern: Array, note: AddNote) -> Array:
    """Returns a mean pattern `(dy, dx)` with the median of its neighbours in place of each hot
    pixel, which would move its centre of mass and change its sum.

    A pixel is hot if it exceeds all its neighbours but one `HOT` times, and is noticed in the sum.
    Simulated patterns have none.
    """
    if data.normalised or min(pattern.shape) < 3:
        return pattern
    neighbours = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], bool)
    second = ndimage.rank_filter(pattern, 6, footprint=neighbours, mode="constant")
    median = ndimage.median_filter(pattern, footprint=neighbours, mode="mirror")
    hot = (pattern > HOT * np.maximum(second, 0)) & (pattern > HOT_SHARE * pattern.sum())
    places = np.argwhere(hot).tolist()
    if not places or len(places) > MOST_HOT:
        return pattern
    named = ", ".join(f"({y}, {x})" for y, x in places)
    note(
        f"hot pixel at {named}: left out of the optic axis and the sum; namsa inspect finds such "
        "pixels, and its file for --calibration replaces them in all patterns"
    )
    return np.where(hot, median, pattern)


def optic_axis(data: FourDData, pattern: Array, note: AddNote) -> tuple[float, float]:
    """Returns the optic axis as the data say, or the centre of mass of the mean pattern `(dy, dx)`;
    (y, x), pixels.
    """
    if data.centre_pixels is not None:
        y, x = data.centre_pixels
        note(f"optic axis at pixel ({y:.2f}, {x:.2f}), as the file or the command says")
    else:
        y, x = (
            float(pattern.sum(axis=1 - axis) @ np.arange(n)) / pattern.sum()
            for axis, n in enumerate(pattern.shape)
        )
        note(f"optic axis taken at pixel ({y:.2f}, {x:.2f}), the mean pattern's centre of mass")
    return y, x


def intensity_scale(
    data: FourDData, pattern: Array, beam_intensity: float | None, model: Model, note: AddNote
) -> float:
    """Returns the factor from the data's intensities to fractions of the incident beam.

    If neither the caller nor the data say it, the mean pattern is assumed to hold the same fraction
    of the beam as the mean training pattern.

    Args:
        pattern: Its mean pattern, `(dy, dx)`.
        beam_intensity: Sum of a pattern without a specimen, in the data's units. `None` if it is
            not known.
    """
    if beam_intensity is not None:
        fraction = pattern.sum() / beam_intensity
        note(
            f"intensities over the given {beam_intensity:g}: the mean pattern is {fraction:.3f} of "
            "the beam"
        )
        return 1 / beam_intensity
    if data.normalised:
        note(
            f"intensities are fractions of the beam: {pattern.sum():.3f} of it in the mean pattern"
        )
        return 1.0
    trained = model.calibration.transmitted_fraction
    fraction = 1.0 if trained is None else trained
    note(
        f"assumed: the mean pattern, {pattern.sum():.4g} in the units of the file, is "
        f"{fraction:g} of the beam; where the beam's own sum is known, give --beam-intensity"
    )
    return fraction / float(pattern.sum())


# ---- Rows
# --------------------------------------------------------------------------------------------------


def read_bands(
    data: FourDData,
    plan: ResamplingPlan,
    scale: float,
    on_row: Callable[[int], None],
    losses: Losses,
) -> Generator[Array, None, None]:
    """Yields the scan in bands of rows, on the network's detector and, along x, at the network's
    positions.

    Threads read and bin ahead of the network. The generator must be closed before the file.

    Args:
        scale: Factor from intensities to fractions of the beam.
        losses: To which is added what was not recorded.

    Yields:
        `(rows, positions along x, network's pixels)`, float32; NaN at positions whose pattern is
            lost.

    Raises:
        InputError: If patterns are not finite.
    """
    binning = scaled_binning(plan, scale)
    positions = math.prod(data.shape[:2])
    height = _band_height(data)
    bands = []
    for start in range(0, data.shape[0], height):
        bands.append(slice(start, min(start + height, data.shape[0])))
    pieces = _column_pieces(data, height)

    def binned(piece: tuple[slice, slice]) -> tuple[Array, Losses]:
        return bin_recorded(data.read(*piece), binning, piece, positions)

    threads = min(READERS, available_cores())
    tasks = [(rows, columns) for rows in bands for columns in pieces]
    with closing(ahead(binned, tasks, threads, 2 * threads)) as ready:
        for rows in bands:
            patterns = []
            for _ in pieces:
                piece_patterns, piece_losses = next(ready)
                patterns.append(piece_patterns)
                losses.add(piece_losses)
            yield resampled_band(np.concatenate(patterns, axis=1), plan, rows.start)
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

    Raises:
        InputError: If a pattern holds many times the beam, as one does whose pixels are broken.
    """
    repaired = repair_missing(patterns, positions)
    binned = bin_patterns(repaired.patterns, binning)
    binned[repaired.lost] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        intensity = np.abs(binned).sum(axis=-1)
    excessive = np.argwhere(~(intensity <= MOST_INTENSITY))  # of NaN, too
    if len(excessive):
        row, column = excessive[0]
        raise InputError(
            f"the pattern at scan row {place[0].start + row} and column "
            f"{place[1].start + column} holds {intensity[row, column]:.3g} times the beam, more "
            f"than {MOST_INTENSITY:g}: --mask excludes bad pixels; or check --beam-intensity"
        )
    binned[repaired.lost] = np.nan
    return binned, Losses.of(repaired, *place)


def bin_patterns(patterns: Array, binning: sparse.csr_array) -> Array:
    """Returns patterns `(rows, columns, dy, dx)` on the network's detector, `(rows, columns,
    network's pixels)`.
    """
    flat = patterns.reshape(-1, patterns.shape[2] * patterns.shape[3]).astype(
        np.float32, copy=False
    )
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
        raise InputError(
            f"patterns in scan rows {first_row} to {last} are not finite: mask bad pixels"
        )
    unchanged = plan.along_x.shape[0] == plan.along_x.shape[1] == plan.along_x.nnz
    if unchanged:
        return band
    return np.stack([resampled(plan.along_x, row[:, None])[:, 0] for row in band])


def _band_height(data: FourDData) -> int:
    """Returns the number of scan rows that are read together: whole chunks, at least
    `BAND_ROWS`.
    """
    return data.chunk[0] * -(-BAND_ROWS // data.chunk[0])


def _column_pieces(data: FourDData, rows: int) -> list[slice]:
    """Divides the scan's columns into pieces of at most `PIECE_BYTES` and of whole chunks of the
    file.
    """
    _, sx, dy, dx = data.shape
    width = data.chunk[1]
    size = max(1, PIECE_BYTES // (rows * width * dy * dx * data.data.dtype.itemsize)) * width
    return [slice(start, min(start + size, sx)) for start in range(0, sx, size)]
