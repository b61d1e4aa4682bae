"""The bar that a notebook shows while a long call runs."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from namsa.base.text import duration

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

Report = Callable[[str, int, int], None]  # stage, done, total
SHOWN_AFTER_SECONDS = 2.0  # short calls show none
EVERY_SECONDS = 0.25


@contextmanager
def notebook_bar(on_progress: Report | None) -> Iterator[Report]:
    """Yields what reports to `on_progress`, or else a bar of the notebook, which goes with the end
    of the call.

    Outside of a notebook nothing is shown.
    """
    if on_progress is not None:
        yield on_progress
        return
    if not in_notebook():
        yield _nothing
        return
    bar = NotebookBar()
    try:
        yield bar
    finally:
        bar.close()


def _nothing(stage: str, done: int, total: int) -> None:
    pass


def in_notebook() -> bool:
    """Returns whether a notebook's kernel runs the program."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython  # what brings ipykernel brings it

    shell = get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


class NotebookBar:
    """A bar with the stage and the time that is left."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._stage = ""
        self._stage_begin = self._begin
        self._drawn = 0.0
        self._handle: DisplayHandle | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Draws the bar, at most every `EVERY_SECONDS`."""
        now = time.monotonic()
        if stage != self._stage:
            self._stage = stage
            self._stage_begin = now
        if now - self._begin < SHOWN_AFTER_SECONDS or now - self._drawn < EVERY_SECONDS:
            return
        self._drawn = now
        self._show(bar_html(stage, done, total, now - self._stage_begin))

    def close(self) -> None:
        """Removes the bar."""
        if self._handle is not None:
            self._show("")

    def _show(self, html: str) -> None:
        """Shows HTML in the place of what was shown before."""
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))


def bar_html(stage: str, done: int, total: int, seconds: float) -> str:
    """Returns a bar with words.

    Args:
        seconds: Time since the stage began.
    """
    left = ""
    if 0 < done < total:
        left = f", about {duration(seconds * (total - done) / done)} left"
    return f'<progress value="{done}" max="{total}"></progress> {stage} {done}/{total}{left}'
