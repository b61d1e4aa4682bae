"""Crystals from CIF files. gemmi reads the file and knows the space groups; files that need a guess are refused."""

import re
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import ase
import gemmi
import numpy as np
from pymatgen.core import Composition, Lattice, Structure

from namsa.arrays import Floats
from namsa.crystals.amplitudes import read_amplitudes
from namsa.crystals.elements import Number, element_of_label, element_of_type, read_number
from namsa.crystals.expansion import LARGEST_ROUNDING, Expanded, Site, expand
from namsa.crystals.material import Material
from namsa.crystals.sites import (
    LONGEST_SIDE,
    SAME_SITE,
    SHORTEST_SIDE,
    check_cell,
    check_crystal,
    doubts,
    occupancies,
    scale_occupancies,
)
from namsa.crystals.space_groups import Symmetry, stated_symmetry
from namsa.crystals.stoichiometry import Stated, agreement, check_formula, density, read_stated
from namsa.crystals.symmetry import MOST_ATOMS as MOST_SEARCHED
from namsa.crystals.symmetry import conventional, find_symmetry, is_conventional
from namsa.errors import InputError, SimulationWarning
from namsa.files import read_text
from namsa.text import plural, shorten

Tags = Mapping[str, Sequence[str]]

LARGEST_FILE_BYTES = 2**24
CELL_KEYS = (
    *(f"_cell_length_{side}" for side in "abc"),
    *(f"_cell_angle_{angle}" for angle in ("alpha", "beta", "gamma")),
)
_PLACE_KEYS = tuple(f"_atom_site_fract_{axis}" for axis in "xyz")
_READ_TAGS = re.compile(r"_(cell_|symmetry_|space_group_|atom_site_|chemical_formula_|exptl_crystal_density_)")
_UNKNOWN = ("", "?", ".")
_IDEAL_TOLERANCE = 1e-4  # relative
_IDEALS = tuple(k / 12 for k in (1, 2, 4, 5, 7, 8, 10, 11))  # fractions whose digits never end


def read_cif(path: Path | str, *, as_is: bool = False) -> Material:
    """Reads the one crystal in a CIF.

    Symmetry is expanded. The cell is the file's if that is a conventional one in any setting, else that of the
    International Tables. A mixed site becomes several atoms at one position. Deuterium becomes hydrogen. Coordinates
    within 1e-4 of 1/3 and 2/3 are set to them. Thermal displacements (U_iso, B_iso or the equivalent of anisotropic
    ones) become `atoms.arrays["rms_displacement_angstrom"]`, and anisotropic ones (U, B or β) also
    `atoms.arrays["displacement_tensor_angstrom2"]`, for `FrozenPhonons(rms_angstrom="cif")`.

    Args:
        path: The file, whose name becomes the material's name.
        as_is: Whether to keep the file's cell whatever it is.

    Raises:
        InputError: If the file cannot be read or is too large, holds no structure or several, gives no symmetry, leaves
            values unknown, contradicts its own formula, puts more than one atom on a site, or describes a cell that no
            crystal has. It names the file.

    Warns:
        SimulationWarning: If something in the file was decided, left out or changed.
    """
    path = Path(path)
    text = read_text(path, largest_bytes=LARGEST_FILE_BYTES, kind="the crystal", errors="replace").removeprefix(
        "\ufeff"
    )
    try:
        return to_material(*_parse(text), path, "cif", as_is=as_is)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def to_material(
    atoms: ase.Atoms, notes: Sequence[str], symbol: str, path: Path, kind: Literal["cif", "file"], *, as_is: bool
) -> Material:
    """Returns the material of a file, in the conventional cell unless it is to be taken as it is.

    Args:
        notes: What was decided, left out or changed; it is issued as warnings.
        symbol: The space group's symbol, unless it is found from the atoms.
    """
    found = None if as_is else find_symmetry(atoms)
    notes = list(notes)
    if found is not None and not is_conventional(atoms, found):
        sides = "×".join(f"{side:.4g}" for side in np.linalg.norm(found.std_lattice, axis=1))
        count = len(atoms)
        atoms = conventional(atoms, found)
        notes.append(
            f"its cell of {plural(count, 'atom')} is not a conventional one: it becomes that of {found.international}, "
            f"{sides} Å with {plural(len(atoms), 'atom')}, to which zone axes refer"
        )
    elif found is None and not as_is:
        notes.append(f"its cell has {len(atoms)} atoms: symmetry is searched for in cells of up to {MOST_SEARCHED}")
    for note in notes:
        warnings.warn(f"{path}: {note}", SimulationWarning, stacklevel=3)
    symbol = symbol if found is None else str(found.international)
    return Material(re.sub(r"[^\w.+-]+", "_", path.stem), reduced_formula(atoms), symbol, atoms, str(path), kind)


