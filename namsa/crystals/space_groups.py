"""The symmetry operations that a file states.

It does so by themselves, by a Hall symbol, or by a space group's name or number, which gemmi knows.
Of a magnetic structure's operations the part that moves atoms counts, without the reversal of time.
A name or a number can stand for several settings: two origins, hexagonal or rhombohedral axes. All
are returned that fit the cell; what else the file says decides between them.
"""

import contextlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import gemmi
import numpy as np
from pymatgen.symmetry.groups import SpaceGroup

from namsa.base.arrays import Floats, Integers
from namsa.base.errors import InputError
from namsa.base.text import shorten

OPERATION_KEYS = ("_space_group_symop_operation_xyz", "_symmetry_equiv_pos_as_xyz")
MAGNETIC_KEY = "_space_group_symop_magn_operation_xyz"
MAGNETIC_CENTERING_KEY = "_space_group_symop_magn_centering_xyz"
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
MOST_OF_A_GROUP = 192  # operations of a conventional cell
METRIC_TOLERANCE = 0.01
# The setting at the end of a name, also as ICSD writes it: S and Z are the first and the second
# origin.
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
    """Returns the settings that a file can mean.

    It is one if the file states operations or a Hall symbol. Operations that belong to another
    space group than the stated one come first, and the settings of that one follow.

    Args:
        cell: Lattice vectors, rows of `(3, 3)`, Å.

    Raises:
        InputError: If no symmetry is stated, it is not understood, or it does not fit the cell.
    """
    operations = _stated_operations(tags, cell)
    hall = _first(tags, HALL_KEYS)
    if hall and not operations:
        with contextlib.suppress(RuntimeError):
            group = gemmi.symops_from_hall(hall)
            return fitting([_of_group(group, f"Hall symbol {shorten(hall)}")], cell)
    name = _first(tags, NAME_KEYS)
    group_number = _first(tags, NUMBER_KEYS)
    groups = _stated_groups(name, group_number)
    if operations and _are_of_group(operations[0], groups):
        return operations
    order = _order(name, groups[0].number) if groups else []
    named = [_of_group(group.operations(), group.xhm(), order) for group in groups]
    if operations:
        with contextlib.suppress(InputError):
            return [*operations, *fitting(named, cell)]
        return operations
    if named:
        return fitting(named, cell)
    given = name or hall or group_number
    if given:
        raise InputError(
            f"space group {shorten(given)} is not known: give the symmetry operations, or a name "
            "of the International Tables"
        )
    raise InputError(
        "it gives neither symmetry operations nor a space group: give them, or "
        "_space_group_name_H-M_alt 'P 1'"
    )


def _stated_operations(tags: Mapping[str, Sequence[str]], cell: Floats) -> list[Symmetry]:
    """Returns the operations that a file states, if it does."""
    if is_magnetic(tags):
        return fitting([from_operations(_without_reversal(tags))], cell)
    for key in OPERATION_KEYS:
        if tags.get(key):
            texts = tags[key]
            break
    else:
        return []
    if not any(_known(text) for text in texts):
        return []
    return fitting([from_operations(texts)], cell)


def is_magnetic(tags: Mapping[str, Sequence[str]]) -> bool:
    """Whether a file states the operations of a magnetic structure."""
    return any(_known(text) for text in tags.get(MAGNETIC_KEY, ()))


