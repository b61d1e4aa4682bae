"""Errors that the user can act on. Commands print their message as one line, without a traceback."""


class InputError(ValueError):
    """The input or the configuration is wrong. The message names the value, the limit and the remedy; exit code 2."""


class OutOfMemoryError(InputError, MemoryError):
    """The input needs more memory than is available; another machine may have it."""


class WorkError(RuntimeError):
    """The work failed, for example for lack of disk space or because of a corrupt record; exit code 1."""
