"""Frames put in their places of a scan by the row and the column that the scan generator counted
for each.

Frames may be missing, and every second row may run backwards. The scan is the longest run of frames
whose counts move on; frames before and after it, in which the generator rests, are left out.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.text import plural
from namsa.io.scan_order import DROPPED

MOST_DROPPED = 0.25  # of the scan's frames; with more, counts are no proof of a scan
COMPLETE = 0.5  # of the last row, at least, for the row to be read
NAMED = 8  # dropped frames in a line


class CountedScan(NamedTuple):
    """A scan by the counts of its frames."""

    shape: tuple[int, int]  # rows and columns
    numbers: npt.NDArray[np.int64]  # the frame at each position, or `DROPPED`
    notes: tuple[str, ...]

    @property
    def first(self) -> int:
        """The first frame of the scan."""
        return int(self.numbers[self.numbers != DROPPED].min())

    @property
    def is_plain(self) -> bool:
        """Whether frames follow one another row by row, without a gap."""
        return bool((self.numbers == self.first + np.arange(len(self.numbers))).all())


def scan_by_counts(places: npt.NDArray[np.float64]) -> CountedScan | None:
    """Returns the scan of frames whose rows and columns were counted; `None` if they count none.

    Args:
        places: Row and column of each frame, `(n, 2)`.
    """
    counts = np.rint(places)
    valid = np.isfinite(places).all(axis=1) & (np.abs(places - counts) < 0.1).all(axis=1)
    valid &= (counts >= 0).all(axis=1) & (counts < 2**20).all(axis=1)
    counts = np.where(valid[:, None], counts, -1).astype(np.int64)
    run = _longest_run(counts, valid)
    rows, columns = counts[run, 0], counts[run, 1]
    if len(rows) < 2 or rows[0] != 0:
        return None
    width = int(columns.max()) + 1
    if width < 2:
        return None
    height = int(rows[-1]) + 1
    notes = []
    in_last_row = int((rows == height - 1).sum())
    if height > 1 and in_last_row < COMPLETE * width:
        height -= 1
        notes.append(f"row {height} has {in_last_row} of {width} frames, and is left out")
    numbers = np.full((height, width), DROPPED, np.int64)
    kept = rows < height
    numbers[rows[kept], columns[kept]] = np.arange(run.start, run.stop)[kept]
    dropped = np.argwhere(numbers == DROPPED)
    if len(dropped) > MOST_DROPPED * numbers.size:
        return None
    if _is_serpentine(rows, columns):
        notes.append("serpentine scan: every second row was recorded backwards")
    if len(dropped):
        named = ", ".join(f"({row}, {column})" for row, column in dropped[:NAMED].tolist())
        more = f" and {len(dropped) - NAMED} more" if len(dropped) > NAMED else ""
        notes.append(
            f"{plural(len(dropped), 'dropped frame')} by the counts, at scan row and column "
            f"{named}{more}: an empty pattern is in the place of each"
        )
    return CountedScan((height, width), numbers.ravel(), tuple(notes))


def _longest_run(counts: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> slice:
    """Returns the frames of the longest run whose counts move on: along a row, or to a later
    row.
    """
    steps = np.diff(counts, axis=0)
    along = np.sign(steps[:, 1])
    moves = (steps[:, 0] > 0) | ((steps[:, 0] == 0) & (along != 0))
    # a row is counted in one direction
    turns = np.zeros(len(moves), bool)
    same_row = steps[:, 0] == 0
    turns[1:] = same_row[1:] & same_row[:-1] & (along[1:] * along[:-1] < 0)
    moves &= ~turns & valid[1:] & valid[:-1]
    ends = np.flatnonzero(np.concatenate([[True], ~moves, [True]]))
    lengths = np.diff(ends)
    if not len(lengths):
        return slice(0, 0)
    longest = int(lengths.argmax())
    return slice(int(ends[longest]), int(ends[longest + 1]))


def _is_serpentine(rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> bool:
    """Returns whether the columns of odd rows fall and those of even rows rise."""
    within = np.diff(rows) == 0
    steps = np.diff(columns)
    odd = rows[1:] % 2 == 1
    falling = steps[within & odd] < 0
    rising = steps[within & ~odd] > 0
    return bool(len(falling) and falling.all() and rising.all())
