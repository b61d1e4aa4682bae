# PYTHON_ARGCOMPLETE_OK
"""`python -m fcdensenet describe CONFIG`: the size of an experiment's network.

Only the `network` section of the experiment's YAML is read. Exit codes: 0 done, 1 a fault of the program itself, 2 bad
input, 130 interrupted.
"""

import argparse
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from fcdensenet import __version__
from fcdensenet.count import count
from fcdensenet.describe import describe, layer_table, sums_table
from fcdensenet.reading import read_network

EXAMPLES = """\
examples:
  python -m fcdensenet describe configs/paper.yaml
  python -m fcdensenet describe configs/quickstart.yaml --set network.growth=32
  python -m fcdensenet describe configs/paper.yaml --json

Bash and zsh complete commands and options after `activate-global-python-argcomplete`."""


class _Parser(argparse.ArgumentParser):
    """An argument parser that shows examples in its help and reports a wrong command line in one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXAMPLES, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {_printable(message)}; see `{self.prog} --help`\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    Args:
        arguments: The command's words; by default those of this process.
    """
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except ValueError as error:
        print(f"error: {_printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        line = f"{error.filename or 'the system'}: {error.strerror or error}"
        print(f"error: {_printable(line)}", file=sys.stderr)
        return 1
    except Exception as error:  # the last line of defence
        print(f"error: {_unforeseen_line(error)}", file=sys.stderr)
        return 1
    return 0


def _printable(line: str) -> str:
    """Returns a message on one line, with control characters escaped: file names and values may contain them."""
    return "".join(c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1] for c in line)


def _unforeseen_line(error: Exception) -> str:
    """Writes a traceback to a file, or to stderr with NAMSA_DEBUG=1, and returns one line about it."""
    described = f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:200]!a}"
    if os.environ.get("NAMSA_DEBUG") == "1":
        traceback.print_exception(error)
        return described
    text = "".join([f"fcdensenet {__version__}: {sys.argv!a}\n\n", *traceback.format_exception(error)])
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="fcdensenet-error-", suffix=".txt", delete=False) as file:
            file.write(text.encode(errors="backslashreplace"))
    except OSError:
        return f"{described}; NAMSA_DEBUG=1 prints the traceback"
    return (
        f"{described}; this is a fault of the program: the traceback is in {file.name}; please report it with this file"
    )


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    parser = _Parser(prog="python -m fcdensenet", description="A fully convolutional DenseNet and its size.")
    parser.add_argument("--version", action="version", version=f"fcdensenet {__version__}")
    command = parser.add_subparsers(title="commands", required=True, metavar="COMMAND").add_parser(
        "describe",
        help="print parameters, FLOP and activation memory, by layer and in total",
        description="Prints parameters, FLOP and activation memory, by layer and in total, for one sample.",
    )
    command.set_defaults(run=print_description)
    command.add_argument("config", type=Path, metavar="CONFIG", help="an experiment's YAML with a network section")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="network.key=value",
        dest="overrides",
        help="override a setting; may be repeated",
    )
    command.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    return parser


def print_description(options: argparse.Namespace) -> None:
    """Prints the size of the network of `options.config`."""
    config = read_network(options.config, options.overrides)
    counted, recomputed = count(config), count(config, recompute=not config.block_norm)
    if options.json:
        print(json.dumps(describe(counted, recomputed)))
    else:
        Console().print(layer_table(counted), sums_table(counted, recomputed))


if __name__ == "__main__":
    sys.exit(main())
