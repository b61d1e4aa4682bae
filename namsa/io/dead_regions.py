"""Dead lines and regions of a detector: pixels of constant value between pixels that count.

A pixel whose value is the same in all patterns is dead if the pixels on both sides of it, along its
row or its column, are lit up to the edge of the dead ones, and if its region has straight ends or
is enclosed in both directions. The end of a disk, of a field of view or of a simulation's band
limit falls off instead, and is lit on one side alone; what is between two disks has curved ends. A
rectangle in a corner of the detector, as a dead chip is, is dead if its own edges are lit. What is
between copies of an aperture, or beside a rectangular one, is dark (`namsa.io.apertures`).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from namsa.base.arrays import Array, Booleans, Floats
from namsa.base.errors import InputError, WorkError
from namsa.io.apertures import copies_and_rectangles
from namsa.io.recording import Recording

FEWEST = 8  # patterns, from which a constant pixel means something
FEWEST_LIT = 40  # pixels that vary, at least
COUNTS = 25.0  # in all patterns together, from which a pixel counts as lit: 1e-11 that it is 0
SHARE = 0.01  # of the brightest pixels, likewise, where values are no counts
LEVEL = 0.7  # of the first pixel beside dead ones over the next two; less is an edge that falls off
SMALLEST_REGION = 3  # pixels
LONGEST = 0.5  # of a side, the longest run of dead pixels between lit ones
STRAIGHT = 0.7  # of the rows of a gap, which begin and end where most of them do
ENCLOSED = 0.5  # of the pixels of a region that lie between lit ones in both directions
LIT_EDGE = 0.25  # of the edge of a rectangle in a corner
CLOSE = 0.5  # of the largest value, in the mean of another pixel
MOST_STUCK = 0.01  # of all pixels that have a constant value which is not 0
SAMPLED_ROWS = 4  # of a scan
SAMPLED_COLUMNS = 8
SAMPLED_BYTES = 2**26
CHUNK_BYTES = 2**27


class PixelRange(NamedTuple):
    """Values of each pixel in some patterns."""

    mean: Floats  # `(dy, dx)`
    is_constant: Booleans  # whether all are equal, `(dy, dx)`
    patterns: int  # number of the patterns
    whole: bool  # whether all values are whole numbers


def sampled_range(recording: Recording) -> PixelRange | None:
    """Returns the values of each pixel in patterns from all over a scan; `None` if too few can be
    read.
    """
    sy, sx, dy, dx = recording.shape
    frame_bytes = dy * dx * recording.dtype.itemsize
    chunk_rows, chunk_columns = recording.chunk
    if chunk_rows * chunk_columns * frame_bytes > CHUNK_BYTES:
        return None
    width = min(sx, SAMPLED_COLUMNS, max(1, SAMPLED_BYTES // (SAMPLED_ROWS * frame_bytes)))
    rows = np.unique(np.linspace(0, sy - 1, SAMPLED_ROWS).astype(int))
    starts = np.linspace(0, sx - width, len(rows)).astype(int)
    if len(rows) * width < FEWEST:
        return None
    parts = []
    for row, start in zip(rows.tolist(), starts.tolist(), strict=True):
        try:
            row_patterns = recording.read(slice(row, row + 1), slice(start, start + width))
        except (InputError, WorkError, OSError):  # an error when these patterns are read
            return None
        parts.append(np.asarray(row_patterns).reshape(-1, dy, dx))
    patterns = np.concatenate(parts)
    recorded = patterns[patterns.any(axis=(1, 2))]
    if len(recorded) < FEWEST:
        return None
    constant = (recorded == recorded[0]).all(axis=0)
    mean = np.nan_to_num(recorded.mean(axis=0, dtype=np.float64), posinf=0.0, neginf=0.0)
    return PixelRange(mean, constant, len(recorded), recorded.dtype.kind in "ui")


def dead_regions(pixels: PixelRange) -> Booleans:
    """Returns which pixels are dead, `(dy, dx)`; none where patterns do not tell."""
    constant = pixels.is_constant & ~_clipped(pixels)
    dead = np.zeros(constant.shape, bool)
    varying = ~pixels.is_constant
    if pixels.patterns < FEWEST or varying.sum() < FEWEST_LIT or not constant.any():
        return dead
    total: Floats = np.where(varying, pixels.mean, 0.0) * float(pixels.patterns)
    least = COUNTS
    if not pixels.whole:
        least = SHARE * float(np.quantile(total[varying], 0.95))
    stuck = constant & (pixels.mean != 0)
    if stuck.mean() <= MOST_STUCK:
        dead |= stuck & (ndimage.uniform_filter(total, 3, mode="nearest") * 9 / 8 >= least)
    copies, rectangles = copies_and_rectangles(total >= least)
    along_rows = _between_lit(total, constant, copies, least)
    along_columns = _between_lit(total.T, constant.T, copies.T, least).T
    between = _shaped(along_rows, along_columns) | _shaped(along_columns.T, along_rows.T).T
    dead |= between
    for axis in (0, 1):
        whole_lines = constant.all(axis=1 - axis) & (between.sum(axis=1 - axis) >= FEWEST)
        dead[whole_lines if axis == 0 else (slice(None), whole_lines)] = True
    beside_chips = np.where(copies | rectangles, 0.0, total)
    for turns in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        view = (slice(None, None, turns[0]), slice(None, None, turns[1]))
        height, width = _corner(constant[view])
        if _has_lit_edge(beside_chips[view], height, width, least):
            dead[view][:height, :width] = True
    return _of_regions(dead)


def _of_regions(dead: Booleans) -> Booleans:
    """Returns the dead pixels without single ones and pairs, which `namsa.inspection` finds."""
    labels, count = ndimage.label(dead, np.ones((3, 3)))
    sizes = np.bincount(labels.ravel(), minlength=count + 1)
    is_region = sizes >= SMALLEST_REGION
    is_region[0] = False
    return np.asarray(is_region[labels])


def _clipped(pixels: PixelRange) -> Booleans:
    """Returns which pixels have the largest value in all patterns because values are cut off
    there, `(dy, dx)`: other pixels come close to it.
    """
    constant = pixels.is_constant
    top = float(pixels.mean.max())
    if constant.all() or top <= 0:
        return np.zeros(constant.shape, bool)
    is_close = float(pixels.mean[~constant].max()) >= CLOSE * top
    return constant & (pixels.mean == top) & is_close


def _between_lit(total: Floats, constant: Booleans, copies: Booleans, least: float) -> Booleans:
    """Returns which constant pixels lie between lit ones of their row, whose level reaches their
    edge.

    Args:
        copies: Pixels of apertures that are copies of each other; what is between them is dark.
    """
    length = constant.shape[1]
    columns = np.arange(length)
    left = np.maximum.accumulate(np.where(constant, -1, columns), axis=1)
    right = np.minimum.accumulate(np.where(constant, length, columns)[:, ::-1], axis=1)[:, ::-1]
    inside = constant & (left >= 2) & (right < length - 2) & (right - left - 1 <= LONGEST * length)
    rows, places = np.nonzero(inside)
    border = np.zeros(constant.shape)
    beyond = np.zeros(constant.shape)
    lit = np.zeros(constant.shape, bool)
    lit[rows, places] = True
    is_copy = np.ones(len(rows), bool)
    for ends, step in ((left, -1), (right, 1)):
        at = ends[rows, places]
        is_copy &= copies[rows, at]
        next_two = (total[rows, at + step] + total[rows, at + 2 * step]) / 2
        border[rows, places] += total[rows, at]
        beyond[rows, places] += next_two
        lit[rows, places] &= next_two >= least
    lit[rows, places] &= ~is_copy
    labels, count = ndimage.label(lit)
    if not count:
        return lit
    numbers = np.arange(1, count + 1)
    level = ndimage.sum(border, labels, numbers) / ndimage.sum(beyond, labels, numbers)
    return np.concatenate([[False], level >= LEVEL])[labels]


def _shaped(between: Booleans, across: Booleans) -> Booleans:
    """Returns those regions of constant pixels between lit ones of their rows that are gaps of a
    detector: most of their rows begin and end at the same columns, or they lie between lit pixels
    of their columns, too. What is between two disks has curved ends, in one direction alone.

    Args:
        across: Constant pixels between lit ones of their columns.
    """
    labels, count = ndimage.label(between)
    kept = np.zeros(count + 1, bool)
    for label, region in enumerate(ndimage.find_objects(labels), start=1):
        inside = labels[region] == label
        if inside[across[region]].sum() >= ENCLOSED * inside.sum():
            kept[label] = True
            continue
        left_ends = inside.argmax(axis=1)
        right_ends = inside[:, ::-1].argmax(axis=1)
        ends = [np.bincount(end).max() / len(end) for end in (left_ends, right_ends)]
        kept[label] = min(ends) >= STRAIGHT
    return kept[labels]


def _corner(constant: Booleans) -> tuple[int, int]:
    """Returns the sides of the largest rectangle of constant pixels at the first corner."""
    widths = np.logical_and.accumulate(constant, axis=1).sum(axis=1)
    widths = np.minimum.accumulate(widths)
    height = int(((np.arange(len(widths)) + 1) * widths).argmax()) + 1
    return height, int(widths[height - 1])


def _has_lit_edge(total: Floats, height: int, width: int, least: float) -> bool:
    """Returns whether the pixels beside a rectangle at the first corner are lit up to it."""
    if height * width == 0:
        return False
    below = total[height : height + 3, :width]
    beside = total[:height, width : width + 3].T
    sides = [side for side in (below, beside) if len(side) == 3 and side.size]
    if not sides:
        return False
    border = np.concatenate([side[0] for side in sides])
    beyond = np.concatenate([(side[1] + side[2]) / 2 for side in sides])
    lit = beyond >= least
    return bool(lit.mean() >= LIT_EDGE and border[lit].sum() >= LEVEL * beyond[lit].sum())


def described(dead: Booleans) -> str:
    """Returns a line about dead pixels."""
    lines = []
    for axis, name in ((1, "rows"), (0, "columns")):
        numbers = np.flatnonzero(dead.all(axis=axis)).tolist()
        if 0 < len(numbers) <= 8:
            lines.append(f"{name} {', '.join(map(str, numbers))}")
    where = f", with {' and '.join(lines)}," if lines else ""
    return (
        f"{int(dead.sum()):,} pixels of constant value between others that count{where} are taken "
        "as dead"
    )


def pixels_of(dead: Booleans) -> tuple[tuple[int, int], ...]:
    """Returns rows and columns of dead pixels."""
    return tuple((row, column) for row, column in np.argwhere(dead).tolist())


def found_in(recording: Recording) -> Booleans | None:
    """Returns the dead pixels of a measured scan by a sample of its patterns; `None` if there are
    none. Simulated patterns have none.
    """
    is_simulated = recording.normalised or np.isfinite(recording.limit_mrad)
    if is_simulated or recording.thickness_angstrom is not None:
        return None
    sample = sampled_range(recording)
    if sample is None:
        return None
    dead = dead_regions(sample)
    return dead if dead.any() else None


def range_of(
    mean: Floats, extremes: Array, patterns: int, whole: bool, excluded: npt.NDArray[np.bool_]
) -> PixelRange:
    """Returns the values of each pixel in all patterns of a scan.

    Args:
        extremes: Least and largest value of each pixel, `(2, dy, dx)`.
        excluded: Pixels that are corrected already.
    """
    return PixelRange(mean, (extremes[0] == extremes[1]) & ~excluded, patterns, whole)
