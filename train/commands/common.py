"""How a command ends, and arguments that several take."""

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from namsa.errors import InputError, WorkError
from namsa.launcher import rank_and_size
from train.ranks import supervise
from train.ranks.signals import Stopped


def exit_code(work: Callable[[], None], ended: Path | None = None) -> int:
    try:
        work()
    except (InputError, WorkError) as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2 if isinstance(error, InputError) else 1
        supervise.write_exit_code(ended, code)
        return code
    except OSError as error:
        print(f"error: {error.filename or 'the system'}: {error.strerror}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        supervise.write_exit_code(ended, 130)
        return 130
    except KeyboardInterrupt:
        if rank_and_size()[0] == 0:
            print("interrupted; run again to go on from the newest checkpoint", file=sys.stderr)
        return 130
    return 0


def as_rank(work: Callable[[Any], None], ended: Path | None = None) -> int:
    """One rank of a job, `work(reduction)`, and how it ends."""

    def ranked() -> None:
        from train.ranks import reduction

        last.callback(reduction.stop)  # after the words: MPI waits for the other ranks there, and they may end the job
        try:
            work(reduction)
            if reduction.rank() == 0:
                supervise.write_exit_code(ended, 0)
        except Exception as error:
            if reduction.lost_another_rank(error):
                raise reduction.silent_exit(1) from None
            raise

    with ExitStack() as last:
        return exit_code(ranked, ended)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)
