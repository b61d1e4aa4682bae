"""The bright disk of a pattern: an ellipse fitted to its edge, to a fraction of a pixel.

Around the edge, the pattern is modelled as p S + q (1 − S): a plane p inside, a constant q outside,
and a step S at the ellipse. The step is blurred by a Gaussian and by an exponential on each side,
whose lengths are fitted: specimens and detectors spread electrons outward from the edge of the
aperture, and overlapping disks spread them to both sides. The edge is the mean position of the
fall, which a symmetric blur does not move. If the fall is not symmetric, other definitions (half
height, steepest point) differ from it; a tenth of the exponentials' lengths and 0.4 % of the radius
are counted as the error of the model. The radii of simulated specimens, crystals of 50 to 150 Å and
an amorphous layer of 3 Å, were wrong by 0 to 0.8 %.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import ndimage
from scipy.optimize import least_squares
from scipy.special import erfc, erfcx
from threadpoolctl import threadpool_limits

from namsa.base.arrays import Floats, Pair
from namsa.base.errors import InputError

# terms of the polynomials: a plane inside, a constant outside
INSIDE = 3
OUTSIDE = 1
SECTORS = 24  # of azimuth, within which residuals are correlated
# of the radius, in decay lengths; a third of it is that of the centre and of the semiaxes'
# difference
MODEL_ERROR = 0.1
LEAST_ERROR = 0.01  # pixels: what remains of the pixels' shape
LEAST_RELATIVE_ERROR = 0.004  # of the radius: what specimens change at the edge (see the module)
# of the fitted ring on both sides, in radii, and limits in pixels
REACH = 0.5
LEAST_REACH = 2.5
MOST_REACH = 32.0
ROUNDS = 3  # of weights that lessen outliers
MOST_PIXELS = 6000  # of the ring; of a larger one, every n-th is used
THRESHOLDS = np.linspace(0.05, 0.9, 86)  # of the brightest pixels, at which the first guess is made
LARGEST_ERROR = 0.1  # of centre and radius, in radii, up to which the edge counts as that of a disk
SMALLEST_RADIUS = 2.5  # pixels; below it, there is no inside
PARAMETER_SCALES = np.array([1.0, 1.0, 1.0, 0.1, 0.1, 0.3, 0.3, 0.3])  # of the steps of the fit


@dataclass(frozen=True)
class Disk:
    """An ellipse v = c + R exp(H) (sin φ, cos φ) with H = [[a, b], [b, −a]], in pixels, (y, x)."""

    # (c_y, c_x, R, a, b, rms width of the edge, its decay lengths inward and outward), `(8,)`
    parameters: Floats
    covariance: Floats  # of the parameters, `(8, 8)`, with the error of the model

    @property
    def centre(self) -> Pair:
        """Centre (y, x)."""
        return float(self.parameters[0]), float(self.parameters[1])

    @property
    def radius(self) -> float:
        """Geometric mean of the two semiaxes."""
        return float(self.parameters[2])

    @property
    def errors(self) -> Floats:
        """Standard errors of the parameters, `(8,)`."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def ratio(self) -> float:
        """Major semiaxis over minor."""
        return float(np.exp(2 * np.hypot(*self.parameters[3:5])))

    @property
    def axis_deg(self) -> float:
        """Direction of the major axis, degrees from +x towards +y, from −90 to 90."""
        a, b = self.parameters[3:5]
        return float(np.rad2deg(np.arctan2(b, -a) / 2))

    @property
    def ratio_error(self) -> float:
        """Standard error of the ratio."""
        a, b = self.parameters[3:5]
        size = np.hypot(a, b)
        gradient = np.array([a, b]) / size if size > 0 else np.array([np.sqrt(0.5), np.sqrt(0.5)])
        return float(2 * self.ratio * np.sqrt(gradient @ self.covariance[3:5, 3:5] @ gradient))


