"""What can be said of runs: reports, speed-ups, and how a job would scale."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from namsa.errors import InputError
from train.commands.common import exit_code


def report(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train report")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    run_dir = parser.parse_args(arguments).run_dir
    from train.reports.report import write_report

    def work() -> None:
        print(write_report(run_dir))

    return exit_code(work)


def scaling(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train scaling")
    parser.add_argument("config", type=Path, nargs="?", metavar="CONFIG", help="an experiment's YAML")
    parser.add_argument("--compare", type=Path, nargs="+", metavar="RUN_DIR", help="lay finished runs side by side")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", dest="overrides")
    parser.add_argument("--ranks", default="1..27600", help="1..N, or numbers with commas between them")
    parser.add_argument("--machine", type=Path, metavar="FILE.yaml", help="default: Summit")
    parser.add_argument("--run", type=Path, metavar="RUN_DIR", help="take the time of a step from this run's metrics")
    parser.add_argument("--samples", type=int, metavar="N", help="training samples; default: the dataset's, if there")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="output of scripts/bench/reduction.py --json")
    parser.add_argument("--efficiency", type=float, default=0.9, help="the lowest that is worth its while")
    parser.add_argument("--out", type=Path, metavar="PICTURE", help=".png, .svg or .pdf")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)

    def work() -> None:
        from rich.console import Console

        from train.reports import runs
        from train.reports.figures import scaling_figure
        from train.scaling import report as scaling_report

        if (options.config is None) == (options.compare is None):
            raise InputError("train scaling wants a CONFIG, or --compare with run directories")
        if options.compare:
            compared = runs.compare([runs.read_run(run_dir) for run_dir in options.compare])
            if options.json:
                print(json.dumps(compared))
            else:
                Console().print(runs.comparison_table(compared))
            return
        found = scaling_report.report(
            options.config,
            options.overrides,
            ranks=options.ranks,
            machine=options.machine,
            run_dir=options.run,
            samples=options.samples,
            worthwhile=options.efficiency,
            measured=options.measured,
        )
        if options.out:
            scaling_figure(found["curve"], found["published"]).savefig(options.out, dpi=150)
        if options.json:
            print(json.dumps(found))
        else:
            scaling_report.show(found, Console())

    return exit_code(work)