def reduced_formula(atoms: ase.Atoms) -> str:
    """Returns the reduced formula of a cell by occupancy, as pymatgen writes it."""
    amounts: dict[str, float] = defaultdict(float)
    for symbol, occupancy in zip(atoms.symbols, occupancies(atoms), strict=True):
        amounts[symbol] += float(occupancy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity to sort by
        return Composition({symbol: round(amount, 4) for symbol, amount in amounts.items()}).reduced_formula


def to_structure(atoms: ase.Atoms) -> Structure:
    """Returns a crystal as a pymatgen structure; the atoms of a mixed site become one site of several species."""
    shares = occupancies(atoms)
    species = [{symbol: share} for symbol, share in zip(atoms.symbols, shares.tolist(), strict=True)]
    structure = Structure(atoms.cell[:], species, atoms.get_scaled_positions())
    if min(shares) < 1:
        structure.merge_sites(SAME_SITE, mode="sum")
    return structure


def _parse(text: str) -> tuple[ase.Atoms, list[str], str]:
    """Returns the one structure in a CIF's text as `decide` does."""
    tags = _structure_block(text)
    cell = _cell(tags)
    sites = _sites(tags, read_stated(tags), cell)
    return decide(sites, stated_symmetry(tags, cell), read_stated(tags), cell)


def decide(
    sites: Sequence[Site], symmetries: Sequence[Symmetry], stated: Stated, cell: Floats
) -> tuple[ase.Atoms, list[str], str]:
    """Expands the sites by the one of several symmetries that fits what the file says, and checks the atoms.

    Returns:
        The atoms; what was decided, left out or changed; the symbol of the space group.

    Raises:
        InputError: If none fits, or several do that make different crystals.
    """
    made: list[tuple[Symmetry, Expanded, list[str]]] = []
    reasons: list[str] = []
    for symmetry in symmetries:
        try:
            made.append((symmetry, *_checked(expand(sites, symmetry, cell), stated)))
        except InputError as error:
            reasons.append(f"{symmetry.name}: {error}" if len(symmetries) > 1 else str(error))
    overruled = symmetries[0].written and made and made[0][0] is not symmetries[0]
    if not made or (overruled and not agreement(stated, made[0][1].atoms)):
        raise InputError("; ".join(reasons))
    choices = "; ".join(
        f"{each.name}: {plural(len(expanded.atoms), 'atom')}, {density(expanded.atoms):.3g} g/cm³"
        for each, expanded, _ in made
    )
    fit = [each for each in made if all(good for good, _ in agreement(stated, each[1].atoms))]
    fit = [each for each in fit if not doubts(each[1].atoms)] or fit
    if len(symmetries) == 1:
        symmetry, expanded, notes = made[0]
        notes += [text for good, text in agreement(stated, expanded.atoms) if not good]
    elif len(fit or made) == 1:
        symmetry, expanded, notes = (fit or made)[0]
        notes.append(
            f"of the settings that its space group can mean, {symmetry.name} fits what else it says ({choices})"
        )
    elif made[0][0].written and made[0] in fit:
        symmetry, expanded, notes = made[0]
        notes.append(f"its operations, of {symmetry.name}, are taken; its space group's name is of another one")
    else:
        raise InputError(
            f"its space group can mean several settings, and formula, Z and density do not decide ({choices}): give "
            "symmetry operations, a Hall symbol, or the setting, as in F d -3 m:2"
        )
    return expanded.atoms, [*expanded.notes, *notes], symmetry.symbol


def _checked(expanded: Expanded, stated: Stated) -> tuple[Expanded, list[str]]:
    """Returns checked atoms with notes. Raises InputError if they overlap or contradict the formula."""
    notes = scale_occupancies(expanded.atoms, expanded.rounding)
    check_crystal(expanded.atoms, expanded.labels)
    note = check_formula(stated, expanded.atoms, expanded.rounding.tolist())
    return expanded, [*notes, *doubts(expanded.atoms), *([note] if note else [])]


def _structure_block(text: str) -> dict[str, list[str]]:
    """Returns the values by tag, in small letters and without points, of the one block that has atom sites."""
    plain = re.sub(r"[^\n\t\x20-\x7e]", "_", text.replace("\r\n", "\n").replace("\r", "\n"))
    try:
        document = gemmi.cif.read_string(plain, 0)
    except (RuntimeError, ValueError) as error:
        reason = shorten(str(error).removeprefix("string:"), 200)
        raise InputError(
            "a CIF must hold one structure with atom sites, not 0: it has no block data_"
            if not re.search(r"^\s*data_", plain, re.MULTILINE | re.IGNORECASE)
            else f"a loop_ has too few or too many values, or a quotation is left open (line {reason})"
        ) from None
    found = []
    for block in document:
        tags: dict[str, list[str]] = {}
        for item in block:
            pair: Any = item.pair or ()
            names = list(item.loop.tags) if item.loop else list(pair[:1])
            values = list(item.loop.values) if item.loop else list(pair[1:])
            for column, name in enumerate(names):
                tag = name.lower().replace(".", "_").rstrip("_")
                if _READ_TAGS.match(tag):
                    tags.setdefault(tag, [_text(value) for value in values[column :: len(names)]])
        if any(tags.get(key) for key in _PLACE_KEYS):
            found.append(tags)
    if len(found) != 1:
        raise InputError(f"a CIF must hold one structure with atom sites, not {len(found)}")
    return found[0]


def _text(value: str) -> str:
    """Returns a value without quotation marks; ? and . stand for themselves."""
    return value if value in _UNKNOWN else gemmi.cif.as_string(value).strip()


def _cell(tags: Tags) -> Floats:
    """Returns the lattice vectors, rows of `(3, 3)`, Å."""
    values = []
    for key in CELL_KEYS:
        if not tags.get(key):
            raise InputError(f"{key} is missing")
        number = read_number(tags[key][0])
        if number is None:
            raise InputError(f"{key} {shorten(tags[key][0])} is no number")
        values.append(number.value)
    if not all(0 < angle < 180 for angle in values[3:]):
        raise InputError(f"the cell's angles {values[3:]}° must lie between 0° and 180°")
    if not all(SHORTEST_SIDE <= side <= LONGEST_SIDE for side in values[:3]):
        raise InputError(f"the cell's sides {values[:3]} Å must lie within {SHORTEST_SIDE:g} to {LONGEST_SIDE:g} Å")
    cell = np.asarray(Lattice.from_parameters(*values).matrix, dtype=np.float64)
    check_cell(cell, 1)
    return cell


def _sites(tags: Tags, stated: Stated, cell: Floats) -> list[Site]:
    """Returns the atom sites. Raises InputError, which names the site, for unknown values."""
    columns = [tags.get(key, []) for key in _PLACE_KEYS]
    if missing := [key for key, column in zip(_PLACE_KEYS, columns, strict=True) if not column]:
        raise InputError(f"{', '.join(missing)} missing")
    types = tags.get("_atom_site_type_symbol", [])
    labels = tags.get("_atom_site_label", types)
    shares = tags.get("_atom_site_occupancy", [])
    hydrogens = tags.get("_atom_site_attached_hydrogens", [])
    check_cell(cell, len(columns[0]))
    if not len(columns[0]) == len(columns[1]) == len(columns[2]) == len(labels):
        raise InputError("labels and coordinates of the atom sites must be in one loop_")
    amplitudes = read_amplitudes(tags, cell)
    numbers = [[read_number(text) for text in column] for column in columns]
    decimals = max((number.decimals for column in numbers for number in column if number), default=0)
    sites = []
    for row, label in enumerate(labels):
        name = f"atom site {shorten(label)}"
        symbol = types[row] if row < len(types) and types[row] not in _UNKNOWN else ""
        element = element_of_type(symbol) if symbol else element_of_label(label, stated.formula)
        if element is None:
            raise InputError(
                f"{name}: '{shorten(symbol or label)}' names no element, or could mean several: give its element in "
                "_atom_site_type_symbol, or remove a site that is no atom"
            )
        if row < len(hydrogens) and (attached := read_number(hydrogens[row])) and attached.value > 0:
            raise InputError(f"{name}: {attached.value:g} hydrogen atoms are attached without positions: give them")
        place, rounding = [], []
        for axis, column in zip("xyz", numbers, strict=True):
            if (number := column[row]) is None:
                raise InputError(f"{name}: coordinate {axis} is unknown, {shorten(columns['xyz'.index(axis)][row])}")
            value, error = _coordinate(number, decimals)
            place.append(value)
            rounding.append(error)
        share = _share(shares[row] if row < len(shares) else ".", name)
        sites.append(
            Site(
                label,
                element,
                np.array(place),
                np.array(rounding),
                share.value,
                _share_rounding(share),
                *amplitudes[row],
            )
        )
    return sites


def _coordinate(number: Number, decimals: int) -> tuple[float, float]:
    """Returns a coordinate, and how far it can be from the exact one, given the digits of all coordinates."""
    value = number.value
    for third in (1 / 3, 2 / 3):
        if abs(value / third - 1) <= _IDEAL_TOLERANCE:
            value = third
    rounding = min(0.5 * 10.0**-decimals, LARGEST_ROUNDING)
    for ideal in _IDEALS if number.decimals >= 2 else ():
        distance = abs(value % 1 - ideal)
        if distance < 10.0**-number.decimals:  # rounded, or cut off
            rounding = max(rounding, distance)
    return value, rounding


def _share(text: str, name: str) -> Number:
    """Returns an occupancy; "." is CIF's word for the default, 1."""
    number = Number(1.0, 0, 0.0) if text == "." else read_number(text)
    if number is None or not number.value > 0:
        raise InputError(f"{name}: occupancy {shorten(text)} must be a number above 0 and at most 1")
    return number


def _share_rounding(share: Number) -> float:
    """Returns how far an occupancy can be from the exact one. With fewer than two digits it counts as exact."""
    if share.decimals < 2 or share.value == 1:
        return 0.0
    return max(share.rounding, share.uncertainty)
