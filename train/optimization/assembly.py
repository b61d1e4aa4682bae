"""What a job trains: the network, its optimizer, and what a step keeps between steps."""

from typing import Any, NamedTuple

import keras

from fcdensenet.split import Split

from ..experiment.sections import Training
from ..networks import Network, build
from . import lag, precision
from .accumulation import Accumulation
from .objective import Objective
from .optimizers import make_optimizer
from .shards import Shards


class Assembly(NamedTuple):
    """A network that is ready to be trained.

    Attributes:
        model: The network, with the initial weights of its seed.
        optimizer: Its optimizer, built, with a loss scale if there is one.
        buffers: See `train.optimization.lag.gradient_buffers`.
        accumulation: `None` if a step takes one batch.
        state: All variables that a checkpoint holds; with `shards`, this rank's.
        shards: `None` if every rank keeps all weights and moments.
    """

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    buffers: list[keras.Variable]
    accumulation: Accumulation | None
    state: list[Any]
    shards: Shards | None


def assemble(
    network: Network,
    seed: int,
    training: Training,
    ranks: int = 1,
    objective: Objective | None = None,
    split: Split | None = None,
    rank: int = 0,
) -> Assembly:
    """Builds a network and what trains it. Variables have the same names whatever this process has built before.

    Args:
        network: The section network.
        seed: Of the initial weights.
        training: The section training.
        ranks: Number of ranks of the job.
        objective: The task's loss; `None` for that of a density.
        split: What the parts of a divided sample exchange; the network is then that of a part.
        rank: Number of this rank, which decides what it owns if weights are sharded.

    Raises:
        InputError: If weights are sharded, and there are more ranks than variables.
    """
    sharded = training.reduction.weights == "sharded"
    keras.utils.clear_session()
    with precision.policy(training.precision.compute):
        model = build(network, seed, training.recompute, split)
        optimizer = precision.with_loss_scale(make_optimizer(training.optimizer), training, ranks)
        shards = Shards(model, optimizer, training.reduction, rank, ranks) if sharded else None
        if not shards:
            optimizer.build(model.trainable_variables)
        buffers = lag.gradient_buffers(model.trainable_variables, training.reduction)
        accumulation = Accumulation(model, optimizer, training, objective) if training.accumulate > 1 else None
    state = [*model.variables, *optimizer.variables, *buffers, *(shards.masters if shards else ())]
    return Assembly(model, optimizer, buffers, accumulation, state, shards)
