"""Crystals from files of text.

CIF is read by `namsa.crystals.cif`, PDB by gemmi, the files of other programs of simulation by
`namsa.crystals.simulator_files`, the other formats of `FORMATS` by ASE.
Only formats are read that hold nothing but numbers and symbols, and only by the parser of the one
format that the file's name gives: none of them runs code, unpickles, or opens a database or another
file. Of such a file the cell, the elements, the positions, the occupancies and, where the format
has them, the thermal displacements are taken. A cell that is not periodic in all directions, of a
slab or a particle, is taken as periodic, and a note says so.
"""

import re
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import ase
import ase.io
import gemmi
import numpy as np
from ase.data import chemical_symbols
from ase.units import Bohr

from namsa.base.arrays import Floats, Integers
from namsa.base.errors import InputError
from namsa.base.text import plain_minus, shorten
from namsa.crystals.cif import decide, read_cif, to_material
from namsa.crystals.crystal_text import crystal_text
from namsa.crystals.elements import element_of_type
from namsa.crystals.expansion import Site
from namsa.crystals.material import Material
from namsa.crystals.mixed_sites import with_occupancies
from namsa.crystals.simulator_files import (
    is_mustem,
    is_prismatic,
    parse_mustem,
    parse_prismatic,
)
from namsa.crystals.sites import MOST_ATOMS, check_cell, check_crystal, structure_notes
from namsa.crystals.space_groups import stated_symmetry
from namsa.crystals.stoichiometry import Stated
from namsa.crystals.trajectories import check_counts, is_trajectory, parser_problem, read_trajectory

LARGEST_FILE_BYTES = 2**24
LONGEST_INTEGER = 6  # digits
CUBE_HEAD_LINES = 6  # before the atoms of a cube file
_INTEGER = re.compile(rf"(?<![\w.+-])[+-]?\d[\d_]{{{LONGEST_INTEGER},}}(?![\w.])")
# The name of each format, ASE's where ASE reads it, and the endings of its files. VASP's are also
# known by their names.
FORMATS = {
    "vasp": (".vasp", ".poscar", ".contcar"),
    "extxyz": (".extxyz", ".xyz"),
    "xsf": (".xsf",),
    "pdb": (".pdb", ".ent"),
    "cube": (".cube", ".cub"),
    "gen": (".gen",),
    "mustem": (".xtl",),
}
CIF_ENDINGS = (".cif", ".mcif")
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


def read_crystal(path: Path | str, *, as_is: bool = False) -> Material:
    """Reads the one crystal in a file, or the snapshots of a trajectory.

    The cell is the file's if that is a conventional one in any setting, else that of the
    International Tables.

    Args:
        path: A CIF, or a file of one of `FORMATS`, whose name becomes the material's name. A dump
            of LAMMPS, and extended XYZ of several frames, give the material of a trajectory, with
            `snapshots`.
        as_is: Whether to keep the file's cell whatever it is, and not to search for its symmetry.

    Raises:
        InputError: If the format is not known, or the file cannot be read or is too large, holds
            several structures or none, gives no cell that is periodic in three directions, or
            describes a cell that no crystal has.

    Warns:
        SimulationWarning: If something in the file was decided, left out or changed.

    Example:
        >>> from ase.io import write
        >>> write("silicon.cif", bulk("Si", cubic=True))
        >>> len(namsa.read_crystal("silicon.cif").atoms)
        8
    """
    path = Path(path)
    if path.suffix.lower() in CIF_ENDINGS:
        return read_cif(path, as_is=as_is)
    if is_trajectory(path):
        return read_trajectory(path)
    name = format_of(path)
    text = crystal_text(path, LARGEST_FILE_BYTES)
    try:
        if name == "pdb":
            return to_material(*_parse_pdb(text), path, "file", as_is=as_is)
        images = _parse_one(plain_minus(text), name)
        return to_material(*_checked(images), "P1", path, "file", as_is=as_is)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def format_of(path: Path) -> str:
    """Returns the name of a file's format. Raises InputError if it is none of `FORMATS`."""
    if path.name.upper().startswith(VASP_NAMES):
        return "vasp"
    for name, endings in FORMATS.items():
        if path.suffix.lower() in endings:
            return name
    known = ", ".join(ending for endings in FORMATS.values() for ending in endings)
    remedy = ""
    if not path.suffix and not path.exists():
        remedy = (
            "; crystals that `namsa crystals` lists are named in the configuration, by "
            "materials.builtin or materials.layers"
        )
    raise InputError(
        f"{path} is no crystal's file that is read: give a .cif, POSCAR, CONTCAR, or one of "
        f"{known}{remedy}"
    )


