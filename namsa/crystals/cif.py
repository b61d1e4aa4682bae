"""Crystals from CIF files.

gemmi reads the file and knows the space groups. Files that need a guess are refused.
"""

import re
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import ase
import numpy as np
from pymatgen.core import Composition, Structure

from namsa.base.arrays import Floats
from namsa.base.errors import InputError, SimulationWarning
from namsa.base.text import plain_minus, plural
from namsa.crystals.cif_sites import read_cell, read_sites
from namsa.crystals.cif_tags import structure_tags, without_dummies
from namsa.crystals.crystal_text import crystal_text
from namsa.crystals.expansion import Expanded, Site, expand
from namsa.crystals.material import Material
from namsa.crystals.sites import (
    SAME_SITE,
    check_crystal,
    occupancies,
    scale_occupancies,
    structure_notes,
)
from namsa.crystals.space_groups import Symmetry, is_magnetic, stated_symmetry
from namsa.crystals.stoichiometry import Stated, agreement, check_formula, density, read_stated
from namsa.crystals.symmetry import MOST_ATOMS as MOST_SEARCHED
from namsa.crystals.symmetry import conventional, find_symmetry, is_conventional

LARGEST_FILE_BYTES = 2**24


def read_cif(path: Path | str, *, as_is: bool = False) -> Material:
    """Reads the one crystal in a CIF.

    Symmetry is expanded. The cell is the file's if that is a conventional one in any setting, else
    that of the International Tables. A mixed site becomes several atoms at one position. Deuterium
    becomes hydrogen. Coordinates within 1e-4 of 1/3 and 2/3 are set to them. Thermal displacements
    (U_iso, B_iso or the equivalent of anisotropic ones) become
    `atoms.arrays["rms_displacement_angstrom"]`, and anisotropic ones (U, B or β) also
    `atoms.arrays["displacement_tensor_angstrom2"]`, for `FrozenPhonons(rms_angstrom="cif")`.

    Args:
        path: The file, whose name becomes the material's name.
        as_is: Whether to keep the file's cell whatever it is.

    Raises:
        InputError: If the file cannot be read or is too large, holds no structure or several, gives
            no symmetry, leaves values unknown, contradicts its own formula, puts more than one atom
            on a site, or describes a cell that no crystal has. It names the file.

    Warns:
        SimulationWarning: If something in the file was decided, left out or changed.

    Example:
        >>> from ase.io import write
        >>> write("silicon.cif", bulk("Si", cubic=True))
        >>> len(namsa.read_cif("silicon.cif").atoms)
        8
    """
    path = Path(path)
    text = crystal_text(path, LARGEST_FILE_BYTES).removeprefix("\ufeff")
    try:
        return to_material(*_parse(text), path, "cif", as_is=as_is)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def to_material(
    atoms: ase.Atoms,
    notes: Sequence[str],
    symbol: str,
    path: Path,
    kind: Literal["cif", "file"],
    *,
    as_is: bool,
) -> Material:
    """Returns the material of a file, in the conventional cell unless it is to be taken as it is.

    Args:
        notes: What was decided, left out or changed; it is issued as warnings.
        symbol: The space group's symbol, unless it is found from the atoms.
    """
    symmetry = None if as_is else find_symmetry(atoms)
    notes = list(notes)
    if symmetry is not None and not is_conventional(atoms, symmetry):
        sides = "×".join(f"{side:.4g}" for side in np.linalg.norm(symmetry.std_lattice, axis=1))
        count = len(atoms)
        atoms = conventional(atoms, symmetry)
        notes.append(
            f"its cell of {plural(count, 'atom')} is not a conventional one: it becomes that of "
            f"{symmetry.international}, {sides} Å with {plural(len(atoms), 'atom')}, to which zone "
            "axes refer"
        )
    elif symmetry is None and not as_is:
        notes.append(
            f"its cell has {len(atoms)} atoms: symmetry is searched for in cells of up to "
            f"{MOST_SEARCHED}"
        )
    for note in notes:
        warnings.warn(f"{path}: {note}", SimulationWarning, stacklevel=3)
    symbol = symbol if symmetry is None else str(symmetry.international)
    return Material(
        re.sub(r"[^\w.+-]+", "_", path.stem), reduced_formula(atoms), symbol, atoms, str(path), kind
    )


