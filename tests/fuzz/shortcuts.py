"""Makes valid commands faster for the fuzzer, by work that is the same in all of them and has
nothing hostile in it.
"""

import time
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

import dataset_cases

import namsa.cli.parser
import train.__main__
from namsa.cli.commands import view
from namsa.crystals import select
from namsa.dataset import estimate
from namsa.dataset.workload import Workload
from namsa.engines import rates
from namsa.samples.sample import Sample


def install(undamaged: Collection[bytes]) -> None:
    """Built-in crystals are read once, rates are measured once per grid, and parsers are built
    once.

    Undamaged samples are not drawn.

    Args:
        undamaged: Digests of the samples that are not drawn.
    """
    read = cache(select.builtin_materials)
    measured: dict[tuple[object, ...], rates.Rates] = {}
    rates._mean_seconds = _seconds

    def measure_rates(workload: Workload) -> rates.Rates:
        key = (workload.grid.shape, workload.pattern_shape, workload.precision)
        if key not in measured:
            measured[key] = rates.measure_rates(workload)
        return measured[key]

    draw = view.show_sample

    def show_sample(sample: Sample, path: Path) -> None:
        if dataset_cases.digest(sample) not in undamaged:
            draw(sample, path)

    select.builtin_materials = lambda formulas=None: read(
        None if formulas is None else frozenset(formulas)
    )
    estimate.measure_rates = estimate.measure_rates = measure_rates
    view.show_sample = show_sample
    for parser in (namsa.cli.parser, train.__main__):
        parser.build_parser = cache(parser.build_parser)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
