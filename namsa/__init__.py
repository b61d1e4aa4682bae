"""Multislice simulation of 4D-STEM: convergent-beam electron diffraction of real crystals, with its targets.

Public names are imported when they are first used, so that `import namsa` and `namsa --help` stay fast.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from namsa.checks import SimulationWarning as SimulationWarning
    from namsa.config.instrument import Detector as Detector
    from namsa.config.instrument import FrozenPhonons as FrozenPhonons
    from namsa.errors import InputError as InputError
    from namsa.errors import WorkError as WorkError
    from namsa.sample import Sample as Sample
    from namsa.simulate import simulate as simulate

_MODULES = {
    "Detector": "namsa.config.instrument",
    "FrozenPhonons": "namsa.config.instrument",
    "InputError": "namsa.errors",
    "Sample": "namsa.sample",
    "SimulationWarning": "namsa.checks",
    "WorkError": "namsa.errors",
    "simulate": "namsa.simulate",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Imports a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Returns the module's names with the public ones that are not imported yet."""
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """This package. `namsa.simulate` is the function: importing its module of the same name does not hide it."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "simulate" and isinstance(value, ModuleType):
            value = value.simulate
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
