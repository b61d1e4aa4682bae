"""The crystals that come with the installed libraries, and the conventional cells in which they are
given.
"""

import gzip
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from importlib.resources import files

import ase
import spglib
from ase.build import bulk
from ase.data import chemical_symbols, covalent_radii, reference_states
from ase.neighborlist import neighbor_list

from namsa.base.errors import WorkError
from namsa.crystals.cif import reduced_formula
from namsa.crystals.material import Material, MaterialKind

SYMPREC = 1e-3  # Å; the libraries give coordinates with four digits and more
# The shortest real bonds, those of actinides, are 0.66 of the sum of the covalent radii. Shorter
# ones are misprints, and one entry that marks Wyckoff positions by elements.
SHORTEST_BOND = 0.65
# For its other reference states ASE has the lattice, but not the atoms in it.
ASE_COMPLETE = ("sc", "fcc", "bcc", "hcp", "diamond", "bct", "rhombohedral")


def builtin_materials(formulas: Collection[str] | None = None) -> tuple[Material, ...]:
    """Returns real crystals with measured lattice parameters, sorted by name.

    They come from the AFLOW library of crystallographic prototypes (Mehl et al., Comput. Mater.
    Sci. 136 (2017) S1), which pymatgen contains. ASE's reference states of the elements are added
    where AFLOW has none of the same formula, space group and Pearson symbol. These three make the
    name, with Wyckoff letters where two crystals share it.

    Args:
        formulas: Return only crystals of these formulas, written as names begin; `None` for all.

    Example:
        >>> [material.name for material in namsa.builtin_materials(["Si"])]
        ['Si-139-tI4', 'Si-223-cP46', 'Si-227-cF136', 'Si-227-cF8', 'Si-96-tP12']
    """

    def is_requested(atoms: ase.Atoms) -> bool:
        return formulas is None or _file_safe(reduced_formula(atoms)) in formulas

    aflow = []
    for atoms, source, wyckoff in _aflow_prototypes():
        if is_requested(atoms) and _is_plausible(atoms):
            aflow.append((standardize(atoms, source), wyckoff))
    names = Counter(material.name for material, _ in aflow)
    materials = {}
    for material, wyckoff in aflow:
        name = material.name if names[material.name] == 1 else f"{material.name}-{wyckoff}"
        materials[name] = replace(material, name=name)
    for symbol, state in zip(chemical_symbols, reference_states, strict=True):
        if state and state["symmetry"] in ASE_COMPLETE and state.get("basis", ()) is not None:
            atoms = bulk(symbol)
            if is_requested(atoms):
                material = standardize(atoms, f"ASE reference state of {symbol}")
                materials.setdefault(material.name, material)
    return tuple(materials[name] for name in sorted(materials))


def standardize(
    atoms: ase.Atoms, source: str, kind: MaterialKind = "builtin", symprec: float = SYMPREC
) -> Material:
    """Returns a crystal in the conventional cell of the International Tables.

    Formula, space group number and Pearson symbol make its name.

    Args:
        symprec: How far atoms may be from the positions of the space group, Å.

    Raises:
        WorkError: If spglib finds no symmetry.
    """
    symmetry = spglib.get_symmetry_dataset(
        (atoms.cell[:], atoms.get_scaled_positions(), atoms.numbers), symprec
    )
    if symmetry is None:
        raise WorkError(f"spglib finds no symmetry in {source}")
    conventional = ase.Atoms(
        numbers=symmetry.std_types,
        scaled_positions=symmetry.std_positions,
        cell=symmetry.std_lattice,
        pbc=True,
    )
    formula = reduced_formula(conventional)
    pearson = _pearson_symbol(symmetry.number, symmetry.international[0], len(conventional))
    name = f"{_file_safe(formula)}-{symmetry.number}-{pearson}"
    return Material(name, formula, symmetry.international, conventional, source, kind)


def _aflow_prototypes() -> Iterator[tuple[ase.Atoms, str, str]]:
    """(primitive cell, source, Wyckoff letters) of each prototype."""
    # The file is read as data: importing pymatgen.analysis.prototypes takes seconds and loads
    # pandas.
    library = files("pymatgen.analysis") / "prototypes" / "aflow_prototypes.json.gz"
    for entry in json.loads(gzip.decompress(library.read_bytes())):
        structure = entry["snl"]
        tags = entry["tags"]
        atoms = ase.Atoms(
            symbols=[site["species"][0]["element"] for site in structure["sites"]],
            scaled_positions=[site["abc"] for site in structure["sites"]],
            cell=structure["lattice"]["matrix"],
            pbc=True,
        )
        wyckoff = "".join(tags["aflow"].split("_")[3:])
        yield atoms, f"AFLOW {tags['aflow']} {tags['mineral']}".strip(), wyckoff


def _is_plausible(atoms: ase.Atoms) -> bool:
    """Whether no bond is shorter than real ones: spheres of these radii do not overlap."""
    radii = covalent_radii[atoms.numbers]
    return not len(neighbor_list("i", atoms, SHORTEST_BOND * radii))


def _file_safe(formula: str) -> str:
    """A formula without brackets, as KAg_CN_2, for file names."""
    return re.sub(r"\W", "_", formula)


def _pearson_symbol(space_group_number: int, centring: str, atoms: int) -> str:
    """The Pearson symbol. For a rhombohedral lattice it counts the atoms of the primitive cell, as
    AFLOW does.
    """
    last_of_family = (2, 15, 74, 142, 194, 230)
    family = "amothc"[bisect_left(last_of_family, space_group_number)]
    if centring == "R":
        return f"{family}R{atoms // 3}"
    return f"{family}{'C' if centring == 'A' else centring}{atoms}"
