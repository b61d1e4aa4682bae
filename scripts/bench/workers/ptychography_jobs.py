"""What the workers of ptychography share, each in an environment of its own, of reconstruct_vs_rivals.py.

A worker reads one JSON job per line and answers each with one JSON line, {"cpu_seconds", "losses"}: of all threads, up
to each of the job's iterations, and of every iteration. It writes the job's "result" (.npz): "phases" (legs, ny, nx),
sums over slices, rad; "step", pixel of the phases, Å; "first", the scan's first position from the phases' first pixel,
Å. What a library prints goes to the standard error.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from skimage.restoration import unwrap_phase


def projected(slices: np.ndarray) -> np.ndarray:
    """The object's phase, summed over slices; NaN where it has diverged, for unwrapping that would not end."""
    if not np.isfinite(slices).all():
        return np.full(slices.shape[1:], np.nan)
    if np.iscomplexobj(slices):
        slices = np.stack([unwrap_phase(np.angle(one)) for one in slices])
    return slices.sum(axis=0)


def answer_jobs(run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers until the standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what the library prints is no answer
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=answers, flush=True)
