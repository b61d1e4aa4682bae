"""Metrics of an image p as an estimate of the truth t: six numbers, finite or None (JSON has no NaN
and no infinity).

Images are `(h, w)`, in e/Å². Only `huber`, the loss of the training, is computed in the units of
the training:

- huber: mean of e²/2 for |e| <= δ and δ(|e| − δ/2) elsewhere, with e = (p − t)/scale. The scale is
  the divisor of densities in training, or with relative losses (`train.optimization.losses`) that
  times the contrast of the scaled truth. δ is the first of the configuration, so that runs are
  comparable whatever the decay of δ.
- mae: mean |p − t|, e/Å².
- psnr: 10 log10(R²/mean (p − t)²), dB, R = max t − min t. None if p = t (it is infinite) or t is
  constant.
- ssim: Wang et al. (2004), uniform window of 7 pixels (fewer on a smaller image), data range R.
  None if t is constant or no window of 3 pixels fits.
- pearson: correlation coefficient. None if t or p is constant.
- r_factor: Σ|p − t| / Σ|t|, as in crystallography. None if t is zero everywhere.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from skimage.metrics import structural_similarity

from namsa.base.errors import InputError, WorkError

Metrics = dict[str, float | None]

NAMES = ("huber", "mae", "psnr", "ssim", "pearson", "r_factor")
SSIM_WINDOW = 7


def image_metrics(
    prediction: npt.ArrayLike,  # `(h, w)`, e/Å²
    truth: npt.ArrayLike,  # the same
    *,
    huber_delta: float,  # δ, in units of the training
    density_scale: float = 1.0,  # divisor of densities in training, e/Å²
    # `training.loss.least_contrast` if `huber` is relative to the standard deviation of the truth:
    # what that is at least, as a fraction of the mean of the truth and in density scales.
    limits: tuple[float, float] | None = None,
) -> Metrics:
    """Computes the metrics of one image; returns the numbers of `NAMES`.

    Raises:
        InputError: If the shapes differ or are not two-dimensional.
        WorkError: If a pixel is not finite.
    """
    p = np.asarray(prediction, np.float64)
    t = np.asarray(truth, np.float64)
    if p.shape != t.shape or t.ndim != 2 or t.size == 0:
        raise InputError(
            f"prediction {p.shape} and truth {t.shape} must be images of one shape (H, W)"
        )
    for name, image in (("prediction", p), ("truth", t)):
        if bad := int(np.count_nonzero(~np.isfinite(image))):
            raise WorkError(
                f"{bad} of {image.size} pixels of the {name} are not finite: nothing can be "
                "measured"
            )
    error = np.abs(p - t)
    span = float(np.ptp(t))
    if limits:
        unit = max(float(t.std()), limits[0] * float(t.mean()), limits[1] * density_scale)
    else:
        unit = density_scale
    scaled = error / unit
    beyond = huber_delta * (scaled - huber_delta / 2)
    huber = np.where(scaled <= huber_delta, scaled**2 / 2, beyond)
    mean_square = float((error**2).mean())
    psnr = None
    if span > 0 and mean_square > 0:
        psnr = float(10 * np.log10(span**2 / mean_square))
    return {
        "huber": float(huber.mean()),
        "mae": float(error.mean()),
        "psnr": psnr,
        "ssim": _ssim(p, t, span),
        "pearson": _pearson(p, t),
        "r_factor": float(error.sum() / np.abs(t).sum()) if t.any() else None,
    }


def mean_metrics(
    samples: Iterable[Mapping[str, float | None]], names: Sequence[str] = NAMES
) -> Metrics:
    """Returns the mean of each metric over the samples for which it is defined.

    It is `None` if it is defined for none.
    """
    rows = list(samples)
    means: Metrics = {}
    for name in names:
        values = [row[name] for row in rows if row[name] is not None]
        means[name] = float(np.mean(np.array(values, np.float64))) if values else None
    return means


def _ssim(p: npt.NDArray[np.float64], t: npt.NDArray[np.float64], span: float) -> float | None:
    """Returns the structural similarity."""
    window = min(SSIM_WINDOW, (min(t.shape) - 1) // 2 * 2 + 1)  # the largest odd width that fits
    if span == 0 or window < 3:
        return None
    return float(structural_similarity(t, p, win_size=window, data_range=span))


def _pearson(p: npt.NDArray[np.float64], t: npt.NDArray[np.float64]) -> float | None:
    """Returns the correlation coefficient."""
    if np.ptp(p) == 0 or np.ptp(t) == 0:
        return None
    p = p - p.mean()
    t = t - t.mean()
    return float(np.clip((p * t).sum() / np.sqrt((p**2).sum() * (t**2).sum()), -1, 1))
