"""Errors that the user can act on, and warnings. Commands print their message as one line, without
a traceback.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Each thread has its own, which filters of warnings are not.
_STORED_ONLY = ContextVar("stored_only", default=False)


class InputError(ValueError):
    """The input or the configuration is wrong. The message names the value, the limit and the
    remedy; exit code 2.

    Example:
        >>> try:
        ...     namsa.read("missing.h5")
        ... except namsa.InputError as error:
        ...     print(error)
        there is no file missing.h5
    """


class DifferentError(InputError):
    """A continuation differs from what it would continue. Commands print a line per difference."""


class OutOfMemoryError(InputError, MemoryError):
    """The input needs more memory than is available; another machine may have it."""


class SimulationWarning(UserWarning):
    """Issued when work goes on but its result may mislead, or something was decided that the input
    does not say.
    """


def warn_of_sample(text: str, stacklevel: int) -> None:
    """Issues a `SimulationWarning` that the provenance of a sample has, too, unless this thread
    only stores it.
    """
    if not _STORED_ONLY.get():
        warnings.warn(text, SimulationWarning, stacklevel=stacklevel + 1)


def issue_warnings(
    of_sample: Iterable[str], others: Iterable[str] = (), *, stacklevel: int
) -> None:
    """Issues a `SimulationWarning` for each text.

    Args:
        of_sample: Those that the provenance of the sample has, too; see `warn_of_sample`.
        others: Those that it has not.
        stacklevel: 1 points at the caller of this function, 2 at the caller of that, and so on.
    """
    for text in of_sample:
        warn_of_sample(text, stacklevel + 1)
    for text in others:
        warnings.warn(text, SimulationWarning, stacklevel=stacklevel + 1)


@contextmanager
def stored_warnings() -> Iterator[None]:
    """Leaves the warnings of the samples that this thread simulates to their provenance."""
    token = _STORED_ONLY.set(True)
    try:
        yield
    finally:
        _STORED_ONLY.reset(token)


class WorkError(RuntimeError):
    """The work failed, for example for lack of disk space or because of a corrupt record; exit code
    1.
    """


class DiskFullError(WorkError):
    """A disk has no room left. `lost` records were not committed."""

    def __init__(self, message: str, lost: int) -> None:
        super().__init__(message)
        self.lost = lost
