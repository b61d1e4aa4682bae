"""What the job needs of its ranks. The module `train.ranks.reduction` satisfies it with Horovod."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class Ranks(Protocol):
    """The processes of one job. All ranks call the collective methods, in the same order."""

    def rank(self) -> int:
        """Returns the number of this process, from 0."""
        ...

    def size(self) -> int:
        """Returns the number of ranks."""
        ...

    def gather_json(self, value: Any, /) -> list[Any]:
        """Returns the `value`, of any JSON type, of every rank, in the order of ranks. Collective."""
        ...

    def total(self, array: npt.NDArray[np.float64], /) -> npt.NDArray[np.float64]:
        """Returns the sum of every rank's `array`. Collective."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Runs local work, without collectives, that ends the job on all ranks if it fails on one. Collective."""
        ...

    def nodes(self) -> list[list[int]]:
        """Returns the ranks of each node. Collective."""
        ...

    def exchange(self, outgoing: Sequence[Bytes], /) -> list[Bytes]:
        """Returns the bytes that every rank sends to this one; `outgoing` is sent to each rank. Collective."""
        ...

    def lost_another_rank(self, error: Exception, /) -> bool:
        """Returns whether a collective failed with `error` because another rank has ended."""
        ...


class Alone:
    """One rank. The methods are those of `train.ranks.protocol.Ranks`."""

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 1

    def gather_json(self, value: Any, /) -> list[Any]:
        return [value]

    def total(self, array: npt.NDArray[np.float64], /) -> npt.NDArray[np.float64]:
        return array

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def nodes(self) -> list[list[int]]:
        return [[0]]

    def exchange(self, outgoing: Sequence[Bytes], /) -> list[Bytes]:
        return list(outgoing)

    def lost_another_rank(self, error: Exception, /) -> bool:
        return False
