"""Code that is found by a name: a module in a package, an entry point, or a function as
"module:function".

What is chosen by name (strategies, tasks, commands, generators of crystals) is imported only when
it is chosen. A folder that is deleted takes its name with it. Other packages add theirs by entry
points, which are read when a name is looked for.

To use a function of other people is to run its code. A configuration with which a command is
started may name it, since who writes a command may run code anyway. A configuration that lies in
the folder of a run or of a packed network is data: its functions are run only if the environment
variable NAMSA_FUNCTIONS lists them, separated by commas.
"""

import importlib
import importlib.util
import os
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from namsa.base.errors import InputError
from namsa.base.text import shorten

FUNCTION_PATTERN = r"^[^:\s][^:]*:[A-Za-z_]\w*$"
FUNCTIONS_VARIABLE = "NAMSA_FUNCTIONS"
_allowed: set[str] = set()


class Registry:
    """The modules below a package, by their names.

    Args:
        package: The package's full name, as "train.strategies".
        folder: Its folder.
        group: Name of the entry points by which other packages add to it, as "namsa.strategies". A
            further level is a further part of the name: "namsa.strategies.source". `None`: they
            cannot.
    """

    def __init__(self, package: str, folder: Path, group: str | None = None) -> None:
        self.package = package
        self.folder = folder
        self.group = group

    def names(self, *path: str, having: str) -> list[str]:
        """Returns the folders at a path below the package that have a file of this name, and the
        entry points of other packages there.
        """
        names = {file.parent.name for file in self.folder.joinpath(*path).glob(f"*/{having}")}
        return sorted(names | self._entry_points(*path).keys())

    def module(self, *path: str) -> ModuleType:
        """Imports the module at a path below the package. Raises ModuleNotFoundError."""
        return importlib.import_module(self._full_name(*path))

    def find(self, *path: str) -> ModuleType | None:
        """Imports the module at a path below the package; `None` if there is none."""
        if importlib.util.find_spec(self._full_name(*path)) is None:
            return None
        return self.module(*path)

    def _full_name(self, *path: str) -> str:
        """Returns the full name of a module; one of this package comes before an entry point."""
        for length in range(1, len(path) + 1):
            *places, name = path[:length]
            place = self.folder.joinpath(*path[:length])
            if place.exists() or place.with_suffix(".py").exists():
                continue
            packages = self._entry_points(*places)
            if name in packages:
                return ".".join((packages[name], *path[length:]))
        return ".".join((self.package, *path))

    def _entry_points(self, *path: str) -> dict[str, str]:
        """Returns the packages that others add at a path, by name."""
        if self.group is None:
            return {}
        return entry_points(".".join((self.group, *path)))


def entry_points(group: str) -> dict[str, str]:
    """Returns the modules that installed packages state as entry points of a group, by name.

    Raises:
        InputError: If two packages state different modules for one name.
    """
    modules: dict[str, str] = {}
    for point in metadata.entry_points(group=group):
        module = point.value.partition(":")[0].strip()
        if modules.setdefault(point.name, module) != module:
            raise InputError(
                f"the entry point {point.name} of {group} is {modules[point.name]} and {module}: "
                "uninstall one of the packages"
            )
    return modules


def function_named(reference: str) -> Callable[..., Any]:
    """Returns the function of "package.module:function" or "path/to/file.py:function".

    Raises:
        ImportError: If there is no such module or file, or it has no such function.
    """
    location, _, name = reference.rpartition(":")
    module = _load_file(location) if location.endswith(".py") else importlib.import_module(location)
    if not hasattr(module, name):
        raise ImportError(f"{location} has no {name}")
    function: Callable[..., Any] = getattr(module, name)
    if not callable(function):
        raise ImportError(f"{name} is a {type(function).__name__}, not a function")
    return function


def allow_function(reference: str) -> None:
    """Allows a function that a configuration names with which this command was started."""
    _allowed.add(reference)


def allowed_function(reference: str, key: str) -> Callable[..., Any]:
    """Returns a function that a configuration names.

    Args:
        reference: The function, as for `function_named`.
        key: The key that names it, for messages.

    Raises:
        InputError: If it is not allowed, or there is no such function.
    """
    listed = {name.strip() for name in os.environ.get(FUNCTIONS_VARIABLE, "").split(",")}
    if reference not in _allowed | listed:
        raise InputError(
            f"{key} is {shorten(reference)}, code that a stored configuration names, which is not "
            f"run unasked: set {FUNCTIONS_VARIABLE}={shorten(reference)} in the environment if you "
            "trust it"
        )
    try:
        return function_named(reference)
    except (ImportError, OSError, SyntaxError) as error:
        raise InputError(
            f"{key} is {shorten(reference)}, which cannot be imported: {shorten(error, 300)}"
        ) from None


def _load_file(path: str) -> ModuleType:
    """Runs a Python file as a module of its own."""
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", Path(path).stem), path)
    if not (spec and spec.loader):
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
