"""Runs commands in forked processes with limits, and says whether each ended as a command must.

A command must end by itself within its time, by exit code 0, 1, 2 or 130, without a traceback, with
one line on stderr where it fails (warnings aside), and within its memory. Forking a process that
has imported the packages, and running commands in it one after another, makes a case cost
milliseconds instead of seconds.
"""

import math
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LONGEST_LINE = 1500  # characters; a message shortens the values that it repeats
EXIT_CODES = (0, 1, 2, 130)
MEMORY_MIB = 3072  # address space that a command may add
SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)


@dataclass(frozen=True)
class Outcome:
    """End of a command.

    Attributes:
        code: Its exit code, or minus the number of the signal that ended it.
        seconds: Wall time.
        stderr: All that it wrote there.
    """

    code: int
    seconds: float
    stderr: str


def fault(outcome: Outcome, seconds: float = 10.0) -> str | None:
    """Returns what is wrong with the way a command ended, or None."""
    printed = outcome.stderr.splitlines()
    lines = []
    for line in printed:
        if line.strip() and not line.startswith("warning: "):
            lines.append(line)
    if (
        outcome.code == -signal.SIGKILL and outcome.seconds >= seconds
    ) or outcome.code == -signal.SIGXCPU:
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
        return f"exit code {outcome.code} with {len(lines)} lines on stderr: {' | '.join(lines)[:300]!r}"  # noqa: E501
    if any(len(line) > LONGEST_LINE for line in outcome.stderr.splitlines()):
        return f"a line of {max(map(len, outcome.stderr.splitlines()))} characters: {outcome.stderr[:100]!r}"  # noqa: E501
    return None


class Runner:
    """A forked process that runs commands one after another, each in a folder of its own and with
    its own limits.

    A command that ended the process, or was killed, is followed by a new one. What else a command
    may leave, but what `restored` restores, is no fault of the next: a case that ends badly is
    judged alone.

    Args:
        call: Runs a command and returns its exit code.
        memory_mib: Address space that a command may add, in MiB.
    """

    def __init__(self, call: Callable[[Any], int], memory_mib: int = MEMORY_MIB) -> None:
        self._call = call
        self._memory_mib = memory_mib
        self._child = 0

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        if self._child:
            self._end()

    def run(
        self, command: Any, folder: Path, seconds: float = 10.0, patience: float = 1.0
    ) -> Outcome:
        """Runs a command in `folder`; kills it when its time is over.

        Args:
            command: The command.
            folder: Its working directory, where `stderr.txt` is written.
            seconds: Wall time that it may take on a machine that does nothing else.
            patience: Factor of its wall time on this machine. Its processor time is limited to that
                of `seconds` on all cores, so that a busy machine makes no hang.
        """
        if not self._child:
            self._pipe, other = multiprocessing.Pipe()
            self._child = os.fork()
            if self._child == 0:
                self._pipe.close()
                _serve(self._call, other, self._memory_mib)
            other.close()
        errors = folder / "stderr.txt"
        code = None
        started = time.monotonic()
        self._pipe.send((command, folder, errors, seconds))
        with suppress(EOFError):  # it has ended
            code = self._pipe.recv() if self._pipe.poll(patience * seconds) else None
        elapsed = time.monotonic() - started
        code = self._end() if code is None else code
        return Outcome(
            code,
            elapsed,
            errors.read_text(encoding="utf-8", errors="replace") if errors.exists() else "",
        )

    def _end(self) -> int:
        """Kills the process and what it started; returns its exit code, or minus the number of the
        signal.
        """
        for kill in (os.killpg, os.kill):  # it may not have made its group yet
            with suppress(ProcessLookupError):
                kill(self._child, signal.SIGKILL)
        _, status = os.waitpid(self._child, 0)
        self._pipe.close()
        self._child = 0
        return os.waitstatus_to_exitcode(status)


# ---- In the forked process


def _serve(call: Callable[[Any], int], pipe: Connection, memory_mib: int) -> None:
    """Runs commands until there are no more; nothing returns."""
    try:
        os.setsid()
        os.environ["NAMSA_DEBUG"] = "1"
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.close(null)
        sys.stdout = os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace")
        while True:
            pipe.send(_run(call, *pipe.recv(), memory_mib))
    finally:
        os._exit(1)


def _run(
    call: Callable[[Any], int],
    command: Any,
    folder: Path,
    errors: Path,
    seconds: float,
    memory_mib: int,
) -> int:
    """Runs a command and returns its exit code, as the interpreter would."""
    os.chdir(folder)
    opened = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(opened, 2)
    os.close(opened)
    with restored():
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + memory_mib * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        processor = time.process_time() + seconds * len(os.sched_getaffinity(0))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(processor), resource.RLIM_INFINITY))
        try:
            return call(command)
        except SystemExit as error:
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
            if isinstance(error.code, int):
                return error.code
            return int(error.code is not None)
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()


@contextmanager
def restored() -> Iterator[None]:
    """Restores what a command may change in its process, which usually ends with it."""
    environment = dict(os.environ)
    handlers = {signal_number: signal.getsignal(signal_number) for signal_number in SIGNALS}
    limits = {kind: resource.getrlimit(kind) for kind in LIMITS}
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for kind, limit in limits.items():
            resource.setrlimit(kind, limit)
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
