"""Interface of the ranks of a job: the processes that learn together.

`Ranks` is what they agree on between steps: JSON values, bytes, sums of a few numbers. `RankEngine`
adds what a training step sends: sums and means of gradients, and weights. `train.ranks.single`,
`train.ranks.horovod` and `train.ranks.jax_processes` implement it, and `train.ranks.connection`
decides between them.

Collective methods are called by all ranks, in the same order. So none of them is under a condition
that depends on the rank. Objects are sent as JSON, never as pickles.
"""

import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Tensor
from namsa.base.errors import InputError

from .ending import exit_code, exit_without_message

if TYPE_CHECKING:
    import keras

Bytes = npt.NDArray[np.uint8]
Members = tuple[int, ...]  # numbers of ranks, in order


class Ranks(ABC):
    """The ranks of a job as one of them sees them, between steps."""

    @abstractmethod
    def rank(self) -> int:
        """Returns the number of this rank, from 0."""

    @abstractmethod
    def size(self) -> int:
        """Returns the number of ranks."""

    @abstractmethod
    def gather_json(self, value: object, /) -> list[Any]:
        """Returns the `value` of every rank, of a JSON type, in the order of ranks. Collective."""

    @abstractmethod
    def total(self, array: npt.NDArray[np.float64], /) -> npt.NDArray[np.float64]:
        """Returns the sum of every rank's `array`, the same bits on all ranks. Collective."""

    @abstractmethod
    def exchange_bytes(self, outgoing: Sequence[Bytes], /) -> list[Bytes]:
        """Sends bytes from every rank to every rank. Collective.

        All bytes are in memory at once, and may be counted with 32 bits: send a few tens of MiB at
        a time.

        Args:
            outgoing: For each rank, in their order.

        Returns:
            What each rank sends to this one, in the order of ranks.
        """

    @abstractmethod
    def lost_another_rank(self, error: Exception, /) -> bool:
        """Returns whether a collective failed with `error` because another rank has ended."""

    def host(self) -> str:
        """Returns the name of this rank's host, by which ranks of one node are found."""
        return platform.node()

    def nodes(self) -> list[list[int]]:
        """Returns the ranks of each node, in order. A node is a host. Collective."""
        hosts = self.gather_json(self.host())
        ranks_of_host: dict[str, list[int]] = {}
        for rank, host in enumerate(hosts):
            ranks_of_host.setdefault(host, []).append(rank)
        return list(ranks_of_host.values())

    def check_same(self, value: object, name: str) -> None:
        """Raises InputError on every rank if the `value` differs between them. Collective.

        Args:
            name: The value's name in the message.
        """
        values = self.gather_json(value)
        for rank, value_of_rank in enumerate(values):
            if value_of_rank != values[0]:
                message = (
                    f"{name} is {values[0]} on rank 0 and {value_of_rank} on rank {rank}: "
                    "start all ranks alike"
                )
                raise self.reported_once(InputError(message))

    def reported_once(self, error: BaseException) -> BaseException:
        """Returns the exception to raise for an `error` that all ranks meet at the same place.

        Rank 0 raises the error itself, and so reports it. The others end without a message.
        """
        if self.rank() == 0:
            return error
        return exit_without_message(exit_code(error))

    @contextmanager
    def local_work(self) -> Iterator[None]:
        """Runs work without collectives that ends the job on all ranks if it fails on one.

        The first rank that failed raises its error, the others end without a message. The end of
        the context is a barrier. Collective.
        """
        failure: BaseException | None = None
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            failure = error
        codes = self.gather_json(exit_code(failure))
        failed = [rank for rank, code in enumerate(codes) if code]
        if not failed:
            return
        if failure is not None and self.rank() == failed[0]:
            raise failure
        raise exit_without_message(codes[failed[0]])


class RankEngine(Ranks):
    """The ranks of a job with what a training step sends between them.

    Tensors are those of the library that computes. `reduce`, `all_to_all` and what is built on them
    are called inside a compiled function.
    """

    @abstractmethod
    def local_rank(self) -> int:
        """Returns the number of this rank on its node, from 0."""

    @abstractmethod
    def local_size(self) -> int:
        """Returns the number of ranks on this node."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Returns the version of the library that connects the ranks, by its name."""

    @abstractmethod
    def stop(self, code: int = 0) -> None:
        """Disconnects this rank, whose command ends with an exit code."""

    @abstractmethod
    def minimum(self, value: int) -> int:
        """Returns the smallest `value` of all ranks. Collective."""

    @abstractmethod
    def timeline(self, path: Path) -> AbstractContextManager[None]:
        """Records the messages between ranks in a file of rank 0, for a profile."""

    # ---- Variables, between steps

    @abstractmethod
    def broadcast(self, variables: Sequence[object]) -> None:
        """Copies rank 0's Keras `variables` to every rank. Collective."""

    @abstractmethod
    def average(self, variables: Sequence[object]) -> None:
        """Sets every rank's Keras `variables`, of floats, to their mean over the ranks. Collective.

        Integers (counters, seeds) are left alone.
        """

    def broadcast_state(self, model: "keras.Model", others: Sequence[object]) -> None:
        """Copies rank 0's weights and other variables to every rank. Collective.

        The seeds of dropout are copied, too, and then made different on each rank: with equal
        seeds, all ranks would drop the same feature maps. Ranks that have the same maps, of one
        sample, keep equal ones.

        Args:
            others: Keras variables beside the model's: moments, counters, the loss scale.
        """
        if self.size() == 1:
            return
        self.broadcast([*model.variables, *others])
        ranks_per_seed = {}
        for layer in model.layers:
            copies = getattr(layer, "copies", 1)
            if copies > 1:
                ranks_per_seed[id(layer.seed_generator.state)] = copies
        for variable in model.variables:
            if variable.name == "seed_generator_state":
                variable.assign_add([self.rank() // ranks_per_seed.get(id(variable), 1), 0])

    # ---- Tensors, in a step

    @abstractmethod
    def reduce(
        self, tensors: Sequence[Tensor], name: str, average: bool = False, members: Members = ()
    ) -> list[Tensor]:
        """Returns the sums or means over ranks of a group of tensors of one type.

        Args:
            tensors: Sent as one group, when all of them are ready on all ranks.
            name: The same on all ranks, and unique in a step.
            average: Whether to return means, not sums.
            members: The ranks, one of the groups that were given at the start; all without it.
        """

    @abstractmethod
    def all_to_all(self, flat: Tensor, splits: Tensor, name: str, members: Members = ()) -> Tensor:
        """Sends numbers from every rank to every other.

        Args:
            flat: What this rank sends, in the order of ranks.
            splits: Number of values for each rank, int32.
            name: The same on all ranks, and unique in a step.
            members: The ranks, one of the groups that were given at the start; all without it.

        Returns:
            What each rank sends to this one, in the order of ranks.
        """

    @abstractmethod
    def to_all(self, message: Tensor, name: str) -> Tensor:
        """Returns the messages of all ranks, each of any length, in their order."""

    @abstractmethod
    def average_in_one_message(self, tensors: Sequence[Tensor], name: str) -> list[Tensor]:
        """Returns the mean over the ranks of float32 `tensors`."""
