"""Signals that ask a job to stop: Ctrl-C, a batch system's SIGTERM, and its warnings SIGUSR1 and SIGUSR2.

While a job trains they are kept as a wish, which the ranks agree on in the next step's numbers (they may reach ranks
at different times, or some only): all stop after the same step, with a checkpoint. Elsewhere they end the work at hand,
as Ctrl-C does; so does a second Ctrl-C anywhere.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Stopped(KeyboardInterrupt):
    """A signal has ended the job; the message says where it stands."""


class Wish:
    """name: of the signal that came to this rank; agreed: whether all ranks know of one to any rank."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.agreed = False
        self.patient = False

    def come(self, number: int, _frame: Any) -> None:
        again = self.name is not None and number == signal.SIGINT
        self.name = signal.Signals(number).name
        if again or not self.patient:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Interrupts where a signal came too late for the ranks to agree on it."""
        if self.name and not self.agreed:
            raise KeyboardInterrupt

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Within, a signal does not interrupt: the work looks at `name` when it can stop."""
        self.patient = True
        yield
        self.patient = False  # not after a failure: a launcher that ends the job for it adds nothing


@contextmanager
def listening() -> Iterator[Wish]:
    """Yields the wish that signals become in this context, which is the main thread's."""
    wish = Wish()
    before = {number: signal.signal(number, wish.come) for number in STOPPING}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """For a process that is ending anyway: a launcher that ends it, too, has nothing to add."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
