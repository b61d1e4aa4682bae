"""`train.experiment.channels.seen` in TensorFlow, on the device that trains."""

from typing import Any

import numpy as np
import tensorflow as tf

from train.experiment.channels import TENTHS, Channels

Tensor = Any


def seen_by_graph(patterns: Tensor, scale: Tensor, made: Channels, power: float, gain: float) -> Tensor:
    """As `seen`, of a batch (n, sy, sx, pixels) of fractions times `scale` (n, 1, 1, 1)."""
    patterns = tf.cast(patterns, tf.float32)
    averages = patterns if made.means is None else patterns @ made.means
    fractions = averages * (patterns.shape[-1] / scale)
    found = [gain * (tf.sqrt(fractions) if power == 0.5 else fractions**power)]
    if made.angles is not None:
        total, y, x = tf.unstack(patterns @ made.angles, axis=-1)
        deflection = tf.math.divide_no_nan(tf.stack([y, x], axis=-1), total[..., None])
        if made.deflection:
            found.append(TENTHS / made.semiangle_mrad * deflection)
        if made.guess:
            phase = _integrated(deflection, made.step_angstrom, made.wavelength_angstrom)
            found.append(TENTHS * phase[..., None])
    return tf.concat(found, axis=-1)


def _integrated(deflection: Tensor, step: tuple[float, float], wavelength: float) -> Tensor:
    """`namsa.physics.virtual_detectors.integrated` of each of (n, sy, sx, 2), in mrad, without a period."""
    sy, sx = deflection.shape[1:3]
    gy, gx = (2e-3 * np.pi / wavelength * deflection[..., axis] for axis in (0, 1))
    gy, gx = (tf.concat([g, sign * g[:, ::-1]], axis=1) for g, sign in ((gy, -1), (gx, 1)))
    gy, gx = (tf.concat([g, sign * g[:, :, ::-1]], axis=2) for g, sign in ((gy, 1), (gx, -1)))
    ky, kx = np.fft.fftfreq(2 * sy, step[0])[:, None], np.fft.fftfreq(2 * sx, step[1])
    squared = ky**2 + kx**2
    squared[0, 0] = 1  # a constant has no gradient, and the mean is taken off
    along = [tf.constant(k / (2j * np.pi * squared), tf.complex64) for k in (ky, kx)]
    transforms = [tf.signal.fft2d(tf.cast(g, tf.complex64)) for g in (gy, gx)]
    both = tf.signal.ifft2d(along[0] * transforms[0] + along[1] * transforms[1])
    phase = tf.math.real(both)[:, :sy, :sx]
    return phase - tf.reduce_mean(phase, axis=(1, 2), keepdims=True)
