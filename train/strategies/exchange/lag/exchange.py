"""Gradient lag: a step updates with the gradients of the step before, whose reduction overlaps with the whole step.

Gradients are zero before the first step, which therefore changes no weight. Each rank has its own waiting gradients.
They are part of the job's state: at the end of an epoch, and where ranks agree on a stop, the ranks average them.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from namsa.arrays import Tensor

from ....ranks import reduction
from ....ranks.exchange import AllreduceExchange, Exchange, make_exchange
from .section import Lag


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
        shapes = [(weight.path.replace("/", "_"), weight.shape) for weight in model.trainable_variables]
        self.waiting = [
            keras.Variable(
                np.full(shape, float(name == "loss_scale")), dtype="float32", trainable=False, name=f"waiting_{name}"
            )
            for name, shape in [*shapes, ("loss_scale", ())]
        ]
        self.kept = self.waiting

    def mean(self, gradients: Sequence[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
        """See `train.ranks.exchange.Exchange`: that of the gradients of the step before.

        They depend on nothing that this step computes, so that their reduction overlaps with all of it. They are
        converted from their loss scale to `scale`.
        """
        groups = self.of.groups(gradients)
        previous = [tf.identity(variable.value) for variable in self.waiting]
        for variable, current in zip(self.waiting, [*gradients, scale], strict=True):
            variable.assign(current)
        means = self.of.average([gradient * (scale / previous[-1]) for gradient in previous[:-1]], groups)
        return means, tf.linalg.global_norm(means)

    def end_epoch(self, step: int, epoch: int, whole: bool) -> None:
        """See `train.ranks.exchange.Exchange`. Averages what waits."""
        reduction.average(self.waiting)


EXCHANGE = LagExchange
