"""The symmetry operations that a file states: by themselves, by a Hall symbol, or by a space group's name or number.

A name or a number can stand for several settings: two origins, hexagonal or rhombohedral axes. All are returned that
fit the cell; what else the file says decides between them.
"""

import contextlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import gemmi
import numpy as np
from pymatgen.symmetry.groups import SpaceGroup

from namsa.arrays import Floats, Integers
from namsa.errors import InputError
from namsa.text import shorten

OPERATION_KEYS = ("_space_group_symop_operation_xyz", "_symmetry_equiv_pos_as_xyz")
HALL_KEYS = ("_space_group_name_hall", "_symmetry_space_group_name_hall")
NAME_KEYS = (
    "_space_group_name_h-m_alt",
    "_symmetry_space_group_name_h-m",
    "_space_group_name_h-m_full",
    "_space_group_name_h-m_ref",
    "_space_group_name_h-m",
    "_symmetry_space_group_name_h-m_full",
)
NUMBER_KEYS = ("_space_group_it_number", "_symmetry_int_tables_number")
MOST_OPERATIONS = 1000
METRIC_TOLERANCE = 0.01
# The setting at the end of a name, also as ICSD writes it: S and Z are the first and the second origin.
_SETTING = re.compile(r"[\s:,]*(?:origin\s*)?\(?([12sz]|[hr]|o[12])\)?$", re.IGNORECASE)
_SETTINGS = {"1": "1", "2": "2", "S": "1", "Z": "2", "O1": "1", "O2": "2", "H": "H", "R": "R"}


@dataclass(frozen=True)
class Symmetry:
    """Symmetry operations."""

    name: str  # what they are, for messages
    rotations: Floats  # matrices of fractional coordinates, `(n, 3, 3)`
    translations: Floats  # fractions of the cell's sides, `(n, 3)`
    number: int = 0  # of the space group, if it is known; else 0
    symbol: str = "P1"  # of the space group, if it is known; else P1
    written: bool = False  # whether the file states the operations themselves, beyond the identity


def stated_symmetry(tags: Mapping[str, Sequence[str]], cell: Floats) -> list[Symmetry]:
    """Returns the settings that a file can mean, one if it states operations or a Hall symbol alone.

    Operations that belong to another space group than the stated one come first, and the settings of that one follow.

    Args:
        cell: Lattice vectors, rows of `(3, 3)`, Å.

    Raises:
        InputError: If no symmetry is stated, it is not understood, or it does not fit the cell.
    """
    texts = next((tags[key] for key in OPERATION_KEYS if tags.get(key)), ())
    stated = fitting([from_operations(texts)], cell) if any(map(_known, texts)) else []
    hall = _first(tags, HALL_KEYS)
    if hall and not stated:
        with contextlib.suppress(RuntimeError):
            return fitting([_of_group(gemmi.symops_from_hall(hall), f"Hall symbol {shorten(hall)}")], cell)
    name, number = _first(tags, NAME_KEYS), _first(tags, NUMBER_KEYS)
    groups = named_settings(name) if name else []
    if not groups and number.isdecimal() and 1 <= int(number[:4]) <= 230:
        groups = _alike(gemmi.find_spacegroup_by_number(int(number)))
    if stated and (not groups or groups[0].number == 1 or stated[0].number in (0, groups[0].number)):
        return stated
    order = _order(name, groups[0].number) if groups else []
    named = [_of_group(group.operations(), group.xhm(), order) for group in groups]
    if stated:
        with contextlib.suppress(InputError):
            return [*stated, *fitting(named, cell)]
        return stated
    if not named:
        given = name or hall or number
        raise InputError(
            f"space group {shorten(given)} is not known: give the symmetry operations, or a name of the International "
            "Tables"
            if given
            else "it gives neither symmetry operations nor a space group: give them, or _space_group_name_H-M_alt 'P 1'"
        )
    return fitting(named, cell)


def named_settings(name: str) -> list[gemmi.SpaceGroup]:
    """Returns the settings that a Hermann–Mauguin name can mean: `P21/c`, `F d -3 m :2`, `R -3 m H`, `F 4/m -3 2/m`."""
    plain = re.sub(r"\((?:no\.?\s*)?\d{2,3}\)\s*$", "", name.strip().strip("'\""), flags=re.IGNORECASE)
    plain = re.sub(r"\((\d)\)", r"\1", plain).replace("_", " " if " " not in plain and plain.count("_") > 2 else "")
    full = re.sub(r"\b21?/(?=[a-z])", "", re.sub(r"4[1-3]?/([a-z])\s*-3", r"\1 -3", plain))
    setting = _SETTING.search(plain)
    for candidate in dict.fromkeys((plain, full)):
        if setting and (group := _find(candidate[: len(candidate) - len(setting[0])])) and group.ext:
            wanted = _SETTINGS[setting[1].upper()]
            exact = [each for each in _alike(group) if each.ext == wanted]
            if exact:
                return exact
        if group := _find(candidate):
            return _alike(group)
    return []


