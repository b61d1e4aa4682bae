"""Performance of a run: FLOP/s, where the time of a step goes, samples/s, memory and energy.

Sustained and peak FLOP/s are those of Laanait et al. (2019), equations 1 to 3 and section 5.3. FLOP
are those of the convolutions, see `fcdensenet.count`. A rank sustains FLOP / t_exec, where t_exec
is the wall time of a step with all that a job does: reading, communication and the writing of
checkpoints. It peaks at FLOP / t_comp, where t_comp is the time of the convolutions alone, which
only a profile can tell (`train.profiling`). A job of many ranks has their number times the scaling
efficiency times that.

t_exec = t_comm + t_comp + t_misc. A row of metrics.jsonl splits it less finely than a profile:
compute_s is the whole forward and backward pass, comm_s the part of the reductions that it does not
hide, and misc_s the rest, which includes the wait for data (data_s). With local SGD, sync_s is the
time in which ranks average their weights (SyncTime of Yoginath et al. 2019), and no part of misc_s.
step_s ends before a checkpoint is written, wall_s does not.

The sustained rate is the mean over the steps of a job, and the paper's error bars are their
variance. Beside it are the median over time of the mean over ranks and the central 68% (Kurth et
al. 2018, section VI).
"""

import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import psutil

from ..ranks.interface import Ranks
from .results import MedianSpread, PerformanceSummary, StepRow, TimeMoments

Joules = Callable[[], float]

RAPL = Path("/sys/class/powercap")


class Energy(NamedTuple):
    """Energy since a meter was made, J."""

    gpu_j: float | None  # of the rank's GPU; `None` if it has none with a counter
    processors_j: float  # of the rank's share of the processors; 0 if they have no readable counter

    @property
    def total_j(self) -> float:
        """Of both."""
        return (self.gpu_j or 0.0) + self.processors_j


def energy_meter(
    local_rank: int, local_size: int, rapl: Path = RAPL
) -> Callable[[], Energy] | None:
    """Returns a meter of the energy of this rank's GPU and of its share of its node's processors.

    Args:
        local_size: Number of ranks on this node, each of which has an equal share of the
            processors.
        rapl: The folder of the kernel's power counters.

    Returns:
        A function that returns the energy since now. `None` if this machine has no readable
        counter.
    """
    gpu = _gpu_meter(local_rank)
    processors = _cpu_meters(rapl)
    if not gpu and not processors:
        return None
    return lambda: Energy(gpu() if gpu else None, sum(meter() for meter in processors) / local_size)


def _cpu_meters(rapl: Path) -> list[Joules]:
    """Returns one meter for each processor package. Its counter wraps at its range."""
    meters = []
    for domain in sorted(rapl.glob("intel-rapl:?")):
        with suppress(OSError, ValueError):  # only root may read it on many machines
            wrap = int((domain / "max_energy_range_uj").read_text())
            energy = domain / "energy_uj"
            meters.append(counter(partial(_integer_in, energy), wrap, 1e-6))
    return meters


def _integer_in(path: Path) -> int:
    return int(path.read_text())


def _gpu_meter(local_rank: int) -> Joules | None:
    """Returns the meter of this rank's GPU, if there is one."""
    try:
        import pynvml

        pynvml.nvmlInit()
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        gpu_count = pynvml.nvmlDeviceGetCount()
        if visible:
            name = visible[min(local_rank, len(visible) - 1)]
        else:
            name = str(min(local_rank, gpu_count - 1))
        if name.isdigit():
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(name))
        else:
            handle = pynvml.nvmlDeviceGetHandleByUUID(name)
        return counter(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle), 2**64, 1e-3)
    except (
        Exception
    ):  # no library, no driver, no GPU, or one without a counter: each raises an error of its own
        return None


def counter(read: Callable[[], int], wrap: int, unit: float) -> Joules:
    """Returns a meter from a counter that wraps. It must be read more often than the counter wraps.

    Args:
        wrap: Value at which the counter starts again at 0.
        unit: Of the counter, J.

    Returns:
        A function that returns the energy since now, J.
    """
    last = read()
    total = 0

    def joules() -> float:
        nonlocal last, total
        current = read()
        total += (current - last) % wrap
        last = current
        return total * unit

    return joules


try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

PAPER_STEPS = 1000  # over which Laanait et al. (2019) average


class FlopRates(NamedTuple):
    """FLOP/s of all ranks together; `peak` is `None` if the time of the convolutions is not
    known.
    """

    sustained: float
    peak: float | None


def sustained_and_peak(
    step_flop: float,
    step_s: float,
    convolutions_s: float | None,
    ranks: int = 1,
    efficiency: float = 1.0,
) -> FlopRates:
    """Returns the sustained and the peak FLOP/s of a job.

    Args:
        step_s: Wall time of a step of one rank without what other ranks cost it, s.
        convolutions_s: Time of the convolutions in a step, s; `None` if it has not been measured.
        efficiency: Scaling efficiency: `step_s` over the wall time of a step of `ranks` ranks.
    """
    flop = ranks * efficiency * step_flop
    return FlopRates(flop / step_s, flop / convolutions_s if convolutions_s else None)


