"""`train.ranks.protocol.Ranks` for ranks that are threads of one process, on simulated nodes."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train.ranks.protocol import Ranks


class Ended(Exception):
    """What a rank ends with after another one has failed."""


class Group:
    """The ranks of one job, by node."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.size = sum(map(len, nodes))
        self.barrier = threading.Barrier(self.size, timeout=30)
        self.values = [None] * self.size

    def gather(self, rank, value):
        self.values[rank] = value
        self.barrier.wait()
        values = list(self.values)
        self.barrier.wait()
        return values


class Rank:
    """One rank of a group."""

    def __init__(self, group: Group, rank: int) -> None:
        self._group, self._rank = group, rank

    def rank(self):
        return self._rank

    def size(self):
        return self._group.size

    def nodes(self):
        return self._group.nodes

    def gather_json(self, value):
        return [json.loads(text) for text in self._group.gather(self._rank, json.dumps(value, allow_nan=False))]

    def total(self, array):
        return sum(self._group.gather(self._rank, array))

    def exchange(self, outgoing):
        return [row[self._rank].copy() for row in self._group.gather(self._rank, outgoing)]

    def lost_another_rank(self, error):
        return isinstance(error, Ended)

    @contextmanager
    def together(self):
        failure = None
        try:
            yield
        except Exception as error:
            failure = error
        failed = self._group.gather(self._rank, failure is not None)
        if any(failed):
            raise failure if failed.index(True) == self._rank else Ended


def run(nodes, work):
    """`work(rank)` on every rank: what each returned, or raised."""

    def attempt(number):
        rank: Ranks = Rank(group, number)
        try:
            return work(rank)
        except Exception as error:
            return error

    group = Group(nodes)
    with ThreadPoolExecutor(group.size) as pool:
        return list(pool.map(attempt, range(group.size)))
