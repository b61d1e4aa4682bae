"""The exchange of gradients and weights between the ranks: in a step, after it, and for a
checkpoint.

`Exchange` is the seam. `AllreduceExchange` is the default, which is the paper's: gradients are
averaged in groups, which are fused, and whose names are in Horovod's response cache.
`make_exchange` also finds the strategies, by the kind of the section training.exchange.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import keras
import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Tensor

from ..experiment.exchange import Allreduce, ExchangeSection, GradientGroups
from ..experiment.registry import strategy
from . import grouping
from .buffers import in_one_buffer
from .connection import engine
from .wire import from_wire, to_wire


class Exchange(ABC):
    """The exchange of a job. All ranks call its methods, in the same order. A method's default is
    to exchange nothing.

    Attributes:
        averages_in_step: Whether the numbers of every step are means over the ranks, and their
            weights the same.
        kept: Variables that are part of a checkpoint beside those of the network and the optimizer.
    """

    averages_in_step = True

    def __init__(self, config: ExchangeSection, rank: int = 0, ranks: int = 1) -> None:
        self.config = config
        self.rank = rank
        self.ranks = ranks
        self.kept: Sequence[keras.Variable] = ()

    def begin(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        """Takes the network, and builds its optimizer if need be. Raises InputError if the section
        does not fit it.
        """
        self.model = model
        self.optimizer = optimizer
        if not optimizer.built:
            optimizer.build(self.updated)

    @property
    def updated(self) -> Sequence["keras.Variable"]:
        """The variables that this rank's optimizer updates: by default, the network's."""
        return self.model.trainable_variables

    # ---- A step, inside a tf.function

    @abstractmethod
    def mean(self, gradients: Sequence[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
        """Returns the gradients that the optimizer takes, one for each of `updated`, and the norm
        of them all.

        If any rank's are not finite, neither are those of any other, so that loss scales skip the
        step together.

        Args:
            gradients: Of the network's variables on this rank, float32, times the loss scale.
        """

    def mean_numbers(self, numbers: Sequence[Tensor]) -> list[Tensor]:
        """Returns the means of float32 tensors over the ranks: losses, and moving averages of
        normalisations.
        """
        return engine().average_in_one_message(numbers, "numbers")

    def after_update(self, changed: Tensor) -> Tensor | float:
        """Exchanges weights after the update. Returns the time that it took, s."""
        return 0.0

    # ---- Between steps

    def after_step(self, step: int, last: bool, numbers: Sequence[float]) -> list[float] | None:
        """Synchronises the ranks, if that is due.

        Args:
            numbers: Numbers of this rank's step.

        Returns:
            The means of `numbers` over the ranks; `None` if nothing was exchanged.
        """
        return None

    def end_epoch(self, step: int, epoch: int, whole: bool) -> dict[str, object] | None:
        """Makes the state the same on all ranks, but what `state_of_ranks` keeps; returns a row, if
        there is one.
        """
        return None

    # ---- Checkpoints

    def state(self) -> list["keras.Variable"]:
        """Returns the variables of a checkpoint, which are whole on rank 0. Collective."""
        return [*self.model.variables, *self.optimizer.variables, *self.kept]

    def state_of_ranks(self) -> list[npt.NDArray[np.float32]]:
        """Returns, on rank 0, what each further rank keeps for itself; empty if they keep nothing.
        Collective.
        """
        return []

    def blank_state(self) -> list["keras.Variable"]:
        """Returns variables to be set from a checkpoint on rank 0, as of `state`. Without
        messages.
        """
        return self.state()

    def restore(
        self, state: Sequence[object], of_ranks: Sequence[npt.NDArray[np.float32]], resumed: bool
    ) -> str:
        """Takes the state of rank 0 on all ranks. Collective.

        Args:
            of_ranks: On rank 0, what `state_of_ranks` returned there.

        Returns:
            What is not as it was, for the line about a job that goes on; empty if all is.
        """
        engine().broadcast_state(self.model, [*self.optimizer.variables, *self.kept])
        return ""


class AllreduceExchange(Exchange):
    """Averages gradients over all ranks in every step, group by group.

    Names are short and fixed because requests contain them, and thousands of ranks send requests to
    one.
    """

    config: GradientGroups

    def begin(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        """See `Exchange`. Raises InputError if group_list does not fit the network."""
        super().begin(model, optimizer)
        self.paths = [weight.path for weight in model.trainable_variables]
        grouping.colours(self.paths, self.config)

    def mean(self, gradients: Sequence[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
        means = self.average(gradients, self.groups(gradients))
        import tensorflow as tf

        return means, tf.linalg.global_norm(means)

    def groups(self, gradients: Sequence[Tensor]) -> list[list[int]]:
        """Returns the indices of the gradients of each group, from the graph that computes them."""
        return grouping.groups(gradients, self.paths, self.config)

    def average(self, gradients: Sequence[Tensor], groups: Sequence[Sequence[int]]) -> list[Tensor]:
        """Returns the mean of each gradient over the ranks, float32. Call it inside a
        tf.function.
        """
        ranks = engine().size()
        if ranks == 1:
            return list(gradients)
        if not self.config.sends_float16:
            return self.reduce(gradients, groups, average=True)
        sums = self.reduce([to_wire(gradient, ranks) for gradient in gradients], groups)
        return [from_wire(total, ranks) for total in sums]

    def reduce(
        self, tensors: Sequence[Tensor], groups: Sequence[Sequence[int]], average: bool = False
    ) -> list[Tensor]:
        """Returns sums or means over the ranks, group by group, each of one type. Call it inside a
        tf.function.
        """
        reduced = list(tensors)
        for group_index, group in enumerate(groups):
            results = self.reduce_group(
                [tensors[index] for index in group], f"grad_g{group_index}", average
            )
            for index, result in zip(group, results, strict=True):
                reduced[index] = result
        return reduced

    def reduce_group(self, tensors: Sequence[Tensor], name: str, average: bool) -> list[Tensor]:
        """Returns sums or means of the tensors of one group, which are sent as a list or as one
        buffer.
        """
        if isinstance(self.config, Allreduce) and self.config.contiguous:
            return in_one_buffer(tensors, lambda flat: engine().reduce([flat], name, average)[0])
        return engine().reduce(tensors, name, average)


def make_exchange(config: ExchangeSection, rank: int = 0, ranks: int = 1) -> Exchange:
    """Returns the exchange of a section. Imports its strategy if it is none of this package."""
    if isinstance(config, Allreduce):
        return AllreduceExchange(config, rank, ranks)
    kind = str(config.model_dump()["kind"])
    made: Exchange = strategy("exchange", kind, "exchange").EXCHANGE(config, rank, ranks)
    return made
