"""Fits the coordinator's costs to measurements of `scripts/bench/reduction.py`, and checks them on other rank counts.

Without the response cache, rank 0 wakes in every cycle and handles one message of every rank in it, and the name of
every gradient: CPU time per step = cycle_s · cycles + ranks · (message_s · cycles + announcement_s · gradients). The
costs are fitted, by least squares of relative errors, to every second rank count. The other rank counts check them.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from namsa.errors import InputError
from namsa.files import read_text
from namsa.json_files import LARGEST_FILE_BYTES, parse_json

from .results import CostFit, CostFitRow

SMALL_GRADIENTS = 200  # of the benchmark's workload "small"


class _Measurement(NamedTuple):
    """One arm of the benchmark at one number of ranks: cycles and CPU time of the coordinator per step."""

    ranks: int
    arm: str
    cycles: float
    seconds: float


def fit(path: Path) -> CostFit:
    """Returns the coordinator's costs by the output of `scripts/bench/reduction.py --json`, by rank 0's gathers.

    Raises:
        InputError: If the file is no such output, or has fewer than three rank counts.
    """
    counts, measured = _read(path)
    fitted_counts = set(counts[::2])
    design = np.array([[m.cycles, m.ranks * m.cycles, m.ranks * SMALL_GRADIENTS] for m in measured], np.float64)
    times = np.array([m.seconds for m in measured])
    fitted = np.array([m.ranks in fitted_counts for m in measured])
    costs, _ = nnls(design[fitted] / times[fitted, None], np.ones(fitted.sum()))
    rows: list[CostFitRow] = [
        {
            "ranks": m.ranks,
            "arm": m.arm,
            "measured_s": m.seconds,
            "model_s": float(model_s),
            "fitted": m.ranks in fitted_counts,
        }
        for m, model_s in zip(measured, design @ costs, strict=True)
    ]
    cycle_s, message_s, announcement_s = costs.tolist()
    return {
        "cycle_s": cycle_s,
        "message_s": message_s,
        "announcement_s": announcement_s,
        "worst": max(abs(row["model_s"] / row["measured_s"] - 1) for row in rows if not row["fitted"]),
        "rows": rows,
    }


def _read(path: Path) -> tuple[list[int], list[_Measurement]]:
    """The rank counts in order, and the measurements without the response cache."""
    try:
        text = read_text(path, largest_bytes=LARGEST_FILE_BYTES).strip().splitlines()[-1]
        results = parse_json(text, str(path))["results"]
        small = sorted((r for r in results if r["workload"] == "small"), key=lambda result: result["ranks"])
        counts = [result["ranks"] for result in small]
        measured = [
            _Measurement(result["ranks"], arm, numbers["gather_calls"], numbers["control_ns"] * 1e-9)
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
