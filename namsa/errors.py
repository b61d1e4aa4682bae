"""Errors a person can act on."""


class InputError(ValueError):
    """Bad input or configuration. The message names the value, the limit and the remedy; commands exit with 2."""


class WorkError(RuntimeError):
    """The work itself failed (no space, an unwritable place, a corrupt record); commands exit with 1."""
