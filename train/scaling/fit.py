"""Fits the coordinator's costs to measurements of `scripts/bench/reduction.py`, and checks them on other rank counts.

Without the response cache, rank 0 wakes in every cycle and handles one message of every rank in it, and the name of
every gradient: CPU time per step = cycle_s · cycles + ranks · (message_s · cycles + announcement_s · gradients). The
costs are fitted, by least squares of relative errors, to every second rank count. The other rank counts check them.
"""

from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from namsa.errors import InputError
from namsa.files import read_text
from namsa.json_files import LARGEST_FILE_BYTES, parse_json

from .results import CostFit, CostFitRow

SMALL_GRADIENTS = 200  # of the benchmark's workload "small"


def fit(path: Path) -> CostFit:
    """Returns the coordinator's costs by the output of `scripts/bench/reduction.py --json`, by rank 0's gathers.

    Raises:
        InputError: If the file is no such output, or has fewer than three rank counts.
    """
    counts, measured = _read(path)
    fitted_counts = set(counts[::2])
    design = np.array([[cycles, n * cycles, n * SMALL_GRADIENTS] for n, _, cycles, _ in measured], np.float64)
    times = np.array([seconds for *_, seconds in measured])
    fitted = np.array([n in fitted_counts for n, *_ in measured])
    costs, _ = nnls(design[fitted] / times[fitted, None], np.ones(fitted.sum()))
    rows: list[CostFitRow] = [
        {"ranks": n, "arm": arm, "measured_s": seconds, "model_s": float(model_s), "fitted": n in fitted_counts}
        for (n, arm, _, seconds), model_s in zip(measured, design @ costs, strict=True)
    ]
    cycle_s, message_s, announcement_s = costs.tolist()
    return {
        "cycle_s": cycle_s,
        "message_s": message_s,
        "announcement_s": announcement_s,
        "worst": max(abs(row["model_s"] / row["measured_s"] - 1) for row in rows if not row["fitted"]),
        "rows": rows,
    }


def _read(path: Path) -> tuple[list[int], list[tuple[int, str, float, float]]]:
    """The rank counts in order; and without the response cache ranks, arm, cycles and seconds per step of rank 0."""
    try:
        text = read_text(path, largest_bytes=LARGEST_FILE_BYTES).strip().splitlines()[-1]
        results = parse_json(text, str(path))["results"]
        small = sorted((r for r in results if r["workload"] == "small"), key=lambda result: result["ranks"])
        counts = [result["ranks"] for result in small]
        measured = [
            (result["ranks"], arm, numbers["gather_calls"], numbers["control_ns"] * 1e-9)
            for result in small
            for arm, numbers in result["arms"].items()
            if numbers["gather_calls"] > 0
        ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no output of scripts/bench/reduction.py --json ({error!r})") from None
    if len(counts) < 3 or not measured:
        raise InputError(
            f"{path} has {len(counts)} rank counts; the fit and its check need 3 or more, measured without the cache"
        )
    return counts, measured
