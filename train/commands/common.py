"""How a command of a job of several ranks ends."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from namsa.cli import command_line
from namsa.errors import InputError, WorkError
from namsa.launcher import rank_and_size

from ..execution import backend
from ..experiment.experiment import load
from ..ranks import supervise
from ..ranks.signals import Stopped


def exit_code(work: Callable[[], None], exit_code_file: Path | None = None) -> int:
    """Runs `work` and returns its exit code; a fault becomes one line on stderr.

    Args:
        exit_code_file: Where the supervisor of the job reads how the job ended. A job that ended otherwise, such as by
            an unexpected `OSError`, leaves nothing there and is started again.
    """

    def recorded() -> None:
        try:
            work()
        except (InputError, WorkError, Stopped) as fault:
            supervise.write_exit_code(exit_code_file, command_line.fault_code(fault))
            raise
        except KeyboardInterrupt:
            if rank_and_size()[0] == 0:
                raise KeyboardInterrupt("interrupted; run again to continue from the newest checkpoint") from None
            raise

    return command_line.exit_code(recorded, interrupted=None)


def choose_backend(config: Path, overrides: Sequence[str]) -> None:
    """Chooses what computes, as a configuration says, before this process loads it.

    Raises:
        InputError: If it is not installed, or, in a single process, if the configuration is not valid. Of several
            ranks, one reports that when they are connected.
    """
    configured = None
    try:
        configured = load(config, overrides).training.backend
    except InputError:
        if rank_and_size()[1] == 1:
            raise
    backend.choose(configured)


def as_rank(work: Callable[[Any], None], exit_code_file: Path | None = None) -> int:
    """Runs one rank of a job and returns its exit code.

    Args:
        work: What the rank does; its argument is the module `train.ranks.reduction`.
        exit_code_file: See `exit_code`.
    """

    def ranked() -> None:
        from ..ranks import reduction

        # After the fault's line is printed: MPI waits for the other ranks there, and they may end the job.
        at_end.callback(reduction.stop)
        try:
            work(reduction)
            if reduction.rank() == 0:
                supervise.write_exit_code(exit_code_file, 0)
        except Exception as error:
            if reduction.lost_another_rank(error):
                raise reduction.silent_exit(1) from None
            raise

    with ExitStack() as at_end:
        return exit_code(ranked, exit_code_file)
