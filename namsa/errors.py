"""Errors that the user can act on, and warnings. Commands print their message as one line, without a traceback."""


class InputError(ValueError):
    """The input or the configuration is wrong. The message names the value, the limit and the remedy; exit code 2."""


class OutOfMemoryError(InputError, MemoryError):
    """The input needs more memory than is available; another machine may have it."""


class SimulationWarning(UserWarning):
    """Issued when work goes on but its result may mislead, or something was decided that the input does not say."""


class WorkError(RuntimeError):
    """The work failed, for example for lack of disk space or because of a corrupt record; exit code 1."""


class DiskFullError(WorkError):
    """A disk has no room left. `lost` records were not committed."""

    def __init__(self, message: str, lost: int) -> None:
        super().__init__(message)
        self.lost = lost
