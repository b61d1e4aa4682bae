"""Crystals from CIF files. pymatgen does the crystallography; files that it would have to guess at are refused."""

import re
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import ase
import numpy as np
from pymatgen.core import Composition, Element, Lattice, Structure
from pymatgen.io.cif import CifBlock, CifParser, str2float
from pymatgen.symmetry.analyzer import SpacegroupAnalyzer

from namsa.crystals.amplitudes import SiteAmplitude, read_amplitudes, set_amplitudes
from namsa.crystals.material import Material
from namsa.crystals.sites import (
    LONGEST_SIDE,
    MOST_ATOMS,
    ROUNDING,
    SAME_SITE,
    SHORTEST_SIDE,
    check_cell,
    check_crystal,
    occupancies,
)
from namsa.errors import InputError
from namsa.files import read_text
from namsa.text import shorten

SYMPREC = 0.01  # Å; how far atoms may be from the positions of the space group, given the digits of a CIF

# Warnings of pymatgen that stand for no change beyond the rounding of printed digits.
HARMLESS_WARNINGS = re.compile(
    r"No _symmetry_equiv_pos_as_xyz type key found. Spacegroup from|A 1-line symmetry op P1"
    r"|\d+ fractional coordinates rounded to ideal values|Some occupancies \(.*\) sum to > 1"
    r"|Cannot determine chemical composition from CIF|Skipping relative stoichiometry check"
)
LARGEST_FILE_BYTES = 2**24
MOST_IMAGES = 20_000  # atom sites times symmetry operations, which pymatgen compares with each other
CELL_KEYS = (
    *(f"_cell_length_{side}" for side in "abc"),
    *(f"_cell_angle_{angle}" for angle in ("alpha", "beta", "gamma")),
)
REQUIRED_KEYS = (*CELL_KEYS, *(f"_atom_site_fract_{axis}" for axis in "xyz"))
SITE_TOLERANCE = 1e-4  # of a fractional coordinate: nearer images of a site are one atom, as for pymatgen
SYMMETRY_KEYS = ("_symmetry_equiv_pos_as_xyz", "_space_group_symop_operation_xyz")
# What pymatgen's parser raises for malformed files.
PARSER_ERRORS = (ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError)


def read_cif(path: Path | str) -> Material:
    """Reads the one crystal in a CIF, in the file's own setting.

    Symmetry is expanded. A mixed site becomes several atoms at one position. Deuterium becomes hydrogen. Coordinates
    within 1e-4 of 1/3 and 2/3 are set to them. Thermal displacements (U_iso, B_iso or the equivalent of anisotropic
    ones) become `atoms.arrays["rms_displacement_angstrom"]`, for `FrozenPhonons(rms_angstrom="cif")`.

    Args:
        path: The file, whose name becomes the material's name.

    Raises:
        InputError: If the file cannot be read or is too large, holds no structure or several, gives no symmetry, leaves
            values unknown, contradicts its own formula, puts more than one atom on a site, or describes a cell that no
            crystal has. It names the file.
    """
    path = Path(path)
    text = read_text(path, largest_bytes=LARGEST_FILE_BYTES, kind="the crystal", errors="replace").removeprefix(
        "\ufeff"
    )
    try:
        structure, amplitudes = _parse(text)
        atoms = _to_atoms(structure)
        set_amplitudes(atoms, amplitudes)
        check_crystal(atoms)
        symbol = space_group(structure)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except PARSER_ERRORS as error:
        reason = re.sub(r"No structure parsed for section \d+ in CIF.", "", str(error))
        raise InputError(f"{path} cannot be read as a CIF: {shorten(reason, 300)}") from None
    return Material(re.sub(r"[^\w.+-]+", "_", path.stem), reduced_formula(atoms), symbol, atoms, str(path), "cif")


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


def space_group(structure: Structure) -> str:
    """Returns the Hermann–Mauguin symbol of a structure's space group."""
    return SpacegroupAnalyzer(structure, SYMPREC).get_space_group_symbol()


