"""End of a rank: its exit code, and how it ends where another rank reports the reason."""

import time

from namsa.base.errors import InputError

from . import signals


def exit_code(error: BaseException | None) -> int:
    """Returns the exit code of the command that ends with `error`; 0 without one."""
    if error is None:
        return 0
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, InputError):
        return 2
    return 1


def exit_without_message(code: int) -> SystemExit:
    """Returns the exception that ends this rank while another one fails and reports the reason.

    A launcher ends all ranks as soon as one has ended. The pause lets the failing rank end first.
    """
    signals.ignore()
    time.sleep(1)
    return SystemExit(code)
