"""What is derived from finished runs: reports, speed-ups, and how a job would scale."""

import argparse
import json
import sys
from dataclasses import asdict

from namsa.errors import InputError
from namsa.files import open_atomic

PICTURES = (".png", ".svg", ".pdf")
WIDE = 160  # characters


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

    run_dir, precision = options.run_dir, strategy("exchange", "sharded", "precision")
    transfers = rows.read(run_dir / rows.TRANSFERS)
    validations = rows.read(run_dir / rows.VALIDATIONS)
    error = task_of(load(run_dir / "config.yaml")).error
    try:
        print(f"{precision.threshold(transfers, validations, error):.4g}")
    except ValueError as fault:
        raise InputError(f"{run_dir}: {fault}") from None


def scaling(options: argparse.Namespace) -> None:
    """Prints how a job would scale, or compares finished runs."""
    if (options.config is None) == (options.compare is None):
        raise InputError("train scaling needs a CONFIG, or --compare with run directories")
    if options.compare:
        _compare(options)
    else:
        _predict(options)


def _compare(options: argparse.Namespace) -> None:
    """Prints the speed-ups of finished runs."""
    from rich.console import Console

    from ..reports import runs

    comparison = runs.compare([runs.read_run(run_dir) for run_dir in options.compare])
    if options.json:
        print(json.dumps(comparison))
    else:
        Console(markup=False).print(runs.comparison_table(comparison))


def _predict(options: argparse.Namespace) -> None:
    """Prints how efficient the job would be on many ranks."""
    from rich.console import Console

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
        # A file or a pipe has no width at which the tables' columns would have to be cut.
        show(
            prediction, Console(markup=False, width=None if sys.stdout.isatty() else WIDE), published=options.published
        )