def from_operations(texts: Sequence[str]) -> Symmetry:
    """Returns operations that are written out. Raises InputError if one is not understood or they form no group."""
    if len(texts) > MOST_OPERATIONS:
        raise InputError(f"it has {len(texts)} symmetry operations; {MOST_OPERATIONS} are the most that are read")
    operations = []
    for text in texts:
        try:
            operation = gemmi.Op(text)
            if abs(round(np.linalg.det(np.array(operation.rot) / gemmi.Op.DEN))) != 1 or "/0" in text:
                raise ValueError
        except (RuntimeError, ValueError):
            raise InputError(
                f"symmetry operation {shorten(text)} is not understood, or does not fit the cell"
            ) from None
        operations.append(operation)
    rotations, translations = _matrices(operations)
    _check_group(rotations, translations)
    group = gemmi.find_spacegroup_by_ops(gemmi.GroupOps(operations)) if len(operations) <= 192 else None
    name = group.xhm() if group else f"{len(operations)} symmetry operations"
    known = (group.number, group.short_name()) if group else (0, "P1")
    return Symmetry(name, rotations, translations, *known, written=len(operations) > 1)


def fitting(symmetries: Sequence[Symmetry], cell: Floats) -> list[Symmetry]:
    """Returns those whose operations keep the cell's lengths and angles. Raises InputError if none does."""
    metric = cell @ cell.T
    tolerance = METRIC_TOLERANCE * np.sqrt(np.outer(np.diag(metric), np.diag(metric)))
    fit = [
        each
        for each in symmetries
        if np.all(abs(each.rotations.transpose(0, 2, 1) @ metric @ each.rotations - metric) <= tolerance)
    ]
    if not fit:
        raise InputError(f"the symmetry of {' and '.join(each.name for each in symmetries)} does not fit the cell")
    return fit


def _known(text: str) -> bool:
    return text not in ("", "?", ".")


def _first(tags: Mapping[str, Sequence[str]], keys: Sequence[str]) -> str:
    """Returns the first of several values that is given, else ""."""
    return next((tags[key][0].strip() for key in keys if tags.get(key) and _known(tags[key][0].strip())), "")


def _find(name: str) -> gemmi.SpaceGroup | None:
    return gemmi.find_spacegroup_by_name(name[:50])


def _alike(group: gemmi.SpaceGroup) -> list[gemmi.SpaceGroup]:
    """Returns the settings of the same name."""
    return [each for each in gemmi.spacegroup_table() if (each.number, each.hm) == (group.number, group.hm)]


def _order(name: str, number: int) -> list[gemmi.Op]:
    """Returns the operations of a space group in the order of pymatgen's tables.

    The order of a crystal's atoms follows from it, and hashes of lists of samples from the order of the atoms.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of symbols that it does not use
        try:
            group = SpaceGroup(re.sub(r"[\s_]", "", name))
        except (LookupError, ValueError):
            group = SpaceGroup.from_int_number(number)
    return [gemmi.Op(each.as_xyz_str()) for each in group.symmetry_ops]


def _of_group(operations: gemmi.GroupOps, name: str, order: Sequence[gemmi.Op] = ()) -> Symmetry:
    """Returns the operations of a group, in the given order if that has the same ones."""
    group = gemmi.find_spacegroup_by_ops(operations)
    known = (group.number, group.short_name()) if group else (0, "P1")
    same = {each.wrap().triplet() for each in order} == {each.wrap().triplet() for each in operations}
    return Symmetry(name, *_matrices(order if same else list(operations)), *known)


def _matrices(operations: Sequence[gemmi.Op]) -> tuple[Floats, Floats]:
    return (
        np.array([operation.rot for operation in operations]) / gemmi.Op.DEN,
        np.array([operation.tran for operation in operations]) / gemmi.Op.DEN,
    )


def _check_group(rotations: Floats, translations: Floats) -> None:
    """Raises InputError for operations that form no group: some of them are missing."""
    matrices = np.round(rotations).astype(np.int64)
    shifts = np.round(translations * gemmi.Op.DEN).astype(np.int64)
    known = _codes(matrices, shifts)
    for matrix, shift in zip(matrices, shifts, strict=True):
        if not np.isin(_codes(matrix @ matrices, shifts @ matrix.T + shift), known).all():
            raise InputError(
                f"its {len(rotations)} symmetry operations form no group: some are missing; give all of them, or the "
                "name of the space group alone"
            )


def _codes(matrices: Integers, shifts: Integers) -> Integers:
    """Returns a number for each operation, modulo lattice vectors: five bits for each element."""
    elements = np.concatenate([matrices.reshape(-1, 9) + 8, shifts % gemmi.Op.DEN], axis=1)
    return elements @ (32 ** np.arange(12))
