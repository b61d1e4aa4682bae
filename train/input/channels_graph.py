"""The channels of `train.experiment.channels`, computed from patterns on the device that trains."""

from typing import Any

import numpy as np
from keras import ops

from ..experiment.channels import TENTHS, Channels

Tensor = Any


def to_channels(patterns: Tensor, scale: Tensor, channels: Channels, power: float, gain: float) -> Tensor:
    """Computes the channels of a batch; returns `(n, sy, sx, c)`, float32.

    Averages become gain · (I / I₀)^power, as pixels do. The deflection is in tenths of the semiangle, the phase in
    tenths of a radian.

    Args:
        patterns: `(n, sy, sx, pixels)`, fractions of the beam times `scale`.
        scale: `(n, 1, 1, 1)`.
        power: Exponent of intensities.
        gain: Factor of intensities.
    """
    patterns = ops.cast(patterns, "float32")
    matrices = [matrix for matrix in (channels.averages, channels.moments) if matrix is not None]
    products: Any = patterns @ ops.concatenate(matrices, axis=1) if matrices else None  # it reads the patterns once
    averages = patterns if channels.averages is None else products[..., : channels.averages.shape[1]]
    fractions = averages * (patterns.shape[-1] / scale)
    parts = [gain * (ops.sqrt(fractions) if power == 0.5 else fractions**power)]
    if channels.moments is not None:
        total, y, x = ops.unstack(products[..., -3:], axis=-1)
        deflection = ops.divide_no_nan(ops.stack([y, x], axis=-1), total[..., None])
        if channels.deflection:
            parts.append(TENTHS / channels.semiangle_mrad * deflection)
        if channels.phase:
            phase = _integrate(deflection, channels.scan_step_angstrom, channels.wavelength_angstrom)
            parts.append(TENTHS * phase[..., None])
    return ops.concatenate(parts, axis=-1)


def _integrate(deflection: Tensor, step: tuple[float, float], wavelength: float) -> Tensor:
    """`integrated_centre_of_mass` of `namsa.physics.virtual_detectors` of each `(sy, sx, 2)`, mrad, not periodic."""
    sy, sx = deflection.shape[1:3]
    gy, gx = (2e-3 * np.pi / wavelength * deflection[..., axis] for axis in (0, 1))
    gy, gx = (ops.concatenate([g, sign * g[:, ::-1]], axis=1) for g, sign in ((gy, -1), (gx, 1)))
    gy, gx = (ops.concatenate([g, sign * g[:, :, ::-1]], axis=2) for g, sign in ((gy, 1), (gx, -1)))
    ky, kx = np.fft.fftfreq(2 * sy, step[0])[:, None], np.fft.fftfreq(2 * sx, step[1])
    squared = ky**2 + kx**2
    squared[0, 0] = 1  # a constant has no gradient, and the mean is subtracted
    along = [np.float32(k / (2 * np.pi * squared)) for k in (ky, kx)]
    (y_real, y_imag), (x_real, x_imag) = (ops.fft2((g, ops.zeros_like(g))) for g in (gy, gx))
    both = along[0] * y_imag + along[1] * x_imag, -(along[0] * y_real + along[1] * x_real)  # divided by i
    phase = ops.ifft2(both)[0][:, :sy, :sx]
    return phase - ops.mean(phase, axis=(1, 2), keepdims=True)
