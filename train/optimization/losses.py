"""The loss: Huber's function of the error in units of the density scale, and an L2 penalty of
convolution kernels.

loss = mean over pixels of h(e) + l2 · Σ w²/2, with e = prediction − target, h(e) = e²/2 for |e| <=
δ and δ(|e| − δ/2) elsewhere (Huber 1964). With half the sum of squares, the gradient of the penalty
is l2 · w.

With `kind` 'mse' or 'mae' the mean of e² or |e| stands in place of the mean of h(e).

With a likelihood the network has a second output, u, by which it predicts its own error. Its scale
is b = exp(L tanh(u/L)), L = 7, in units of the density scale: between 1/1097 and 1097, with a slope
everywhere. The loss gains LIKELIHOOD_WEIGHT times the mean negative log-likelihood, |e|/b + ln b
for Laplace's distribution and e²/2b² + ln b for Gauss'. No gradient of it reaches the density: a
likelihood divides the gradient of the density by the scale, so that pixels that are hard to predict
are given up (Seitzer et al., ICLR 2022). The density is learnt by Huber's function alone, as
without a likelihood.

Projected densities differ by a factor of a hundred between 20 Å of lithium and 200 Å of lead. With
`relative`, e is divided by the standard deviation of the sample's target, so that both have the
same weight, as in SSIM and correlation. A window of vacuum or glass has hardly any contrast.
`least_contrast` keeps such windows from outweighing the others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import keras
from keras import ops

from fcdensenet.split import PartSplit
from namsa.base.arrays import Tensor
from namsa.base.registry import allowed_function

from ..experiment.sections import Loss
from .updates import half_square

ContrastLimits = tuple[float, float]

LARGEST_LOG_SCALE = 7.0  # L
# of a pixel, beyond which the likelihood falls by a power of the error: bounds the gradient
LARGEST_MISFIT = 100.0
# so that the shared layers are those of the density; see docs/benchmarks/training.md
LIKELIHOOD_WEIGHT = 0.1


class Differentiated(NamedTuple):
    """Loss, terms and gradients of a batch. All are tensors."""

    terms: Sequence[Tensor]  # the terms of the objective
    l2: Tensor  # L2 penalty of the kernels
    loss: Tensor  # the sum of the terms and l2
    statistics: Sequence[Tensor]  # moving averages of the normalisations after the batch
    gradients: Sequence[Tensor]  # of the loss times the loss scale, one for each trainable variable


def huber(
    prediction: Tensor,  # `(n, h, w, 1)`, in units of the density scale
    target: Tensor,  # the same
    # δ, a scalar tensor, so that it can decay without a new trace of the training step
    delta: Tensor,
    # Of `contrast`, in units of which errors are then measured; `None` for units of the density
    # scale.
    limits: ContrastLimits | None = None,
    # What the parts of a divided sample exchange, of which the loss of this one is returned.
    split: PartSplit | None = None,
) -> Tensor:
    """Returns the mean of h(e) over all pixels, a float32 scalar."""
    error = _absolute_error(prediction, target, limits, split)
    inner = ops.minimum(error, delta)
    # Equal to Huber's two cases, without a branch whose discarded side could overflow.
    return ops.mean(inner * (error - 0.5 * inner))


def mean_error(
    prediction: Tensor,  # this and the following as of `huber`
    target: Tensor,
    kind: Literal["mse", "mae"],
    limits: ContrastLimits | None = None,
    split: PartSplit | None = None,
) -> Tensor:
    """Returns the mean of the squared or absolute error over all pixels, a float32 scalar."""
    error = _absolute_error(prediction, target, limits, split)
    return ops.mean(ops.square(error) if kind == "mse" else error)


def _absolute_error(
    prediction: Tensor, target: Tensor, limits: ContrastLimits | None, split: PartSplit | None
) -> Tensor:
    """Returns |e| of each pixel, float32; the arguments are those of `huber`."""
    error = ops.abs(ops.cast(prediction, "float32") - ops.cast(target, "float32"))
    if limits:
        error /= contrast(target, limits, split, "huber_contrast")
    return error


def contrast(
    target: Tensor, limits: ContrastLimits, split: PartSplit | None = None, name: str = "contrast"
) -> Tensor:
    """Returns the standard deviation of each sample's target, with axes of length 1.

    Args:
        target: `(n, h, w, 1)`, in units of the density scale, or this rank's part of it.
        limits: It is at least the first times the mean of the target, and at least the second.
    """
    target = ops.cast(target, "float32")

    def mean(values: Tensor, of: str) -> Tensor:
        local = ops.mean(values, axis=tuple(range(1, len(target.shape))), keepdims=True)
        return split.mean(local, f"{name}_{of}") if split else local

    average = mean(target, "mean")
    spread = ops.maximum(ops.sqrt(mean(ops.square(target - average), "variance")), limits[1])
    return ops.maximum(spread, limits[0] * average) if limits[0] else spread


def split_output(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Splits the output of a network with a likelihood into the density and u, each of the target's
    shape.
    """
    density, u = ops.split(output, 2, axis=1 if output.shape[1] != target.shape[1] else -1)
    return density, u


