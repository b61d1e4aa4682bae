"""The first thing that a command does: nothing that ends it before its work begins, or after, prints a traceback.

`namsa.__main__` and `train.__main__` import this before all else. Signals end the process at once here, because nothing
has been written yet, or all has; while a command works they interrupt it (`command_line.exit_code`).
"""

import os
import signal
import sys
from typing import Any

# SIGHUP: a terminal was closed. Windows has the first two.
ENDING = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
INTERRUPTED = 130


def open_standard_streams() -> None:
    """Gives a process whose standard streams are closed empty ones, or the next file opened would be its stdout."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))  # noqa: SIM115 - until the end


def end_at_once(number: int, _frame: Any) -> None:
    """Handles a signal."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


open_standard_streams()
for _number in ENDING:
    if signal.getsignal(_number) is not signal.SIG_IGN:  # nohup
        signal.signal(_number, end_at_once)
