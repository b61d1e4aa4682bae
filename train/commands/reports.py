"""Commands about finished runs: reports, speed-ups, and how a job would scale."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from namsa.base.console import output_console
from namsa.base.errors import InputError
from namsa.base.files import open_atomic

if TYPE_CHECKING:
    from rich.table import Table

    from ..measure.rows import Row

PICTURES = (".png", ".svg", ".pdf")


def report(options: argparse.Namespace) -> None:
    """Writes a run's report.html again."""
    from ..tasks.reporting import write_report

    print(write_report(options.run_dir))


def threshold(options: argparse.Namespace) -> None:
    """Prints the threshold of adaptive transfers that a run gives."""
    from ..experiment.experiment import load
    from ..experiment.registry import strategy
    from ..measure import rows
    from ..tasks import task_of

    run_dir = options.run_dir
    precision = strategy("exchange", "sharded", "precision")
    transfers = _transfers(run_dir)
    validations = rows.read(run_dir / rows.VALIDATIONS)
    error_name = task_of(load(run_dir / "config.yaml")).error
    try:
        print(f"{precision.threshold(transfers, validations, error_name):.4g}")
    except ValueError as error:
        raise InputError(f"{run_dir}: {error}") from None


def _transfers(run_dir: Path) -> "Sequence[Row]":
    """Returns the rows of a run's transfer.jsonl.

    Raises:
        InputError: If there is none, or it cannot be read.
    """
    from ..measure import rows

    path = run_dir / rows.TRANSFERS
    if run_dir.is_dir() and not path.exists():
        raise InputError(
            f"{run_dir} has no {rows.TRANSFERS}: give the directory of a run with "
            "training.exchange of kind sharded"
        )
    return rows.read(path)


def transfer(options: argparse.Namespace) -> None:
    """Prints the gain in time of packed weights at a link of a given speed."""
    from math import prod

    from ..experiment.experiment import load
    from ..experiment.registry import strategy
    from ..measure.rows import TRANSFERS
    from ..networks import count
    from ..scaling.report import measured_compute_s

    run_dir = options.run_dir
    gain = strategy("exchange", "sharded", "gain")
    transfers = _transfers(run_dir)
    network = count(load(run_dir / "config.yaml").network)
    sizes = {}
    for layer in network.layers:
        if layer.kernel_shape:
            sizes[f"{layer.name}/kernel"] = prod(layer.kernel_shape)
    vectors = network.trainable_parameters - sum(sizes.values())
    compute_s = measured_compute_s(run_dir)
    link_bytes_per_s = 1e9 * options.gigabytes_per_s
    try:
        gains = gain.gains(transfers, sizes, vectors, compute_s, link_bytes_per_s)
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{run_dir / TRANSFERS}: {error} is no layer of the network in config.yaml: give "
            "the directory of a run with training.exchange of kind sharded"
        ) from None
    if options.json:
        of_epochs = [row._asdict() for row in gains]
        print(json.dumps({"compute_s": compute_s, "epochs": of_epochs}))
        return
    output_console().print(gain_table(gains, compute_s, options.gigabytes_per_s))


def gain_table(gains: Sequence[Any], compute_s: float, gigabytes_per_s: float) -> "Table":
    """Returns the gains of packed weights as a table."""
    from rich import box
    from rich.table import Table

    title = f"Computation {1e3 * compute_s:.3g} ms per step, link of {gigabytes_per_s:g} GB/s"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for heading in ("epoch", "MB", "MB float32", "packing ms", "link ms", "float32 ms", "gain"):
        table.add_column(heading, justify="right")
    for row in gains:
        table.add_row(
            str(row.epoch + 1),
            f"{row.weight_bytes / 1e6:.3g}",
            f"{row.whole_bytes / 1e6:.3g}",
            f"{1e3 * row.packing_s:.3g}",
            f"{1e3 * row.link_s:.3g}",
            f"{1e3 * row.whole_link_s:.3g}",
            f"{row.gain:.1%}",
        )
    return table


def scaling(options: argparse.Namespace) -> None:
    """Prints how a job would scale, or compares finished runs."""
    if (options.config is None) == (options.compare is None):
        raise InputError("namsa-train scaling needs a CONFIG, or --compare with run directories")
    if options.threshold and not options.compare:
        raise InputError("--threshold is for --compare: leave it out, or give run directories")
    if options.compare:
        _compare(options)
    else:
        _predict(options)


def _compare(options: argparse.Namespace) -> None:
    """Prints the speed-ups of finished runs."""
    from ..experiment.experiment import load
    from ..reports import comparison
    from ..tasks import task_of

    runs = []
    for run_dir in options.compare:
        score = task_of(load(run_dir / "config.yaml")).error
        runs.append(comparison.read_run(run_dir, score))
    compared = comparison.compare(runs, options.threshold or ())
    if options.json:
        print(json.dumps(compared))
        return
    console = output_console()
    for table in comparison.comparison_tables(compared):
        console.print(table)


def _predict(options: argparse.Namespace) -> None:
    """Prints how efficient the job would be on many ranks."""
    from ..scaling.figure import scaling_figure
    from ..scaling.report import report
    from ..scaling.tables import show

    if options.out and options.out.suffix not in PICTURES:
        raise InputError(f"--out {options.out} is for a picture: end it in {', '.join(PICTURES)}")
    prediction = report(
        options.config,
        options.overrides,
        ranks=options.ranks,
        machine=options.machine,
        run_dir=options.run_dir,
        samples=options.samples,
        min_efficiency=options.efficiency,
        measured=options.measured,
        ways=options.ways,
        groups=options.groups,
    )
    if options.out:
        with open_atomic(options.out) as file:
            scaling_figure(prediction).savefig(file, format=options.out.suffix[1:], dpi=150)
    if options.json:
        print(json.dumps(asdict(prediction)))
    else:
        show(prediction, output_console(), published=options.published)
