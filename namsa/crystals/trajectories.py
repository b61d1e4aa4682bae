"""Trajectories: snapshots of one specimen from molecular dynamics, by ASE's parsers of two
plain-text formats.

Extended XYZ holds cell and elements. A text dump of LAMMPS holds elements if `dump_modify ...
element` names them; its types alone are numbers that say nothing, and are refused. Its lengths are
in the units that `dump_modify ... units yes` writes into it, else in Å (units metal or real).
Positions are from the origin of its box.
"""

import itertools
import re
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import ase
import ase.io
import numpy as np
from ase.data import covalent_radii
from ase.units import Bohr
from scipy.spatial import KDTree

from namsa.base.errors import InputError, SimulationWarning
from namsa.base.files import read_text
from namsa.base.text import plain_minus, shorten
from namsa.crystals.crystal_text import crystal_text
from namsa.crystals.material import Material
from namsa.crystals.sites import MAX_ELEMENT

LARGEST_FILE_BYTES = 2**28
MOST_ATOMS = 200_000  # of a snapshot
_COLUMNS = re.compile(r":\s*[\"']?\s*(\+?\d[\d_]{3,})")
SAME_CELL = 1e-4  # Å; files have about as many digits
# ASE's name of each format, and the endings of its files.
FORMATS = {"extxyz": (".extxyz", ".xyz"), "lammps-dump-text": (".lammpstrj", ".dump")}
# Å per unit of length of LAMMPS' styles of units (https://docs.lammps.org/units.html).
# `lj` has none.
LAMMPS_ANGSTROM = {
    "metal": 1.0,
    "real": 1.0,
    "electron": Bohr,
    "si": 1e10,
    "cgs": 1e8,
    "micro": 1e4,
    "nano": 10.0,
}
# Distance of nearest atoms over the sum of their covalent radii, in crystals, glasses and liquids.
# Argon has 1.8, gold 1.06, and hydrogen bonds of molecules 0.95.
PLAUSIBLE_CONTACTS = (0.7, 1.9)
MOST_COMPARED = 2000  # atoms


def is_trajectory(path: Path) -> bool:
    """Whether a file is a trajectory: a dump of LAMMPS, or extended XYZ of several frames."""
    suffix = path.suffix.lower()
    if suffix in FORMATS["lammps-dump-text"]:
        return True
    if suffix not in FORMATS["extxyz"]:
        return False
    lines = crystal_text(path, LARGEST_FILE_BYTES).splitlines()
    count = lines[0].strip() if lines else ""
    frame = int(count) + 2 if count.isdecimal() and len(count) < 10 else len(lines)
    return any(line.strip() for line in lines[frame:])


def read_trajectory(path: Path) -> Material:
    """Reads the snapshots in a file; its name becomes the material's name.

    Raises:
        InputError: If the file cannot be read or is too large, a frame has no elements or no cell,
            its units have no length in Å, or the frames have different cells or elements. It names
            the file and the frame.

    Warns:
        SimulationWarning: If a dump of LAMMPS does not name its units, and its atoms are not as far
            apart as atoms are in Å.
    """
    text = read_text(
        path, largest_bytes=LARGEST_FILE_BYTES, kind="the trajectory", errors="replace"
    )
    text = plain_minus(text)
    name = next(name for name, endings in FORMATS.items() if path.suffix.lower() in endings)
    try:
        snapshots = _parse(text, name)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if name == "lammps-dump-text" and "ITEM: UNITS" not in text:
        doubt = unit_doubt(snapshots[0])
        if doubt:
            warnings.warn(f"{path}: {doubt}", SimulationWarning, stacklevel=3)
    from namsa.crystals.cif import reduced_formula

    first_frame = snapshots[0]
    stem = re.sub(r"[^\w.+-]+", "_", path.stem)
    return Material(
        stem,
        reduced_formula(first_frame),
        "P1",
        first_frame,
        str(path),
        "file",
        snapshots=tuple(snapshots),
    )


def check_counts(text: str, name: str) -> None:
    """Raises InputError for numbers of atoms and columns that a file does not have.

    ASE would count to them.
    """
    lines = text.splitlines()
    if name == "lammps-dump-text":
        for line, following in itertools.pairwise(lines):
            if line.startswith("ITEM: NUMBER OF ATOMS"):
                _check_count(following, len(lines))
        return
    start = 0
    while start < len(lines) and lines[start].strip():
        count = _check_count(lines[start], len(lines) - start - 2)
        comment = [*lines[start + 1 : start + 2], ""][0]
        if wide := _COLUMNS.search(comment, max(comment.lower().find("properties"), 0)):
            raise InputError(
                f"its Properties have {shorten(wide[1], 30)} columns; 999 are the most that are "
                "read"
            )
        start += 2 + count
        while start < len(lines) and lines[start].lstrip().startswith("VEC"):
            start += 1


def parser_problem(error: Exception) -> str:
    """Returns what a parser of ASE could not read, in one line.

    Of a name that is no element it raises a KeyError with the name alone.
    """
    names = error.args if isinstance(error, KeyError) else ()
    if not names or not isinstance(names[0], str):
        return shorten(error, 200) or type(error).__name__
    name = names[0]
    if name.isdecimal():
        return (
            f"an atom is called {shorten(name, 20)}, which can be an atomic number or a type: give "
            "symbols, as Au, or atomic numbers in a column Z:I:1 of Properties"
        )
    isotope = " (deuterium and tritium are H)" if name in ("D", "T") else ""
    return f"{shorten(name, 40)} is no element{isotope}: give symbols, as Au"


