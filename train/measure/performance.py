"""What a run achieves: where its time goes, FLOP/s, samples/s, memory and energy.

A step takes t_exec = t_comm + t_comp + t_misc, and a rank sustains FLOP / t_exec and peaks at FLOP / t_comp (Laanait et
al. 2019, equations 1 to 3; FLOP are the convolutions', `fcdensenet.count`). Here t_comp is the forward and backward
pass (compute_s of a row), t_comm what of the reductions it did not hide (comm_s), t_misc all else (misc_s), of which
data_s is waiting for data. The paper's t_comp, from a profile, is the convolutions' alone: a step cannot tell them from
what lies between, so that our peak is the lower; `scripts/bench/step.py` has the convolutions' share.

Rates are the median over time of the mean over ranks, with the central 68% (Kurth et al. 2018, section VI).
"""

import os
import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Row = dict[str, Any]
Joules = Callable[[], float]

RAPL = Path("/sys/class/powercap")
TIMES = ("step_s", "compute_s", "comm_s", "misc_s", "data_s")
MEASURED = frozenset((*TIMES, "samples_per_s", "flop_per_s", "memory_mib", "energy_j"))  # not the same twice


class Ranks(Protocol):
    """What is needed of the module `train.ranks.reduction`."""

    def size(self) -> int: ...
    def total(self, array: npt.NDArray[np.float64], /) -> npt.NDArray[np.float64]: ...


@dataclass
class Account:
    """Adds to each step's row what it cost, and sums up.

    flop: of a rank's step; energy: joules so far of what this rank answers for, see `energy_meter`
    """

    flop: float
    batch: int
    energy: Joules | None = None
    steps: list[list[float]] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)

    def step(self, row: Row) -> Row:
        """`row` with flop_per_s (a rank's), memory_mib (the most so far, on the host) and, where known, energy_j."""
        self.steps.append([row[name] for name in TIMES])
        added: Row = {"flop_per_s": self.flop / row["step_s"], "memory_mib": peak_memory_mib()}
        if self.energy:
            self.joules.append(self.energy())
            added["energy_j"] = self.joules[-1] - (self.joules[-2] if len(self.joules) > 1 else 0.0)
        return row | added

    def summary(self, ranks: Ranks) -> Row:
        """The job's numbers, the same on every rank; all must call it. Empty where fewer than two steps were taken.

        The first step, which builds the graph, is left out. FLOP/s and energy are of all ranks, times of their mean.
        """
        times = np.array(self.steps[1:], np.float64)
        if not len(times):
            return {}
        number = ranks.size()
        means = dict(zip(TIMES, (ranks.total(times) / number).T, strict=True))
        rates = ranks.total(self.batch / times[:, 0])
        energy = float(ranks.total(np.array(self.joules[-1] if self.joules else 0.0)))
        medians = {name: float(np.median(column)) for name, column in means.items()}
        return {
            "steps": len(times) + 1,
            "samples_per_s": spread(rates),
            "step_s": spread(means["step_s"]),
            "t_comp_s": medians["compute_s"],
            "t_comm_s": medians["comm_s"],
            "t_misc_s": medians["misc_s"],
            "waiting_for_data_s": medians["data_s"],
            "sustained_flop_per_s": number * self.flop / medians["step_s"],
            "peak_flop_per_s": number * self.flop / medians["compute_s"],
            "memory_mib_of_a_rank": peak_memory_mib(),
            **({"energy_j": energy} if energy else {}),
        }


def spread(values: npt.NDArray[np.float64]) -> Row:
    """The median and the bounds of the central 68%."""
    low, median, high = np.quantile(values, (0.16, 0.5, 0.84)).tolist()
    return {"median": median, "low": low, "high": high}


def peak_memory_mib() -> float:
    """The most memory that this process has had on the host."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# ---- Energy ---------------------------------------------------------------------------------------------------------


def energy_meter(local_rank: int, rapl: Path = RAPL) -> Joules | None:
    """Joules since now of this rank's GPU (NVML) and, on a node's first rank, of the node's processors (RAPL).

    None where this machine tells neither.
    """
    meters = [meter for meter in (_gpu(local_rank), *(_packages(rapl) if local_rank == 0 else [])) if meter]
    return (lambda: sum(meter() for meter in meters)) if meters else None


def _packages(rapl: Path) -> list[Joules]:
    """One meter for each processor package; its counter starts again at its range."""
    meters = []
    for domain in sorted(rapl.glob("intel-rapl:?")):
        with suppress(OSError, ValueError):  # only root may read it on many machines
            whole = int((domain / "max_energy_range_uj").read_text())
            meters.append(counter(lambda path=domain / "energy_uj": int(path.read_text()), whole, 1e-6))  # type: ignore[misc]
    return meters


def _gpu(local_rank: int) -> Joules | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        number = pynvml.nvmlDeviceGetCount()
        name = visible[min(local_rank, len(visible) - 1)] if visible else str(min(local_rank, number - 1))
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else pynvml.nvmlDeviceGetHandleByUUID(name)
        )
        return counter(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle), 2**64, 1e-3)
    except Exception:  # no library, no driver, no GPU, or one that does not tell: each has an error of its own
        return None


def counter(read: Callable[[], int], whole: int, unit: float) -> Joules:
    """Joules since now, from a counter in `unit` J that starts again at `whole`, and is read more often than that."""
    last, total = read(), 0

    def joules() -> float:
        nonlocal last, total
        now = read()
        total += (now - last) % whole
        last = now
        return total * unit

    return joules
