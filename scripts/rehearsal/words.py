"""Collectives of a job: the real functions of rank 0, with the words of the other ranks made up."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from train.ranks import reduction
from train.ranks.signals import Stopped, StopRequest

Found = dict[str, float | str]


@contextmanager
def pretended(ranks: int, others: Callable[[int], Any] | None = None) -> Iterator[list[int]]:
    """Makes this process rank 0 of `ranks`; yields the list of the bytes that each gathering brings it.

    Args:
        others: Returns what a rank says, which JSON can hold; by default, what rank 0 says.
    """
    received: list[int] = []
    texts = [json.dumps(others(rank)).encode() for rank in range(1, ranks)] if others else []

    def allgather(tensor: Any, name: str) -> Any:
        own = tensor.numpy()
        if others and name == "json_lengths":
            joined = np.concatenate([own, np.array([len(text) for text in texts], own.dtype)])
        elif others:
            joined = np.concatenate([own, np.frombuffer(b"".join(texts), np.uint8)])
        else:
            joined = np.tile(own, ranks)
        received.append(joined.nbytes)
        return tf.constant(joined)

    horovod = reduction.hvd
    reduction.hvd = SimpleNamespace(rank=lambda: 0, size=lambda: ranks, allgather=allgather)
    try:
        yield received
    finally:
        reduction.hvd = horovod


def start(ranks: int) -> Found:
    """All ranks agree on the configuration, and learn which of them share a node."""
    with pretended(ranks) as received:
        reduction.check_same("0123456789abcdef", "the configuration's hash")
        with reduction.together():
            pass
    with pretended(ranks, lambda rank: f"node{rank // 6:04d}") as hosts:
        os.environ["HOROVOD_HOSTNAME"] = "node0000"
        nodes = reduction.nodes()
        del os.environ["HOROVOD_HOSTNAME"]
    return {"kB to each rank": sum(received + hosts) / 1e3, "nodes": len(nodes)}


def samples(ranks: int) -> Found:
    """The summaries of all ranks' simulations, and the checks of numbers and digests of samples."""
    summary = dict.fromkeys(("rank", "size", "written", "present", "skipped", "failed", "remaining"), 62)
    summary |= {"seconds": 1800.123, "bytes": 33_554_432_000, "time_limit_reached": True, "disk_full": False}
    with pretended(ranks) as received:
        reduction.gather_json(summary)
        reduction.check_same(372, "the number of samples")
        reduction.check_same("0" * 32, "the digest of the samples' ids")
    return {"kB to each rank": sum(received) / 1e3}


def end_by_signal(ranks: int) -> Found:
    """A signal has reached one rank; all learn it with the numbers of a step, which this adds one float to."""
    request = StopRequest()
    request.agreed = True  # the sum of all ranks' requests was above 0
    with pretended(ranks) as received:
        with reduction.together():
            request.check()
        error = reduction.reported_once(Stopped("stopped by a signal to another rank"))
    return {"kB to each rank": sum(received) / 1e3, "lines": float(isinstance(error, Stopped))}


def end_by_failure(ranks: int) -> Found:
    """The last rank fails in work of its own; rank 0 ends silently with its exit code."""
    began, code = time.monotonic(), None
    with pretended(ranks, lambda rank: 1 if rank == ranks - 1 else 0) as received:
        try:
            with reduction.together():
                if ranks == 1:
                    raise SystemExit(1)
        except SystemExit as ended:
            code = ended.code
    return {"kB to each rank": sum(received) / 1e3, "exit code": str(code), "s": time.monotonic() - began}