@dataclass
class PerformanceAccount:
    """Adds what a step cost to its row, and sums up all steps."""

    flop: float  # of one step of one rank
    batch_size: float  # samples per step of one rank; a fraction if ranks divide samples
    # Returns the energy so far that this rank accounts for. `None` without a meter.
    energy: Callable[[], Energy] | None = None
    clock: Callable[[], float] = time.perf_counter  # returns the time, s
    # step_s, compute_s, comm_s, misc_s, data_s and sync_s of each step.
    times: list[tuple[float, ...]] = field(default_factory=list)
    # time at the start, and at the end of each step
    ends: list[float] = field(default_factory=list)
    energies: list[Energy] = field(default_factory=list)  # energy after each step

    def __post_init__(self) -> None:
        self.ends.append(self.clock())

    def add(self, row: StepRow) -> StepRow:
        """Returns a step's row with wall_s, flop_per_s, memory_mib and, with a meter, energy_j and
        energy_gpu_j.
        """
        times = (row["step_s"], row["compute_s"], row["comm_s"], row["misc_s"], row["data_s"])
        self.times.append((*times, row.get("sync_s", 0.0)))
        self.ends.append(self.clock())
        extended: StepRow = {
            **row,
            "wall_s": self.ends[-1] - self.ends[-2],
            "flop_per_s": self.flop / row["step_s"],
            "memory_mib": peak_memory_mib(),
        }
        if self.energy:
            self.energies.append(self.energy())
            earlier = self.energies[-2] if len(self.energies) > 1 else Energy(None, 0.0)
            extended["energy_j"] = self.energies[-1].total_j - earlier.total_j
            if self.energies[-1].gpu_j is not None:
                extended["energy_gpu_j"] = self.energies[-1].gpu_j - (earlier.gpu_j or 0.0)
        return extended

    def end(self) -> None:
        """Adds the time since the last step, as of its checkpoint, to that step."""
        if self.times:
            self.ends[-1] = self.clock()

    def summary(self, ranks: Ranks) -> PerformanceSummary:
        """Returns the performance of the job, the same on every rank. Collective.

        The first step, which builds the graph, is left out. A step's wall time begins where the
        step before ended and so includes the checkpoint that was written in between. FLOP/s and
        energy are those of all ranks together, times are means over the ranks. The summary is empty
        if fewer than two steps were taken.
        """
        times = np.array(self.times[1:], np.float64)
        if not len(times):
            return {}
        rank_count = ranks.size()
        *means, walls = (
            ranks.total(np.column_stack([times, np.diff(self.ends)[1:]])) / rank_count
        ).T
        rates = ranks.total(self.batch_size / times[:, 0])
        energy = float(ranks.total(np.array(self.energies[-1].total_j if self.energies else 0.0)))
        wall_s = float(walls.mean())
        communication_s = float((means[2] + means[5]).mean())
        efficiency = 1 - communication_s / wall_s
        _, compute_s, comm_s, misc_s, data_s, _ = (float(np.median(column)) for column in means)
        synchronisations = means[5][means[5] > 0]
        summary: PerformanceSummary = {
            "steps": len(times) + 1,
            "samples_per_s": spread(rates),
            "step_s": spread(means[0]),
            "wall_s": moments(walls),
            "t_comp_s": compute_s,
            "t_comm_s": comm_s,
            "t_misc_s": misc_s,
            "waiting_for_data_s": data_s,
            "step_flop": self.flop,
            "efficiency": efficiency,
            "sustained_flop_per_s": rank_count * self.flop / wall_s,
            "sustained_variance": float(np.var(rank_count * self.flop / walls)),
            "flop_per_s": spread(self.flop / self.batch_size * rates),
            "memory_mib_per_rank": peak_memory_mib(),
        }
        if len(synchronisations):
            summary["t_sync_s"] = float(means[5].mean())
            summary["synchronisations"] = len(synchronisations)
            summary["sync_s"] = spread(synchronisations)
        if energy:
            summary["energy_j"] = energy
        return summary


def moments(values: npt.NDArray[np.float64]) -> TimeMoments:
    """Returns the mean and the variance over the steps."""
    return {"mean": float(values.mean()), "variance": float(values.var()), "steps": len(values)}


def spread(values: npt.NDArray[np.float64]) -> MedianSpread:
    """Returns the median and the bounds of the central 68%."""
    low, median, high = np.quantile(values, (0.16, 0.5, 0.84)).tolist()
    return {"median": median, "low": low, "high": high}


def peak_memory_mib() -> float:
    """Returns the peak memory of this process on the host so far, MiB."""
    if resource is None:
        used = psutil.Process().memory_info()
        return getattr(used, "peak_wset", used.rss) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Returns the name of this machine's processor on Linux, elsewhere its architecture."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
