"""`train.experiment.channels.to_channels` in TensorFlow, on the device that trains."""

from typing import Any

import numpy as np
import tensorflow as tf

from ..experiment.channels import TENTHS, Channels

Tensor = Any


def to_channels_graph(patterns: Tensor, scale: Tensor, channels: Channels, power: float, gain: float) -> Tensor:
    """Computes the channels of a batch.

    Args:
        patterns: `(n, sy, sx, pixels)`, fractions of the beam times `scale`.
        scale: `(n, 1, 1, 1)`.
        power: Exponent of intensities.
        gain: Factor of intensities.

    Returns:
        `(n, sy, sx, c)`, float32.
    """
    patterns = tf.cast(patterns, tf.float32)
    matrices = [matrix for matrix in (channels.averages, channels.moments) if matrix is not None]
    products = []
    if matrices:  # one product reads the patterns once
        both = patterns @ tf.concat(matrices, axis=1)
        products = tf.split(both, [matrix.shape[1] for matrix in matrices], axis=-1)
    averages = patterns if channels.averages is None else products[0]
    fractions = averages * (patterns.shape[-1] / scale)
    parts = [gain * (tf.sqrt(fractions) if power == 0.5 else fractions**power)]
    if channels.moments is not None:
        total, y, x = tf.unstack(products[-1], axis=-1)
        deflection = tf.math.divide_no_nan(tf.stack([y, x], axis=-1), total[..., None])
        if channels.deflection:
            parts.append(TENTHS / channels.semiangle_mrad * deflection)
        if channels.phase:
            phase = _integrate(deflection, channels.scan_step_angstrom, channels.wavelength_angstrom)
            parts.append(TENTHS * phase[..., None])
    return tf.concat(parts, axis=-1)


def _integrate(deflection: Tensor, step: tuple[float, float], wavelength: float) -> Tensor:
    """`integrated_centre_of_mass` of `namsa.physics.virtual_detectors` of each `(sy, sx, 2)`, mrad, not periodic."""
    sy, sx = deflection.shape[1:3]
    gy, gx = (2e-3 * np.pi / wavelength * deflection[..., axis] for axis in (0, 1))
    gy, gx = (tf.concat([g, sign * g[:, ::-1]], axis=1) for g, sign in ((gy, -1), (gx, 1)))
    gy, gx = (tf.concat([g, sign * g[:, :, ::-1]], axis=2) for g, sign in ((gy, 1), (gx, -1)))
    ky, kx = np.fft.fftfreq(2 * sy, step[0])[:, None], np.fft.fftfreq(2 * sx, step[1])
    squared = ky**2 + kx**2
    squared[0, 0] = 1  # a constant has no gradient, and the mean is subtracted
    along = [tf.constant(k / (2j * np.pi * squared), tf.complex64) for k in (ky, kx)]
    transforms = [tf.signal.fft2d(tf.cast(g, tf.complex64)) for g in (gy, gx)]
    both = tf.signal.ifft2d(along[0] * transforms[0] + along[1] * transforms[1])
    phase = tf.math.real(both)[:, :sy, :sx]
    return phase - tf.reduce_mean(phase, axis=(1, 2), keepdims=True)
