"""Crystals from a user's own Python function."""

import traceback
from collections.abc import Callable, Iterable

import ase
import numpy as np

from namsa.base.errors import InputError
from namsa.base.names import check_name
from namsa.base.registry import function_named
from namsa.config.materials import Generator
from namsa.crystals.cif import reduced_formula
from namsa.crystals.material import Material
from namsa.crystals.sites import check_crystal
from namsa.crystals.symmetry import space_group


def generate_materials(config: Generator) -> list[Material]:
    """Calls the user's function and returns its crystals in their own cells, to which zone axes
    then refer.

    Raises:
        InputError: If there is no such function, if it fails (with the line), or if something it
            returns is not a crystal or has no name.
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
    return [
        _to_material(crystal, f"{config.function}, number {index}")
        for index, crystal in enumerate(crystals)
    ]


def _load_function(reference: str) -> Callable[..., Iterable[object]]:
    """The function of 'package.module:function' or 'path/to/file.py:function'."""
    try:
        return function_named(reference)
    except (ImportError, OSError, SyntaxError, AttributeError) as error:
        raise InputError(
            f"materials.generator: cannot find {reference}: {' '.join(str(error).split())}"
        ) from None


def _to_material(crystal: object, source: str) -> Material:
    """One of the function's crystals, checked. Raises InputError that names it."""
    if isinstance(crystal, Material):
        name = crystal.name
        atoms = crystal.atoms
    elif isinstance(crystal, ase.Atoms):
        name = crystal.info.get("name", "")
        atoms = crystal
    else:
        raise InputError(
            f"{source} is a {type(crystal).__name__}: give ase.Atoms or "
            "namsa.crystals.material.Material"
        )
    check_name(str(name), source, "set atoms.info['name']")
    if not (
        len(atoms)
        and abs(np.linalg.det(np.asarray(atoms.cell))) > 0
        and np.all(np.isfinite(atoms.positions))
    ):
        raise InputError(
            f"{name} of {source} is no crystal: it needs atoms at finite positions in a cell with "
            "a volume"
        )
    atoms = atoms.copy()
    atoms.pbc = True
    try:
        check_crystal(atoms)
    except InputError as error:
        raise InputError(f"{name} of {source}: {error}") from None
    return Material(
        str(name), reduced_formula(atoms), space_group(atoms), atoms, source, "generator"
    )
