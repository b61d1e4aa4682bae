# PYTHON_ARGCOMPLETE_OK
"""`namsa-train`: the training job, and what is done with a run directory.

Exit codes: 0 done, 1 the work failed, 2 bad input or configuration, 130 interrupted.
"""

import sys
from collections.abc import Sequence

from namsa.base.registry import function_named
from namsa.cli import start
from namsa.cli.command_line import exit_code, warn_in_one_line
from namsa.cli.command_parser import CommandParser, parse

from .commands.parser import JOB, build_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, by default that of this process, and returns its exit code."""
    warn_in_one_line()
    parser = build_parser()
    words, launcher = _split_launcher(
        list(sys.argv[1:] if arguments is None else arguments), parser
    )
    options = parse(parser, words)
    options.launcher = launcher
    return exit_code(lambda: function_named(options.run)(options))


def run() -> int:
    """Runs the command line of this process and returns its exit code."""
    start.prepare()
    return main()


def _split_launcher(words: list[str], parser: CommandParser) -> tuple[list[str], list[str]]:
    """Returns the job's own words, and those of a launcher after `--`. Other commands have no
    launcher.
    """
    if "--" not in words or words[0] in parser.commands.keys() - {JOB}:
        return words, []
    end = words.index("--")
    return words[:end], words[end + 1 :]


if __name__ == "__main__":
    sys.exit(run())
