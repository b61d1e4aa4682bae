"""The first thing that a process of a command does: nothing that ends it before its work, or after,
prints a traceback.

Signals end the process at once, because nothing has been written yet, or all has; while a command
works they interrupt it (`command_line.exit_code`).
"""

import io
import os
import signal
import sys

# SIGHUP: a terminal was closed. Windows has the first two.
ENDING = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
INTERRUPTED = 130


def open_standard_streams() -> None:
    """Gives a process whose standard streams are closed empty ones, or the next file opened would
    be its stdout.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))  # noqa: SIM115 - until the end


def replace_what_cannot_be_printed() -> None:
    """Lets stdout take characters that its encoding lacks: each becomes a question mark.

    Python escapes them on stderr.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def end_at_once(signum: int, _frame: object) -> None:
    """Handles a signal."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def prepare() -> None:
    """Prepares this process for a command, before anything that takes time to import."""
    # A kernel of Jupyter names a backend that only its own environment has; commands draw to files.
    os.environ["MPLBACKEND"] = "agg"
    open_standard_streams()
    replace_what_cannot_be_printed()
    for signum in ENDING:
        if signal.getsignal(signum) is not signal.SIG_IGN:  # nohup
            signal.signal(signum, end_at_once)
