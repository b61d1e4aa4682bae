# PYTHON_ARGCOMPLETE_OK
"""`python -m fcdensenet describe CONFIG`: `namsa-train describe`, for networks of any kind.

The command line is a program of the whole distribution. The package itself needs neither `namsa`
nor `train`.
"""

import sys
from collections.abc import Sequence

from namsa_train.commands.parser import add_describe

from fcdensenet import __version__
from namsa.cli.command_line import run_command
from namsa.cli.command_parser import COMPLETION, CommandParser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; `arguments` are by default those of this
    process.
    """
    return run_command(build_parser(), arguments)


def build_parser() -> CommandParser:
    """Returns the parser of all commands."""
    parser = CommandParser(
        prog="python -m fcdensenet",
        description="A fully convolutional DenseNet and its size.",
        examples=("%(prog)s describe configs/paper.yaml",),
        notes=COMPLETION,
    )
    parser.add_argument("--version", action="version", version=f"fcdensenet {__version__}")
    add_describe(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
