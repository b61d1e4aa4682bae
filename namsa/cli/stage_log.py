"""Progress in a file, such as the log of a batch job: a line from time to time."""

import time
from collections.abc import Callable
from typing import NamedTuple, TextIO

from namsa.base.text import duration, printable

INTERVAL_S = 10.0


class _Beginning(NamedTuple):
    """The first call for a stage."""

    done: int
    time_s: float


class StageLog:
    """Writes how far each stage of some work has come, at most a line in ten seconds.

    Work that takes less writes nothing.

    Args:
        file: Where the lines go.
        clock: Returns the time, in seconds.
    """

    def __init__(self, file: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._written_s = clock()
        self._beginnings: dict[str, _Beginning] = {}

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Takes the state of a stage.

        Args:
            done: Parts of the stage that are done.
            total: All its parts; None where they are not known yet.
        """
        now_s = self._clock()
        beginning = self._beginnings.setdefault(stage, _Beginning(done, now_s))
        if now_s - self._written_s < INTERVAL_S:
            return
        self._written_s = now_s
        line = f"{stage}: {done}"
        if total:
            line = f"{stage}: {done} of {total} ({done / total:.0%})"
            if beginning.done < done < total:
                seconds_per_part = (now_s - beginning.time_s) / (done - beginning.done)
                line += f", {duration(seconds_per_part * (total - done))} left"
        print(printable(line), file=self._file, flush=True)
