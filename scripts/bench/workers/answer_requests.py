"""The requests of step_vs_torch.py, answered by a worker that can prepare a job.

Each line of the standard input is a JSON request and is answered with one JSON line:
- {"prepare": {"network", "training", "weights", "batch", "rate", "delta", "threads", "variant"}} builds the network;
  "weights" is a file of arrays with Keras' names, "batch" one with x and y.
- {"steps": n} takes n steps and answers with their times and losses.
- {"save": path} writes the weights in Keras' names and shapes.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol


class Job(Protocol):
    """A network, its optimizer and a batch."""

    def step(self) -> list[float]:
        """One update. Returns the Huber loss, the penalty, and the norm of the gradient."""

    def save(self, path: str) -> None:
        """Writes the weights."""


def answer_requests(version: str, prepare: Callable[[dict[str, Any]], Job]) -> None:
    """Answers until the standard input ends."""
    job = None
    for line in sys.stdin:
        asked, reply = json.loads(line), {}
        if "prepare" in asked:
            job, reply = prepare(asked["prepare"]), {"version": version}
        elif "save" in asked:
            assert job
            job.save(asked["save"])
        else:
            assert job
            reply = timed(job, asked["steps"])
        print(json.dumps(reply), flush=True)


def timed(job: Job, steps: int) -> dict[str, Any]:
    times, numbers, cpu = [], [], time.process_time()
    for _ in range(steps):
        began = time.perf_counter()
        numbers.append(job.step())
        times.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"times": times, "cpu_s": (time.process_time() - cpu) / steps, "numbers": numbers, "peak_mib": peak}
