"""The loss: Huber's function of the error in units of the density scale, and an L2 penalty of convolution kernels.

loss = mean over pixels of h(e) + l2 · Σ w²/2, with e = prediction − target, h(e) = e²/2 for |e| <= δ and
δ(|e| − δ/2) elsewhere (Huber 1964). With half the sum of squares, the gradient of the penalty is l2 · w.

Projected densities differ by a factor of a hundred between 20 Å of lithium and 200 Å of lead. With `relative`, e is
divided by the standard deviation of the sample's target, so that both have the same weight, as in SSIM and correlation.
"""

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from train.experiment.sections import Loss
from train.measure.metrics import MIN_SPREAD

Tensor = Any


def huber(prediction: Tensor, target: Tensor, delta: Tensor, relative: bool = False) -> Tensor:
    """Returns the mean of h(e) over all pixels, a float32 scalar.

    Args:
        prediction: `(n, h, w, 1)`, in units of the density scale.
        target: The same.
        delta: δ, a scalar tensor, so that it can decay without a new trace of the training step.
        relative: Whether errors are in units of the standard deviation of the sample's target.
    """
    target = tf.cast(target, tf.float32)
    error = tf.abs(tf.cast(prediction, tf.float32) - target)
    if relative:
        spread = tf.math.reduce_std(target, axis=tuple(range(1, len(target.shape))), keepdims=True)
        error /= tf.maximum(spread, MIN_SPREAD)
    inner = tf.minimum(error, delta)
    # Equal to Huber's two cases, without a branch whose discarded side could overflow.
    return tf.reduce_mean(inner * (error - 0.5 * inner))


def huber_delta(loss: Loss, epoch: int) -> float:
    """Returns δ in `epoch`, from 0. It decays by a factor per epoch, from the size of errors towards their sign."""
    return loss.huber_delta * loss.huber_delta_decay**epoch


def kernels(variables: Iterable[keras.Variable]) -> list[keras.Variable]:
    """Returns the kernels of convolutions and transposed convolutions, without biases and normalisations."""
    return [variable for variable in variables if len(variable.shape) == 4]


def l2(variables: Iterable[keras.Variable], strength: float) -> Tensor:
    """Returns strength · Σ w²/2 over `variables`, a float32 scalar."""
    return strength * tf.add_n([tf.nn.l2_loss(variable.value) for variable in variables])
