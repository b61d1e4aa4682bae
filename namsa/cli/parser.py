"""The `namsa` command: its arguments, and what a fault means for the exit code.

0 done, 1 the work failed, 2 bad input (one line on stderr, no traceback), 130 interrupted.
"""

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from namsa.cli import commands
from namsa.errors import InputError, WorkError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    warnings.showwarning = _say
    # A batch system ends a job with SIGTERM: what is being written is finished as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = _parser().parse_args(arguments)
    try:
        code = int(options.run(options) or 0)
        sys.stdout.flush()
        return code
    except InputError as error:
        print(f"namsa: {error}", file=sys.stderr)
        return 2
    except WorkError as error:
        print(f"namsa: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever reads, as in `namsa info DIR | head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("namsa: interrupted; what was written is whole, and the same command goes on from there", file=sys.stderr)
        return 130


def _say(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line for a person, without the line of code that it comes from."""
    print(f"namsa: warning: {message}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="namsa", description="Multislice simulation of 4D-STEM and its datasets.")
    parser.add_argument("--version", action="version", version=f"namsa {version('namsa')}")
    add = parser.add_subparsers(title="commands", required=True, metavar="COMMAND").add_parser

    command = add("simulate", help="one specimen to an HDF5 stack with a preview picture")
    command.set_defaults(run=commands.simulate)
    _add_config(command)
    _add_dry_run(command)
    command.add_argument("--crystal", type=Path, metavar="FILE.cif", help="instead of the configuration's first one")
    command.add_argument("--out", type=Path, metavar="FILE.h5", help="default: the sample's name in this folder")

    command = add("dataset", help="this rank's share of a dataset; run again to go on")
    command.set_defaults(run=commands.dataset)
    _add_config(command)
    _add_dry_run(command)
    command.add_argument("--out", type=Path, required=True, metavar="DIR")
    command.add_argument("--rank", default="auto", help="auto (the launcher's environment) or a number")
    command.add_argument("--size", default="auto", help="auto or the number of ranks")
    command.add_argument("--limit", type=int, metavar="N", help="at most this many new samples")
    command.add_argument("--time-limit", type=float, metavar="SECONDS", help="start no sample after this time")

    for name, run, what in (
        ("verify", commands.verify, "every record's checksum; exit 1 where any is bad"),
        ("repair", commands.repair, "moves bad records aside and lists them; the next run makes them again"),
    ):
        command = add(name, help=what)
        command.set_defaults(run=run)
        command.add_argument("directory", type=Path, metavar="DIR")
        command.add_argument("--json", action="store_true")

    command = add("merge", help="several datasets of one configuration as one, each sample once; run again to go on")
    command.set_defaults(run=commands.merge)
    command.add_argument("directories", type=Path, metavar="DIR", nargs="+")
    command.add_argument("--out", type=Path, required=True, metavar="DIR")

    command = add("info", help="what a dataset or an HDF5 file holds, with axes and units")
    command.set_defaults(run=commands.info)
    command.add_argument("path", type=Path, metavar="DIR|FILE")
    command.add_argument("--json", action="store_true")
    command.add_argument("--ids", action="store_true", help="only the samples' names, one a line")

    command = add("show", help="pictures of a sample, or a page to look through its patterns")
    command.set_defaults(run=commands.show)
    command.add_argument("sample", type=Path, metavar="SAMPLE", help="FILE.h5, DIR (its first) or DIR/ID")
    command.add_argument(
        "--out", type=Path, metavar="PNG", help="or .pdf, .svg, .html; default: the sample's name in this folder"
    )
    command.add_argument("--html", action="store_true", help="a page to look through all patterns, beside the picture")

    command = add("export", help="a dataset as one HDF5 file with axes and units")
    command.set_defaults(run=commands.export)
    command.add_argument("directory", type=Path, metavar="DIR")
    command.add_argument("--out", type=Path, required=True, metavar="FILE")

    command = add("crystals", help="the built-in crystals")
    command.set_defaults(run=commands.crystals)
    command.add_argument("--json", action="store_true")

    command = add("fetch", help="what the configuration asks of the Materials Project, to a file; needs MP_API_KEY")
    command.set_defaults(run=commands.fetch)
    _add_config(command)

    command = add("doctor", help="what this machine has and lacks")
    command.set_defaults(run=commands.doctor)
    command.add_argument("--json", action="store_true")
    return parser


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", type=Path, metavar="CONFIG", help="an experiment's YAML")
    command.add_argument(
        "--set", action="append", default=[], metavar="key.path=value", dest="overrides", help="override one value"
    )


def _add_dry_run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--dry-run", action="store_true", help="make and write nothing: say what it would take in time, memory and disk"
    )
    command.add_argument("--json", action="store_true", help="of --dry-run")
