"""Refusal of work that a configuration allows and this machine cannot do, before the work begins.

Memory follows from counts. Time is first bounded by the rates of a slow machine, which takes no measurement. Only work
that exceeds the limit at these rates has its time estimated with the rates of this machine.
"""

from namsa.dataset.estimate import estimate_sample
from namsa.dataset.rates import Rates, measure_rates
from namsa.dataset.workload import Workload, check_memory
from namsa.errors import InputError
from namsa.text import duration

LONGEST_SECONDS = 30 * 86_400.0  # of one run: longer ones are a mistake, or need more ranks
SLOW_RATES = Rates(propagation=1e-9, plane_waves=1e-9, product=1e-9, pixel=1e-7, potential=1e-5)  # s per unit of work


def check_machine(workload: Workload, samples: float, available_bytes: int, batch_bytes: int | None = None) -> None:
    """Checks that this machine can simulate some samples in a reasonable time.

    Args:
        workload: The costliest of the samples.
        samples: How many times the work of the costliest sample all of them take together.
        available_bytes: Memory that one sample may take.
        batch_bytes: Patterns in memory if they are written batch by batch. `None` holds all.

    Raises:
        OutOfMemoryError: If the costliest sample is expected to need more memory.
        InputError: If the samples are expected to take longer than `LONGEST_SECONDS`.
    """
    check_memory(workload, available_bytes, batch_bytes)
    if samples * estimate_sample(workload, SLOW_RATES).seconds <= LONGEST_SECONDS:
        return
    seconds = estimate_sample(workload, measure_rates(workload)).seconds
    if samples * seconds > LONGEST_SECONDS:
        costliest = f" ({duration(seconds)} for this sample)" if samples > 1 else ""
        raise InputError(
            f"{workload.id}: the simulation is expected to take {duration(samples * seconds)}{costliest}, and the "
            f"limit is {duration(LONGEST_SECONDS)}: use fewer positions, a smaller grid, thicker slices, fewer samples "
            "or more ranks, or set a time limit; --force tries it nevertheless"
        )
