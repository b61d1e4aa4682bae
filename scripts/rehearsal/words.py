"""Collectives of a job: the real functions of rank 0, with what the other ranks send made up."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from train.ranks.connection import engine, replaced
from train.ranks.horovod import HorovodRanks
from train.ranks.signals import Stopped, StopRequest

Facts = dict[str, float | str]


class EmulatedRanks(HorovodRanks):
    """Rank 0 of a job whose other ranks are emulated: what they send is made here.

    Attributes:
        received: Bytes that each gathering brings this rank.

    Args:
        ranks: Number of ranks.
        others: Returns what a rank sends, which JSON can hold; by default, what rank 0 sends.
    """

    def __init__(self, ranks: int, others: Callable[[int], Any] | None) -> None:
        super().__init__()
        self.received: list[int] = []
        self._ranks = ranks
        self._texts: list[bytes] | None = None
        if others:
            self._texts = [json.dumps(others(rank)).encode() for rank in range(1, ranks)]

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return self._ranks

    def _gather(self, tensor: Any, name: str) -> Any:
        array = tensor.numpy()
        if self._texts is None:
            joined = np.tile(array, self._ranks)
        elif name == "json_lengths":
            lengths = []
            for text in self._texts:
                lengths.append(len(text))
            joined = np.concatenate([array, np.array(lengths, array.dtype)])
        else:
            joined = np.concatenate([array, np.frombuffer(b"".join(self._texts), np.uint8)])
        self.received.append(joined.nbytes)
        return joined


@contextmanager
def emulated(ranks: int, others: Callable[[int], Any] | None = None) -> Iterator[list[int]]:
    """Makes this process rank 0 of `EmulatedRanks`; yields their `received`."""
    substitute = EmulatedRanks(ranks, others)
    with replaced(substitute):
        yield substitute.received


def start(ranks: int) -> Facts:
    """All ranks agree on the configuration, and learn which of them share a node."""
    with emulated(ranks) as received:
        engine().check_same("0123456789abcdef", "the configuration's hash")
        with engine().local_work():
            pass
    with emulated(ranks, lambda rank: f"node{rank // 6:04d}") as hosts:
        os.environ["HOROVOD_HOSTNAME"] = "node0000"
        nodes = engine().nodes()
        del os.environ["HOROVOD_HOSTNAME"]
    return {"kB to each rank": sum(received + hosts) / 1e3, "nodes": len(nodes)}


def samples(ranks: int) -> Facts:
    """The summaries of all ranks' simulations, and the checks of numbers and digests of samples."""
    summary: dict[str, float] = {
        "rank": 62,
        "size": 62,
        "written": 62,
        "present": 62,
        "skipped": 62,
        "failed": 62,
        "remaining": 62,
        "seconds": 1800.123,
        "bytes": 33_554_432_000,
        "time_limit_reached": True,
        "disk_full": False,
    }
    with emulated(ranks) as received:
        engine().gather_json(summary)
        engine().check_same(372, "the number of samples")
        engine().check_same("0" * 32, "the digest of the samples' ids")
    return {"kB to each rank": sum(received) / 1e3}


def end_by_signal(ranks: int) -> Facts:
    """A signal has reached one rank; all learn it with the numbers of a step, which this adds one
    float to.
    """
    request = StopRequest()
    request.agreed = True  # the sum of all ranks' requests was above 0
    with emulated(ranks) as received:
        with engine().local_work():
            request.check()
        error = engine().reported_once(Stopped("stopped by a signal to another rank"))
    return {"kB to each rank": sum(received) / 1e3, "lines": float(isinstance(error, Stopped))}


def end_by_failure(ranks: int) -> Facts:
    """The last rank fails in work of its own; rank 0 ends silently with its exit code."""
    began = time.monotonic()
    code = None
    with emulated(ranks, lambda rank: 1 if rank == ranks - 1 else 0) as received:
        try:
            with engine().local_work():
                if ranks == 1:
                    raise SystemExit(1)
        except SystemExit as ended:
            code = ended.code
    return {
        "kB to each rank": sum(received) / 1e3,
        "exit code": str(code),
        "s": time.monotonic() - began,
    }