def reduced_formula(atoms: ase.Atoms) -> str:
    """Returns the reduced formula of a cell by occupancy, as pymatgen writes it."""
    amounts: dict[str, float] = defaultdict(float)
    for symbol, occupancy in zip(atoms.symbols, occupancies(atoms), strict=True):
        amounts[symbol] += float(occupancy)
    rounded = {symbol: round(amount, 4) for symbol, amount in amounts.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity to sort by
        return Composition(rounded).reduced_formula


def to_structure(atoms: ase.Atoms) -> Structure:
    """Returns a crystal as a pymatgen structure.

    The atoms of a mixed site become one site of several species.
    """
    shares = occupancies(atoms)
    species = []
    for symbol, share in zip(atoms.symbols, shares.tolist(), strict=True):
        species.append({symbol: share})
    structure = Structure(atoms.cell[:], species, atoms.get_scaled_positions())
    if min(shares) < 1:
        structure.merge_sites(SAME_SITE, mode="sum")
    return structure


def _parse(text: str) -> tuple[ase.Atoms, list[str], str]:
    """Returns the one structure in a CIF's text as `decide` does."""
    tags, notes = without_dummies(structure_tags(plain_minus(text)))
    if is_magnetic(tags):
        notes = [*notes, "it is of a magnetic structure: its moments are left out"]
    cell = read_cell(tags)
    sites = read_sites(tags, read_stated(tags), cell)
    atoms, decided, symbol = decide(sites, stated_symmetry(tags, cell), read_stated(tags), cell)
    return atoms, [*notes, *decided], symbol


class Choice(NamedTuple):
    """A symmetry that a file can mean, and the atoms that it makes."""

    symmetry: Symmetry
    expanded: Expanded
    notes: list[str]  # what was decided, left out or changed

    @property
    def text(self) -> str:
        """Name, atoms and density, for messages."""
        atoms = self.expanded.atoms
        return f"{self.symmetry.name}: {plural(len(atoms), 'atom')}, {density(atoms):.3g} g/cm³"

    def agrees(self, stated: Stated) -> bool:
        """Whether formula units and density are as stated."""
        return all(agrees for agrees, _ in agreement(stated, self.expanded.atoms))


def decide(
    sites: Sequence[Site], symmetries: Sequence[Symmetry], stated: Stated, cell: Floats
) -> tuple[ase.Atoms, list[str], str]:
    """Expands the sites by the symmetry that fits what the file says, and checks the atoms.

    Args:
        symmetries: Those that the file can mean.

    Returns:
        The atoms; what was decided, left out or changed; the symbol of the space group.

    Raises:
        InputError: If none fits, or several do that make different crystals.
    """
    choices: list[Choice] = []
    reasons: list[str] = []
    for symmetry in symmetries:
        try:
            expanded = expand(sites, symmetry, cell)
            choices.append(Choice(symmetry, expanded, _check(expanded, stated)))
        except InputError as error:
            reasons.append(f"{symmetry.name}: {error}" if len(symmetries) > 1 else str(error))
    if not choices:
        raise InputError("; ".join(reasons))
    overruled = symmetries[0].written and choices[0].symmetry is not symmetries[0]
    if overruled and not agreement(stated, choices[0].expanded.atoms):
        raise InputError("; ".join(reasons))
    choice, note = _chosen(choices, stated, only=len(symmetries) == 1)
    return (
        choice.expanded.atoms,
        [*choice.expanded.notes, *choice.notes, *note],
        (choice.symmetry.symbol),
    )


def _chosen(choices: list[Choice], stated: Stated, only: bool) -> tuple[Choice, list[str]]:
    """Returns the choice that fits, and notes about it.

    Args:
        only: Whether the file can mean no other symmetry.

    Raises:
        InputError: If several fit.
    """
    preferred = choices[0]
    if only:
        facts = agreement(stated, preferred.expanded.atoms)
        return preferred, [text for agrees, text in facts if not agrees]
    fitting = _fitting(choices, stated)
    candidates = fitting or choices
    listed = "; ".join(choice.text for choice in choices)
    if len(candidates) == 1:
        return candidates[0], [
            f"of the settings that its space group can mean, {candidates[0].symmetry.name} fits "
            f"what else it says ({listed})"
        ]
    if preferred.symmetry.written and fitting and fitting[0] is preferred:
        return preferred, [
            f"its operations, of {preferred.symmetry.name}, are taken; its space group's name is "
            "of another one"
        ]
    raise InputError(
        "its space group can mean several settings, and formula, Z and density do not decide "
        f"({listed}): give symmetry operations, a Hall symbol, or the setting, as in F d -3 m:2"
    )


def _fitting(choices: list[Choice], stated: Stated) -> list[Choice]:
    """Returns the choices that agree with what the file states, in their order.

    If the structures of some give no note, only these.
    """
    fitting = []
    unremarkable = []
    for choice in choices:
        if not choice.agrees(stated):
            continue
        fitting.append(choice)
        if not structure_notes(choice.expanded.atoms):
            unremarkable.append(choice)
    return unremarkable or fitting


def _check(expanded: Expanded, stated: Stated) -> list[str]:
    """Scales occupancies, checks the atoms, and returns notes about them.

    Raises:
        InputError: If they overlap or contradict the formula.
    """
    notes = scale_occupancies(expanded.atoms, expanded.rounding)
    check_crystal(expanded.atoms, expanded.labels)
    note = check_formula(stated, expanded.atoms, expanded.rounding.tolist())
    notes += structure_notes(expanded.atoms)
    if note:
        notes.append(note)
    return notes
