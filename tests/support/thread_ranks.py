"""`train.ranks.interface.Ranks` for ranks that are threads of one process, on simulated nodes."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from train.ranks.interface import Bytes, Ranks


class Ended(Exception):
    """The error of a rank after another one has failed."""


class Group:
    """The ranks of one job, by node."""

    def __init__(self, nodes: list[list[int]]) -> None:
        self.nodes = nodes
        self.size = sum(map(len, nodes))
        self.barrier = threading.Barrier(self.size, timeout=30)
        self.values: list[Any] = [None] * self.size

    def gather(self, rank: int, value: object) -> list[Any]:
        self.values[rank] = value
        self.barrier.wait()
        values = list(self.values)
        self.barrier.wait()
        return values


class Rank(Ranks):
    """One rank of a group."""

    def __init__(self, group: Group, rank: int) -> None:
        self._group = group
        self._rank = rank

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._group.size

    def nodes(self) -> list[list[int]]:
        return self._group.nodes

    def gather_json(self, value: object) -> list[Any]:
        return [
            json.loads(text)
            for text in self._group.gather(self._rank, json.dumps(value, allow_nan=False))
        ]

    def total(self, array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return sum(self._group.gather(self._rank, array))

    def exchange_bytes(self, outgoing: Sequence[Bytes]) -> list[Bytes]:
        return [row[self._rank].copy() for row in self._group.gather(self._rank, outgoing)]

    def lost_another_rank(self, error: Exception) -> bool:
        return isinstance(error, Ended)

    @contextmanager
    def local_work(self) -> Iterator[None]:
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        failed = self._group.gather(self._rank, failure is not None)
        if any(failed):
            if failure is not None and failed.index(True) == self._rank:
                raise failure
            raise Ended


def run(nodes: list[list[int]], work: Callable[[Rank], Any]) -> list[Any]:
    """`work(rank)` on every rank: what each returned, or raised."""

    def attempt(rank_number: int) -> Any:
        rank = Rank(group, rank_number)
        try:
            return work(rank)
        except Exception as error:
            return error

    group = Group(nodes)
    with ThreadPoolExecutor(group.size) as pool:
        return list(pool.map(attempt, range(group.size)))
