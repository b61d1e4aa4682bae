"""Samples per second of `data.source` of kind simulate, without the training: by number of workers
and backend.

    scripts/uv run python scripts/bench/simulate_source.py [CONFIG] [--set KEY=VALUE ...] [--workers
    1 2] [--seconds 20]

CONFIG is configs/reality.yaml by default. Each row has a number of workers: 0 is a thread of this
process, others are processes, on a processor each on one core. They make the samples that a job
would draw, of the same list; a reader takes each once, as it comes. `start_s` is the time to the
first sample, with the start of Python, the compilation of kernels and the first specimen. The rate
is of the `--seconds` from then on; `worker_s` is the time of a worker per sample. On a GPU, rows
with processes share it. A hundredth of the size, to try it on a processor in a minute:

    ... --workers 1 --seconds 5 --set specimen.lateral_angstrom=[9,9] \
        --set specimen.thickness_angstrom=[40] --set variation.thickness_angstrom=[15,40]

"ratio" is the rate of the best row over that of the first.
"""

import argparse
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import frame

import namsa
from namsa.base.launcher import usable_cores
from namsa.dataset.drawn import DrawFailure, SpecimenDraws, train_entries
from namsa.dataset.listing import list_samples
from namsa.dataset.sample_process import InProcess, InThread
from namsa.physics.backend import resolve_backend
from train.experiment.experiment import Experiment, load
from train.input.source import NoMoreSamples
from train.strategies.source.simulate.order import Order
from train.strategies.source.simulate.ring import Ring
from train.strategies.source.simulate.simulator import Simulator

MEMORY = 2 * 2**30  # bytes of the ring


def main() -> None:
    options = parse()
    warnings.simplefilter("ignore", namsa.SimulationWarning)
    experiment = load(options.config, options.overrides)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        listed, _, materials = list_samples(Path(folder), experiment, train_entries)
    draws = SpecimenDraws.of_list(experiment, listed, materials)
    list_s = time.perf_counter() - began
    on_host = resolve_backend(experiment.simulation.backend).__name__ == "numpy"
    rows = [measure(experiment, draws, n, on_host, options.seconds) for n in options.workers]
    show(rows, draws)
    rates = frame.column(rows, "samples_per_s")
    result = {
        "ratio": max(rates) / max(rates[0], 1e-9),
        "config": str(options.config),
        "overrides": options.overrides,
        "backend": "cpu" if on_host else "gpu",
        "patterns_of_sample": experiment.pattern_shape(),
        "samples_of_specimen": draws.samples_per_specimen,
        "list_s": list_s,
        "rows": rows,
    }
    frame.finish(options, result)


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("config", nargs="?", type=Path, default=Path("configs/reality.yaml"))
    frame.add_overrides(parser)
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1], help="0: a thread of this process"
    )
    parser.add_argument(
        "--seconds", type=float, default=20, help="of each row, from its first sample on"
    )
    return parser.parse_args()


def measure(
    experiment: Experiment, draws: SpecimenDraws, workers: int, on_host: bool, seconds: float
) -> dict[str, Any]:
    """Returns the rate of so many workers."""
    per_specimen = draws.samples_per_specimen
    failures = list[DrawFailure]()
    order = Order(
        experiment.seed,
        0,
        1,
        1,
        specimens=10**7,
        per_specimen=per_specimen,
        window=per_specimen,
        reuse=1,
    )
    ring = Ring(order, MEMORY)
    began = time.perf_counter()
    makers = makers_of(draws, workers, on_host)
    simulator = Simulator(makers, order.draws(), ring, failures.append)
    first_sample = threading.Event()
    ended = threading.Event()
    reader = threading.Thread(target=read, args=(ring, first_sample, ended))
    reader.start()
    try:
        while not (first_sample.wait(1) or ended.is_set()):
            pass
        start_s = time.perf_counter() - began
        simulator.numbers()
        counted = time.perf_counter()
        ended.wait(seconds)
        made, busy_s = simulator.numbers()
        wall_s = time.perf_counter() - counted
    finally:
        simulator.close()
        reader.join()
    return {
        "workers": workers,
        "samples_per_s": made / wall_s,
        "worker_s": busy_s * len(makers) / max(made, 1),
        "start_s": start_s,
        "failed": sum(not failure.skipped for failure in failures),
        "error": "" if isinstance(ring.failure, NoMoreSamples) else str(ring.failure),
    }


def makers_of(draws: SpecimenDraws, workers: int, on_host: bool) -> Sequence[InProcess | InThread]:
    """Returns so many processes that simulate, each on one core; for none a thread."""
    if not workers:
        return [InThread(draws)]
    cores = sorted(usable_cores())
    makers = []
    for index in range(workers):
        core = cores[-1 - index % len(cores)] if on_host else None
        makers.append(InProcess(draws, core, 0))
    return makers


def read(ring: Ring, first_sample: threading.Event, ended: threading.Event) -> None:
    """Takes every sample once, until the ring ends."""
    ring.begin_epoch(0)
    try:
        for place in range(ring.order.uses):
            entry = ring.take(ring.order.use(0, place)[0])
            first_sample.set()
            with ring.view(entry.id):
                pass
    except BaseException:  # that of the simulator, which the row shows
        ended.set()


def show(rows: list[dict[str, Any]], draws: SpecimenDraws) -> None:
    table = frame.table(
        "workers", "samples/s", "samples/h", "s of a worker", "to the first, s", "failed"
    )
    for row in rows:
        rate = row["samples_per_s"]
        cells = (
            f"{rate:.3g}",
            f"{3600 * rate:.0f}",
            f"{row['worker_s']:.3g}",
            f"{row['start_s']:.1f}",
            str(row["failed"]),
        )
        table.add_row("thread" if not row["workers"] else str(row["workers"]), *cells)
    frame.show(table)
    print(
        f"{draws.samples_per_specimen} samples per specimen; {len(draws.axes)} materials and axes"
    )
    for error in filter(None, (row["error"] for row in rows)):
        print(f"error: {error}")


if __name__ == "__main__":
    main()
