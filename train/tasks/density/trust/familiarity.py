"""Familiarity: an out-of-distribution score of a window, from 0 to 1, by Mahalanobis distance.

A window is described by logarithms of

- the mean and the standard deviation over the window of each map of the network's first level
  (`inner_layer`), averaged over the window's views;
- the power of the patterns' variation along the scan, in bands of spatial frequency q and, within a
  band, in parts of the detector by the angle along q and across it. A phase object of frequency q
  scatters into the overlaps of the disks about 0 and ±q only, so that these numbers depend on
  defocus, semiangle, scan step and the detector's direction;
- the mean intensity in rings of the detector.

Their distribution over windows of the training split is a Gaussian, whose covariance is shrunk
towards a multiple of unity (Ledoit & Wolf, J. Multivariate Anal. 88, 365 (2004)). A window's
distance is its Mahalanobis distance (Lee et al., NeurIPS 2018). Where windows are known that lie
outside of what was learnt (`train.tasks.density.trust.outside`), the distance counts the directions
in which these vary more than those of training; new crystals vary in all directions. Examples help
also against what is outside in another way (Hendrycks et al., ICLR 2019). A window's familiarity is
the share of the windows of the dev split, crystals that training never saw, that are as far or
farther. Below `UNFAMILIAR` a window is flagged. What is needed for that is in `familiarity.npz`.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import fft

from fcdensenet.config import NetworkConfig
from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.base.files import open_atomic
from namsa.base.numpy_files import read_npz
from namsa.physics.grid import hann_window

from ....experiment.conditions import Conditions
from ....networks.unet3d import UNet3DConfig
from ....program import PROGRAM

FILE = "familiarity.npz"
LARGEST_BYTES = 2**26  # of the file's arrays
UNFAMILIAR = 0.05  # share of the dev split's windows that are flagged
MOST_FLAGGED = 0.5  # share of a scan's windows that may be flagged before the scan lies outside
BANDS = np.linspace(0.12, 1, 6)  # of spatial frequency, in units of the scan's highest
# of the angle along and across q, in semiangles
ALONG = (0.2, 0.4, 0.6, 0.8)
ACROSS = (0.35, 0.7)
DARK = (1.05, 1.35)  # semiangles; beyond the first, parts of the detector are rings
RINGS = (0.25, 0.5, 0.75, 0.95, 1.1, 1.3)  # of the mean pattern, semiangles
# of a logarithm over the training windows: a map that is always zero says nothing
_LEAST_SPREAD = 0.01
_LIMIT = 2.0  # distance of windows outside, in rms distances of training windows
_LEAST_WEIGHT = 0.1
# added before the logarithm is taken
_LEAST_POWER = 1e-16
_LEAST_INTENSITY = 1e-8
_LEAST_MAP = 1e-6


def is_outside(flagged: float) -> bool:
    """Returns whether a scan lies outside of what was learnt, by the fraction of its windows that
    are flagged.
    """
    return flagged > MOST_FLAGGED


def inner_layer(config: NetworkConfig | UNet3DConfig) -> str:
    """Returns the name of the layer whose maps describe a window: the first level, at full
    resolution.
    """
    if isinstance(config, UNet3DConfig):
        return "down1_relu2"
    return "down1" if config.pools else "stack"


@dataclass(frozen=True)
class PatternStatistics:
    """Statistics of windows of one shape."""

    # Number of the band and of the detector's part that each frequency and pixel belongs to, or
    # `count`, `(sy, sx // 2 + 1, dy, dx)`.
    parts: Array
    count: int  # number of bands times parts
    rings: Array  # number of the ring of each pixel, `(dy, dx)`

    @classmethod
    def of(cls, window: tuple[int, int], conditions: Conditions) -> "PatternStatistics":
        """Prepares the statistics of windows of so many positions (y, x), under the network's
        conditions.
        """
        steps = conditions.scan_step_angstrom
        qy, qx = np.meshgrid(
            np.fft.fftfreq(window[0], steps[0]), np.fft.rfftfreq(window[1], steps[1]), indexing="ij"
        )
        q = np.hypot(qy, qx)[..., None, None]
        uy, ux = (
            np.divide(frequency[..., None, None], q, out=np.zeros_like(q), where=q > 0)
            for frequency in (qy, qx)
        )
        edges = zip(
            conditions.detector_shape, conditions.first_edge, conditions.pixel_mrad, strict=True
        )
        y, x = (
            (np.arange(n) + edge + 0.5) * size / conditions.semiangle_mrad
            for n, edge, size in edges
        )
        y = y[:, None]
        angle = np.hypot(y, x)
        along = np.digitize(np.abs(uy * y + ux * x), ALONG)
        across = np.digitize(np.abs(uy * x - ux * y), ACROSS)
        bright = (len(ALONG) + 1) * (len(ACROSS) + 1)
        group = np.where(
            angle < DARK[0],
            along * (len(ACROSS) + 1) + across,
            bright - 1 + np.digitize(angle, DARK),
        )
        group_count = bright + len(DARK)
        band = np.digitize(2 * max(steps) * q, BANDS) - 1
        count = group_count * (len(BANDS) - 1)
        inside = (band >= 0) & (band < len(BANDS) - 1)
        return cls(
            np.where(inside, group_count * band + group, count).astype(np.int32),
            count,
            np.digitize(angle, RINGS),
        )

    def __call__(self, patterns: Array) -> Floats:
        """Returns the logarithms of power and intensity, `(n, k)`; NaN where nothing belongs to a
        part.

        Patterns are `(n, sy, sx, dy, dx)`, fractions of the beam.
        """
        taper = hann_window(patterns.shape[1:3])[..., None, None].astype(np.float32)
        rows = []
        for window in patterns:
            mean = window.mean(axis=(0, 1), dtype=np.float64)
            waves = fft.rfft2((window - mean.astype(np.float32)) * taper, axes=(0, 1))
            power = (waves.real**2 + waves.imag**2) / float((taper**2).sum())
            bands = _means(self.parts, power, self.count + 1)[:-1]
            rings = _means(self.rings, mean, len(RINGS) + 1)
            rows.append(
                np.concatenate([np.log(bands + _LEAST_POWER), np.log(rings + _LEAST_INTENSITY)])
            )
        return np.stack(rows)


def _means(parts: Array, values: Array, count: int) -> Floats:
    """Returns the mean of the values of each part; NaN for a part without one."""
    sums, sizes = (np.bincount(parts.ravel(), weights, count) for weights in (values.ravel(), None))
    return np.divide(sums, sizes, out=np.full(count, np.nan), where=sizes > 0)


def window_features(statistics: PatternStatistics, patterns: Array, maps: Array | None) -> Floats:
    """Returns what describes windows, `(n, k)`.

    Args:
        patterns: `(n, sy, sx, dy, dx)`, fractions of the beam.
        maps: Means and standard deviations of the network's inner maps, `(n, 2·maps)`.

    Raises:
        ValueError: If the maps were not asked for.
    """
    if maps is None:
        raise ValueError("familiarity needs the network's maps: predict with them")
    return np.concatenate([np.log(np.abs(maps) + _LEAST_MAP), statistics(patterns)], axis=1)


@dataclass(frozen=True, eq=False)
class Familiarity:
    """The distribution of windows that a network has learnt."""

    # mean of each feature over training windows, `(k,)`; NaN for a feature that is not used
    mean: Array
    whitening: Array  # from differences to the mean to numbers of unit variance, `(k, k)`
    # Quantiles of the distances of the dev split's windows, evenly spaced from the least to the
    # largest.
    distances: Array

    @classmethod
    def fit(cls, training: Array, held_out: Array, outside: Array | None = None) -> "Familiarity":
        """Fits the distribution.

        Args:
            training: Features of windows that training saw, `(n, k)`.
            held_out: Features of windows of the dev split, `(m, k)`.
            outside: Features of windows that lie outside of what was learnt, `(l, k)`; `None`
                weighs all directions alike.
        """
        mean = training.mean(axis=0)
        spread = training.std(axis=0)
        used = np.isfinite(mean) & (spread > _LEAST_SPREAD)
        mean = np.where(used, mean, np.nan)
        scale = np.where(used, spread, 1)
        covariance = shrunk_covariance(np.where(used, (training - mean) / scale, 0)) + np.diag(
            1.0 * ~used
        )
        whitening = np.linalg.inv(np.linalg.cholesky(covariance)) / scale
        if outside is not None:
            whitening = (
                telling_apart(np.nan_to_num(outside - mean, nan=0.0) @ whitening.T) @ whitening
            )
        unranked = cls(
            mean.astype(np.float32), whitening.astype(np.float32), np.zeros(1, np.float32)
        )
        quantiles = np.quantile(unranked.distance(held_out), np.linspace(0, 1, 201))
        return cls(unranked.mean, unranked.whitening, quantiles.astype(np.float32))

    @property
    def threshold(self) -> float:
        """The distance beyond which a window is flagged."""
        return float(np.quantile(self.distances, 1 - UNFAMILIAR))

    def distance(self, features: Array) -> Floats:
        """Returns the distance of windows, `(n,)`, by features `(n, k)`; those that a window lacks
        are usual.
        """
        difference = np.nan_to_num(features - self.mean, nan=0.0)
        return np.sqrt(np.sum((difference @ self.whitening.T.astype(np.float64)) ** 2, axis=1))

    def familiarity(self, features: Array) -> Floats:
        """Returns the share of the dev split's windows as far as those of features `(n, k)`, or
        farther, `(n,)`.
        """
        ranks = np.linspace(0, 1, len(self.distances))
        return np.asarray(1 - np.interp(self.distance(features), self.distances, ranks), np.float64)


def shrunk_covariance(samples: Array) -> Floats:
    """Returns the covariance of samples `(n, k)` of mean zero, shrunk as Ledoit and Wolf's Lemma
    3.2 says.
    """
    n, k = samples.shape
    covariance = samples.T @ samples / n
    scale = np.trace(covariance) / k
    dispersion = float(np.sum((covariance - scale * np.eye(k)) ** 2))
    squares = samples**2
    error = min(float(np.sum(squares.T @ squares / n - covariance**2)) / n, dispersion)
    shrinkage = error / dispersion if dispersion > 0 else 0.0
    return np.asarray(shrinkage * scale * np.eye(k) + (1 - shrinkage) * covariance)


def telling_apart(outside: Array) -> Floats:
    """Returns the matrix by which whitened features are weighted, so that those outside, `(n, k)`,
    are farther.

    The squared distance becomes twice the logarithm of a likelihood ratio, but for a number: that
    of two Gaussians with the same mean, of windows outside and of those of training, which are
    white. A direction in which windows outside vary by λ has the weight 1 − 1/λ. Windows that are
    far outside count as if they were nearer, because those near the border are hard to tell. No
    weight is below `_LEAST_WEIGHT`, because there are other ways to be outside.
    """
    squares = (outside**2).sum(axis=1, keepdims=True)
    # in the mean, windows of training have the latter number
    limit = _LIMIT**2 * np.count_nonzero(outside.any(axis=0))
    variances, directions = np.linalg.eigh(
        shrunk_covariance(outside * np.sqrt(np.minimum(1, limit / squares)))
    )
    weights = np.maximum(_LEAST_WEIGHT, 1 - 1 / np.maximum(variances, 1))
    return np.asarray(np.sqrt(weights)[:, None] * directions.T)


def write_familiarity(path: Path, familiarity: Familiarity) -> None:
    """Writes `familiarity.npz`. Raises WorkError if the file cannot be written."""
    with open_atomic(path) as file:
        np.savez_compressed(file, **vars(familiarity))


def read_familiarity(folder: Path) -> Familiarity | None:
    """Returns what `familiarity.npz` in a model's folder holds, if there is one. Raises InputError
    if it is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    arrays = read_npz(path, largest_bytes=LARGEST_BYTES, kind="the familiarity")
    try:
        familiarity = Familiarity(*(arrays[name] for name in ("mean", "whitening", "distances")))
    except KeyError as error:
        raise InputError(f"{path} has no {error.args[0]}: run {PROGRAM} calibrate again") from None
    if not _is_valid(familiarity):
        raise InputError(f"{path}: its arrays do not fit together: run {PROGRAM} calibrate again")
    return familiarity


def _is_valid(familiarity: Familiarity) -> bool:
    """Returns whether shapes fit together and all numbers are finite, but for the mean's NaN."""
    arrays = (familiarity.mean, familiarity.whitening, familiarity.distances)
    return (
        all(array.dtype.kind == "f" for array in arrays)
        and familiarity.mean.ndim == familiarity.distances.ndim == 1
        and familiarity.whitening.shape == 2 * familiarity.mean.shape
        and familiarity.distances.size > 0
        and not np.isinf(familiarity.mean).any()
        and bool(
            np.isfinite(familiarity.whitening).all() and np.isfinite(familiarity.distances).all()
        )
        and bool((np.diff(familiarity.distances) >= 0).all())
    )
