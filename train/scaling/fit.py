"""Fits the coordinator's costs to measurements of `scripts/bench/reduction.py`, and checks them on
other rank counts.

Without the response cache, rank 0 wakes in every cycle and handles one message of every rank in it,
and the name of every gradient: CPU time per step = cycle_s · cycles + ranks · (message_s · cycles +
announcement_s · gradients). The costs are fitted, by least squares of relative errors, to every
second rank count. The other rank counts check them.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from namsa.base.errors import InputError
from namsa.base.files import read_text
from namsa.base.json_files import LARGEST_FILE_BYTES, parse_typed

from .results import CostFit, CostFitRow

SMALL_GRADIENTS = 200  # of the benchmark's workload "small"


class _Measurement(NamedTuple):
    """A measurement without the response cache."""

    ranks: int
    arm: str
    cycles: float  # per step
    seconds: float  # of rank 0, per step


def fit(path: Path) -> CostFit:
    """Returns the coordinator's costs by the output of `scripts/bench/reduction.py --json`.

    They are those of rank 0's gathers.

    Raises:
        InputError: If the file is no such output, or has fewer than three rank counts.
    """
    counts, measurements = _read(path)
    fitted_counts = set(counts[::2])
    design = []
    for measured in measurements:
        messages = measured.ranks * measured.cycles
        design.append([measured.cycles, messages, measured.ranks * SMALL_GRADIENTS])
    equations = np.array(design, np.float64)
    times = np.array([measured.seconds for measured in measurements])
    is_fitted = np.array([measured.ranks in fitted_counts for measured in measurements])
    costs, _ = nnls(equations[is_fitted] / times[is_fitted, None], np.ones(is_fitted.sum()))
    rows: list[CostFitRow] = []
    worst = []
    for measured, model_s in zip(measurements, equations @ costs, strict=True):
        fitted = measured.ranks in fitted_counts
        rows.append(
            {
                "ranks": measured.ranks,
                "arm": measured.arm,
                "measured_s": measured.seconds,
                "model_s": float(model_s),
                "fitted": fitted,
            }
        )
        if not fitted:
            worst.append(abs(float(model_s) / measured.seconds - 1))
    cycle_s, message_s, announcement_s = costs.tolist()
    return {
        "cycle_s": cycle_s,
        "message_s": message_s,
        "announcement_s": announcement_s,
        "worst": max(worst),
        "rows": rows,
    }


def _read(path: Path) -> tuple[list[int], list[_Measurement]]:
    """Returns the rank counts in order, and the measurements without the response cache."""
    try:
        text = read_text(path, largest_bytes=LARGEST_FILE_BYTES).strip().splitlines()[-1]
        results = parse_typed(dict[str, Any], text, str(path), "measure again")["results"]
        small = [result for result in results if result["workload"] == "small"]
        small.sort(key=lambda result: result["ranks"])
        counts = [result["ranks"] for result in small]
        measurements = []
        for result in small:
            for arm, numbers in result["arms"].items():
                cycles = numbers["gather_calls"]
                seconds = numbers["control_ns"] * 1e-9
                if cycles > 0:
                    measurements.append(_Measurement(result["ranks"], arm, cycles, seconds))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is no output of scripts/bench/reduction.py --json ({error!r})"
        ) from None
    if len(counts) < 3 or not measurements:
        raise InputError(
            f"{path} has {len(counts)} rank counts; the fit and its check need 3 or more, measured "
            "without the cache"
        )
    return counts, measurements
