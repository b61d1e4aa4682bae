# PYTHON_ARGCOMPLETE_OK
"""The `namsa` command: its arguments. What the commands do is in `namsa.cli.commands`."""

from collections.abc import Sequence
from pathlib import Path

from namsa.base.version import __version__
from namsa.cli.command_line import run_command
from namsa.cli.command_parser import COMPLETION, CommandParser
from namsa.cli.dataset_parsers import add_datasets, add_integrity, add_simulation
from namsa.cli.scan_parsers import add_inspect, add_parallax, add_views

OF_NETWORKS = (
    "reconstruct",
    "live",
    "classify",
    "segment",
    "embed",
    "estimate",
    "models",
    "evaluate",
    "report",
    "calibrate",
    "pack",
    "stage",
    "profile",
)
INTERRUPTED = "interrupted; no file is left half written: run the same command again"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 1 the work failed, 2 bad input, 130
    interrupted.

    Args:
        arguments: The command's words; by default those of this process.
    """
    return run_command(build_parser(), arguments, INTERRUPTED)


def build_parser() -> CommandParser:
    """Returns the parser of all commands."""
    parser = CommandParser(
        prog="namsa",
        description="Multislice simulation of 4D-STEM and its datasets.",
        examples=(
            "namsa init first-hour",
            "namsa simulate first-hour/starter.yaml --crystal first-hour/SrTiO3.cif --out scan.h5",
            "namsa show scan.h5 --html",
        ),
        notes=COMPLETION,
        elsewhere=("namsa-train", OF_NETWORKS),
    )
    parser.add_argument("--version", action="version", version=f"namsa {__version__}")
    add_simulation(parser)
    add_datasets(parser)
    add_integrity(parser)
    add_views(parser)
    add_inspect(parser)
    add_parallax(parser)
    _add_crystals(parser)
    _add_init(parser)
    _add_examples(parser)
    add_schema(parser, "namsa.cli.commands.schema:schema")
    _add_doctor(parser)
    return parser


def add_schema(parser: CommandParser, run: str) -> None:
    """Adds the command `schema`, whose function `run` names."""
    command = parser.add_command(
        "schema",
        run,
        summary="print the keys of a configuration, with values, defaults and meaning",
        description="A JSON schema, as editors use it to complete and check YAML, or tables in "
        "Markdown.",
        examples=("%(prog)s", "%(prog)s --markdown"),
    )
    command.add_argument("--markdown", action="store_true", help="print tables in Markdown")


def _add_crystals(parser: CommandParser) -> None:
    command = parser.add_command(
        "crystals",
        "namsa.cli.commands.crystals:crystals",
        summary="list the built-in crystals",
        examples=("namsa crystals", "namsa crystals --json"),
    )
    command.add_json("print one JSON list")

    command = parser.add_command(
        "fetch",
        "namsa.cli.commands.crystals:fetch",
        summary="fetch the configuration's query of the Materials Project to a file",
        description="Needs MP_API_KEY in the environment and a section "
        "materials.materials_project.",
        examples=("MP_API_KEY=... namsa fetch my.yaml",),
    )
    command.add_config()


def _add_init(parser: CommandParser) -> None:
    command = parser.add_command(
        "init",
        "namsa.cli.commands.starter:init",
        summary="make a folder to start in: a crystal, a configuration and a notebook",
        examples=("namsa init first-hour", "namsa init first-hour --simulate"),
    )
    command.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    command.add_argument(
        "--simulate", action="store_true", help="simulate the patterns of the crystal, too"
    )


def _add_examples(parser: CommandParser) -> None:
    command = parser.add_command(
        "examples",
        "namsa.cli.commands.examples:examples",
        summary="list measured scans to try things on, or fetch some",
        description="Each file is compared with its checksum; a file that is there is never "
        "replaced.",
        examples=(
            "namsa examples",
            "namsa examples fetch rotavirus_4x4x256x256_crop_uint8.h5 --from URL",
        ),
    )
    command.add_argument("action", nargs="?", choices=("fetch",), help="left out: print the list")
    command.add_argument("names", nargs="*", metavar="NAME", help="the files to fetch")
    command.add_argument(
        "--from",
        dest="source",
        metavar="URL|DIR",
        help="the folder with the files; default: NAMSA_EXAMPLES_URL",
    )
    command.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="where to, default: this folder"
    )
    command.add_json("print the list as JSON, with sizes and checksums")


def _add_doctor(parser: CommandParser) -> None:
    command = parser.add_command(
        "doctor",
        "namsa.cli.commands.machine:doctor",
        summary="report what this machine has and lacks",
        description="Lists libraries, devices, disks and ranks, and the command that installs "
        "what is missing.",
        examples=("namsa doctor", "namsa doctor --json", "namsa doctor --gpu"),
    )
    command.add_json()
    command.add_argument(
        "--gpu", action="store_true", help="count as missing what a job on GPUs needs"
    )
