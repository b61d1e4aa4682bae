"""Crystals from files: CIF by `namsa.crystals.cif`, and the plain-text formats of `FORMATS` by ASE.

Only formats are read that hold nothing but numbers and symbols, and only by the parser of the one format that the
file's name gives: none of them runs code, unpickles, or opens a database or another file. Of such a file the cell, the
elements, the positions and the occupancies are taken.
"""

import re
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import ase
import ase.io
import numpy as np

from namsa.crystals.cif import read_cif, reduced_formula, space_group, to_structure
from namsa.crystals.material import Material
from namsa.crystals.sites import MOST_ATOMS, check_cell, check_crystal
from namsa.crystals.trajectories import is_trajectory, read_trajectory
from namsa.errors import InputError
from namsa.files import read_text
from namsa.text import shorten

LARGEST_FILE_BYTES = 2**24
LONGEST_INTEGER = 5  # digits
# ASE's name of each format, and the endings of its files. VASP's files are also known by their names.
FORMATS = {
    "vasp": (".vasp", ".poscar", ".contcar"),
    "extxyz": (".extxyz", ".xyz"),
    "xsf": (".xsf",),
    "proteindatabank": (".pdb",),
    "cube": (".cube", ".cub"),
    "gen": (".gen",),
}
VASP_NAMES = ("POSCAR", "CONTCAR")
# What ASE's parsers raise for malformed files.
PARSER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)


def read_crystal(path: Path | str) -> Material:
    """Reads the one crystal in a file, or the snapshots of a trajectory.

    Args:
        path: A CIF, or a file of one of `FORMATS`, whose name becomes the material's name. A dump of LAMMPS, and
            extended XYZ of several frames, give the material of a trajectory, with `snapshots`.

    Raises:
        InputError: If the format is not known, or the file cannot be read or is too large, holds several structures or
            none, gives no cell that is periodic in three directions, or describes a cell that no crystal has.
    """
    path = Path(path)
    if path.suffix.lower() == ".cif":
        return read_cif(path)
    if is_trajectory(path):
        return read_trajectory(path)
    name = format_of(path)
    text = read_text(path, largest_bytes=LARGEST_FILE_BYTES, kind="the crystal", errors="replace")
    try:
        atoms = _checked(_parse(text, name))
        structure = to_structure(atoms)
        return Material(
            re.sub(r"[^\w.+-]+", "_", path.stem),
            reduced_formula(atoms),
            space_group(structure),
            atoms,
            str(path),
            "file",
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def format_of(path: Path) -> str:
    """Returns ASE's name of a file's format.

    Raises:
        InputError: If it is none of `FORMATS`.
    """
    if path.name.upper().startswith(VASP_NAMES):
        return "vasp"
    for name, endings in FORMATS.items():
        if path.suffix.lower() in endings:
            return name
    known = ", ".join(ending for endings in FORMATS.values() for ending in endings)
    raise InputError(f"{path} is no crystal's file that is read: give a .cif, POSCAR, CONTCAR, or one of {known}")


def parse_vasp(text: str) -> ase.Atoms:
    """Returns the structure in the text of a POSCAR, as it is.

    Raises:
        InputError: If it is none.
    """
    return _parse(text, "vasp")


def _parse(text: str, name: str) -> ase.Atoms:
    """Returns the one structure in a file's text."""
    reader: Callable[..., Any] = ase.io.read
    _check_numbers(text, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            images = reader(StringIO(text), index=slice(None), format=name)
        except PARSER_ERRORS as error:
            raise InputError(f"it cannot be read as {name}: {shorten(error, 200) or type(error).__name__}") from None
    if len(images) != 1 or not len(images[0]):
        raise InputError(f"it holds {len(images)} structures, and must hold one, with atoms")
    return images[0]


def _check_numbers(text: str, name: str) -> None:
    """Raises InputError for numbers that ASE would count to, and for a POSCAR without elements.

    ASE would search the folder for those. No crystal's file has whole numbers of six digits: atoms, points, residues.
    """
    large = next((word for word in text.split() if word.isdecimal() and len(word) > LONGEST_INTEGER), None)
    if large is not None:
        raise InputError(
            f"it holds the number {shorten(large, 30)}, and a crystal's cell has at most {MOST_ATOMS} atoms"
        )
    elements = [*text.splitlines()[5:6], ""][0].split()
    if name == "vasp" and (not elements or elements[0].isdecimal()):
        raise InputError("it must name the elements in its sixth line, as VASP 5 writes it")


def _checked(found: ase.Atoms) -> ase.Atoms:
    """Returns cell, elements, positions and occupancies of what ASE has read.

    Raises:
        InputError: If they are no crystal.
    """
    cell = np.asarray(found.cell, dtype=np.float64)
    if not (np.isfinite(cell).all() and np.isfinite(found.positions).all()):
        raise InputError("its cell or positions are not finite")
    if not found.pbc.all() or not cell.any(axis=1).all():
        raise InputError("it gives no cell that is periodic in three directions, which a crystal has")
    check_cell(cell, len(found))
    if np.linalg.det(cell) < 0:
        raise InputError("its lattice vectors are left-handed: exchange two of them")
    atoms = ase.Atoms(numbers=found.numbers, positions=found.positions, cell=cell, pbc=True)
    if "occupancy" in found.arrays:
        atoms.set_array("occupancy", np.asarray(found.arrays["occupancy"], dtype=np.float64), shape=())
    check_crystal(atoms)
    atoms.wrap()
    return atoms