def _parse(text: str) -> tuple[Structure, tuple[SiteAmplitude, ...]]:
    """The one structure in a CIF's text, and the thermal amplitudes of its sites.

    Raises InputError for what pymatgen had to guess, drop or rescale.
    """
    blocks = [b for b in re.split(r"^\s*data_", text, flags=re.M) if re.search(r"^\s*_atom_site_label\b", b, re.M)]
    if len(blocks) != 1:
        raise InputError(f"a CIF must hold one structure with atom sites, not {len(blocks)}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            parser = CifParser.from_str(f"data_{blocks[0]}", occupancy_tolerance=1 + ROUNDING)
        except PARSER_ERRORS as error:
            reason = shorten(error, 200)
            raise InputError(
                f"a loop_ has too few or too many values, or a quotation is left open ({reason})"
            ) from None
        (block,) = parser.as_dict().values()
        _check_atom_site_loop(block)
        _check_number_of_atoms(parser, block)
        structure = parser.parse_structures(primitive=False, on_error="raise")[0]
    _check_warnings(parser, structure, [str(warning.message) for warning in caught])
    _check_symmetry_fits_cell(parser, structure)
    return structure, read_amplitudes(block, parser.symmetry_operations, structure.lattice)


def _check_warnings(parser: CifParser, structure: Structure, caught: list[str]) -> None:
    """Raises InputError for a warning of pymatgen that stands for a guess."""
    parser_warnings: list[str] = parser.warnings  # type: ignore[attr-defined]  # set in from_str, unseen by mypy
    messages = dict.fromkeys([*parser_warnings, *caught])
    faults = [" ".join(message.split()) for message in messages if not HARMLESS_WARNINGS.match(message)]
    if "implicit_hydrogens" in structure.site_properties:
        faults.append("hydrogen on an oxygen's site")
    if faults:
        shown = shorten("; ".join(faults), 600)
        raise InputError(f"the file must say what it means; pymatgen had to guess or drop: {shown}")


def _check_symmetry_fits_cell(parser: CifParser, structure: Structure) -> None:
    """Raises InputError for a symmetry operation that changes the cell's lengths or angles."""
    metric = structure.lattice.matrix @ structure.lattice.matrix.T
    tolerance = 0.01 * np.sqrt(np.outer(np.diag(metric), np.diag(metric)))
    for operation in parser.symmetry_operations:
        rotation = operation.rotation_matrix
        if np.any(np.abs(rotation.T @ metric @ rotation - metric) > tolerance):
            raise InputError(f"symmetry operation {operation.as_xyz_str()} does not fit the cell")


def _check_atom_site_loop(block: dict[str, Any]) -> None:
    """Raises InputError for atom sites that pymatgen would drop or complete without a warning."""
    missing = [key for key in REQUIRED_KEYS if key not in block]
    if missing:
        raise InputError(f"{', '.join(missing)} missing")
    labels = block["_atom_site_label"]
    if not isinstance(labels, list):
        raise InputError("atom sites must stand in a loop_")
    _check_cell(block, len(labels))
    for row, label in enumerate(labels):
        symbol = block.get("_atom_site_type_symbol", labels)[row]
        if not any(Element.is_valid_symbol(start) for start in (symbol[:2].title(), symbol[:1].upper())):
            raise InputError(f"atom site {shorten(label)}: '{shorten(symbol)}' names no element")
        for axis in "xyz":
            if block[f"_atom_site_fract_{axis}"][row] in ("?", "."):
                raise InputError(f"atom site {shorten(label)}: coordinate {axis} is unknown")
        if "_atom_site_occupancy" in block:
            occupancy = block["_atom_site_occupancy"][row]
            if occupancy in ("?", ".") or not str2float(occupancy) > 0:
                raise InputError(
                    f"atom site {shorten(label)}: occupancy {shorten(occupancy)} must be a number above 0 and at most 1"
                )


def _check_cell(block: dict[str, Any], sites: int) -> None:
    """Raises InputError for a cell in which pymatgen would search for neighbours forever, or for too many sites."""
    values = []
    for key in CELL_KEYS:
        try:
            values.append(str2float(block[key]))
        except (TypeError, ValueError):
            raise InputError(f"{key} {shorten(block[key])} is no number") from None
    if not all(0 < angle < 180 for angle in values[3:]):
        raise InputError(f"the cell's angles {values[3:]}° must lie between 0° and 180°")
    if not all(SHORTEST_SIDE <= side <= LONGEST_SIDE for side in values[:3]):
        raise InputError(f"the cell's sides {values[:3]} Å must lie within {SHORTEST_SIDE:g} to {LONGEST_SIDE:g} Å")
    check_cell(Lattice.from_parameters(*values).matrix, sites)
    operations = max([len(block[key]) for key in SYMMETRY_KEYS if isinstance(block.get(key), list)], default=1)
    if sites * operations > MOST_IMAGES:
        raise InputError(f"{sites} atom sites × {operations} symmetry operations are more than {MOST_IMAGES}")


def _check_number_of_atoms(parser: CifParser, block: dict[str, Any]) -> None:
    """Raises InputError for symmetry operations that make too many atoms of the sites.

    pymatgen compares every image of a site with all others before the atoms can be counted, which takes minutes.
    """
    operations = np.array([operation.affine_matrix for operation in parser.get_symops(CifBlock(block, [], ""))])
    if len(operations) < 2:
        return
    columns = [[str2float(text) for text in block[f"_atom_site_fract_{axis}"]] for axis in "xyz"]
    atoms = 0
    for site in np.transpose(columns):
        images = operations[:, :3, :3] @ site + operations[:, :3, 3]
        offsets = images[:, None] - images[None]
        same = (abs(offsets - np.round(offsets)) < SITE_TOLERANCE).all(axis=-1)
        atoms += int(np.count_nonzero(same.argmax(axis=1) == np.arange(len(images))))  # first of their kind
    if atoms > MOST_ATOMS:
        raise InputError(
            f"{len(operations)} symmetry operations make {atoms} atoms of {len(columns[0])} sites; give a cell of 1 to "
            f"{MOST_ATOMS} atoms"
        )


def _to_atoms(structure: Structure) -> ase.Atoms:
    """The structure as ASE atoms; the species of a mixed site become atoms at one position."""
    numbers: list[int] = []
    positions: list[Any] = []
    fractions: list[float] = []
    for site in structure:
        shares: dict[int, float] = defaultdict(float)  # by element: Fe2+ and Fe3+ scatter alike
        for species, share in site.species.items():
            shares[species.Z] += share
        numbers += shares.keys()
        fractions += shares.values()
        positions += [site.coords] * len(shares)
    atoms = ase.Atoms(numbers=numbers, positions=positions, cell=structure.lattice.matrix, pbc=True)
    if min(fractions) < 1:
        atoms.set_array("occupancy", np.array(fractions))
    return atoms
