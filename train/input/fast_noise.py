"""Counting noise several times faster than NumPy's, with nearly a Poisson distribution.

A mean below `_SMALL` is rounded at random to one of its two neighbours in steps of 1/64, so that
its expectation stays. The count is then looked up by a random number of 12 bits in a table whose
every row has the right mean. For a larger mean λ the count is λ + z √(λ − 5/36) + (z² − 1)/6,
rounded, the first terms of Cornish and Fisher's expansion with a normal deviate z of 16 bits. 5/36
is the variance of the last term and of the rounding: the sum has the variance λ.

The mean is that of a Poisson number. The distance from its distribution (total variation, the
largest difference of the probability of any event) is below 0.001 up to `_SMALL`, below 0.008 above
it, and falls with the mean.
"""

from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import special

# stream of random numbers, beside those of `train.input.noise` and `train.input.imperfections`
_COUNTS = 6
# pixels that stay in the cache; it determines the random numbers, so it never changes
_CHUNK = 2**15
_SMALL = 4
_STEPS = 64
_COLUMNS = 4096


def count_electrons(
    stored: npt.NDArray[np.float32], scale: float, electrons: float, seed: int, epoch: int
) -> npt.NDArray[np.float32]:
    """Draws patterns with shot noise, as `train.input.noise.count_electrons` does exactly.

    Stored patterns are fractions of the beam times `scale`, in any shape. The result is fractions
    of the beam.
    """
    rng = np.random.default_rng([seed, epoch, _COUNTS])
    patterns = stored.reshape(-1)
    noisy = np.empty(stored.size, np.float32)
    for start in range(0, patterns.size, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        _draw(patterns[chunk] * np.float32(electrons / scale), rng, noisy[chunk])
    noisy *= np.float32(1 / electrons)
    return noisy.reshape(stored.shape)


def _draw(
    means: npt.NDArray[np.float32], rng: np.random.Generator, out: npt.NDArray[np.float32]
) -> None:
    """Writes a count for each of `means` to `out`."""
    deviates = _deviates()
    table = _table()
    bits = rng.integers(0, 2**32, len(means), np.uint32)
    z = deviates.take(bits & 0xFFFF)
    np.sqrt(np.maximum(means - np.float32(5 / 36), 0), out=out)
    out *= z
    z *= z
    z -= 1
    z *= np.float32(1 / 6)
    out += z
    out += means
    np.rint(np.maximum(out, 0, out=out), out=out)
    small = np.flatnonzero(means < _SMALL)
    if len(small):
        bits = bits[small]
        # independent of the 12 bits below
        fraction = (bits >> 12).astype(np.float32) * np.float32(2**-20)
        row = (means[small] * np.float32(_STEPS) + fraction).astype(np.uint32)
        out[small] = table.take(
            np.minimum(row, _SMALL * _STEPS) * _COLUMNS + (bits & (_COLUMNS - 1))
        )


@cache
def _deviates() -> npt.NDArray[np.float32]:
    """Returns the quantiles of 2^16 equal parts of the normal distribution, of variance 1."""
    z = special.ndtri((np.arange(2**16) + 0.5) / 2**16)
    return np.asarray(z / z.std(), np.float32)


@cache
def _table() -> npt.NDArray[np.uint8]:
    """Returns the quantiles of Poisson distributions, `(rows · columns,)`: row i has the mean i /
    64.
    """
    rows = np.zeros((_SMALL * _STEPS + 1, _COLUMNS), np.uint8)
    counts = np.arange(40)
    for i in range(1, len(rows)):
        exact = special.pdtr(counts, i / _STEPS) * _COLUMNS
        edges = np.rint(exact)
        excess = int((_COLUMNS - edges).sum()) - i * _COLUMNS // _STEPS
        # those that rounding moved most
        moved = np.argsort(np.sign(excess) * (edges - exact))[: abs(excess)]
        edges[moved] += np.sign(excess)
        rows[i] = np.searchsorted(np.maximum.accumulate(edges), np.arange(_COLUMNS), side="right")
    return rows.ravel()
