"""Crystals from a user's own Python function."""

import importlib
import importlib.util
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ase
import numpy as np

from namsa.config.materials import Generator
from namsa.crystals.cif import reduced_formula
from namsa.crystals.material import Material
from namsa.crystals.sites import check_crystal
from namsa.crystals.symmetry import space_group
from namsa.errors import InputError
from namsa.names import check_name


def generate_materials(config: Generator) -> list[Material]:
    """Calls the user's function and returns its crystals in their own cells, to which zone axes then refer.

    Raises:
        InputError: If there is no such function, if it fails (with the line), or if something it returns is not a
            crystal or has no name.
    """
    function = _load_function(config.function)
    try:
        crystals = list(function(**config.arguments))
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        raise InputError(
            f"materials.generator {config.function} failed at {line.filename}:{line.lineno}: "
            f"{type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    if not crystals:
        raise InputError(f"materials.generator {config.function} gives no crystal")
    return [_to_material(crystal, f"{config.function}, number {number}") for number, crystal in enumerate(crystals)]


def _load_function(reference: str) -> Callable[..., Any]:
    """The function of 'package.module:function' or 'path/to/file.py:function'."""
    location, _, name = reference.rpartition(":")
    try:
        if location.endswith(".py"):
            spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", Path(location).stem), location)
            if not (spec and spec.loader):
                raise ImportError(f"{location} is no Python file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(location)
        function = getattr(module, name)
    except (ImportError, OSError, SyntaxError, AttributeError) as error:
        raise InputError(f"materials.generator: cannot find {reference}: {' '.join(str(error).split())}") from None
    if not callable(function):
        raise InputError(f"materials.generator: {reference} is a {type(function).__name__}, not a function")
    return function


def _to_material(crystal: object, source: str) -> Material:
    """One of the function's crystals, checked. Raises InputError that names it."""
    if isinstance(crystal, Material):
        name, atoms = crystal.name, crystal.atoms
    elif isinstance(crystal, ase.Atoms):
        name, atoms = crystal.info.get("name", ""), crystal
    else:
        raise InputError(f"{source} is a {type(crystal).__name__}: give ase.Atoms or namsa.crystals.material.Material")
    check_name(str(name), source, "set atoms.info['name']")
    if not (len(atoms) and abs(np.linalg.det(np.asarray(atoms.cell))) > 0 and np.all(np.isfinite(atoms.positions))):
        raise InputError(
            f"{name} of {source} is no crystal: it needs atoms at finite positions in a cell with a volume"
        )
    atoms = atoms.copy()
    atoms.pbc = True
    try:
        check_crystal(atoms)
    except InputError as error:
        raise InputError(f"{name} of {source}: {error}") from None
    return Material(str(name), reduced_formula(atoms), space_group(atoms), atoms, source, "generator")
