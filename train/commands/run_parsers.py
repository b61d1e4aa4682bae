"""The arguments of the commands of a run or a dataset: evaluation, staging and reports."""

import argparse
from pathlib import Path

from namsa.cli.command_parser import CommandParser, not_negative, positive


def add_evaluation(parser: CommandParser) -> None:
    """Adds the commands that evaluate, calibrate and pack a run, and the list of models."""
    _add_evaluate(parser)
    _add_calibrate(parser)
    _add_pack(parser)
    _add_models(parser)


def _add_evaluate(parser: CommandParser) -> None:
    command = parser.add_command(
        "evaluate",
        f"{__package__}.job:evaluate",
        summary="evaluate the newest checkpoint on the held-out materials, and report",
        examples=(
            "%(prog)s runs/quickstart",
            "horovodrun -np 2 %(prog)s runs/quickstart",
        ),
    )
    _add_run_dir(command)


def _add_calibrate(parser: CommandParser) -> None:
    command = parser.add_command(
        "calibrate",
        f"{__package__}.models:calibrate",
        summary="calibrate the network's uncertainty and its consistency with the patterns",
        description="Measures on held-out samples how often the error lies within the uncertainty, "
        "and how well\npatterns that are simulated from the network's densities agree with its "
        "input.",
        examples=(
            "%(prog)s runs/quickstart",
            "%(prog)s runs/quickstart --simulated 10",
            "%(prog)s runs/quickstart --data data/other",
        ),
    )
    _add_run_dir(command)
    command.add_argument(
        "--passes", type=int, metavar="N", help="predictions with dropout, per symmetry"
    )
    command.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="a dataset whose splits are used, of the network's microscope, scan and detector; "
        "default: the run's",
    )
    command.add_argument(
        "--simulated",
        type=positive,
        metavar="N",
        help="about so many held-out samples; default: all",
    )
    command.add_argument(
        "--outside",
        type=not_negative,
        default=0,
        metavar="N",
        help="specimens to simulate beyond what was learnt, to learn what lies outside; default: "
        "none",
    )


def _add_pack(parser: CommandParser) -> None:
    command = parser.add_command(
        "pack",
        f"{__package__}.models:pack",
        summary="pack a finished, calibrated run as a model: configuration, weights, calibration "
        "and card",
        description="Takes runs of every task. Those of other tasks than the density need no "
        "calibration, and their\nweights are those of best.npz, if the last ones have a larger "
        "error on the dev split.",
        examples=(
            "%(prog)s runs/quickstart --out models/quickstart",
            "%(prog)s runs/classify --out models/classify",
        ),
    )
    _add_run_dir(command)
    command.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="the model's folder, which gives it its name",
    )


def _add_models(parser: CommandParser) -> None:
    parser.add_command(
        "models",
        f"{__package__}.models:models",
        summary="list the models that come with the package, with their tasks",
        examples=("%(prog)s",),
    )


def add_staging(parser: CommandParser) -> None:
    """Adds the commands that copy datasets to the nodes' disks and back."""
    _add_stage(parser)
    _add_keep(parser)


def _add_stage(parser: CommandParser) -> None:
    command = parser.add_command(
        "stage",
        f"{__package__}.job:stage",
        summary="copy a dataset from a shared file system to every node's own disk; run it again "
        "to continue",
        examples=(
            "horovodrun -np 2 %(prog)s data/quickstart /tmp/quickstart",
            "horovodrun -np 2 %(prog)s data/quickstart /tmp/quickstart --partition --threads 4",
        ),
    )
    command.add_argument(
        "source", type=Path, metavar="FROM", help="a dataset on a file system that all nodes share"
    )
    command.add_argument("target", type=Path, metavar="TO", help="a folder on each node's own disk")
    command.add_argument(
        "--partition",
        action="store_true",
        help="copy each shard to one node, not all to every node",
    )
    command.add_argument(
        "--threads", type=positive, default=8, metavar="N", help="readers per rank, default 8"
    )


def _add_keep(parser: CommandParser) -> None:
    command = parser.add_command(
        "keep",
        f"{__package__}.job:keep",
        summary="copy home what this rank has added to a dataset on its node's own disk",
        examples=("horovodrun -np 2 %(prog)s /tmp/quickstart data/home",),
    )
    command.add_argument(
        "source", type=Path, metavar="FROM", help="the dataset's folder on this node's own disk"
    )
    command.add_argument("target", type=Path, metavar="TO", help="where the dataset is kept")


def add_reports(parser: CommandParser) -> None:
    """Adds the commands that report on a run, profile a job and predict its scaling."""
    _add_report(parser)
    _add_profile(parser)
    _add_threshold(parser)
    _add_transfer(parser)
    _add_scaling(parser)


def _add_report(parser: CommandParser) -> None:
    command = parser.add_command(
        "report",
        f"{__package__}.reports:report",
        summary="write a run's report.html again",
        examples=("%(prog)s runs/quickstart",),
    )
    _add_run_dir(command)


