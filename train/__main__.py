"""`python -m train`: the training job, and what can be done again with a run directory.

Exit codes: 0 done, 1 the work failed, 2 bad input or configuration, 130 interrupted.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from namsa.errors import InputError, WorkError
from namsa.launcher import rank_and_size
from train import supervise
from train.config import Reduction, load
from train.signals import Stopped

USAGE = """
  python -m train CONFIG [--set section.key=value ...] [--run-dir DIR] [--home DIR]
      simulate what is missing, train, evaluate and report; run again to go on from the newest checkpoint
  python -m train CONFIG [--set ...] --dry-run [--ranks N] [--json]
      what that will take: time by a few steps measured here, memory, disk
  python -m train CONFIG ... --supervise [--ranks N [--min-ranks M] [--fewer-by K]] [--max-restarts R] [-- LAUNCHER ...]
      the same, and again from the newest checkpoint where it fails: -- horovodrun -np {ranks}
  python -m train evaluate RUN_DIR
      measure the newest checkpoint on the held-out materials, and report
  python -m train calibrate RUN_DIR [--passes N]
      measure how far the network's uncertainty holds, and how well its answers, simulated, explain their patterns
  python -m train pack RUN_DIR --out DIR
      what of a finished, calibrated run is worth shipping: its configuration, weights, calibration and a card
  python -m train stage FROM TO [--partition] [--threads N]
      bring a dataset from a shared file system to every node's own disk; run again to go on
  python -m train keep FROM TO
      copy home what this rank has added to a dataset on its node's own disk
  python -m train reconstruct DATA.h5 --checkpoint NAME --out OUT.h5
      the electron density in a microscope's 4D-STEM file, by a trained network
  python -m train report RUN_DIR
      write report.html again
  python -m train scaling CONFIG [--ranks 1..27600] [--machine FILE.yaml] [--run RUN_DIR] [--out PICTURE] [--json]
      how efficient the job would be on many ranks, and how many to ask for
  python -m train scaling --compare RUN_DIR RUN_DIR ...
      speed-ups of runs on different numbers of ranks: of an epoch, and until the same loss

Under horovodrun, mpirun, jsrun or srun each process is a rank of one job.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    commands = {"evaluate": evaluate, "stage": stage, "keep": keep, "report": report, "scaling": scaling}
    commands |= {"reconstruct": reconstruct, "calibrate": measure, "pack": package}
    command = commands.get(arguments[0] if arguments else "")
    return command(arguments[1:]) if command else train(arguments)


