"""Starts a job again from its last checkpoint when it ends with a failure, with fewer ranks if need be.

    python -m train CONFIG --supervise [--ranks N --min-ranks M --fewer-by K] [--max-restarts R] -- LAUNCHER ...

The job is `LAUNCHER ... python -m train CONFIG ...`; `{ranks}` in the launcher's words becomes the number of ranks.
Launchers do not all hand on the ranks' exit codes: the rank that speaks leaves its own in a file (`--ended`). A job
that was interrupted or found its input at fault is not started again, nor one that gets no further twice with as few
ranks as allowed.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from namsa.errors import InputError, WorkError
from train.ranks.signals import STOPPING

FINAL = (0, 2, 130)  # done, input at fault, interrupted: another start would end alike


@dataclass(frozen=True)
class Plan:
    """ranks: to start with, None where the launcher's words say it; pauses are in s and double."""

    ranks: int | None = None
    min_ranks: int | None = None
    fewer_by: int = 1
    max_restarts: int = 10
    pause_s: float = 5.0
    longest_pause_s: float = 300.0


def supervise(
    command: Callable[[int | None], Sequence[str]],
    plan: Plan,
    ended: Path,
    progress: Callable[[], object],
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> int:
    """The exit code of the last start of command(ranks). `progress` changes as the job gets on.

    Raises WorkError where starting again is of no use.
    """
    ranks, stalled, fewest = plan.ranks, 0, plan.min_ranks or plan.ranks
    for restarts in range(plan.max_restarts + 1):
        before = progress()
        ended.unlink(missing_ok=True)
        asked = _run(command(ranks))
        code = _code(ended)
        if asked or code in FINAL:
            return 130 if asked and code else code
        stalled = 0 if progress() != before else stalled + 1
        text = f"the job ended with exit code {code}"
        if stalled >= 2:
            if ranks is None or fewest is None or ranks - plan.fewer_by < fewest:
                raise WorkError(f"{text}, for the second time without getting further: see its messages above")
            ranks, stalled = ranks - plan.fewer_by, 0
        if restarts < plan.max_restarts:
            pause_s = min(plan.pause_s * 2 ** (stalled and stalled - 1), plan.longest_pause_s)
            with_ranks = f" with {ranks} ranks" if ranks else ""
            say(f"{text}; starting it again{with_ranks} in {pause_s:g} s ({restarts + 1} of {plan.max_restarts})")
            time.sleep(pause_s)
    raise WorkError(f"{text} after {plan.max_restarts} restarts: see its messages above, or raise --max-restarts")


def launcher(words: Sequence[str], ranks: int | None) -> list[str]:
    """The launcher's words with their {ranks}. Raises InputError where one of the two is missing."""
    if any("{ranks}" in word for word in words) != (ranks is not None):
        raise InputError("--ranks N and {ranks} in the launcher's words (as horovodrun -np {ranks}) go together")
    return [word.replace("{ranks}", str(ranks)) for word in words]


def leave(ended: Path | None, code: int) -> None:
    """Tells the supervisor how the job ended: the rank that speaks does."""
    if ended:
        with suppress(OSError):  # the job has said so already if it cannot write
            ended.parent.mkdir(parents=True, exist_ok=True)
            ended.write_text(json.dumps({"exit_code": code}), encoding="utf-8")


def standing(run_dirs: Sequence[Path], data: Path) -> tuple[str, int]:
    """How far a job has come: its newest checkpoint, and the bytes of its samples."""
    newest = max((path.name for each in run_dirs for path in each.glob("checkpoints/step-*.npz")), default="")
    return newest, sum(path.stat().st_blocks for path in data.rglob("*") if path.is_file())


def _code(ended: Path) -> int:
    """What the job left; one that left nothing has failed, whatever its launcher makes of it."""
    try:
        return int(json.loads(ended.read_text(encoding="utf-8"))["exit_code"])
    except (OSError, ValueError, KeyError):
        return 1


def _run(line: Sequence[str]) -> bool:
    """Runs `line`; whether a signal asked this process to stop, which is handed on as SIGTERM.

    mpiexec and mpirun (Open MPI's) kill their ranks within a second of that, but pass SIGUSR1 on: they get that.
    The session is its own, so that Ctrl-C reaches it once.
    """
    stop = signal.SIGUSR1 if Path(line[0]).name.startswith("mpi") else signal.SIGTERM
    try:
        process = subprocess.Popen(line, start_new_session=True)
    except OSError as error:
        raise InputError(f"cannot start {line[0]}: {error.strerror}") from None
    asked = False

    def forward(number: int, _frame: object) -> None:
        nonlocal asked
        asked = True
        process.send_signal(stop)

    before = {number: signal.signal(number, forward) for number in STOPPING}
    try:
        process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return asked
