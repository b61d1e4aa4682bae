"""The coordinator's costs out of the measurements of `scripts/bench/reduction.py`, checked on rank counts left out.

Without the response cache rank 0 wakes in every cycle, handles a message of every rank in it, and every gradient's
name: CPU time a step = cycle_s · cycles + ranks · (message_s · cycles + announcement_s · gradients). The costs are
fitted, by least squares of relative errors, to every other rank count; the rest checks them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from namsa.errors import InputError

Row = dict[str, Any]
SMALL_GRADIENTS = 200  # of the bench's workload "small"


def fit(path: Path) -> Row:
    """{"cycle_s", "message_s", "announcement_s", "worst", "rows": [{"ranks", "arm", "measured_s", "model_s",
    "fitted"}]}.

    "worst" is the largest relative error where nothing was fitted. Cycles are counted by rank 0's gathers.

    path: what `reduction.py --json` printed; its last line counts. Raises InputError where that is no such output, or
    has fewer than three rank counts.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8").strip().splitlines()[-1])["results"]
        small = sorted((r for r in results if r["workload"] == "small"), key=lambda result: result["ranks"])
        counts = [result["ranks"] for result in small]
        measured = [
            (result["ranks"], arm, numbers["gather_calls"], numbers["control_ns"] * 1e-9)
            for result in small
            for arm, numbers in result["arms"].items()
            if numbers["gather_calls"] > 0
        ]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"{path} is no output of scripts/bench/reduction.py --json ({error!r})") from None
    if len(counts) < 3 or not measured:
        raise InputError(f"{path} has {len(counts)} rank counts; to fit and to check takes 3 or more without the cache")
    taken = set(counts[::2])
    design = np.array(
        [[cycles, ranks * cycles, ranks * SMALL_GRADIENTS] for ranks, _, cycles, _ in measured], np.float64
    )
    times = np.array([seconds for *_, seconds in measured])
    fitted = np.array([ranks in taken for ranks, *_ in measured])
    costs, _ = nnls(design[fitted] / times[fitted, None], np.ones(fitted.sum()))
    rows = [
        {"ranks": ranks, "arm": arm, "measured_s": seconds, "model_s": float(model), "fitted": ranks in taken}
        for (ranks, arm, _, seconds), model in zip(measured, design @ costs, strict=True)
    ]
    worst = max(abs(row["model_s"] / row["measured_s"] - 1) for row in rows if not row["fitted"])
    return dict(zip(("cycle_s", "message_s", "announcement_s"), costs.tolist(), strict=True)) | {
        "worst": worst,
        "rows": rows,
    }