def train(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train", usage=USAGE)
    parser.add_argument("config", type=Path, metavar="CONFIG", help="an experiment's YAML")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", dest="overrides")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="default runs/<name of the experiment>")
    parser.add_argument("--home", type=Path, metavar="DIR", help="keep the run directory there, too: it may be lost")
    parser.add_argument("--dry-run", action="store_true", help="tell what it will take, and do nothing")
    parser.add_argument("--json", action="store_true", help="of --dry-run")
    parser.add_argument("--supervise", action="store_true", help="start again when it fails; a launcher may follow --")
    parser.add_argument("--ranks", type=_count, metavar="N", help="{ranks} in the launcher's words")
    parser.add_argument("--min-ranks", type=_count, metavar="M", help="where more keep failing (default N)")
    parser.add_argument("--fewer-by", type=_count, default=1, metavar="K", help="ranks of a node")
    parser.add_argument("--max-restarts", type=_count, default=10, metavar="R")
    parser.add_argument("--ended", type=Path, help=argparse.SUPPRESS)  # where a supervised job leaves its exit code
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    words, launcher = arguments[:cut], arguments[cut + 1 :]
    options = parser.parse_args(words)
    if options.supervise:
        return _exit_code(lambda: _supervised(options, launcher))
    if options.dry_run:
        return _dry_run(options)
    if launcher or options.ranks or options.min_ranks or options.json:
        parser.error("a launcher after --, --ranks and --min-ranks need --supervise; --json needs --dry-run")
    return _job(options.config, options.overrides, options.run_dir, False, options.home, options.ended)


def _dry_run(options: argparse.Namespace) -> int:
    def work(reduction: Any) -> None:
        from rich.console import Console
        from rich.table import Table

        experiment = load(options.config, options.overrides)
        reduction.start(experiment.training.reduction)
        from train import forecast

        found = forecast.forecast(experiment, options.ranks or reduction.size())
        if reduction.rank() == 0 and options.json:
            print(json.dumps(found))
        elif reduction.rank() == 0:
            table = Table(box=None, show_header=False)
            for row in forecast.rows(found):
                table.add_row(*row)
            Console().print(table, highlight=False)

    return _as_rank(work)


def _supervised(options: argparse.Namespace, words: Sequence[str]) -> None:
    experiment = load(options.config, options.overrides)
    run_dir = options.run_dir or Path("runs") / experiment.name
    ended = (options.home or run_dir) / ".ended.json"
    job = [sys.executable, "-m", "train", str(options.config), "--run-dir", str(run_dir), "--ended", str(ended)]
    job += [f"--set={each}" for each in options.overrides]
    job += ["--home", str(options.home)] if options.home else []
    plan = supervise.Plan(options.ranks, options.min_ranks, options.fewer_by, options.max_restarts)
    places = [run_dir, *([options.home] if options.home else [])]
    code = supervise.supervise(
        lambda ranks: [*supervise.launcher(words, ranks), *job],
        plan,
        ended,
        lambda: supervise.standing(places, experiment.data.directory),
    )
    if code:
        raise SystemExit(code)


def evaluate(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train evaluate")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    run_dir = parser.parse_args(arguments).run_dir
    return _job(run_dir / "config.yaml", (), run_dir, True)


def measure(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train calibrate")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--passes", type=int, metavar="N", help="predictions with dropout, of each symmetry")
    options = parser.parse_args(arguments)

    def work() -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
        from rich.console import Console

        from train import calibrate, telemetry
        from train.report import write_report

        with telemetry.counter(Console(stderr=True), "held-out samples") as count:
            found, scores = calibrate.calibrate(options.run_dir, options.passes, count)
        print(
            f"uncertainty: {found['scale']:.3g} times the spread of {found['method']}; within it lie "
            f"{found['coverage_68']:.1%} of the dev pixels and {found.get('test', found)['coverage_68']:.1%} of the "
            f"test ones\nconsistency: median R {sorted(scores)[len(scores) // 2]:.3f} of {len(scores)} samples\n"
            f"{write_report(options.run_dir)}"
        )

    return _exit_code(work)


def package(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train pack")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="its last part is the model's name")
    options = parser.parse_args(arguments)

    def work() -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
        from rich.console import Console

        from train import pack, telemetry

        with telemetry.counter(Console(stderr=True), "doses and thicknesses") as count:
            weights = pack.pack(options.run_dir, options.out, count)["weights"]
        print(
            f"{options.out}: {weights['bytes'] / 1e6:.2f} MB of weights ({weights['dtype']}), and {options.out}/CARD.md"
        )

    return _exit_code(work)


def stage(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train stage")
    parser.add_argument("source", type=Path, metavar="FROM", help="a dataset on a file system that all nodes share")
    parser.add_argument("target", type=Path, metavar="TO", help="a folder of each node's own")
    parser.add_argument(
        "--partition", action="store_true", help="each shard to one node, in place of all to every node"
    )
    parser.add_argument("--threads", type=_count, default=8, metavar="N", help="that read at once, in each rank")
    options = parser.parse_args(arguments)

    def work(reduction: Any) -> None:
        from rich.console import Console

        from train import staging, telemetry

        reduction.start(Reduction())
        console = Console(quiet=reduction.rank() != 0, stderr=True)
        with telemetry.counter(console, "rank 0 stages, MiB") as count:
            staged = staging.stage(
                options.source,
                options.target,
                reduction,
                everywhere=not options.partition,
                threads=options.threads,
                on_progress=count,
            )
        if reduction.rank() == 0:
            print(staging.summary(staged), json.dumps(staged), sep="\n")

    return _as_rank(work)


def keep(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train keep")
    parser.add_argument("source", type=Path, metavar="FROM", help="the dataset's folder on this node's own disk")
    parser.add_argument("target", type=Path, metavar="TO", help="where the dataset is kept")
    options = parser.parse_args(arguments)
    from train import copies

    def work() -> None:
        print(json.dumps(copies.keep(options.source, options.target, rank_and_size()[0])))

    return _exit_code(work)


def reconstruct(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train reconstruct")
    parser.add_argument("data", type=Path, metavar="DATA.h5", help="py4DSTEM's, HyperSpy's, namsa's or any HDF5 file")
    parser.add_argument("--checkpoint", required=True, metavar="NAME", help="a model, a run directory or a checkpoint")
    parser.add_argument("--out", type=Path, required=True, metavar="OUT.h5", help="a picture goes beside it")
    parser.add_argument("--dataset", metavar="NAME", help="which of the file's datasets of four axes")
    given = parser.add_argument_group("what the file does not say, or says wrongly; two numbers are y and x")
    given.add_argument("--energy-ev", type=float)
    given.add_argument("--semiangle-mrad", type=float)
    given.add_argument("--scan-step-angstrom", type=float, nargs="+", metavar="STEP")
    given.add_argument("--pixel-mrad", type=float, nargs="+", metavar="PIXEL", help="of the detector")
    given.add_argument("--centre-pixels", type=float, nargs=2, metavar=("Y", "X"), help="the optic axis")
    given.add_argument("--rotation-deg", type=float, help="turns the detector's y, x into the scan's (py4DSTEM's sign)")
    given.add_argument("--beam-intensity", type=float, help="sum of a pattern without specimen, in the file's units")
    parser.add_argument("--thickness-angstrom", type=float, help="of the specimen, by which trust is measured")
    parser.add_argument("--formula", help="of the specimen, as SrTiO3, for the same")
    parser.add_argument(
        "--refine-steps", type=_count, default=0, metavar="N", help="towards the patterns, with a thickness; 30 will do"
    )
    parser.add_argument("--passes", type=int, metavar="N", help="predictions with dropout, of each symmetry")
    options = parser.parse_args(arguments)

    def work() -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
        from rich.console import Console

        from namsa.fourd import Given
        from train.reconstruct import Specimen, reconstruct

        if options.formula and not options.thickness_angstrom:
            raise InputError("--formula is for measuring trust, which takes --thickness-angstrom, too")
        if options.refine_steps and not options.thickness_angstrom:
            raise InputError("--refine-steps simulates the specimen, which takes --thickness-angstrom, too")
        specimen = Specimen(options.thickness_angstrom, options.formula) if options.thickness_angstrom else None

        given = Given(
            options.dataset,
            _pair(options.scan_step_angstrom, "--scan-step-angstrom"),
            _pair(options.pixel_mrad, "--pixel-mrad"),
            options.energy_ev,
            options.semiangle_mrad,
            options.centre_pixels and tuple(options.centre_pixels),
            options.rotation_deg,
        )
        try:
            reconstruct(
                options.data,
                options.checkpoint,
                options.out,
                given,
                beam_intensity=options.beam_intensity,
                passes=options.passes,
                specimen=specimen,
                refine_steps=options.refine_steps,
                console=Console(),
            )
        except KeyboardInterrupt:
            raise Stopped(f"interrupted; {options.out} was not written") from None

    return _exit_code(work)


def _pair(values: Sequence[float] | None, name: str) -> tuple[float, float] | None:
    if values is None:
        return None
    if len(values) > 2 or min(values) <= 0:
        raise InputError(f"{name} is {' '.join(map(str, values))}: give one positive number, or two, y and x")
    return values[0], values[-1]


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

        from train import runs, scaling_report
        from train.figures import scaling_figure

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

    return _exit_code(work)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def _job(
    config: Path,
    overrides: Sequence[str],
    run_dir: Path | None,
    evaluate_only: bool,
    home: Path | None = None,
    ended: Path | None = None,
) -> int:
    def check() -> None:
        if rank_and_size()[1] == 1:
            load(config, overrides)  # alone, a fault need not wait until TensorFlow is there

    def work(_: Any) -> None:
        from train import main

        main.train(config, overrides, run_dir, evaluate_only, home)

    return _exit_code(check, ended) or _as_rank(work, ended)


def _as_rank(work: Callable[[Any], None], ended: Path | None = None) -> int:
    """One rank of a job, `work(reduction)`, and how it ends."""

    def ranked() -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
        from train import reduction

        try:
            work(reduction)
            if reduction.rank() == 0:
                supervise.leave(ended, 0)
        except Exception as error:
            if reduction.lost_another_rank(error):
                raise reduction.ended_elsewhere(1) from None
            raise
        finally:
            reduction.stop()

    return _exit_code(ranked, ended)


def _exit_code(work: Callable[[], None], ended: Path | None = None) -> int:
    try:
        work()
    except (InputError, WorkError) as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2 if isinstance(error, InputError) else 1
        supervise.leave(ended, code)
        return code
    except OSError as error:
        print(f"error: {error.filename or 'the system'}: {error.strerror}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        supervise.leave(ended, 130)
        return 130
    except KeyboardInterrupt:
        if rank_and_size()[0] == 0:
            print("interrupted; run again to go on from the newest checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
