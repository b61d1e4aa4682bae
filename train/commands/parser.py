"""The arguments of `namsa-train`. What the commands do is in the other modules of this
package.
"""

import argparse
from pathlib import Path

from namsa.base.version import __version__
from namsa.cli.command_parser import COMPLETION, CommandParser, positive
from namsa.cli.parser import add_schema

from ..program import PROGRAM
from .run_parsers import add_evaluation, add_reports, add_staging
from .scans import add_scan_commands

JOB = "run"  # the command that is meant if none is named: `namsa-train CONFIG`
# commands of `namsa` that people expect here
OF_PATTERNS = (
    "simulate",
    "dataset",
    "inspect",
    "show",
    "info",
    "init",
    "crystals",
    "fetch",
    "examples",
    "doctor",
    "verify",
    "repair",
    "merge",
    "export",
)


def build_parser() -> CommandParser:
    """Returns the parser of the job and of all commands."""
    parser = CommandParser(
        prog=PROGRAM,
        usage="%(prog)s CONFIG [options]\n       %(prog)s COMMAND ...",
        description="The training job, and what is done with a run directory. `%(prog)s CONFIG "
        "--help` lists\nthe options of the job; under horovodrun, mpirun, jsrun or srun each "
        "process is a rank of one job.",
        examples=(
            "%(prog)s configs/quickstart.yaml",
            "horovodrun -np 2 %(prog)s configs/quickstart.yaml --run-dir runs/two",
            "%(prog)s reconstruct data.h5 --checkpoint 200kv-20mrad-reality --out density.h5",
        ),
        notes=COMPLETION,
        default_command=JOB,
        elsewhere=("namsa", OF_PATTERNS),
    )
    parser.add_argument("--version", action="version", version=f"namsa {__version__}")
    _add_job(parser)
    add_describe(parser)
    add_schema(parser, f"{__package__}.networks:schema")
    _add_preflight(parser)
    add_evaluation(parser)
    add_staging(parser)
    add_scan_commands(parser)
    add_reports(parser)
    return parser


def _add_job(parser: CommandParser) -> None:
    command = parser.add_command(
        JOB,
        f"{__package__}.job:run",
        summary="simulate what is missing, train, evaluate and report",
        description="`%(prog)s CONFIG` means this command. Run it again to continue from the "
        "newest checkpoint.",
        prog=PROGRAM,
        usage="%(prog)s CONFIG [options] [-- LAUNCHER ...]",
        examples=(
            "horovodrun -np 2 %(prog)s configs/quickstart.yaml --set training.epochs=40",
            "%(prog)s configs/paper.yaml --dry-run --ranks 27600",
            "%(prog)s own.yaml --supervise --ranks 8 --min-ranks 6 -- horovodrun -np {ranks}",
        ),
    )
    command.add_config()
    command.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="default: runs/<name of the experiment>"
    )
    command.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        help="a second place for the run directory, if it may be lost",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="only print the expected time, memory and disk"
    )
    command.add_json("with --dry-run: print one JSON object")
    command.add_argument(
        "--force",
        action="store_true",
        help="simulate missing samples even if that is expected to exceed the memory, or to take "
        "over 30 days",
    )
    command.add_argument(
        "--supervise",
        action="store_true",
        help="start the job again if it fails; a launcher may follow after --",
    )
    command.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="with training.backend jax: train by N processes on this machine, without a launcher",
    )
    _add_supervision(command)


def _add_supervision(command: CommandParser) -> None:
    """Adds the options for a job that is started again if it fails."""
    restarts = command.add_argument_group("with --supervise")
    restarts.add_argument(
        "--ranks", type=positive, metavar="N", help="the value of {ranks} in the launcher's words"
    )
    restarts.add_argument(
        "--min-ranks",
        type=positive,
        metavar="M",
        help="continue with fewer ranks, down to M, if the job keeps failing",
    )
    restarts.add_argument(
        "--fewer-by", type=positive, default=1, metavar="K", help="ranks per node, default 1"
    )
    restarts.add_argument(
        "--max-restarts", type=positive, default=10, metavar="R", help="default 10"
    )
    # for the supervisor
    command.add_argument("--ended", type=Path, dest="exit_code_file", help=argparse.SUPPRESS)


def add_describe(parser: CommandParser) -> None:
    """Adds the command `describe`."""
    command = parser.add_command(
        "describe",
        f"{__package__}.networks:describe",
        summary="print parameters, FLOP and memory of a network of any kind, by layer and in total",
        description="Only the section network is read. The numbers are for one sample.",
        examples=(
            "%(prog)s configs/paper.yaml",
            "%(prog)s configs/neighbours/cosmoflow.yaml --set network.norm=true --json",
        ),
    )
    command.add_config()
    command.add_json("print one JSON object instead of the tables")


def _add_preflight(parser: CommandParser) -> None:
    command = parser.add_command(
        "preflight",
        f"{__package__}.preflight:preflight",
        summary="check that every rank has what the job needs; exit code 2 if one does not",
        description="Looks at libraries, the GPU, the disk, the clock and the list of samples of "
        "each rank. It needs\nneither MPI nor Horovod to work: the ranks exchange files.",
        examples=(
            "%(prog)s configs/quickstart.yaml",
            "srun -n 8 --gpus-per-task=1 %(prog)s configs/summit.yaml --gpu --exchange "
            "runs/preflight",
        ),
    )
    command.add_config()
    command.add_argument("--gpu", action="store_true", help="every rank needs a GPU, CuPy and NCCL")
    command.add_argument(
        "--exchange", type=Path, metavar="DIR", help="a new folder that all ranks share"
    )
    command.add_argument(
        "--manifest",
        type=Path,
        metavar="DIR",
        help="a dataset whose list of samples is used; default: data.directory",
    )
