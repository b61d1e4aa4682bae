"""Signals that end a command: each raises KeyboardInterrupt at the next safe point.

An exception that a signal's handler raises appears between any two instructions. In a callback of
a C library, in a finaliser or in the callback of a weak reference it would be swallowed, or become
another error. The handler therefore looks at what it interrupts. There, and in functions that are
marked as `uninterrupted`, it only sets a timer, which delivers the signal again a moment later.
Windows has no such timer, and its signals interrupt at once.
"""

import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

RETRY_S = 0.02  # until a signal is delivered again
_HAS_TIMER = hasattr(signal, "setitimer")
_FINALISER = "__del__"
_CALLBACK_FILES = frozenset(
    kind.__init__.__code__.co_filename for kind in (weakref.WeakValueDictionary, weakref.WeakSet)
)
_uninterrupted: set[CodeType] = set()


def uninterrupted(function: Callable[P, R]) -> Callable[P, R]:
    """Marks a function that a signal does not interrupt: a short one, or a callback of C code."""
    _uninterrupted.add(function.__code__)
    return function


@contextmanager
def signals_interrupt(numbers: Sequence[int]) -> Iterator[None]:
    """Makes signals raise KeyboardInterrupt at safe points of this thread, the main one.

    Args:
        numbers: The signals. Those that the process ignores stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = [signum for signum in numbers if signal.getsignal(signum) is not signal.SIG_IGN]
    if _HAS_TIMER:
        handled.append(signal.SIGALRM)
    previous_handlers = {signum: signal.signal(signum, interrupt) for signum in handled}
    previous_hook = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        """Delivers an interrupt again that a callback would swallow."""
        if _HAS_TIMER and issubclass(unraisable.exc_type, KeyboardInterrupt):
            _interrupt_later()
        else:
            previous_hook(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        # of a context in another one, which acts on what is still to be delivered
        is_nested = _HAS_TIMER and previous_handlers[signal.SIGALRM] is interrupt
        if _HAS_TIMER and not is_nested:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for signum, handler in previous_handlers.items():
            signal.signal(signum, handler)
        sys.unraisablehook = previous_hook


def is_interrupt(error: BaseException | None) -> bool:
    """Returns whether an error is an interrupt, or what C code has made of one: a SystemError."""
    while isinstance(error, SystemError):
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def interrupt(_number: int, frame: FrameType | None) -> None:
    """Handles a signal: raises KeyboardInterrupt where that is safe, or else a moment later."""
    if _HAS_TIMER and not _is_safe(frame):
        _interrupt_later()
        return
    raise KeyboardInterrupt


def _interrupt_later() -> None:
    signal.setitimer(signal.ITIMER_REAL, RETRY_S)


def _is_safe(frame: FrameType | None) -> bool:
    """Returns whether an exception may be raised in a frame."""
    while frame is not None:
        code = frame.f_code
        if (
            code in _uninterrupted
            or code.co_name == _FINALISER
            or code.co_filename in _CALLBACK_FILES
        ):
            return False
        frame = frame.f_back
    return True
