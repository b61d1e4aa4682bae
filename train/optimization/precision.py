"""Mixed precision: the network's dtype policy, and the loss scale that keeps float16 gradients from
vanishing.

The order in a step is: scale the loss, differentiate, average the scaled gradients over the ranks,
then test whether they are finite, unscale, and update. An infinity or NaN of one rank survives the
average, so that all ranks skip the step and lower the scale together, without a collective for it.
Weights and moments are always float32.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import keras
from keras import ops

from namsa.base.arrays import Tensor

from ..experiment.sections import Training
from ..ranks.wire import wire_divisors

# LogMax, with the numbers of OpenSeq2Seq (Kuchaiev et al. 2018): the logarithms of the largest
# gradients are assumed to be normally distributed, and one in a thousand may overflow.
LOG_MAX = 16.0  # float16 ends just below 2^16
# decay of the running means
FAST = 0.99
SLOW = 0.999
DEVIATIONS = 3.09  # standard deviations up to the 99.9th percentile
MAX_SCALE = 2.0**24


@contextmanager
def policy(name: str) -> Iterator[None]:
    """Sets the Keras dtype policy for layers that are created in the context. Their variables stay
    float32.
    """
    previous = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(previous)


def with_loss_scale(
    optimizer: keras.optimizers.Optimizer, training: Training, ranks: int = 1
) -> keras.optimizers.Optimizer:
    """Returns `optimizer` with a dynamic loss scale if gradients are float16, in the network or in
    messages.
    """
    config = training.precision
    if config.compute != "mixed_float16" and not training.exchange.sends_float16:
        return optimizer
    settings = {
        "initial_scale": config.initial_loss_scale,
        "dynamic_growth_steps": config.growth_steps,
        "name": "loss_scale",
    }
    if config.loss_scaling == "backoff":
        return keras.optimizers.LossScaleOptimizer(optimizer, **settings)
    after = wire_divisors(ranks)[1] if training.exchange.sends_float16 else 1.0
    return LogMaxOptimizer(optimizer, log_max=LOG_MAX - math.log2(after), **settings)


def loss_scale(optimizer: keras.optimizers.Optimizer) -> Tensor:
    """Returns the factor of the loss: a scalar variable, or 1.0."""
    return getattr(optimizer, "dynamic_scale", 1.0)


class LogMaxOptimizer(keras.optimizers.LossScaleOptimizer):
    """Keras' loss scale with the LogMax rule: the largest scale with which one step in a thousand
    overflows.

    A step with a gradient that is not finite changes no weight, and at least halves the scale.
    """

    def __init__(
        self, optimizer: keras.optimizers.Optimizer, *, log_max: float = LOG_MAX, **settings: object
    ) -> None:
        """Wraps `optimizer`. `log_max` is log₂ of the largest mean gradient that fits; `settings`
        are Keras'.
        """
        super().__init__(optimizer, **settings)
        self.log_max = log_max

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates the variable of `log_max_statistics`."""
        super().build(variables)
        self.statistics = self.add_variable(
            shape=(4,), initializer="zeros", dtype="float32", name="log_max"
        )

    def apply(
        self,
        gradients: Sequence[Tensor],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> None:
        """Unscales `gradients`, updates the variables if all are finite, and sets the scale of the
        next step.
        """
        finite = self.check_finite(gradients)
        ops.cond(finite, *self._changes(gradients, finite))

    def stateless_apply(
        self,
        optimizer_variables: Sequence[keras.Variable],
        grads: Sequence[Tensor],
        trainable_variables: Sequence[keras.Variable],
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Does what `apply` does to values of the variables, and returns the new ones; see Keras'
        optimizers.
        """
        variables = [*self._trainable_variables, *self.variables]
        values = [*trainable_variables, *optimizer_variables]
        finite = self.check_finite(grads)

        def branch(index: int) -> list[Tensor]:
            with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
                self._changes(grads, finite)[index]()
            return [scope.get_current_value(variable) for variable in variables]

        results = ops.cond(finite, lambda: branch(0), lambda: branch(1))
        return results[: len(trainable_variables)], results[len(trainable_variables) :]

    def _changes(
        self, gradients: Sequence[Tensor], finite: Tensor
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        """Returns what changes the variables if all gradients are finite, and what does if not."""
        scale = ops.convert_to_tensor(self.dynamic_scale)
        largest = ops.max(ops.stack([ops.max(ops.abs(gradient)) for gradient in gradients])) / scale
        log_largest = ops.where(
            finite & (largest > 0), ops.log2(ops.maximum(largest, 1e-30)), self.log_max
        )
        statistics = log_max_statistics(self.statistics.value, log_largest)
        new_scale = log_max_scale(statistics, self.log_max)

        def update() -> None:
            self.inner_optimizer.apply([gradient / scale for gradient in gradients])
            # Gradients that are all zero have no logarithm.
            self.statistics.assign(ops.where(largest > 0, statistics, self.statistics.value))
            self.dynamic_scale.assign(ops.where(largest > 0, new_scale, scale))

        def skip() -> None:
            self.statistics.assign(statistics)
            self.dynamic_scale.assign(ops.minimum(new_scale, scale / 2))

        return update, skip


def log_max_statistics(statistics: Tensor, log_largest: Tensor) -> Tensor:
    """Adds log₂ of a step's largest gradient to the running statistics; returns the new ones.

    These are, `(4,)`, the number of steps, the fast mean, the slow mean, and the slow mean square.
    """
    steps, fast, slow, square = ops.unstack(statistics, 4)
    return ops.stack(
        [
            steps + 1,
            FAST * fast + (1 - FAST) * log_largest,
            SLOW * slow + (1 - SLOW) * log_largest,
            SLOW * square + (1 - SLOW) * log_largest**2,
        ]
    )


def log_max_scale(statistics: Tensor, log_max: float = LOG_MAX) -> Tensor:
    """Returns the scale that puts the 99.9th percentile at 2^log_max, between 1 and 2^24."""
    steps, fast, slow, square = ops.unstack(statistics, 4)
    unbiased = 1 - SLOW**steps
    mean = fast / (1 - FAST**steps)
    deviation = ops.sqrt(ops.maximum(square / unbiased - (slow / unbiased) ** 2, 0.0))
    return ops.clip(2.0 ** (log_max - (mean + DEVIATIONS * deviation)), 1.0, MAX_SCALE)
