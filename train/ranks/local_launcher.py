"""Starts the processes of a job on this machine, as `--processes N` does for JAX.

    python -m train.ranks.local_launcher N COMMAND ...

Each process has a session of its own, so that Ctrl-C reaches it once, and ends with the launcher. A
signal that stops jobs is passed on to all. When one process has failed, the others end by
themselves, as soon as they wait for it; those that are left after a time are ended here.
"""

import ctypes
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from .coordinator import VARIABLE, free_port
from .signals import STOPPING

GRACE_S = 15.0  # that processes have to end after one has failed, before SIGTERM and then SIGKILL
POLL_S = 0.1
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux' prctl


def launch(command: Sequence[str], processes: int) -> int:
    """Runs a command as so many processes; returns 0 if all end well, otherwise the job's code.

    That is the code of the process that failed first: 130 if it was interrupted, 2 if its input is
    wrong, 1 otherwise.
    """
    address = f"127.0.0.1:{free_port()}"
    job: list[subprocess.Popen[bytes]] = []

    def pass_on(signum: int, _frame: object) -> None:
        for process in job:
            process.send_signal(signum)

    previous = {signum: signal.signal(signum, pass_on) for signum in STOPPING}
    try:
        for rank in range(processes):
            environment = os.environ | {
                VARIABLE: address,
                "NAMSA_RANK": str(rank),
                "NAMSA_RANKS": str(processes),
            }
            job.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=_end_with_launcher,  # noqa: PLW1509 - no other thread runs here
                )
            )
        failures = _wait(job)
    finally:
        for process in job:
            if process.poll() is None:
                process.kill()
        for signum, handler in previous.items():
            signal.signal(signum, handler)
    return _exit_code(failures)


def _wait(job: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Waits until all processes have ended; after a failure, for `GRACE_S` and a second time.

    Returns:
        The exit codes of those that failed first, none if all end well.
    """
    failed_at: float | None = None
    failures: list[int] = []
    terminated = False
    while True:
        codes = [process.poll() for process in job]
        now = time.monotonic()
        if failed_at is None and any(codes):
            failed_at = now
            failures = [code for code in codes if code]
            _name_killed(codes)
        if None not in codes:
            return failures
        if failed_at is not None and now - failed_at > 2 * GRACE_S:
            return failures
        if failed_at is not None and not terminated and now - failed_at > GRACE_S:
            terminated = True
            for process in job:
                process.terminate()
        time.sleep(POLL_S)


def _name_killed(codes: Sequence[int | None]) -> None:
    """Prints which processes a signal has killed, and so could not say why they ended."""
    for rank, code in enumerate(codes):
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            print(f"error: died: rank {rank} on {platform.node()}, by {name}", file=sys.stderr)


def _exit_code(codes: Sequence[int]) -> int:
    """Returns the job's exit code, by those of the processes that failed first."""
    if min(codes, default=0) < 0:
        return 1
    for code in (130, 2):
        if code in codes:
            return code
    return int(any(codes))


def _end_with_launcher() -> None:
    """Has Linux end this process when the launcher ends, however it does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(launch(sys.argv[2:], int(sys.argv[1])))
