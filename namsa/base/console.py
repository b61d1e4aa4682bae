"""Consoles for tables and lines. A log has no width at which columns would have to be cut."""

import os
import sys

from rich.console import Console

LOG_WIDTH = 240  # characters of a table where stdout is no terminal


def output_console(quiet: bool = False, stderr: bool = False) -> Console:
    """Returns a console that prints texts as they are.

    Its width is that of the terminal. Where the output is a file or a pipe, it is `LOG_WIDTH`, or
    the environment's COLUMNS.

    Args:
        quiet: Whether it prints nothing, as on other ranks than rank 0.
        stderr: Whether it prints to stderr in place of stdout.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None
    if not stream.isatty() and "COLUMNS" not in os.environ:
        width = LOG_WIDTH
    return Console(quiet=quiet, stderr=stderr, markup=False, width=width)