def _without_reversal(tags: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the operations of a magnetic structure with all centrings, as CIF writes others.

    Raises:
        InputError: If one is not understood.
    """
    centrings = tags.get(MAGNETIC_CENTERING_KEY) or ["x,y,z,+1"]
    if len(centrings) * len(tags[MAGNETIC_KEY]) > MOST_OPERATIONS:
        raise InputError(
            f"it has {len(tags[MAGNETIC_KEY])} symmetry operations and {len(centrings)} "
            f"centrings; {MOST_OPERATIONS} operations are the most that are read"
        )
    moves = [_operation(_move(text)) for text in tags[MAGNETIC_KEY]]
    combined: dict[str, None] = {}
    for centring in centrings:
        shift = _operation(_move(centring))
        for move in moves:
            combined[(shift * move).wrap().triplet()] = None
    return list(combined)


def _move(text: str) -> str:
    """Returns the part of a magnetic operation that moves atoms: x,y,z of `x,y,z,-1`."""
    return ",".join(text.split(",")[:3])


def _stated_groups(name: str, group_number: str) -> list[gemmi.SpaceGroup]:
    """Returns the settings of a space group by its name or, if that is not known, its number."""
    groups = named_settings(name) if name else []
    if not groups and group_number.isdecimal() and 1 <= int(group_number[:4]) <= 230:
        return _alike(gemmi.find_spacegroup_by_number(int(group_number)))
    return groups


def _are_of_group(operations: Symmetry, groups: Sequence[gemmi.SpaceGroup]) -> bool:
    """Whether stated operations do not contradict a stated space group, P 1 included."""
    if not groups or groups[0].number == 1:
        return True
    return operations.number in (0, groups[0].number)


def named_settings(name: str) -> list[gemmi.SpaceGroup]:
    """Returns the settings that a Hermann–Mauguin name can mean.

    Args:
        name: As `P21/c`, `F d -3 m :2`, `R -3 m H`, `F 4/m -3 2/m`.
    """
    plain = re.sub(
        r"\((?:no\.?\s*)?\d{2,3}\)\s*$", "", name.strip().strip("'\""), flags=re.IGNORECASE
    )
    plain = re.sub(r"\((\d)\)", r"\1", plain)
    underscores_are_spaces = " " not in plain and plain.count("_") > 2
    plain = plain.replace("_", " " if underscores_are_spaces else "")
    without_full_cubic = re.sub(r"4[1-3]?/([a-z])\s*-3", r"\1 -3", plain)
    full = re.sub(r"\b21?/(?=[a-z])", "", without_full_cubic)
    for candidate in dict.fromkeys((plain, full)):
        group = _find(candidate)
        settings = _named_setting(candidate, plain) or (_alike(group) if group else [])
        if settings:
            return settings
    return []


def _named_setting(candidate: str, plain: str) -> list[gemmi.SpaceGroup]:
    """Returns the setting that the end of a name states, if it states one.

    Args:
        candidate: The name, or its short form.
        plain: The name.
    """
    setting = _SETTING.search(plain)
    if not setting:
        return []
    group = _find(candidate[: len(candidate) - len(setting[0])])
    if not group or not group.ext:
        return []
    extension = _SETTINGS[setting[1].upper()]
    return [alike for alike in _alike(group) if alike.ext == extension]


def from_operations(texts: Sequence[str]) -> Symmetry:
    """Returns operations that are written out.

    Raises:
        InputError: If one is not understood or they form no group.
    """
    if len(texts) > MOST_OPERATIONS:
        raise InputError(
            f"it has {len(texts)} symmetry operations; {MOST_OPERATIONS} are the most that are read"
        )
    operations = [_operation(text) for text in texts]
    rotations, translations = _matrices(operations)
    _check_group(rotations, translations)
    name = f"{len(operations)} symmetry operations"
    group_number = 0
    symbol = "P1"
    if len(operations) <= MOST_OF_A_GROUP:
        group = gemmi.find_spacegroup_by_ops(gemmi.GroupOps(operations))
        if group:
            name = group.xhm()
            group_number = group.number
            symbol = group.short_name()
    return Symmetry(
        name, rotations, translations, group_number, symbol, written=len(operations) > 1
    )


def _operation(text: str) -> gemmi.Op:
    """Returns an operation that is written out. Raises InputError for one that keeps no volume."""
    try:
        operation = gemmi.Op(text)
    except (RuntimeError, ValueError):
        operation = None
    if operation is None or abs(operation.det_rot()) != gemmi.Op.DEN**3:
        raise InputError(
            f"symmetry operation {shorten(text)} is not understood, or does not fit the cell"
        )
    return operation


def fitting(symmetries: Sequence[Symmetry], cell: Floats) -> list[Symmetry]:
    """Returns those whose operations keep the cell's lengths and angles.

    Raises:
        InputError: If none does.
    """
    metric = cell @ cell.T
    tolerance = METRIC_TOLERANCE * np.sqrt(np.outer(np.diag(metric), np.diag(metric)))
    kept = []
    for symmetry in symmetries:
        rotations = symmetry.rotations
        change = rotations.transpose(0, 2, 1) @ metric @ rotations - metric
        if np.all(abs(change) <= tolerance):
            kept.append(symmetry)
    if not kept:
        names = " and ".join(symmetry.name for symmetry in symmetries)
        raise InputError(f"the symmetry of {names} does not fit the cell")
    return kept


def _known(text: str) -> bool:
    return text not in ("", "?", ".")


def _first(tags: Mapping[str, Sequence[str]], keys: Sequence[str]) -> str:
    """Returns the first of several values that is given, else ""."""
    for key in keys:
        text = tags[key][0].strip() if tags.get(key) else ""
        if _known(text):
            return text
    return ""


def _find(name: str) -> gemmi.SpaceGroup | None:
    return gemmi.find_spacegroup_by_name(name[:50])


def _alike(group: gemmi.SpaceGroup) -> list[gemmi.SpaceGroup]:
    """Returns the settings of the same name."""
    settings = []
    for setting in gemmi.spacegroup_table():
        if setting.number == group.number and setting.hm == group.hm:
            settings.append(setting)
    return settings


def _order(name: str, group_number: int) -> list[gemmi.Op]:
    """Returns the operations of a space group in the order of pymatgen's tables.

    The order of a crystal's atoms follows from it, and hashes of lists of samples from the order of
    the atoms.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of symbols that it does not use
        try:
            group = SpaceGroup(re.sub(r"[\s_]", "", name))
        except (LookupError, ValueError):
            group = SpaceGroup.from_int_number(group_number)
    return [gemmi.Op(operation.as_xyz_str()) for operation in group.symmetry_ops]


def _of_group(operations: gemmi.GroupOps, name: str, order: Sequence[gemmi.Op] = ()) -> Symmetry:
    """Returns the operations of a group, in the given order if that has the same ones."""
    ordered = list(operations)
    if _triplets(order) == _triplets(ordered):
        ordered = list(order)
    rotations, translations = _matrices(ordered)
    group = gemmi.find_spacegroup_by_ops(operations)
    if not group:
        return Symmetry(name, rotations, translations)
    return Symmetry(name, rotations, translations, group.number, group.short_name())


def _triplets(operations: Sequence[gemmi.Op]) -> set[str]:
    """Returns operations as text, modulo lattice vectors."""
    return {operation.wrap().triplet() for operation in operations}


def _matrices(operations: Sequence[gemmi.Op]) -> tuple[Floats, Floats]:
    return (
        np.array([operation.rot for operation in operations]) / gemmi.Op.DEN,
        np.array([operation.tran for operation in operations]) / gemmi.Op.DEN,
    )


def _check_group(rotations: Floats, translations: Floats) -> None:
    """Raises InputError for operations that form no group: some of them are missing.

    gemmi (`GroupOps.add_missing_elements`) compares rotations alone.
    """
    matrices = np.round(rotations).astype(np.int64)
    shifts = np.round(translations * gemmi.Op.DEN).astype(np.int64)
    known = _codes(matrices, shifts)
    for matrix, shift in zip(matrices, shifts, strict=True):
        if not np.isin(_codes(matrix @ matrices, shifts @ matrix.T + shift), known).all():
            raise InputError(
                f"its {len(rotations)} symmetry operations form no group: some are missing; give "
                "all of them, or the name of the space group alone"
            )


def _codes(matrices: Integers, shifts: Integers) -> Integers:
    """Returns a number for each operation, modulo lattice vectors: five bits for each element."""
    elements = np.concatenate([matrices.reshape(-1, 9) + 8, shifts % gemmi.Op.DEN], axis=1)
    return elements @ (32 ** np.arange(12))
