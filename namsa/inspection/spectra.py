"""Fourier transforms of images that do not continue periodically, and errors of what is fitted to
them.
"""

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Floats
from namsa.physics.grid import hann_window

GROUPS = 24  # of frequencies, from whose scatter the errors follow


def frequencies(shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Returns the frequencies along y, `(ny, 1)`, and x, `(1, nx)`, in cycles per step."""
    return np.fft.fftfreq(shape[0])[:, None], np.fft.fftfreq(shape[1])[None, :]


def detrended(images: Array) -> Floats:
    """Subtracts from images `(..., ny, nx)` the quadratic polynomial that fits each best."""
    *_, ny, nx = images.shape
    y, x = np.meshgrid(np.linspace(-1, 1, ny), np.linspace(-1, 1, nx), indexing="ij")
    terms = np.stack([np.ones_like(y), y, x, y * y, y * x, x * x], axis=-1).reshape(ny * nx, 6)
    basis, _ = np.linalg.qr(terms)
    flat = images.reshape(-1, ny * nx).astype(np.float64)
    return np.asarray(flat - (flat @ basis) @ basis.T).reshape(images.shape)


def windowed_transform(images: Array) -> npt.NDArray[np.complex128]:
    """Returns the Fourier transforms of images `(..., ny, nx)`, detrended and under a Hann
    window.
    """
    return np.fft.fft2(detrended(images) * hann_window(images.shape[-2:]))


def frequency_groups(shape: tuple[int, ...]) -> npt.NDArray[np.intp]:
    """Returns a group from 0 to `GROUPS` − 1 for each frequency; k and −k, and neighbours, are in
    the same one.

    The window correlates neighbouring frequencies: groups are blocks of 3 by 3, dealt out by a
    fixed pseudo-random order.
    """
    ny, nx = shape
    y = np.round(np.fft.fftfreq(ny) * ny).astype(int)[:, None]
    x = np.round(np.fft.fftfreq(nx) * nx).astype(int)
    sign = np.where((y < 0) | ((y == 0) & (x < 0)), -1, 1)
    y = (y * sign) // 3
    x = (x * sign) // 3
    return np.asarray(((y * 73856093) ^ (x * 19349663)) % 1009 % GROUPS)


def sandwich(hessian: Floats, scores: Floats) -> Floats:
    """Returns the covariance of parameters at the minimum of a sum over groups.

    Args:
        hessian: Of the sum, `(n, n)`.
        scores: Gradient of each group's part, `(groups, n)`.
    """
    inverse = np.linalg.pinv(hessian)
    groups = len(scores)
    return np.asarray(inverse @ (scores.T @ scores) @ inverse * groups / max(groups - 1, 1))