def _parse_one(text: str, name: str) -> ase.Atoms:
    """Returns the one structure in a file's text, whose format is known by its name or content."""
    if name == "cube":
        return parse_cube(text)[0]
    if name == "extxyz" and is_prismatic(text):
        return parse_prismatic(text)
    if name in ("extxyz", "mustem") and is_mustem(text):
        return parse_mustem(text)
    if name == "mustem":
        raise InputError(
            "it is no file of muSTEM: its second line must be the sides and angles of the cell, "
            "its third the voltage, its fourth the number of kinds of atoms"
        )
    return _parse(text, name)


def parse_vasp(text: str) -> ase.Atoms:
    """Returns the structure in the text of a POSCAR, as it is. Raises InputError if it is none."""
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
            raise InputError(f"it cannot be read as {name}: {parser_problem(error)}") from None
    if len(images) != 1 or not len(images[0]):
        raise InputError(f"it holds {len(images)} structures, and must hold one, with atoms")
    return images[0]


def _check_numbers(text: str, name: str) -> None:
    """Raises InputError for numbers that ASE would count to, and for a POSCAR without elements.

    ASE would search the folder for those.
    """
    if name == "extxyz":
        check_counts(text, name)
        return
    lines = text.splitlines()
    if large := _INTEGER.search("\n".join(lines[1:] if name == "vasp" else lines)):
        raise InputError(
            f"it holds the number {shorten(large[0], 30)}, and a cell has at most {MOST_ATOMS} "
            "atoms"
        )
    if name == "vasp":
        elements = [*lines[5:6], ""][0].split()
        if not elements or elements[0].isdecimal():
            raise InputError("it must name the elements in its sixth line, as VASP 5 writes it")
        count = 0
        for word in [*lines[6:7], ""][0].split():
            if word.isascii() and word.isdecimal():
                count += int(word)
        if count > len(lines):
            raise InputError(
                f"it announces the number {count} of atoms, and has {len(lines)} lines"
            )


def parse_cube(text: str) -> tuple[ase.Atoms, tuple[int, int, int], int]:
    """Reads the head of a cube file.

    Its lengths are in bohr, or in Å where a grid's number is negative.

    Returns:
        The atoms, the points of the grid (nx, ny, nz), and the number of lines before its values.

    Raises:
        InputError: If it is no head of a cube file.
    """
    try:
        head = _cube_head(text.splitlines())
    except (LookupError, ValueError, OverflowError) as error:
        raise InputError(f"it cannot be read as a cube file: {shorten(error, 200)}") from None
    shape = tuple(abs(count) for count in head.points)
    has_atoms = len(head.numbers) == abs(head.atoms)
    has_grid = len(shape) == 3 and head.steps.shape == (3, 3)
    if not has_atoms or not has_grid or max(shape) >= 10**LONGEST_INTEGER:
        raise InputError(
            f"it announces {shorten(head.atoms)} atoms and a grid of {shorten(head.points)}, and "
            f"has {len(head.numbers)} atoms"
        )
    numbers = head.numbers
    if not ((numbers >= 0) & (numbers < len(chemical_symbols))).all():
        raise InputError(
            f"its atomic numbers {shorten(sorted(set(numbers.tolist())))} are not those of elements"
        )
    unit = 1.0 if min(head.points) < 0 else Bohr
    cell = head.steps * np.array(shape)[:, None] * unit
    atoms = ase.Atoms(numbers=numbers, positions=head.positions * unit, cell=cell, pbc=True)
    lines = CUBE_HEAD_LINES + len(numbers)
    if head.atoms < 0:
        lines += 1  # a line of orbitals follows
    return atoms, (shape[0], shape[1], shape[2]), lines


class _CubeHead(NamedTuple):
    """The head of a cube file, in its units."""

    atoms: int  # their number; negative if orbitals follow
    points: list[int]  # of the grid along each axis; negative for lengths in Å
    steps: Floats  # of the grid along each axis, rows
    numbers: Integers  # atomic numbers, `(n,)`
    positions: Floats  # from the grid's origin, `(n, 3)`


