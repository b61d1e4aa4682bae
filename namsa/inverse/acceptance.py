"""Places of a scan that take the columns of a fit, and those that keep the density it began with.

The patterns of the positions kept out decide. Their divergence falls by what all positions share
(lens, source, thickness, tilt), whatever the density: it is compared with that after a fit of the
shared numbers alone. A place takes the columns by what they gain beyond it, if that is more than
its own scatter and than what a wrong model gains. Columns whose fit contradicts the density by more
than its stated uncertainty stay: elements are shared out by the formula, and a fit of a column with
the wrong ones explains patterns better with the wrong electrons.
"""

from typing import NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid

WIDTH_ANGSTROM = 1.5  # standard deviation of the neighbourhood that decides for a place
LEAST_GAIN = 0.005  # of the divergence; columns that explain nothing more have less
CLEAR_GAIN = 0.03  # from here on a place takes the columns
SCATTERS = 1.5  # of the gain's standard error
LEAST_POSITIONS = 4.0  # kept out in a neighbourhood, for it to decide
MOST_TAKEN = 0.5  # of the change; both densities have errors of their own
LARGEST_CHANGE = 1.5  # of a column, in stated uncertainties
# from a column that contradicts the density, Å: where nothing is taken, and from where on all is
_CONTRADICTED_ANGSTROM = (0.8, 1.6)


class Acceptance(NamedTuple):
    """Extent to which places take the columns of a fit."""

    weight: Floats  # `(sy, sx)`, from 0 to `MOST_TAKEN`
    gain: float  # of the divergence of all positions kept out, relative


def acceptance(
    before: Floats,  # divergence of each position before columns are fitted, `(sy, sx)`
    after: Floats,  # the same after
    kept_out: Array,  # which positions the fit has not used, `(sy, sx)`
    step_angstrom: tuple[float, float],
) -> Acceptance:
    """Returns how far each place takes the columns of a fit."""
    total = before[kept_out].sum()
    if not total > 0:
        return Acceptance(np.zeros(before.shape), 0.0)
    gains = np.where(kept_out, before - after, 0.0)
    width = np.divide(WIDTH_ANGSTROM, step_angstrom)
    count = _sum_near(kept_out.astype(np.float64), width)
    near = np.maximum(count, 1e-12)
    level = np.maximum(_sum_near(np.where(kept_out, before, 0.0), width) / near, 1e-30)
    mean = _sum_near(gains, width) / near
    variance = np.maximum(_sum_near(np.square(gains), width) / near - mean**2, 0)
    error = np.sqrt(variance / near)
    certain = (mean - SCATTERS * error) / level
    share = np.clip((certain - LEAST_GAIN) / (CLEAR_GAIN - LEAST_GAIN), 0, 1)
    weight = np.where(count >= LEAST_POSITIONS, MOST_TAKEN * share, 0.0)
    return Acceptance(weight, float(gains.sum() / total))


def _sum_near(values: Floats, width: Floats) -> Floats:
    """Returns the sum of values near each place, weighted by a Gaussian of height 1."""
    peak = 2 * np.pi * float(np.prod(width))
    return np.asarray(peak * gaussian_filter(values, width, mode="constant"))


def on_the_scan(
    weight: Floats, margins: tuple[int, int], step_angstrom: tuple[float, float]
) -> Floats:
    """Returns the weights on the whole scan, whose edges the fit has not used.

    They fall to zero beyond the positions that it used.
    """
    my, mx = margins
    width = np.divide(WIDTH_ANGSTROM, step_angstrom)
    padded = np.pad(weight, ((my, my), (mx, mx)))
    return np.asarray(np.minimum(gaussian_filter(padded, width / 2, mode="constant"), 1))


def without_contradicted(
    columns: Floats,  # places of the columns, `(n, 2)`, Å
    changes: Floats,  # of the density there by the fit, over its uncertainty, `(n,)`
    pixels: PixelGrid,  # of the density, Å
    shape: tuple[int, ...],
) -> Floats:
    """Returns factors of the weights, `(sy, sx)`: 0 at columns that the fit contradicts."""
    contradicted = columns[np.abs(changes) > LARGEST_CHANGE]
    if not len(contradicted):
        return np.ones(shape)
    y, x = pixels.coordinates(shape)
    away_y = y[:, None, None] - contradicted[:, 0]
    away_x = x[None, :, None] - contradicted[:, 1]
    distance = np.hypot(away_y, away_x).min(axis=-1)
    near, far = _CONTRADICTED_ANGSTROM
    return np.asarray(np.clip((distance - near) / (far - near), 0, 1))
