"""What a job trains: the network, its optimizer, and what a step keeps between steps."""

from typing import Any, NamedTuple

import keras

from fcdensenet.split import Split

from ..experiment.sections import Training
from ..networks import Network, build
from ..ranks.exchange import Exchange, make_exchange
from . import precision
from .loop import step_module
from .objective import Objective
from .optimizers import make_optimizer


class Assembly(NamedTuple):
    """A network that is ready to be trained."""

    model: keras.Model  # the network, with the initial weights of its seed
    optimizer: keras.optimizers.Optimizer  # its optimizer, built, with a loss scale if there is one
    exchange: Exchange  # what happens to gradients and weights between the ranks
    accumulation: Any | None  # that of the execution; `None` if a step takes one batch


def assemble(
    network: Network,  # the section network
    seed: int,  # of the initial weights
    training: Training,
    ranks: int = 1,
    objective: Objective | None = None,  # the task's loss; `None` for that of a density
    split: Split | None = None,  # what the parts of a divided sample exchange; the network is then that of a part
    rank: int = 0,
) -> Assembly:
    """Builds a network and what trains it. Variables have the same names whatever this process has built before.

    Raises:
        InputError: If the section training.exchange does not fit the network.
    """
    keras.utils.clear_session()
    with precision.policy(training.precision.compute):
        model = build(network, seed, training.recompute, split)
        optimizer = precision.with_loss_scale(make_optimizer(training.optimizer), training, ranks)
        exchange = make_exchange(training.exchange, rank, ranks)
        exchange.begin(model, optimizer)
        accumulation = None
        if training.accumulate > 1:
            accumulation = step_module().Accumulation(model, optimizer, training, objective)
    return Assembly(model, optimizer, exchange, accumulation)
