"""The time that a simulation will take on this machine, for what is said before a long one.

It is the number of operations (`namsa.engines.prism.operations`) divided by the rate at which the
engine propagates a batch of waves through a few empty slices, at the machine's current load. The
transmissions of the slices, the detector's noise and writing are not in it.
"""

import time

import numpy as np

from namsa.base.text import duration
from namsa.engines import prism
from namsa.engines.dispatch import OpticalSetup
from namsa.engines.interface import DEVICE_BATCH_BYTES, HOST_BATCH_BYTES
from namsa.physics.backend import available_cores, run_in_batches, to_host
from namsa.physics.potential import Slices

LONG_SECONDS = 60.0
# Operations per second of a core, or of a GPU, that are fast: what takes less than a part of
# `LONG_SECONDS` at these rates is not measured.
_FAST_CORE = 5e9
_FAST_GPU = 2e12
_MEASURED_SLICES = 4


def time_note(operations: float, setup: OpticalSetup) -> str | None:
    """Returns what is said before a long simulation; `None` if it takes less than `LONG_SECONDS`.

    Args:
        operations: Of the whole simulation.
    """
    fastest = _FAST_CORE * available_cores() if setup.xp is np else _FAST_GPU
    if operations < LONG_SECONDS * fastest:
        return None
    seconds = operations * seconds_per_operation(setup)
    if seconds < LONG_SECONDS:
        return None
    return (
        f"this simulation takes about {duration(seconds)} on this machine, at its current load: "
        "fewer positions, a smaller detector, a larger accuracy or a smaller cell take less; "
        "on_progress says how far it is"
    )


def seconds_per_operation(setup: OpticalSetup) -> float:
    """Returns the measured time per operation of a simulation's engine, s."""
    on_host = setup.xp is np
    batch_bytes = HOST_BATCH_BYTES if on_host else DEVICE_BATCH_BYTES
    batch = max(1, batch_bytes // setup.fresnel.nbytes)
    count = batch * (available_cores() if on_host else 1)
    slices = Slices.equally_thick([setup.fresnel], np.zeros(_MEASURED_SLICES, dtype=np.int64), 1.0)
    engine = setup.implementation.engine(setup.grid, slices, setup.fresnel)
    probes = engine.prepare(setup.fresnel)
    positions = np.zeros((count, 2))
    work = prism.Work(setup.grid.shape, _MEASURED_SLICES, count, 1, 1, 1, 1, 1)
    seconds = np.inf

    def propagate(part: slice) -> None:
        to_host(probes.patterns(positions[part])[:1, :1])

    for _ in range(2):  # the first run compiles and plans
        begin = time.perf_counter()
        run_in_batches(propagate, count, batch, on_host, lambda done, total: None)
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds / prism.propagation_operations(work, count)
