"""Lost patterns of a scan and values that are not finite, which are found where patterns are
read.

A detector that loses a frame leaves zeros in its place. A pattern is lost if all its pixels have
one value, or if its sum is a small share of those of its neighbours, unless so few counts are due
to chance. Single values that are not finite are replaced by the mean of the nearest ones of their
pattern, as bad pixels are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import ndimage, sparse

from namsa.base.arrays import Array, Booleans, Integers
from namsa.base.text import plural
from namsa.io.corrections import ChangedPatterns, repair, repair_matrix

SMALL_SHARE = 0.02  # of the sum of the neighbouring patterns
# patterns of a scan that may have as few counts by chance, at most, for one to count as lost
CHANCE = 1e-3
EXPONENT = 0.9  # the probability of a small share of n expected counts is exp(−0.9 n)
MOST_MISSING = 0.25  # share of a pattern's values that may be replaced
NAMED = 10  # lost patterns in a line


@dataclass
class Losses:
    """Patterns and values that were not recorded of a scan, as far as it was read."""

    # scan rows and columns of lost patterns
    patterns: list[tuple[int, int]] = field(default_factory=list)
    values: int = 0  # number of single values that are not finite
    patterns_with_values: int = 0  # number of patterns that have some of them

    @classmethod
    def of(cls, repaired: "Repaired", rows: slice, columns: slice) -> "Losses":
        """Returns what was found in a part of the scan."""
        places = [
            (rows.start + y, columns.start + x) for y, x in np.argwhere(repaired.lost).tolist()
        ]
        return cls(places, repaired.values, repaired.patterns_with_values)

    def add(self, other: "Losses") -> None:
        """Adds what was found in another part."""
        self.patterns += other.patterns
        self.values += other.values
        self.patterns_with_values += other.patterns_with_values

    def lines(self, consequence: str) -> list[str]:
        """Returns a line about each kind."""
        lines = []
        if self.patterns:
            named = ", ".join(f"({y}, {x})" for y, x in sorted(self.patterns)[:NAMED])
            more = f" and {len(self.patterns) - NAMED} more" if len(self.patterns) > NAMED else ""
            patterns = plural(len(self.patterns), "pattern")
            lines.append(
                f"{patterns} not recorded (empty), at scan row and column {named}{more}: "
                f"{consequence}"
            )
        if self.values:
            where = f"in {plural(self.patterns_with_values, 'pattern')}"
            lines.append(
                f"{plural(self.values, 'value')} not finite, {where}: replaced by the mean of "
                "their neighbours"
            )
        return lines


@dataclass(frozen=True)
class Repaired:
    """Patterns of a part of a scan whose single missing values are replaced."""

    # `(rows, columns, dy, dx)`, float32 or float64. Lost ones are as they were recorded
    patterns: Array
    lost: Booleans  # which patterns are lost, `(rows, columns)`
    values: int  # number of values that were replaced
    patterns_with_values: int  # number of patterns that had some of them
    # Number of patterns in which each pixel was not finite, `(dy, dx)`; lost ones do not count.
    missing: Integers


def repair_missing(stored: Array, positions: int) -> Repaired:
    """Replaces single missing values and finds lost patterns.

    Args:
        stored: Patterns of a part of a scan, `(rows, columns, dy, dx)`.
        positions: Number of the patterns of the whole scan.
    """
    patterns = stored if stored.dtype in (np.float32, np.float64) else stored.astype(np.float32)
    finite = np.isfinite(patterns)
    lost = np.zeros(patterns.shape[:2], bool)
    missing = np.zeros(patterns.shape[2:], np.int64)
    values = with_values = 0
    if not finite.all():
        patterns = patterns.copy()
        matrices = dict[bytes, sparse.csr_array]()
        for place in np.argwhere(~finite.all(axis=(2, 3))):
            at = tuple(place)
            bad = ~finite[at]
            if bad.mean() > MOST_MISSING:
                lost[at], patterns[at] = True, 0
                continue
            key = bad.tobytes()
            if key not in matrices:
                matrices[key] = repair_matrix(bad)
            patterns[at] = repair(patterns[at], bad, matrices[key])
            missing += bad
            values = values + int(bad.sum())
            with_values = with_values + 1
    return Repaired(
        patterns, lost | lost_patterns(patterns, positions), values, with_values, missing
    )


def lost_patterns(patterns: Array, positions: int) -> Booleans:
    """Returns which patterns of finite numbers `(rows, columns, dy, dx)` are lost, `(rows,
    columns)`.
    """
    flat = patterns.reshape(*patterns.shape[:2], -1)
    sums = flat.sum(axis=-1, dtype=np.float64)
    constant = (flat == flat[..., :1]).all(axis=-1)
    empty = constant & (sums == 0)
    neighbours = ndimage.median_filter(sums, size=(3 if len(sums) >= 3 else 1, 5), mode="nearest")
    dark = (sums <= SMALL_SHARE * neighbours) & (neighbours > 0)
    if empty.any() or dark.any():
        positive = flat[flat > 0]
        least = float(positive.min()) if positive.size else np.inf  # one count, or less
        if not empty.all():  # in a part without any pattern nothing tells the counts
            usual = max(float(np.median(sums[~empty])), 0.0)
            empty &= positions * np.exp(-EXPONENT * usual / least) <= CHANCE
        dark &= positions * np.exp(-EXPONENT * np.maximum(neighbours, 0) / least) <= CHANCE
    return np.asarray(empty | dark | (constant & (constant.mean() <= 0.5) & (sums != 0)))


def filled(block: Array, lost: Booleans) -> Array:
    """Returns a part of a scan, `(rows, columns, ...)`, with the mean of the nearest patterns in
    place of lost ones.
    """
    if not lost.any() or lost.all():
        return np.nan_to_num(block) if lost.any() else block
    flat = block.reshape(lost.size, -1).copy()
    matrix = repair_matrix(lost)
    places = lost.ravel()
    flat[places] = 0
    means = matrix @ flat
    means[np.asarray(matrix.sum(axis=1)) == 0] = flat[~places].mean(axis=0)
    flat[places] = means
    return flat.reshape(block.shape)


@dataclass(frozen=True)
class RepairedPatterns(ChangedPatterns):
    """Patterns of a scan without what was not recorded, as they are read.

    Attributes:
        stored: The patterns as they are stored, `(sy, sx, dy, dx)`.
        lost: Which of them are lost, `(sy, sx)`; the mean of the nearest ones is in their place.
    """

    lost: Booleans

    def __getitem__(self, index: Sequence[slice]) -> Array:
        """Returns a part."""
        rows, columns, *pixels = (*index, *(slice(None),) * (4 - len(index)))
        patterns = repair_missing(
            np.asarray(self.stored[rows, columns], self.dtype), self.lost.size
        ).patterns
        return filled(patterns, self.lost[rows, columns])[:, :, pixels[0], pixels[1]]
