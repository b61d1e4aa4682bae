"""Consoles for tables and lines. A log has no width at which columns would have to be cut."""

import os
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

LOG_WIDTH = 240  # characters of a table where stdout is no terminal


class FoldingConsole(Console):
    """A console whose tables go on in the next line where a column is too narrow, and are not
    cut.
    """

    def print(self, *objects: object, **options: Any) -> None:
        """Prints objects as `rich.console.Console.print` does, the columns of tables folded."""
        for printed in objects:
            if isinstance(printed, Table):
                for column in printed.columns:
                    column.overflow = "fold"
        super().print(*objects, **options)


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
    return FoldingConsole(quiet=quiet, stderr=stderr, markup=False, width=width)
