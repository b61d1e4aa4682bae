"""`python -m train`: the training job, and what can be done again with a run directory.

Exit codes: 0 done, 1 the work failed, 2 bad input or configuration, 130 interrupted.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from namsa.errors import InputError, WorkError
from namsa.launcher import rank_and_size
from train.config import load

USAGE = """
  python -m train CONFIG [--set section.key=value ...] [--run-dir DIR]
      simulate what is missing, train, evaluate and report; run again to go on from the newest checkpoint
  python -m train evaluate RUN_DIR
      measure the newest checkpoint on the held-out materials, and report
  python -m train report RUN_DIR
      write report.html again
  python -m train scaling CONFIG [--ranks 1..27600] [--machine FILE.yaml] [--run RUN_DIR] [--out PICTURE] [--json]
      how efficient the job would be on many ranks, and how many to ask for

Under horovodrun, mpirun, jsrun or srun each process is a rank of one job.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    command = {"evaluate": evaluate, "report": report, "scaling": scaling}.get(arguments[0] if arguments else "")
    return command(arguments[1:]) if command else train(arguments)


def train(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train", usage=USAGE)
    parser.add_argument("config", type=Path, metavar="CONFIG", help="an experiment's YAML")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", dest="overrides")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="default runs/<name of the experiment>")
    options = parser.parse_args(arguments)
    return _as_rank(options.config, options.overrides, options.run_dir, False)


def evaluate(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train evaluate")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    run_dir = parser.parse_args(arguments).run_dir
    return _as_rank(run_dir / "config.yaml", (), run_dir, True)


def report(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train report")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    run_dir = parser.parse_args(arguments).run_dir
    from train.report import write_report

    def work() -> None:
        print(write_report(run_dir))

    return _exit_code(work)


def scaling(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train scaling")
    parser.add_argument("config", type=Path, metavar="CONFIG", help="an experiment's YAML")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", dest="overrides")
    parser.add_argument("--ranks", default="1..27600", help="1..N, or numbers with commas between them")
    parser.add_argument("--machine", type=Path, metavar="FILE.yaml", help="default: Summit")
    parser.add_argument("--run", type=Path, metavar="RUN_DIR", help="take the time of a step from this run's metrics")
    parser.add_argument("--samples", type=int, metavar="N", help="training samples; default: the dataset's, if there")
    parser.add_argument("--efficiency", type=float, default=0.9, help="the lowest that is worth its while")
    parser.add_argument("--out", type=Path, metavar="PICTURE", help=".png, .svg or .pdf")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)

    def work() -> None:
        from rich.console import Console

        from train import scaling_report
        from train.figures import scaling_figure

        found = scaling_report.report(
            options.config,
            options.overrides,
            ranks=options.ranks,
            machine=options.machine,
            run_dir=options.run,
            samples=options.samples,
            worthwhile=options.efficiency,
        )
        if options.out:
            scaling_figure(found["curve"], found["published"]).savefig(options.out, dpi=150)
        if options.json:
            print(json.dumps(found))
        else:
            scaling_report.show(found, Console())

    return _exit_code(work)


def _as_rank(config: Path, overrides: Sequence[str], run_dir: Path | None, evaluate_only: bool) -> int:
    """One rank of the job, and how it ends."""

    def work() -> None:
        if rank_and_size()[1] == 1:
            load(config, overrides)  # alone, a fault need not wait until TensorFlow is there
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
        from train import main, reduction

        try:
            main.train(config, overrides, run_dir, evaluate_only)
        except Exception as error:
            if reduction.lost_another_rank(error):
                raise reduction.ended_elsewhere(1) from None
            raise
        finally:
            reduction.stop()

    return _exit_code(work)


def _exit_code(work: Callable[[], None]) -> int:
    try:
        work()
    except (InputError, WorkError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except OSError as error:
        print(f"error: {error.filename or 'the system'}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run again to go on from the newest checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