def stretch(a: float, b: float) -> Floats:
    """Returns exp(H) with H = [[a, b], [b, −a]], (y, x); its determinant is 1."""
    size = np.hypot(a, b)
    return np.cosh(size) * np.eye(2) + (np.sinh(size) / size if size else 1.0) * np.array(
        [[a, b], [b, -a]]
    )


def edge(distance: Floats, width: float, inner: float, outer: float) -> Floats:
    """Returns the step S: how much of a line spread of mean 0 lies further out than `distance`.

    The spread is that of a Gaussian deviate plus one of an exponential on either side of 0
    (asymmetric Laplace).

    Args:
        distance: Distance outward from the edge, pixels.
        width: Rms width of the Gaussian, pixels.
        inner: Decay length of the exponential inwards, pixels.
        outer: Decay length outwards, pixels.
    """
    d = distance + outer - inner
    total = inner + outer
    return (outer * _tail(d, width, outer) + inner * (1 - _tail(-d, width, inner))) / total


def _tail(d: Floats, width: float, decay: float) -> Floats:
    """Returns the probability that the sum of a Gaussian and an exponential deviate exceeds d."""
    x = (width / decay - d / width) / np.sqrt(2)
    far = np.exp(np.minimum(width**2 / (2 * decay**2) - d / decay, 50.0))
    near = np.exp(-(d**2) / (2 * width**2)) * erfcx(np.maximum(x, -20)) / 2
    return np.asarray(erfc(d / (np.sqrt(2) * width)) / 2 + np.where(x < -20, far, near))


def distances(shape: tuple[int, ...], parameters: Floats) -> Floats:
    """Returns each pixel's |exp(−H) (v − c)|, `shape`; it is R on the ellipse."""
    y, x = (np.arange(n) - at for n, at in zip(shape, parameters, strict=False))
    inverse = stretch(-parameters[3], -parameters[4])
    v = (
        inverse[0, 0] * y[:, None] + inverse[0, 1] * x,
        inverse[1, 0] * y[:, None] + inverse[1, 1] * x,
    )
    return np.hypot(*v)


def first_guess(pattern: Floats) -> tuple[Pair, float]:
    """Returns centre and radius of a disk in a pattern `(dy, dx)` without bad pixels, by the
    threshold of least effect.

    Raises InputError without contrast.
    """
    smooth = ndimage.median_filter(pattern, 3, mode="nearest")
    high = np.quantile(smooth, 0.995)
    low = np.quantile(smooth, 0.005)
    if not high > low:
        raise InputError("the mean pattern has no contrast: there is no bright disk to measure")
    levels = low + (high - low) * THRESHOLDS
    radii = np.sqrt([(smooth > level).sum() / np.pi for level in levels])
    width = 8
    change = radii[:-width] - radii[width:] + np.where(radii[:-width] < SMALLEST_RADIUS, np.inf, 0)
    best = int(change.argmin()) + width // 2
    labels, count = ndimage.label(smooth > levels[best])
    # Of separate disks that of most electrons is the direct beam: diffracted ones may be larger.
    sums = ndimage.sum_labels(smooth - low, labels, np.arange(1, count + 1))
    brightest = labels == sums.argmax() + 1
    y, x = ndimage.center_of_mass(brightest)
    return (float(y), float(x)), float(np.sqrt(brightest.sum() / np.pi))


