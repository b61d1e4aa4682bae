"""Gradient lag: a step updates with the gradients of the step before, whose reduction overlaps with
the whole step.

Gradients are zero before the first step, which therefore changes no weight and does not count as a
step of the optimizer. Each rank has its own waiting gradients. They are part of the job's state: at
the end of an epoch, and where ranks agree on a stop, the ranks average them.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from namsa.base.arrays import Tensor

from ....ranks.connection import engine
from ....ranks.exchange import AllreduceExchange, Exchange, make_exchange
from .section import Lag

NOTHING_WAITS = -1.0  # in place of the loss scale of gradients that wait


class LagExchange(Exchange):
    """Averages gradients one step later, as `config.of` says.

    Attributes:
        waiting: The gradients of the step before, and their loss scale.
    """

    config: Lag

    def begin(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        super().begin(model, optimizer)
        of = make_exchange(self.config.of, self.rank, self.ranks)
        assert isinstance(of, AllreduceExchange)
        self.of = of
        of.begin(model, optimizer)
        shapes = [
            (weight.path.replace("/", "_"), weight.shape) for weight in model.trainable_variables
        ]
        self.waiting = [
            keras.Variable(
                np.full(shape, NOTHING_WAITS if name == "loss_scale" else 0.0),
                dtype="float32",
                trainable=False,
                name=f"waiting_{name}",
            )
            for name, shape in [*shapes, ("loss_scale", ())]
        ]
        self.kept = self.waiting

    def mean(self, gradients: Sequence[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
        """See `train.ranks.exchange.Exchange`: that of the gradients of the step before.

        They depend on nothing that this step computes, so that their reduction overlaps with all of
        it. They are converted from their loss scale to `scale`.
        """
        groups = self.of.groups(gradients)
        self.nothing_waited = self.waiting[-1].value < 0
        previous = [tf.identity(variable.value) for variable in self.waiting]
        for variable, current in zip(self.waiting, [*gradients, scale], strict=True):
            variable.assign(current)
        means = self.of.average(
            [gradient * (scale / previous[-1]) for gradient in previous[:-1]], groups
        )
        return means, tf.linalg.global_norm(means)

    def after_update(self, changed: Tensor) -> Tensor | float:
        """Takes the first step back from the optimizer's count: Adam's bias correction counts
        gradients.
        """
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        inner.iterations.assign_sub(tf.cast(self.nothing_waited, inner.iterations.dtype))
        return 0.0

    def end_epoch(self, step: int, epoch: int, whole: bool) -> None:
        """See `train.ranks.exchange.Exchange`. Averages what waits."""
        engine().average(self.waiting)


EXCHANGE = LagExchange
