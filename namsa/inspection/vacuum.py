"""The sum of a pattern without a specimen, where the scan reaches beyond it."""

import numpy as np

from namsa.arrays import Floats

BLOCK = 4  # scan positions along each axis of a block
LEAST = 0.01  # of the blocks, at least 2, that must be vacuum
DARKEST = 0.05  # dark field of vacuum over the median one, at most


def vacuum_intensity(sums: Floats, bright: Floats, dark: Floats) -> tuple[float, float] | None:
    """Returns the beam's intensity, where there is vacuum.

    Vacuum scatters nothing: blocks of positions in which the dark field is below `DARKEST` of its median over the
    scan, and in which the bright field is higher than at nine tenths of all positions, count as vacuum.

    Args:
        sums: Sum of each pattern, `(sy, sx)`.
        bright: Its part in the bright disk.
        dark: Its part outside.

    Returns:
        The mean sum over the vacuum and its standard error, from the scatter of the blocks; `None` without vacuum.
    """
    rows, columns = (n // BLOCK for n in sums.shape)
    if rows * columns < 8:
        return None
    total, inner, outer = (_blocks(image, rows, columns) for image in (sums, bright, dark))
    share = outer / np.where(total > 0, total, 1)
    empty = (share < DARKEST * np.median(share)) & (inner >= np.quantile(bright, 0.9) * 0.99)
    if empty.sum() < max(2, LEAST * empty.size):
        return None
    return float(total[empty].mean()), float(total[empty].std(ddof=1) / np.sqrt(empty.sum()))


def _blocks(image: Floats, rows: int, columns: int) -> Floats:
    """Returns the means over blocks, `(rows, columns)`."""
    whole = image[: rows * BLOCK, : columns * BLOCK]
    return np.asarray(whole.reshape(rows, BLOCK, columns, BLOCK).mean(axis=(1, 3)))
