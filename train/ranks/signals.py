"""Signals that ask a job to stop: Ctrl-C, a batch system's SIGTERM, its warnings SIGUSR1 and
SIGUSR2, and SIGHUP.

While a job trains, a signal is kept as a request. It may reach ranks at different times, or some of
them only, so the ranks agree on it with the numbers of the next step. All stop after the same step,
with a checkpoint. Outside of training, a signal interrupts the work as Ctrl-C does. A second Ctrl-C
always does.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from namsa.base.interrupts import interrupt, signals_interrupt

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")  # Windows has the first two
STOPPING = tuple(signal.Signals[name] for name in _NAMES if hasattr(signal, name))


class Stopped(KeyboardInterrupt):
    """A signal has ended the job. The message says after which step."""


class StopRequest:
    """A signal that asks this job to stop.

    Attributes:
        signal_name: Name of the signal that reached this rank, or `None`.
        agreed: Whether all ranks know of a signal to any rank.
    """

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self.agreed = False
        self._deferred = False

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """Handles signal `signum`. Interrupts the work unless signals are deferred."""
        second_ctrl_c = self.signal_name is not None and signum == signal.SIGINT
        self.signal_name = signal.Signals(signum).name
        if second_ctrl_c or not self._deferred:
            interrupt(signum, frame)

    def received(self) -> bool:
        """Returns whether a signal has reached this rank."""
        return self.signal_name is not None

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal came too late for the ranks to agree on it."""
        if self.signal_name and not self.agreed:
            raise KeyboardInterrupt

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Keeps signals from interrupting inside the context, where the work reads `signal_name`
        when it can stop.
        """
        self._deferred = True
        yield
        # not after a failure, when a launcher ends the job and its signal says nothing new
        self._deferred = False


@contextmanager
def listen() -> Iterator[StopRequest]:
    """Yields the request that signals set inside the context. Call it in the main thread.

    A signal that arrives in a callback or finaliser, where an exception would be swallowed, is
    acted on a moment later.
    """
    request = StopRequest()
    hang_up = getattr(signal, "SIGHUP", None)
    previous = {}
    for signum in STOPPING:
        if signum == hang_up and signal.getsignal(signum) is signal.SIG_IGN:
            continue  # nohup
        previous[signum] = signal.signal(signum, request.receive)
    try:
        with signals_interrupt(()):
            yield request
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def ignore() -> None:
    """Ignores signals from now on, in a process that is about to end anyway."""
    for signum in STOPPING:
        signal.signal(signum, signal.SIG_IGN)
