"""The ranks of a process that is a job of its own: one, without Horovod. A `train.ranks.protocol.Ranks`."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from .protocol import Bytes


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
