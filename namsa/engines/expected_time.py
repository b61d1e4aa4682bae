"""The time that a simulation will take on this machine: the note before a long one, what
`--dry-run` prints, and what is refused.

It is the counts of the work times the rates that this machine reaches now (`namsa.engines.rates`).
The detector's noise, writing and the trial of the choices are not in it.
"""

from typing import NamedTuple

from namsa.base.errors import OutOfMemoryError
from namsa.base.long_calls import LONG_SECONDS
from namsa.base.text import duration
from namsa.engines import prism
from namsa.engines.counts import SimulationCounts
from namsa.engines.dispatch import EngineName
from namsa.engines.rates import Rates, measure_rates
from namsa.physics.backend import available_cores

# Rates of a fast core, and how many times as fast a fast GPU is: what takes less than
# `LONG_SECONDS` at these rates is not measured.
_FAST_CORE = Rates(propagation=2e-10, plane_waves=2e-10, product=5e-11, pixel=1e-9, potential=5e-9)
_GPU_CORES = 400


class StageSeconds(NamedTuple):
    """The time of the stages of one thermal configuration, s."""

    build: float  # transmissions of its slices
    collect: float  # everything of the patterns but propagation
    probes: float  # propagation of every probe
    plane_waves: float  # propagation of the plane waves of the lens
    products: float  # sums of the plane waves

    @property
    def multislice(self) -> float:
        """Time if every probe is propagated, s."""
        return self.build + self.collect + self.probes

    @property
    def prism(self) -> float:
        """Time if probes are added up from plane waves, s."""
        return self.build + self.collect + self.plane_waves + self.products

    @property
    def scatter(self) -> float:
        """Time of the plane waves alone, s."""
        return self.build + self.plane_waves


def stage_seconds(counts: SimulationCounts, rates: Rates) -> StageSeconds:
    """Returns the time of each stage, of which a method takes some."""
    work = counts.work
    pixels = work.shape[0] * work.shape[1]
    patterns = work.probes * work.coherent
    return StageSeconds(
        build=counts.distinct_slices * pixels * rates.potential,
        collect=patterns * pixels * rates.pixel,
        probes=prism.propagation_operations(work, patterns) * rates.propagation,
        plane_waves=prism.propagation_operations(work, work.beams) * rates.plane_waves,
        products=prism.product_operations(work) * rates.product,
    )


def interpolated_work(work: prism.Work, interpolation: int) -> prism.Work:
    """Returns the counts of PRISM with interpolation, whose products of a probe are one of every
    f-th plane wave and the pixels of its window.
    """
    fewer = interpolation**2
    beams = -(-work.beams // fewer)
    pixels = work.shape[0] * work.shape[1] // fewer
    return work._replace(beams=beams, rows=1, columns=beams, pixels=pixels)


def time_note(
    counts: SimulationCounts, method: str, engine: EngineName, on_host: bool
) -> str | None:
    """Returns the note before a long simulation; `None` if it takes less than `LONG_SECONDS`.

    Args:
        method: "multislice", "prism", or "scatter" for plane waves alone.
        on_host: Whether it is simulated on a CPU.
    """
    cores = available_cores() if on_host else _GPU_CORES
    fastest = Rates(*(rate / cores for rate in _FAST_CORE))
    if _seconds(counts, fastest, method) < LONG_SECONDS:
        return None
    try:
        rates = measure_rates(counts, engine)
    except OutOfMemoryError:  # which the simulation says, with the remedy
        return None
    seconds = _seconds(counts, rates, method)
    if seconds < LONG_SECONDS:
        return None
    fewer = "fewer thermal configurations" if method == "scatter" else "fewer positions"
    return (
        f"this simulation takes about {duration(seconds)} on this machine, at its current load: "
        f"{fewer}, a smaller detector, a larger accuracy or a smaller cell take less; "
        "on_progress says how far it is"
    )


def _seconds(counts: SimulationCounts, rates: Rates, method: str) -> float:
    """Returns the time of all thermal configurations, s."""
    seconds = getattr(stage_seconds(counts, rates), method)
    return float(counts.configurations * seconds)
