"""Performance of a run: where the time of a step goes, FLOP/s, samples/s, memory and energy.

A step takes t_exec = t_comm + t_comp + t_misc. A rank sustains FLOP / t_exec and peaks at FLOP / t_comp (Laanait et al.
2019, equations 1 to 3; FLOP are those of the convolutions, see `fcdensenet.count`). Here t_comp is the forward and
backward pass (compute_s of a row), t_comm the part of the reductions that it does not hide (comm_s), and t_misc the
rest (misc_s), which includes the wait for data (data_s). The paper takes t_comp from a profile, of the convolutions
alone. A step cannot tell the convolutions from the operations between them, so our peak is the lower one;
`scripts/bench/step.py` measures the share of the convolutions.

Rates are the median over time of the mean over ranks, with the central 68% (Kurth et al. 2018, section VI).
"""

import os
import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from train.measure.results import PerformanceSummary, Spread, StepRow
from train.ranks.protocol import Ranks

Joules = Callable[[], float]

RAPL = Path("/sys/class/powercap")
# Keys of a row that differ between two equal runs because they are measured with clocks and meters.
NOT_REPRODUCIBLE = frozenset(
    ("step_s", "compute_s", "comm_s", "misc_s", "data_s", "samples_per_s", "flop_per_s", "memory_mib", "energy_j")
)


@dataclass
class PerformanceAccount:
    """Adds what a step cost to its row, and sums up all steps.

    Attributes:
        flop: Of one step of one rank.
        batch_size: Samples per step of one rank.
        energy: Returns the energy so far, J, that this rank accounts for; see `energy_meter`. `None` without a meter.
        times: step_s, compute_s, comm_s, misc_s and data_s of each step.
        joules: Energy after each step, J.
    """

    flop: float
    batch_size: int
    energy: Joules | None = None
    times: list[tuple[float, float, float, float, float]] = field(default_factory=list)
    joules: list[float] = field(default_factory=list)

    def add(self, row: StepRow) -> StepRow:
        """Records a step.

        Args:
            row: Of the step.

        Returns:
            The row with flop_per_s, memory_mib and, with a meter, energy_j.
        """
        self.times.append((row["step_s"], row["compute_s"], row["comm_s"], row["misc_s"], row["data_s"]))
        extended: StepRow = {**row, "flop_per_s": self.flop / row["step_s"], "memory_mib": peak_memory_mib()}
        if self.energy:
            self.joules.append(self.energy())
            extended["energy_j"] = self.joules[-1] - (self.joules[-2] if len(self.joules) > 1 else 0.0)
        return extended

    def summary(self, ranks: Ranks) -> PerformanceSummary:
        """Returns the performance of the job, the same on every rank. Collective.

        The first step, which builds the graph, is left out. FLOP/s and energy are those of all ranks together, times
        are means over the ranks. The summary is empty if fewer than two steps were taken.
        """
        times = np.array(self.times[1:], np.float64)
        if not len(times):
            return {}
        number = ranks.size()
        means = (ranks.total(times) / number).T
        rates = ranks.total(self.batch_size / times[:, 0])
        energy = float(ranks.total(np.array(self.joules[-1] if self.joules else 0.0)))
        step_s, compute_s, comm_s, misc_s, data_s = (float(np.median(column)) for column in means)
        summary: PerformanceSummary = {
            "steps": len(times) + 1,
            "samples_per_s": spread(rates),
            "step_s": spread(means[0]),
            "t_comp_s": compute_s,
            "t_comm_s": comm_s,
            "t_misc_s": misc_s,
            "waiting_for_data_s": data_s,
            "sustained_flop_per_s": number * self.flop / step_s,
            "peak_flop_per_s": number * self.flop / compute_s,
            "memory_mib_per_rank": peak_memory_mib(),
        }
        if energy:
            summary["energy_j"] = energy
        return summary


def spread(values: npt.NDArray[np.float64]) -> Spread:
    """Returns the median and the bounds of the central 68%."""
    low, median, high = np.quantile(values, (0.16, 0.5, 0.84)).tolist()
    return {"median": median, "low": low, "high": high}


def peak_memory_mib() -> float:
    """Returns the peak memory of this process on the host so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# ---- Energy ---------------------------------------------------------------------------------------------------------


def energy_meter(local_rank: int, rapl: Path = RAPL) -> Joules | None:
    """Returns a meter of the energy of this rank's GPU (NVML) and, on a node's first rank, of its processors (RAPL).

    Args:
        local_rank: Number of this rank on its node.
        rapl: The folder of the kernel's power counters.

    Returns:
        A function that returns the energy since now, J. `None` if this machine has no readable counter.
    """
    meters = [meter for meter in (_gpu_meter(local_rank), *(_cpu_meters(rapl) if local_rank == 0 else [])) if meter]
    return (lambda: sum(meter() for meter in meters)) if meters else None


def _cpu_meters(rapl: Path) -> list[Joules]:
    """Returns one meter for each processor package. Its counter wraps at its range."""
    meters = []
    for domain in sorted(rapl.glob("intel-rapl:?")):
        with suppress(OSError, ValueError):  # only root may read it on many machines
            wrap = int((domain / "max_energy_range_uj").read_text())
            meters.append(counter(lambda path=domain / "energy_uj": int(path.read_text()), wrap, 1e-6))  # type: ignore[misc]
    return meters


def _gpu_meter(local_rank: int) -> Joules | None:
    """Returns the meter of this rank's GPU, if there is one."""
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
    except Exception:  # no library, no driver, no GPU, or one without a counter: each raises an error of its own
        return None


def counter(read: Callable[[], int], wrap: int, unit: float) -> Joules:
    """Returns a meter from a counter that wraps. It must be read more often than the counter wraps.

    Args:
        read: Returns the counter.
        wrap: Value at which the counter starts again at 0.
        unit: Of the counter, J.

    Returns:
        A function that returns the energy since now, J.
    """
    last, total = read(), 0

    def joules() -> float:
        nonlocal last, total
        current = read()
        total += (current - last) % wrap
        last = current
        return total * unit

    return joules
