"""One process: ranks of which there is one, and which exchange nothing."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Tensor

from .interface import Bytes, Members, RankEngine


class SingleProcess(RankEngine):
    """Rank 0 of 1, under TensorFlow and JAX. The methods are those of `RankEngine`."""

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 1

    def local_rank(self) -> int:
        return 0

    def local_size(self) -> int:
        return 1

    def versions(self) -> dict[str, str]:
        return {}

    def stop(self, code: int = 0) -> None:
        pass

    def gather_json(self, value: object, /) -> list[Any]:
        return [json.loads(json.dumps(value))]

    def total(self, array: npt.NDArray[np.float64], /) -> npt.NDArray[np.float64]:
        return array

    def minimum(self, value: int) -> int:
        return value

    def exchange_bytes(self, outgoing: Sequence[Bytes], /) -> list[Bytes]:
        return list(outgoing)

    def lost_another_rank(self, error: Exception, /) -> bool:
        return False

    def timeline(self, path: Path) -> AbstractContextManager[None]:
        return nullcontext()

    def broadcast(self, variables: Sequence[object]) -> None:
        pass

    def average(self, variables: Sequence[object]) -> None:
        pass

    def reduce(
        self, tensors: Sequence[Tensor], name: str, average: bool = False, members: Members = ()
    ) -> list[Tensor]:
        return list(tensors)

    def all_to_all(self, flat: Tensor, splits: Tensor, name: str, members: Members = ()) -> Tensor:
        return flat

    def to_all(self, message: Tensor, name: str) -> Tensor:
        return message

    def average_in_one_message(self, tensors: Sequence[Tensor], name: str) -> list[Tensor]:
        return list(tensors)
