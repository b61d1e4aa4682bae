"""Energy of a rank: of its GPU (NVML), and of its share of its node's processors (RAPL)."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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


def energy_meter(local_rank: int, local_size: int, rapl: Path = RAPL) -> Callable[[], Energy] | None:
    """Returns a meter of the energy of this rank's GPU and of its share of its node's processors.

    Args:
        local_size: Number of ranks on this node, each of which has an equal share of the processors.
        rapl: The folder of the kernel's power counters.

    Returns:
        A function that returns the energy since now. `None` if this machine has no readable counter.
    """
    gpu, processors = _gpu_meter(local_rank), _cpu_meters(rapl)
    if not gpu and not processors:
        return None
    return lambda: Energy(gpu() if gpu else None, sum(meter() for meter in processors) / local_size)


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