# The matrices are so small that more than one thread would only wait for each other.
@threadpool_limits.wrap(limits=1, user_api="blas")
def fit_disk(
    pattern: Floats, usable: npt.NDArray[np.bool_] | None = None, start: Disk | None = None
) -> Disk:
    """Fits the ellipse at the edge of a pattern's bright disk.

    Args:
        usable: Which pixels to use, `(dy, dx)`; all by default.
        start: A similar disk: then only the centre is fitted, and the other parameters are its own.

    Raises:
        InputError: If there is no disk, or if it has fewer pixels than the fit needs.
    """
    usable = np.ones(pattern.shape, bool) if usable is None else usable
    if start is None:
        parameters = _steepest(pattern, *first_guess(pattern))
        free = np.arange(8)
    else:
        parameters = start.parameters.copy()
        free = np.arange(2)
    radius = parameters[2]
    if radius < SMALLEST_RADIUS or np.pi * radius**2 > 0.98 * pattern.size * 1.5:
        raise InputError(
            f"the bright disk has a radius of {radius:.1f} pixels: its edge cannot be measured"
        )
    reach = float(np.clip(REACH * radius, LEAST_REACH, MOST_REACH))
    for rounds in (1, ROUNDS) if start is None else (ROUNDS,):  # the ring follows the fit once
        ring = usable & (np.abs(distances(pattern.shape, parameters) - parameters[2]) < reach)
        rows, columns = np.nonzero(ring)
        every = -(-len(rows) // MOST_PIXELS)
        rows = rows[::every]
        columns = columns[::every]
        if len(rows) < 40:
            raise InputError(
                f"{len(rows)} usable pixels are at the bright disk's edge: too few to fit an "
                "ellipse"
            )
        pixels = _Ring(pattern[rows, columns], rows, columns)
        parameters, covariance = _fit(pixels, parameters, free, rounds)
    disk = Disk(parameters, covariance)
    if not disk.errors[:3].max() < LARGEST_ERROR * disk.radius:
        raise InputError(
            "the brightest part of the mean pattern has no edge of an ellipse: its radius would "
            f"be {disk.radius:.1f} ± {disk.errors[2]:.2g} pixels"
        )
    return disk


def _steepest(pattern: Floats, centre: Pair, radius: float) -> Floats:
    """Returns first parameters whose radius is where the mean over azimuth drops most steeply, near
    the guess.
    """
    parameters = np.array([*centre, radius, 0.0, 0.0, 0.7, 0.1, 0.1])
    r = distances(pattern.shape, parameters)
    edges = np.arange(0.5, min(2.0 * radius, r.max()) + 1)
    bins = np.digitize(r, edges)
    counts = np.bincount(bins.ravel(), minlength=len(edges) + 1)[: len(edges)]
    profile = np.bincount(bins.ravel(), pattern.ravel(), minlength=len(edges) + 1)[
        : len(edges)
    ] / np.maximum(counts, 1)
    drop = profile[:-1] - profile[1:]
    near = np.arange(len(drop)) + 0.5 > 0.6 * radius
    if near.any():
        parameters[2] = max(SMALLEST_RADIUS, float(np.where(near, drop, -np.inf).argmax()) + 0.5)
    return parameters


class _Ring(NamedTuple):
    """The pixels that are fitted, each array `(n,)`."""

    values: Floats
    rows: npt.NDArray[np.intp]
    columns: npt.NDArray[np.intp]


def _fit(
    ring: _Ring, start: Floats, free: npt.NDArray[np.intp], rounds: int
) -> tuple[Floats, Floats]:
    """Returns the parameters, of which those in `free` are fitted, and their covariance."""
    terms = _polynomials(ring, start)
    scaled = ring.values / (ring.values.std() or 1.0)
    weights = np.ones(len(scaled))

    def residuals(fitted: Floats) -> Floats:
        parameters = start.copy()
        parameters[free] = fitted
        return _weighted_residuals(parameters, ring, terms, scaled, weights)

    low, high = _bounds(start[2])
    low = low[free]
    high = high[free]
    best = np.clip(start[free], low, high)
    for _ in range(rounds):
        solution = least_squares(
            residuals,
            best,
            bounds=(low, high),
            x_scale=PARAMETER_SCALES[free],
            ftol=1e-7,
            xtol=1e-6,
            max_nfev=40,
        )
        best = solution.x
        plain = solution.fun / weights
        spread = 1.4826 * np.median(np.abs(plain)) or 1.0
        weights = np.sqrt(1 / np.maximum(1, np.abs(plain) / (3 * spread)))
    parameters = start.copy()
    parameters[free] = best
    covariance = np.zeros((len(start), len(start)))
    sector = _sectors(ring, start)
    covariance[np.ix_(free, free)] = _sandwich(np.asarray(solution.jac), solution.fun, sector)
    model = _model_errors(parameters, start[2])
    covariance[range(5), range(5)] += np.where(np.isin(np.arange(5), free), model**2, 0)
    return parameters, covariance


def _polynomials(ring: _Ring, start: Floats) -> Floats:
    """Returns 1, y and x of each pixel, `(n, 3)`, in radii from the centre."""
    y = (ring.rows - start[0]) / start[2]
    x = (ring.columns - start[1]) / start[2]
    return np.stack([np.ones_like(y), y, x], axis=1)


def _weighted_residuals(
    parameters: Floats, ring: _Ring, terms: Floats, scaled: Floats, weights: Floats
) -> Floats:
    """Returns what the polynomials inside and outside of the ellipse, fitted by linear least
    squares, leave of the scaled values.
    """
    centre_y, centre_x, radius, a, b, width, inner, outer = parameters
    v = stretch(-a, -b) @ np.stack([ring.rows - centre_y, ring.columns - centre_x])
    step = edge(np.hypot(*v) - radius, width, inner, outer)[:, None]
    inside = terms[:, :INSIDE] * step
    outside = terms[:, :OUTSIDE] * (1 - step)
    design = np.concatenate([inside, outside], axis=1) * weights[:, None]
    target = scaled * weights
    # A small ridge keeps the polynomials determined where one side has hardly any pixels.
    normal = design.T @ design + 1e-9 * np.eye(design.shape[1])
    return np.asarray(target - design @ np.linalg.solve(normal, design.T @ target))


def _bounds(radius: float) -> tuple[Floats, Floats]:
    """Returns the least and the largest value of each parameter, from the radius at the start."""
    decay = 0.15 * radius
    low = np.array([-np.inf, -np.inf, 0.5 * radius, -0.4, -0.4, 0.2, 0.02, 0.02])
    high = np.array([np.inf, np.inf, 1.7 * radius, 0.4, 0.4, 0.6 * radius, decay, decay])
    return low, high


def _sectors(ring: _Ring, start: Floats) -> npt.NDArray[np.int_]:
    """Returns the sector of azimuth of each pixel, `(n,)`."""
    azimuth = np.arctan2(ring.rows - start[0], ring.columns - start[1])
    return ((azimuth + np.pi) / (2 * np.pi) * SECTORS).astype(int) % SECTORS


def _sandwich(slopes: Floats, residuals: Floats, sector: npt.NDArray[np.int_]) -> Floats:
    """Returns the covariance of the fitted parameters, `(m, m)`.

    Residuals are correlated along the edge: their contributions are added up by sector first.
    """
    scores = slopes * residuals[:, None]
    summed = np.stack([scores[sector == n].sum(axis=0) for n in range(SECTORS)])
    inverse = np.linalg.pinv(slopes.T @ slopes)
    used = len(np.unique(sector))
    freedom = max(used - slopes.shape[1], 1)
    return np.asarray(inverse @ (summed.T @ summed) @ inverse * used / freedom)


def _model_errors(parameters: Floats, start_radius: float) -> Floats:
    """Returns the errors of the model, of centre, radius and ellipse, `(5,)`: see the module."""
    blur = MODEL_ERROR * (parameters[6] + parameters[7])
    of_radius = np.hypot(blur, LEAST_RELATIVE_ERROR * parameters[2])
    pixels = np.hypot(LEAST_ERROR, [blur / 3, blur / 3, of_radius, blur / 3, blur / 3])
    return np.asarray(pixels / [1, 1, 1, start_radius, start_radius])
