"""Runs one command in a forked process with limits, and says whether it ended as a command must.

A command must end by itself within its time, by exit code 0, 1, 2 or 130, without a traceback, with one line on stderr
where it fails (warnings aside), and within its memory. Forking a process that has imported the packages makes a case
cost some 20 ms instead of seconds.
"""

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LONGEST_LINE = 1500  # characters; a message shortens the values that it repeats
EXIT_CODES = (0, 1, 2, 130)


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        code: Its exit code, or minus the number of the signal that ended it.
        seconds: Wall time.
        peak_mib: Peak resident memory beyond that of the parent process, in MiB.
        stderr: All that it wrote there.
    """

    code: int
    seconds: float
    peak_mib: float
    stderr: str


def run(command: Callable[[], int], folder: Path, seconds: float = 10.0, memory_mib: int = 3072) -> Outcome:
    """Runs `command` in a child process in `folder`, with limits on wall time and on added address space."""
    errors = folder / "stderr.txt"
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _in_child(command, folder, errors, memory_mib)
    status, peak = _wait(child, seconds)
    code = os.waitstatus_to_exitcode(status)
    return Outcome(code, time.monotonic() - started, peak, errors.read_text(encoding="utf-8", errors="replace"))


def fault(outcome: Outcome, seconds: float = 10.0) -> str | None:  # noqa: PLR0911
    """Returns what is wrong with the way a command ended, or None."""
    printed = outcome.stderr.splitlines()
    lines = [line for line in printed if line.strip() and not line.startswith("warning: ")]
    if outcome.code == -signal.SIGKILL and outcome.seconds >= seconds:
        return f"hangs for {seconds:g} s"
    if outcome.code < 0:
        return f"ended by {signal.Signals(-outcome.code).name}"
    if "Traceback" in outcome.stderr or "error: unexpected " in outcome.stderr:
        return f"traceback, ending in {lines[-1][:200]!r}"
    if "error: not enough memory" in outcome.stderr:
        return f"needs more memory than it may have: {lines[-1][:200]!r}"
    if outcome.code not in EXIT_CODES:
        return f"exit code {outcome.code}"
    if outcome.code and len(lines) != 1:
        return f"exit code {outcome.code} with {len(lines)} lines on stderr: {' | '.join(lines)[:300]!r}"
    if any(len(line) > LONGEST_LINE for line in outcome.stderr.splitlines()):
        return f"a line of {max(map(len, outcome.stderr.splitlines()))} characters: {outcome.stderr[:100]!r}"
    return None


def _wait(child: int, seconds: float) -> tuple[int, float]:
    """Waits for the child, ends it when its time is over; returns its status and peak memory in MiB."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return status, max(0.0, (usage.ru_maxrss - own) / 1024)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.002)


def _in_child(command: Callable[[], int], folder: Path, errors: Path, memory_mib: int) -> None:
    """Runs the command and ends the process; nothing returns."""
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        os.environ["NAMSA_DEBUG"] = "1"
        for stream, path in ((1, os.devnull), (2, str(errors))):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(opened, stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", errors="backslashreplace")
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        limit = used + memory_mib * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        code = command()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