def _cube_head(lines: list[str]) -> _CubeHead:
    """Returns the numbers of a head. Raises ValueError or LookupError if they are none."""
    count = int(lines[2].split()[0])
    origin = np.array(lines[2].split()[1:4], float)
    points = []
    rows_of_steps = []
    for line in lines[3:CUBE_HEAD_LINES]:
        words = line.split()
        points.append(int(words[0]))
        rows_of_steps.append(words[1:4])
    steps = np.array(rows_of_steps, float)
    last = CUBE_HEAD_LINES + min(abs(count), MOST_ATOMS + 1)
    rows = np.array([line.split()[:5] for line in lines[CUBE_HEAD_LINES:last]], float)
    return _CubeHead(count, points, steps, rows[:, 0].astype(int), rows[:, 2:] - origin)


def _parse_pdb(text: str) -> tuple[ase.Atoms, list[str], str]:
    """Returns the atoms of a PDB file, expanded by the space group of its CRYST1 record.

    Returns:
        As `decide`.
    """
    try:
        structure = gemmi.read_pdb_string(text)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"it cannot be read as PDB: {shorten(error, 200)}") from None
    images = []
    for model in structure:
        images += [entry.atom for entry in model.all()]
    if len(structure) != 1 or not images:
        raise InputError(
            f"it holds {len(structure) if images else 0} structures, and must hold one, with atoms"
        )
    if not structure.cell.is_crystal():
        raise InputError(
            "it gives no cell that is periodic in three directions, which a crystal has (record "
            "CRYST1)"
        )
    cell = np.asarray(structure.cell.orth.mat.tolist(), np.float64).T
    check_cell(cell, len(images))
    sites = []
    for atom in images:
        label = f"{atom.name} {atom.serial}"
        element = element_of_type(atom.element.name)
        if element is None:
            raise InputError(
                f"atom {shorten(label)} names no element: give it in columns 77 and 78"
            )
        place = np.array(structure.cell.fractionalize(atom.pos).tolist())
        if not (np.isfinite(place).all() and atom.occ > 0):
            raise InputError(
                f"atom {shorten(label)}: position {atom.pos.tolist()} or occupancy {atom.occ:g} is "
                "none"
            )
        rounding = 0.5e-3 / np.array(structure.cell.parameters[:3])
        sites.append(
            Site(label, element, place, rounding, float(atom.occ), 0.005 if atom.occ < 1 else 0.0)
        )
    symmetries = stated_symmetry(
        {"_space_group_name_h-m_alt": [structure.spacegroup_hm or "P 1"]}, cell
    )
    return decide(sites, symmetries, Stated({}, None, None), cell)


def _checked(read_atoms: ase.Atoms) -> tuple[ase.Atoms, list[str]]:
    """Returns cell, elements, positions and occupancies of atoms, and notes about them.

    Raises:
        InputError: If they are no crystal.
    """
    cell = np.asarray(read_atoms.cell, dtype=np.float64)
    if not (np.isfinite(cell).all() and np.isfinite(read_atoms.positions).all()):
        raise InputError("its cell or positions are not finite")
    if not cell.any(axis=1).all():
        raise InputError("it gives no cell of three lattice vectors, which a simulation repeats")
    check_cell(cell, len(read_atoms))
    if np.linalg.det(cell) < 0:
        raise InputError("its lattice vectors are left-handed: exchange two of them")
    read_atoms = with_occupancies(read_atoms)
    atoms = ase.Atoms(
        numbers=read_atoms.numbers, positions=read_atoms.positions, cell=cell, pbc=True
    )
    for array in ("occupancy", "rms_displacement_angstrom"):
        if array in read_atoms.arrays:
            atoms.set_array(array, np.asarray(read_atoms.arrays[array], dtype=np.float64), shape=())
    check_crystal(atoms)
    notes = structure_notes(atoms)
    if not read_atoms.pbc.all():
        notes.append(_periodic_note(read_atoms))
    atoms.wrap()
    return atoms, notes


def _periodic_note(atoms: ase.Atoms) -> str:
    """Returns the note on a cell that is not periodic in all directions."""
    axes = [axis for axis, is_periodic in zip("abc", atoms.pbc, strict=True) if not is_periodic]
    return (
        f"it is not periodic along {' and '.join(axes)}: its cell is repeated there as well, with "
        "the vacuum that is in it"
    )
