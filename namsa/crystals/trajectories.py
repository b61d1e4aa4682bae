"""Trajectories: snapshots of one specimen from molecular dynamics, by ASE's parsers of two plain-text formats.

Extended XYZ holds cell and elements. A text dump of LAMMPS holds elements if `dump_modify ... element` names them; its
types alone are numbers that say nothing, and are refused. Lengths are Å (LAMMPS units metal or real).
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

from namsa.crystals.material import Material
from namsa.crystals.sites import MAX_ELEMENT
from namsa.errors import InputError
from namsa.files import read_text
from namsa.text import shorten

LARGEST_FILE_BYTES = 2**28
MOST_ATOMS = 200_000  # of a snapshot
_COLUMNS = re.compile(r":\s*[\"']?\s*(\+?\d[\d_]{3,})")
SAME_CELL = 1e-4  # Å; files have about as many digits
# ASE's name of each format, and the endings of its files.
FORMATS = {"extxyz": (".extxyz", ".xyz"), "lammps-dump-text": (".lammpstrj", ".dump")}


def is_trajectory(path: Path) -> bool:
    """Returns whether a file is a trajectory by its name: a dump of LAMMPS, or extended XYZ of several frames."""
    suffix = path.suffix.lower()
    if suffix in FORMATS["lammps-dump-text"]:
        return True
    if suffix not in FORMATS["extxyz"]:
        return False
    lines = read_text(path, largest_bytes=LARGEST_FILE_BYTES, kind="the crystal", errors="replace").splitlines()
    count = lines[0].strip() if lines else ""
    frame = int(count) + 2 if count.isdecimal() and len(count) < 10 else len(lines)
    return any(line.strip() for line in lines[frame:])


def read_trajectory(path: Path) -> Material:
    """Reads the snapshots in a file; its name becomes the material's name.

    Raises:
        InputError: If the file cannot be read or is too large, a frame has no elements or no cell, or the frames have
            different cells or elements. It names the file and the frame.
    """
    text = read_text(path, largest_bytes=LARGEST_FILE_BYTES, kind="the trajectory", errors="replace")
    name = next(name for name, endings in FORMATS.items() if path.suffix.lower() in endings)
    try:
        snapshots = _parse(text, name)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    from namsa.crystals.cif import reduced_formula

    first = snapshots[0]
    stem = re.sub(r"[^\w.+-]+", "_", path.stem)
    return Material(stem, reduced_formula(first), "P1", first, str(path), "file", snapshots=tuple(snapshots))


def check_counts(text: str, name: str) -> None:
    """Raises InputError for numbers of atoms and columns that a file does not have: ASE would count to them."""
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
            raise InputError(f"its Properties have {shorten(wide[1], 30)} columns; 999 are the most that are read")
        start += 2 + count
        while start < len(lines) and lines[start].lstrip().startswith("VEC"):
            start += 1


def _check_count(text: str, most: int) -> int:
    """Returns a number of atoms. Raises InputError if it is none, or larger than the number of lines that follow."""
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text) or int(text) > most:
        raise InputError(
            f"it announces the number {shorten(text, 30)} of atoms, which is not one of up to the {max(most, 0)} lines "
            "that follow"
        )
    return int(text)


def _parse(text: str, name: str) -> list[ase.Atoms]:
    """Returns the checked snapshots in a file's text."""
    check_counts(text, name)
    if name == "lammps-dump-text":
        header = next((line for line in text.splitlines() if line.startswith("ITEM: ATOMS")), "")
        if "element" not in header.split():
            raise InputError(
                "a dump of LAMMPS must name the elements: write it with `dump ... element x y z` and "
                f"`dump_modify ... element Sr Ti O` (its columns are {shorten(header[12:]) or 'missing'})"
            )
    reader: Callable[..., Any] = ase.io.read
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            frames = reader(StringIO(text), index=slice(None), format=name)
        except Exception as error:  # ASE's parsers raise all kinds
            raise InputError(f"it cannot be read as {name}: {shorten(error, 200) or type(error).__name__}") from None
    if not frames:
        raise InputError("it holds no frame")
    snapshots: list[ase.Atoms] = []
    for number, frame in enumerate(frames):
        if fault := _fault(frame, snapshots[0] if snapshots else frame):
            raise InputError(f"frame {number}: {fault}")
        snapshots.append(ase.Atoms(numbers=frame.numbers, positions=frame.positions, cell=frame.cell, pbc=True))
    return snapshots


def _fault(frame: ase.Atoms, first: ase.Atoms) -> str | None:
    """Returns what is wrong with a frame, `None` if nothing is."""
    cell, fault = np.asarray(frame.cell, dtype=np.float64), None
    if not 1 <= len(frame) <= MOST_ATOMS:
        fault = f"it has {len(frame)} atoms; snapshots of 1 to {MOST_ATOMS} are read"
    elif not (np.isfinite(cell).all() and np.isfinite(frame.positions).all()):
        fault = "its cell or positions are not finite"
    elif not np.linalg.det(cell) > 0:
        fault = "it gives no cell of three right-handed lattice vectors"
    elif frame.numbers.min() < 1 or frame.numbers.max() > MAX_ELEMENT:
        fault = f"it has elements without form factors, which end at number {MAX_ELEMENT}"
    elif (difference := abs(cell - np.asarray(first.cell)).max()) > SAME_CELL:
        fault = (
            f"its cell differs from that of frame 0 by {difference:.3g} Å: patterns of different cells have no common "
            "pixels; take frames at constant volume"
        )
    elif not np.array_equal(np.sort(frame.numbers), np.sort(first.numbers)):
        fault = "it has other elements than frame 0"
    return fault