def _add_profile(parser: CommandParser) -> None:
    command = parser.add_command(
        "profile",
        f"{__package__}.job:profile",
        summary="measure where the time of a training step goes, by kind of operation",
        description="Takes some steps of the job, on its samples or, where there are none, on "
        "random data, under\nTensorFlow's profiler. Nothing is trained. Under a launcher every "
        "rank profiles itself.",
        examples=(
            "%(prog)s configs/quickstart.yaml",
            "%(prog)s configs/quickstart.yaml --steps 10 --out runs/quickstart",
        ),
    )
    command.add_config()
    command.add_argument(
        "--steps", type=positive, default=5, metavar="N", help="steps to profile, default 5"
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write profile.json and timeline.png; a run's report then has them",
    )
    command.add_json()


def _add_threshold(parser: CommandParser) -> None:
    command = parser.add_command(
        "threshold",
        f"{__package__}.reports:threshold",
        summary="print the threshold of adaptive transfers that a run gives",
        description="Of a run with sharded weights and validations: the mean relative change of "
        "the norm of a layer's\nweights in a step, up to the first epoch whose validation error is "
        "lower than the one before.",
        examples=("%(prog)s runs/quickstart",),
    )
    _add_run_dir(command)


def _add_transfer(parser: CommandParser) -> None:
    command = parser.add_command(
        "transfer",
        f"{__package__}.reports:transfer",
        summary="print the gain in time of packed weights at a link",
        description="Of a run with sharded weights: the time that fewer bits save on a link of a "
        "given speed,\nless packing and unpacking, which is measured on this machine.",
        examples=("%(prog)s runs/adaptive --gigabytes-per-s 12.5",),
    )
    _add_run_dir(command)
    command.add_argument(
        "--gigabytes-per-s",
        type=_speed,
        required=True,
        metavar="GB/S",
        help="speed of the link over which a rank receives the weights",
    )
    command.add_json()


def _add_scaling(parser: CommandParser) -> None:
    command = parser.add_command(
        "scaling",
        f"{__package__}.reports:scaling",
        summary="predict the job's efficiency on many ranks, or compare finished runs",
        examples=(
            "%(prog)s configs/paper.yaml --ranks 1..27600 --out scaling.png",
            "%(prog)s configs/summit.yaml --samples 12153 --json",
            "%(prog)s configs/neighbours/unet3d.yaml --ways 1,2,4,8 --groups 16",
            "%(prog)s --compare runs/one-rank runs/two-ranks --threshold 0.2 0.1",
        ),
    )
    command.add_argument(
        "config", type=Path, nargs="?", metavar="CONFIG", help="an experiment's YAML file"
    )
    _add_comparison(command)
    command.add_overrides()
    _add_predicted_job(command)
    command.add_argument(
        "--efficiency", type=float, default=0.9, help="the lowest that is worthwhile, default 0.9"
    )
    command.add_argument(
        "--published", action="store_true", help="print published results beside the model, too"
    )
    command.add_argument("--out", type=Path, metavar="PICTURE", help=".png, .svg or .pdf")
    command.add_json()


def _add_comparison(command: CommandParser) -> None:
    """Adds the options that compare finished runs."""
    command.add_argument(
        "--compare",
        type=Path,
        nargs="+",
        metavar="RUN_DIR",
        help="speed-ups of finished runs on different numbers of ranks",
    )
    command.add_argument(
        "--threshold",
        type=float,
        nargs="+",
        metavar="ERROR",
        help="with --compare: validation errors to reach; default: the lowest that all reached",
    )


def _add_predicted_job(command: CommandParser) -> None:
    """Adds the options for the ranks, the machine and the measurements of a prediction."""
    command.add_argument("--ranks", default="1..27600", help="1..N, or numbers separated by commas")
    command.add_argument(
        "--ways", metavar="P,...", help="numbers of ranks that a sample is divided over"
    )
    command.add_argument(
        "--groups",
        type=positive,
        default=1,
        metavar="N",
        help="with --ways: groups of so many ranks, default 1",
    )
    command.add_argument("--machine", type=Path, metavar="FILE.yaml", help="default: Summit")
    command.add_argument(
        "--run",
        type=Path,
        metavar="RUN_DIR",
        dest="run_dir",
        help="take a step's time from this run's metrics",
    )
    command.add_argument(
        "--samples", type=int, metavar="N", help="training samples; default: those of the dataset"
    )
    command.add_argument(
        "--measured", type=Path, metavar="FILE", help="output of scripts/bench/reduction.py --json"
    )


def _add_run_dir(command: CommandParser) -> None:
    command.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="the folder of a run")


def _speed(text: str) -> float:
    """Returns a speed above 0. Raises ArgumentTypeError for any other text."""
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no speed above 0")
    return speed
