"""Messages of long calls about the time that they take."""

import time

from namsa.base.text import duration

LONG_SECONDS = 60.0  # calls that take longer say so
MEASURED_AFTER_SECONDS = 2.0  # the first part of a stage may hold what happens once


class StageTimer:
    """Estimates the time of a stage by the speed of its first part."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._noted = False

    def note(self, stage: str, done: int, total: int) -> str | None:
        """Returns how long the stage takes, once; `None` before that, and of a short one."""
        seconds = time.monotonic() - self._begin
        if self._noted or not 0 < done < total or seconds < MEASURED_AFTER_SECONDS:
            return None
        self._noted = True
        left = seconds * (total - done) / done
        if left < LONG_SECONDS:
            return None
        return f"{stage}: {done} of {total} took {duration(seconds)}, about {duration(left)} left"
