"""Jobs of the workers of ptychography, each in an environment of its own; see `../rivals.py`.

A worker reads one JSON job per line and answers each with one JSON line: "cpu_seconds", of all
threads, up to each of the job's iterations, and "losses" of every iteration. It writes the job's
"result" (.npz): "phases" (iterations, ny, nx), sums over slices, rad; "step", pixel of the phases,
Å; "first", the scan's first position from the phases' first pixel, Å. What a library prints goes to
the standard error.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def projected(slices: np.ndarray) -> np.ndarray:
    """Returns the phase of an object (slices, ny, nx), summed over slices.

    It is NaN where the object has diverged: unwrapping would not end.
    """
    if not np.isfinite(slices).all():
        return np.full(slices.shape[1:], np.nan)
    if np.iscomplexobj(slices):
        from skimage.restoration import unwrap_phase

        slices = np.stack([unwrap_phase(np.angle(one)) for one in slices])
    return slices.sum(axis=0)


def answer_jobs(run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers jobs until the standard input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what the library prints is no answer
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=answers, flush=True)