def _check_count(text: str, most: int) -> int:
    """Returns a number of atoms. Raises InputError if it is none, or larger than the number of
    lines that follow.
    """
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text) or int(text) > most:
        raise InputError(
            f"it announces the number {shorten(text, 30)} of atoms, which is not one of up to the "
            f"{max(most, 0)} lines that follow"
        )
    return int(text)


def _parse(text: str, name: str) -> list[ase.Atoms]:
    """Returns the checked snapshots in a file's text."""
    check_counts(text, name)
    header = next((line for line in text.splitlines() if line.startswith("ITEM: ATOMS")), "")
    if name == "lammps-dump-text" and "element" not in header.split():
        raise InputError(
            "a dump of LAMMPS must name the elements: write it with `dump ... element x y z` "
            "and `dump_modify ... element Sr Ti O` (its columns are "
            f"{shorten(header[12:]) or 'missing'})"
        )
    reader: Callable[..., ase.Atoms | list[ase.Atoms]] = ase.io.read
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            frames = reader(StringIO(text), index=slice(None), format=name)
        except Exception as error:  # ASE's parsers raise all kinds
            raise InputError(f"it cannot be read as {name}: {parser_problem(error)}") from None
    if not frames:
        raise InputError("it holds no frame")
    angstrom = 1.0
    from_outside = False  # whether positions are not from the origin of the box
    if name == "lammps-dump-text":
        angstrom = lammps_angstrom(text)
        from_outside = not {"x", "xu"}.isdisjoint(header.split())
    snapshots: list[ase.Atoms] = []
    for index, frame in enumerate(frames):
        if from_outside:
            frame.positions -= frame.get_celldisp().ravel()
        frame.set_cell(frame.cell * angstrom, scale_atoms=True)
        problem = _problem(frame, snapshots[0] if snapshots else frame)
        if problem:
            raise InputError(f"frame {index}: {problem}")
        snapshots.append(
            ase.Atoms(numbers=frame.numbers, positions=frame.positions, cell=frame.cell, pbc=True)
        )
    return snapshots


def lammps_angstrom(text: str) -> float:
    """Returns Å per unit of length of a dump of LAMMPS, by its `ITEM: UNITS`; 1 if it has none.

    Raises:
        InputError: If its units are none of `LAMMPS_ANGSTROM`.
    """
    lines = text.splitlines()
    for line, following in itertools.pairwise(lines):
        if line.startswith("ITEM: UNITS"):
            style = following.strip()
            if style not in LAMMPS_ANGSTROM:
                raise InputError(
                    f"its units are {shorten(style, 30)}, whose unit of length is not a number of "
                    f"Å: write the dump in one of {', '.join(LAMMPS_ANGSTROM)}"
                )
            return LAMMPS_ANGSTROM[style]
    return 1.0


def unit_doubt(atoms: ase.Atoms) -> str | None:
    """Returns why the lengths of a dump without units may not be in Å; `None` if they may be.

    Args:
        atoms: A snapshot, whose nearest atoms are compared with their covalent radii.
    """
    if len(atoms) < 2:
        return None
    step = max(1, len(atoms) // MOST_COMPARED)
    nearest: Any = KDTree(atoms.positions).query(atoms.positions[::step], k=2)
    distances = nearest[0][:, 1]
    neighbours = nearest[1][:, 1]
    radii = covalent_radii[atoms.numbers]
    contact = float(np.median(distances / (radii[::step] + radii[neighbours])))
    least, most = PLAUSIBLE_CONTACTS
    if least <= contact <= most:
        return None
    return (
        f"its nearest atoms are {np.median(distances):.3g} apart, {contact:.2g} times the "
        "sum of their covalent radii in Å, and it does not name its units: Å are taken; write it "
        "with `dump_modify ... units yes`, or in units metal or real"
    )


def _problem(frame: ase.Atoms, first_frame: ase.Atoms) -> str | None:
    """Returns why a frame is no snapshot, `None` if it is one."""
    cell = np.asarray(frame.cell, dtype=np.float64)
    if not 1 <= len(frame) <= MOST_ATOMS:
        return f"it has {len(frame)} atoms; snapshots of 1 to {MOST_ATOMS} are read"
    if not (np.isfinite(cell).all() and np.isfinite(frame.positions).all()):
        return "its cell or positions are not finite"
    if not np.linalg.det(cell) > 0:
        return "it gives no cell of three right-handed lattice vectors"
    if frame.numbers.min() < 1 or frame.numbers.max() > MAX_ELEMENT:
        return f"it has elements without form factors, which end at number {MAX_ELEMENT}"
    return _difference(frame, first_frame)


def _difference(frame: ase.Atoms, first_frame: ase.Atoms) -> str | None:
    """Returns how a frame differs from the first one, `None` if they go together."""
    difference = abs(np.asarray(frame.cell) - np.asarray(first_frame.cell)).max()
    if difference > SAME_CELL:
        return (
            f"its cell differs from that of frame 0 by {difference:.3g} Å: patterns of different "
            "cells have no common pixels; take frames at constant volume"
        )
    if not np.array_equal(np.sort(frame.numbers), np.sort(first_frame.numbers)):
        return "it has other elements than frame 0"
    return None
