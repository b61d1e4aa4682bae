"""The arguments of the commands of `python -m train` that apply a network to the file of a scan."""

from pathlib import Path

from namsa.cli.calibration_options import add_calibration
from namsa.cli.command_line import CommandParser, positive
from namsa.cli.layout_options import add_layout_options


def add_scan_commands(parser: CommandParser) -> None:
    """Adds the commands."""
    _add_reconstruct(parser)
    _add_classify(parser)
    _add_segment(parser)
    _add_embed(parser)
    _add_estimate(parser)
    _add_live(parser)


def add_passes(command: CommandParser) -> None:
    """Adds the option of a command that predicts in views."""
    command.add_argument("--passes", type=int, metavar="N", help="predictions with dropout, per symmetry")


def _add_reconstruct(parser: CommandParser) -> None:
    command = parser.add_command(
        "reconstruct",
        f"{__package__}.models:reconstruct",
        summary="reconstruct the electron density in a 4D-STEM file with a trained network",
        examples=(
            "%(prog)s data.h5 --checkpoint 200kv-20mrad --out density.h5",
            "%(prog)s data.h5 --checkpoint runs/own --out density.h5 --energy-ev 200e3 --semiangle-mrad 20",
            "%(prog)s data.h5 --checkpoint 200kv-20mrad --out density.h5 --thickness-angstrom 80 --formula SrTiO3",
        ),
    )
    _add_scan(command)
    _add_calibration(command)
    command.add_argument("--thickness-angstrom", type=float, help="of the specimen, for which trust is measured")
    command.add_argument("--formula", help="of the specimen, such as SrTiO3, for the same")
    command.add_argument(
        "--estimator",
        metavar="NAME",
        help="a network of training.task estimate: its thickness, defocus and tilt of the scan are compared with what "
        "--checkpoint has learnt",
    )
    command.add_argument(
        "--refine-steps",
        type=positive,
        default=0,
        metavar="N",
        help="refine towards the patterns; needs a thickness; 30 is usually enough",
    )
    add_passes(command)
    add_layout_options(command)


def _add_classify(parser: CommandParser) -> None:
    command = parser.add_command(
        "classify",
        f"{__package__}.classify:classify",
        summary="classify the patterns of a 4D-STEM file, and the scan by their vote",
        description="Takes a network of training.task classify. Writes the probability of each class and a map of the\n"
        "most probable one, and a picture beside them.",
        examples=(
            "%(prog)s data.h5 --checkpoint runs/classify --out classes.h5",
            "%(prog)s data.h5 --checkpoint runs/classify/best.npz --out classes.h5 --energy-ev 200e3 "
            "--semiangle-mrad 5",
        ),
    )
    _add_scan(command)
    _add_calibration(command)
    add_layout_options(command)


def _add_segment(parser: CommandParser) -> None:
    command = parser.add_command(
        "segment",
        f"{__package__}.segment:segment",
        summary="label the positions of a 4D-STEM file as matrix, grain or phase with a trained network",
        examples=(
            "%(prog)s data.h5 --checkpoint runs/segment --out labels.h5",
            "%(prog)s data.h5 --checkpoint runs/segment --out labels.h5 --energy-ev 200e3 --semiangle-mrad 5",
        ),
    )
    _add_scan(command)
    _add_calibration(command)
    add_layout_options(command)


def _add_embed(parser: CommandParser) -> None:
    command = parser.add_command(
        "embed",
        f"{__package__}.embed:embed",
        summary="embed the patterns of a 4D-STEM file: latent numbers, clusters and decoded patterns",
        description="Takes a network of training.task embed. Writes maps of the latent numbers, of clusters and of\n"
        "the error, the decoded patterns, and a picture of the latent space beside them.",
        examples=(
            "%(prog)s data.h5 --checkpoint runs/embed --out latents.h5",
            "%(prog)s data.h5 --checkpoint runs/embed --out latents.h5 --clusters 6 --energy-ev 200e3 "
            "--semiangle-mrad 5",
        ),
    )
    _add_scan(command)
    command.add_argument("--clusters", type=positive, default=4, metavar="N", help="number of clusters, default 4")
    _add_calibration(command)
    add_layout_options(command)


def _add_estimate(parser: CommandParser) -> None:
    command = parser.add_command(
        "estimate",
        f"{__package__}.estimate:estimate",
        summary="estimate thickness, defocus and tilt of a 4D-STEM file with a trained network",
        description="Takes a network of training.task estimate. Prints each quantity with its error, and writes maps\n"
        "over the scan's windows and a picture beside them.",
        examples=(
            "%(prog)s data.h5 --checkpoint runs/estimate --out estimates.h5",
            "%(prog)s data.h5 --checkpoint runs/estimate/best.npz --out estimates.h5 --energy-ev 200e3 "
            "--semiangle-mrad 20",
        ),
    )
    _add_scan(command)
    _add_calibration(command)
    add_layout_options(command)


def _add_live(parser: CommandParser) -> None:
    command = parser.add_command(
        "live",
        f"{__package__}.live:live",
        summary="reconstruct a scan while its file is written",
        description="Follows a file that grows: Merlin, raw, or HDF5 in SWMR mode. The density is written after each\n"
        "strip of windows. Run it again to continue an interrupted one.",
        examples=(
            "%(prog)s scan.mib --checkpoint 200kv-20mrad --out density.h5 --scan-shape 256x256 "
            "--energy-ev 200e3 --semiangle-mrad 20 --scan-step-angstrom 0.4 --pixel-mrad 1.1",
        ),
    )
    _add_scan(command, "the file that grows")
    command.add_argument("--wait", type=float, default=60.0, metavar="S", help="give up after S s without a row; 60")
    add_layout_options(command)
    _add_calibration(command)
    command.add_argument("--thickness-angstrom", type=float, help="of the specimen, for which trust is measured")
    command.add_argument("--formula", help="of the specimen, such as SrTiO3, for the same")
    add_passes(command)


def _add_scan(command: CommandParser, data: str = "a file of a microscope or a program of 4D-STEM") -> None:
    command.add_argument("data", type=Path, metavar="DATA", help=data)
    command.add_argument("--checkpoint", required=True, metavar="NAME", help="a model, a run directory or a checkpoint")
    command.add_argument("--out", type=Path, required=True, metavar="OUT.h5", help="a picture is written beside it")


def _add_calibration(command: CommandParser) -> None:
    group = add_calibration(command)
    group.add_argument("--beam-intensity", type=float, help="sum of a pattern without specimen, in the file's units")
