"""Runs commands in forked processes with limits, and says whether each ended as a command must.

A command must end by itself within its time, by exit code 0, 1, 2 or 130, without a traceback, with one line on stderr
where it fails (warnings aside), and within its memory. Forking a process that has imported the packages, and running
commands in it one after another, makes a case cost milliseconds instead of seconds.
"""

import gc
import json
import math
import os
import resource
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_LINE = 1500  # characters; a message shortens the values that it repeats
EXIT_CODES = (0, 1, 2, 130)
MEMORY_MIB = 3072  # address space that a command may add
GROWTH_MIB = 512  # resident memory that a process may keep from commands that have ended
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        code: Its exit code, or minus the number of the signal that ended it.
        seconds: Wall time.
        stderr: All that it wrote there.
    """

    code: int
    seconds: float
    stderr: str


def fault(outcome: Outcome, seconds: float = 10.0) -> str | None:  # noqa: PLR0911
    """Returns what is wrong with the way a command ended, or None."""
    printed = outcome.stderr.splitlines()
    lines = [line for line in printed if line.strip() and not line.startswith("warning: ")]
    if (outcome.code == -signal.SIGKILL and outcome.seconds >= seconds) or outcome.code == -signal.SIGXCPU:
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


class Runner:
    """A forked process that runs commands one after another, each in a folder of its own and with its own limits.

    The process is replaced by a new one after a command that ended it, was killed, or left something behind: open
    files, threads, processes, memory. What Python restores is restored after each command: streams, signal handlers,
    environment, warnings, the working directory.

    Args:
        call: Runs a command, which is any JSON value, and returns its exit code.
        memory_mib: Address space that a command may add, in MiB.
    """

    def __init__(self, call: Callable[[Any], int], memory_mib: int = MEMORY_MIB) -> None:
        self._call, self._memory_mib = call, memory_mib
        self._child = 0

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        self.renew()

    def run(self, command: Any, folder: Path, seconds: float = 10.0, patience: float = 1.0) -> Outcome:
        """Runs a command in `folder`; kills it when its time is over.

        Args:
            command: The command.
            folder: Its working directory, where `stderr.txt` is written.
            seconds: Wall time that it may take on a machine that does nothing else.
            patience: Factor of its wall time on this machine. Its processor time is limited to that of `seconds` on
                all cores, so that a busy machine makes no hang.
        """
        if not self._child:
            self._fork()
        errors = folder / "stderr.txt"
        started = time.monotonic()
        os.write(self._requests, json.dumps([command, str(folder), str(errors), seconds]).encode() + b"\n")
        reply = self._receive(patience * seconds)
        elapsed = time.monotonic() - started
        if reply is None:
            code = os.waitstatus_to_exitcode(self._end())
        else:
            code = reply["code"]
            if reply["is_spent"]:
                self.renew()
        return Outcome(code, elapsed, errors.read_text(encoding="utf-8", errors="replace") if errors.exists() else "")

    def renew(self) -> None:
        """Ends the process; the next command gets a new one."""
        if self._child:
            self._kill()
            self._end()

    def _fork(self) -> None:
        requests_read, self._requests = os.pipe()
        self._replies, replies_write = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._requests)
            os.close(self._replies)
            _serve(self._call, requests_read, replies_write, self._memory_mib)
        os.close(requests_read)
        os.close(replies_write)

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        """Returns the process' reply; None if it ended, or was killed because the time was over."""
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        if not poll.poll(1e3 * seconds):
            self._kill()
        line = os.read(self._replies, select.PIPE_BUF)
        return json.loads(line) if line else None

    def _kill(self) -> None:
        for kill in (os.killpg, os.kill):  # it may not have made its group yet
            with suppress(ProcessLookupError):
                kill(self._child, signal.SIGKILL)

    def _end(self) -> int:
        """Waits for the process, and returns its wait status."""
        _, status = os.waitpid(self._child, 0)
        os.close(self._requests)
        os.close(self._replies)
        self._child = 0
        return status


# ---- In the forked process ------------------------------------------------------------------------------------------


def _serve(call: Callable[[Any], int], requests: int, replies: int, memory_mib: int) -> None:
    """Runs commands until there are no more requests; nothing returns."""
    try:
        os.setsid()
        os.environ["NAMSA_DEBUG"] = "1"
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.close(null)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", errors="backslashreplace")
        with os.fdopen(requests) as lines:
            files, kept_mib = _open_files(), _memory_mib("VmRSS") + GROWTH_MIB
            for line in lines:
                command, folder, errors, seconds = json.loads(line)
                code = _run(call, command, folder, errors, seconds, memory_mib)
                is_spent = _memory_mib("VmRSS") > kept_mib or _is_something_left(files)
                os.write(replies, json.dumps({"code": code, "is_spent": is_spent}).encode())
    finally:
        os._exit(1)


def _run(call: Callable[[Any], int], command: Any, folder: str, errors: str, seconds: float, memory_mib: int) -> int:
    """Runs a command and returns its exit code, as the interpreter would."""
    os.chdir(folder)
    opened = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(opened, 2)
    os.close(opened)
    with restored():
        limit = int((_memory_mib("VmSize") + memory_mib) * 2**20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        processor = time.process_time() + seconds * len(os.sched_getaffinity(0))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(processor), resource.RLIM_INFINITY))
        try:
            return call(command)
        except SystemExit as error:
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
            return error.code if isinstance(error.code, int) else int(error.code is not None)
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
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    limits = {kind: resource.getrlimit(kind) for kind in LIMITS}
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for kind, limit in limits.items():
            resource.setrlimit(kind, limit)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)


def _is_something_left(files: list[str]) -> bool:
    """Returns whether the last command left open files, threads, or processes that run."""
    if _open_files() != files:
        gc.collect()  # objects in cycles may hold the files
    return _open_files() != files or threading.active_count() > 1 or _has_child()


def _has_child() -> bool:
    """Returns whether a child process runs. Those that have ended are forgotten."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _open_files() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def _memory_mib(name: str) -> float:
    """Returns the process' resident memory (VmRSS) or address space (VmSize)."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(pages[{"VmSize": 0, "VmRSS": 1}[name]]) * resource.getpagesize() / 2**20
