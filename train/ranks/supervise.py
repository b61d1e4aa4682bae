"""Restarts a job from its last checkpoint when it fails, with fewer ranks if necessary.

    namsa-train CONFIG --supervise [--ranks N --min-ranks M --fewer-by K] [--max-restarts R] --
    LAUNCHER ...

The job is `LAUNCHER ... namsa-train CONFIG ...`. In the launcher's arguments, `{ranks}` is
replaced by the number of ranks. Not all launchers pass on the exit codes of the ranks, so the rank
that reports the end of the job writes its exit code to a file (`--ended`). The traceback that
horovodrun prints below the line of a rank that fails is left out. A job that was interrupted, or
whose input is wrong, is not restarted, nor is one that twice makes no progress with the fewest
ranks allowed.
"""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

from namsa.base.errors import InputError, WorkError
from namsa.base.files import system_errors
from namsa.base.json_files import read_typed

from .signals import STOPPING

RANK_ENDED = re.compile(rb"Process \d+ exit with status code|Terminating remaining workers")
RANK_FAILED = b"RuntimeError: Horovod detected that one or more processes exited"
FINAL_CODES = (0, 2, 130)  # done, wrong input, interrupted: another start would end alike


@dataclass(frozen=True)
class RestartPolicy:
    """When and how a job is restarted."""

    # number of ranks of the first start; `None` if the launcher's arguments give it
    ranks: int | None = None
    min_ranks: int | None = None  # fewest ranks; `None` for `ranks`
    fewer_by: int = 1  # ranks that a start has less after two starts without progress
    max_restarts: int = 10  # number of restarts after which the job is given up
    pause_s: float = 5.0  # pause before a restart, s; it doubles with every start without progress
    longest_pause_s: float = 300.0  # upper limit of the pause, s


def supervise(
    # returns the command line for a number of ranks
    command: Callable[[int | None], Sequence[str]],
    policy: RestartPolicy,  # when and how to restart
    exit_code_path: Path,  # the file to which the job writes its exit code
    progress: Callable[[], object],  # returns a value that changes while the job makes progress
    # Called with a line before each restart.
    report: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> int:
    """Runs a job until it is done or no restart helps; returns the exit code of the last start.

    Raises:
        WorkError: If the job makes no progress, or after `max_restarts`.
    """
    ranks = policy.ranks
    starts_without_progress = 0
    fewest = policy.min_ranks or policy.ranks
    for restarts in range(policy.max_restarts + 1):
        earlier = progress()
        exit_code_path.unlink(missing_ok=True)
        interrupted = _run(command(ranks))
        code = _read_exit_code(exit_code_path)
        if interrupted or code in FINAL_CODES:
            return 130 if interrupted and code else code
        starts_without_progress += 1
        if progress() != earlier:
            starts_without_progress = 0
        text = f"the job ended with exit code {code}"
        if starts_without_progress >= 2:
            if ranks is None or fewest is None or ranks - policy.fewer_by < fewest:
                raise WorkError(
                    f"{text}, for the second time without getting further: see its messages above"
                )
            ranks = ranks - policy.fewer_by
            starts_without_progress = 0
        if restarts < policy.max_restarts:
            doublings = max(0, starts_without_progress - 1)
            pause_s = min(policy.pause_s * 2**doublings, policy.longest_pause_s)
            with_ranks = f" with {ranks} ranks" if ranks else ""
            report(
                f"{text}; starting it again{with_ranks} in {pause_s:g} s ({restarts + 1} of "
                f"{policy.max_restarts})"
            )
            time.sleep(pause_s)
    raise WorkError(
        f"{text} after {policy.max_restarts} restarts: see its messages above, or raise "
        "--max-restarts"
    )


def launcher_command(arguments: Sequence[str], ranks: int | None) -> list[str]:
    """Returns the launcher's arguments with `{ranks}` replaced. Raises InputError if one of the two
    is missing.
    """
    if any("{ranks}" in argument for argument in arguments) != (ranks is not None):
        raise InputError(
            "--ranks N and {ranks} in the launcher's words (as horovodrun -np {ranks}) go together"
        )
    return [argument.replace("{ranks}", str(ranks)) for argument in arguments]


def write_exit_code(path: Path | None, code: int) -> None:
    """Tells the supervisor, if there is one, how the job ended. The rank that reports the end calls
    it.
    """
    if path:
        with suppress(OSError):  # the job has already reported that it cannot write
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"exit_code": code}), encoding="utf-8")


def progress_marker(run_dirs: Sequence[Path], data: Path) -> tuple[str, int]:
    """Returns how far a job has come: its newest checkpoint, here or at home, and the bytes of its
    samples.
    """
    newest = max(
        (path.name for run_dir in run_dirs for path in run_dir.glob("checkpoints/step-*.npz")),
        default="",
    )
    return newest, sum(path.stat().st_blocks for path in data.rglob("*") if path.is_file())


def _read_exit_code(path: Path) -> int:
    """Returns the job's exit code. A job that has written none has failed, whatever its launcher
    returns.
    """
    try:
        return read_typed(dict[str, int], path, "start the job again")["exit_code"]
    except (ValueError, LookupError, TypeError):
        return 1


def _run(command: Sequence[str]) -> bool:
    """Runs `command`; returns whether a signal asked this process to stop. The signal is passed on
    as SIGTERM.

    mpiexec and mpirun (Open MPI) kill their ranks within a second of SIGTERM, but pass SIGUSR1 on,
    so they get that. The command has a session of its own, so that Ctrl-C reaches it once.
    """
    name = Path(command[0]).name
    stop_signal = signal.SIGTERM
    pipe = None
    if name.startswith("mpi"):
        stop_signal = signal.SIGUSR1
    elif name == "horovodrun":
        pipe = subprocess.PIPE
    with system_errors(f"cannot start {command[0]}", InputError):
        process = subprocess.Popen(command, start_new_session=True, stdout=pipe, stderr=pipe)
    interrupted = False

    def forward(signum: int, _frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        process.send_signal(stop_signal)

    previous = {signum: signal.signal(signum, forward) for signum in STOPPING}
    readers = []
    for piped, terminal in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
        if piped:
            arguments = (piped, terminal, lambda: interrupted)
            readers.append(threading.Thread(target=_pass_on, args=arguments, daemon=True))
    try:
        for reader in readers:
            reader.start()
        process.wait()
        for reader in readers:
            reader.join(5)  # a rank that outlives its launcher keeps the pipe
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
    return interrupted


def _pass_on(lines: IO[bytes], terminal: TextIO, is_interrupted: Callable[[], bool]) -> None:
    """Prints what horovodrun writes, but for its traceback at the end that says that a rank has
    failed, and its lines about the ranks of a job that was interrupted.

    A line of a rank begins with its number, so that a traceback of a rank is another.
    """
    traceback: list[bytes] = []
    for line in lines:
        if RANK_ENDED.match(line) and is_interrupted():
            continue
        if traceback or line.startswith(b"Traceback "):
            traceback.append(line)
        else:
            _print(line, terminal)
    if not any(line.startswith(RANK_FAILED) for line in traceback):
        _print(b"".join(traceback), terminal)


def _print(text: bytes, terminal: TextIO) -> None:
    print(text.decode(errors="replace"), end="", file=terminal, flush=True)