def log_scale(u: Tensor) -> Tensor:
    """Returns the logarithm of the predicted error's scale, in units of the density scale,
    float32.
    """
    return LARGEST_LOG_SCALE * ops.tanh(ops.cast(u, "float32") / LARGEST_LOG_SCALE)


def negative_log_likelihood(
    density: Tensor, u: Tensor, target: Tensor, loss: Loss, split: PartSplit | None = None
) -> Tensor:
    """Returns the mean over all pixels without the constants of the distribution, a float32 scalar.

    With `loss.relative`, error and scale are both in units of the sample's contrast. This changes
    the value by the mean logarithm of the contrasts and no gradient: the predicted scale is that of
    the density.

    Args:
        density: `(n, h, w, 1)`, in units of the density scale. It gets no gradient.
        u: The second output, in the same shape.
    """
    error = ops.abs(ops.cast(ops.stop_gradient(density), "float32") - ops.cast(target, "float32"))
    logarithm = log_scale(u)
    misfit = error * ops.exp(-logarithm)
    if loss.likelihood == "gaussian":
        misfit = 0.5 * misfit**2
    limit = LARGEST_MISFIT
    bounded = ops.minimum(misfit, limit) + limit * ops.log(ops.maximum(misfit, limit) / limit)
    if limits := loss.contrast_limits():
        logarithm -= ops.log(contrast(target, limits, split, "likelihood_contrast"))
    return ops.mean(bounded + logarithm)


@dataclass(frozen=True)
class DensityObjective:
    """The loss of a density, an `Objective`."""

    loss: Loss  # the section training.loss
    # What the parts of a divided sample exchange. The terms are then those of this rank's part:
    # their means over the ranks are those of whole samples.
    split: PartSplit | None = None

    @property
    def terms(self) -> tuple[str, ...]:
        """The loss of the error, and the likelihood if the network predicts its own error."""
        if self.loss.likelihood == "none":
            return (self.loss.kind,)
        return (self.loss.kind, "likelihood")

    def setting(self, epoch: int) -> dict[str, float]:
        """Returns Huber's δ in an epoch; empty with another loss."""
        if self.loss.kind != "huber":
            return {}
        return {"delta": huber_delta(self.loss, epoch)}

    def __call__(self, output: Tensor, target: Tensor, setting: Tensor) -> tuple[Tensor, ...]:
        """Returns the terms of a batch."""
        if self.loss.likelihood == "none":
            return (self._error(output, target, setting),)
        density, u = split_output(output, target)
        likelihood = LIKELIHOOD_WEIGHT * negative_log_likelihood(
            density, u, target, self.loss, self.split
        )
        return self._error(density, target, setting), likelihood

    def _error(self, density: Tensor, target: Tensor, setting: Tensor) -> Tensor:
        """Returns the loss of a density's error, by `training.loss.kind`."""
        limits = self.loss.contrast_limits()
        if self.loss.kind == "huber":
            return huber(density, target, setting, limits, self.split)
        if self.loss.kind == "function":
            assert self.loss.function
            function = allowed_function(self.loss.function, "training.loss.function")
            prediction = ops.cast(density, "float32")
            return ops.cast(function(prediction, ops.cast(target, "float32")), "float32")
        return mean_error(density, target, self.loss.kind, limits, self.split)


def huber_delta(loss: Loss, epoch: int) -> float:
    """Returns δ in `epoch`, from 0. It decays by a factor per epoch, from the size of errors
    towards their sign.
    """
    return loss.huber_delta * loss.huber_delta_decay**epoch


def kernels(variables: Iterable[keras.Variable]) -> list[keras.Variable]:
    """Returns the kernels of convolutions and transposed convolutions, without biases and
    normalisations.
    """
    return [variable for variable in variables if len(variable.shape) >= 4]


def l2(variables: Iterable[keras.Variable], strength: float) -> Tensor:
    """Returns strength · Σ w²/2 over `variables`, a float32 scalar."""
    return strength * ops.sum(ops.stack([half_square(variable.value) for variable in variables]))


class Objective(Protocol):
    """The loss of a task, beside the L2 penalty of the kernels.

    Attributes:
        terms: Names of the terms, whose sum with the penalty is the loss. They are keys of a step's
            row.
    """

    @property
    def terms(self) -> tuple[str, ...]:
        """See the class."""
        ...

    def setting(self, epoch: int) -> dict[str, float]:
        """Returns the one number that changes with the epoch, by its key in a step's row; empty if
        there is none.
        """
        ...

    def __call__(self, output: Tensor, target: Tensor, setting: Tensor) -> tuple[Tensor, ...]:
        """Returns the terms of a batch, float32 scalars, by the number of `setting`. Called inside
        a tf.function.
        """
        ...
