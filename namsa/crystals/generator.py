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
from ase.neighborlist import neighbor_list

from namsa.config.materials import Generator
from namsa.crystals.cif import as_structure, reduced_formula, space_group
from namsa.crystals.material import Material
from namsa.crystals.sites import TOO_CLOSE, check_sites
from namsa.errors import InputError


def materials(config: Generator) -> list[Material]:
    """What the function gives, in its own cells, to which zone axes then refer.

    Raises InputError where there is no such function, where it fails, with the line it failed at, and for what it
    gives that is no crystal or has no name.
    """
    function = _function(config.function)
    try:
        given = list(function(**config.arguments))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise InputError(
            f"materials.generator {config.function} failed at {place.filename}:{place.lineno}: "
            f"{type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    if not given:
        raise InputError(f"materials.generator {config.function} gives no crystal")
    return [_material(one, f"{config.function}, number {number}") for number, one in enumerate(given)]


def _function(named: str) -> Callable[..., Any]:
    place, _, name = named.rpartition(":")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", Path(place).stem), place)
            if not (spec and spec.loader):
                raise ImportError(f"{place} is no Python file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        function = getattr(module, name)
    except (ImportError, OSError, SyntaxError, AttributeError) as error:
        raise InputError(f"materials.generator: cannot find {named}: {' '.join(str(error).split())}") from None
    if not callable(function):
        raise InputError(f"materials.generator: {named} is a {type(function).__name__}, not a function")
    return function


def _material(given: object, source: str) -> Material:
    if isinstance(given, Material):
        name, atoms = given.name, given.atoms
    elif isinstance(given, ase.Atoms):
        name, atoms = given.info.get("name", ""), given
    else:
        raise InputError(f"{source} is a {type(given).__name__}: give ase.Atoms or namsa.crystals.supercell.Material")
    if not re.fullmatch(r"[\w.+-]+", str(name)):
        raise InputError(f"{source} is named {name!r}: set atoms.info['name'], of letters, digits and _ . + - only")
    if not (len(atoms) and abs(np.linalg.det(np.asarray(atoms.cell))) > 0 and np.all(np.isfinite(atoms.positions))):
        raise InputError(f"{name} of {source} is no crystal: it needs atoms at finite positions, in a cell of a volume")
    atoms = atoms.copy()
    atoms.pbc = True
    try:
        check_sites(atoms, np.column_stack(neighbor_list("ij", atoms, TOO_CLOSE)))
    except InputError as error:
        raise InputError(f"{name} of {source}: {error}") from None
    return Material(str(name), reduced_formula(atoms), space_group(as_structure(atoms)), atoms, source, "generator")
