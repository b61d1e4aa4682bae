"""The loss: Huber's function of the error in units of the density scale, and L2 on the convolutions' kernels.

loss = mean over pixels of h(e) + l2 · Σ w²/2, with e = prediction − target, h(e) = e²/2 where |e| <= δ and
δ(|e| − δ/2) elsewhere (Huber 1964). Half the sum of squares makes l2 · w the gradient.

Projected densities differ by a factor of a hundred between 20 Å of lithium and 200 Å of lead. With `relative` e is
divided by the standard deviation of the sample's target, so that both count alike, as in SSIM and correlation.
"""

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from train.experiment.sections import Loss
from train.measure.metrics import LEAST_SPREAD

Tensor = Any


def huber(prediction: Tensor, target: Tensor, delta: Tensor, relative: bool = False) -> Tensor:
    """Mean of h(e) over all pixels, a float32 scalar; (N, H, W, 1) each, in units of the density scale.

    `delta` is a tensor, so that it can decay without the training step being traced anew.
    """
    target = tf.cast(target, tf.float32)
    error = tf.abs(tf.cast(prediction, tf.float32) - target)
    if relative:
        spread = tf.math.reduce_std(target, axis=tuple(range(1, len(target.shape))), keepdims=True)
        error /= tf.maximum(spread, LEAST_SPREAD)
    inner = tf.minimum(error, delta)
    # Equal to Huber's two cases, without a branch whose discarded side could overflow.
    return tf.reduce_mean(inner * (error - 0.5 * inner))


def huber_delta(loss: Loss, epoch: int) -> float:
    """δ in `epoch` (the first is 0): it decays by a factor an epoch, from robust to the error's size to its sign."""
    return loss.huber_delta * loss.huber_delta_decay**epoch


def kernels(variables: Iterable[keras.Variable]) -> list[keras.Variable]:
    """The kernels of convolutions and transposed convolutions: no biases, no scales and shifts of normalisations."""
    return [variable for variable in variables if len(variable.shape) == 4]


def l2(variables: Iterable[keras.Variable], strength: float) -> Tensor:
    """strength · Σ w²/2 over `variables`, a float32 scalar."""
    return strength * tf.add_n([tf.nn.l2_loss(variable.value) for variable in variables])
