"""The crystals that come with the libraries, in the conventional cells that all but a user's own are given in."""

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

from namsa.crystals.cif import reduced_formula
from namsa.crystals.material import Kind, Material
from namsa.errors import WorkError

SYMPREC = 1e-3  # Å; the libraries give coordinates to four digits and more
# The shortest true bonds, of actinides, are at 0.66 of the sum of covalent radii; what is below are misprints and the
# one entry that marks Wyckoff positions by elements.
SHORTEST_BOND = 0.65
# Of its other reference states ASE has the lattice but not the atoms in it.
ASE_COMPLETE = ("sc", "fcc", "bcc", "hcp", "diamond", "bct", "rhombohedral")


def builtin(formulas: Collection[str] | None = None) -> tuple[Material, ...]:
    """Real crystals with measured lattice parameters, sorted by name; of these `formulas` only, as names begin.

    From the AFLOW library of crystallographic prototypes (Mehl et al., Comput. Mater. Sci. 136 (2017) S1), which
    pymatgen carries, and from ASE's reference states of the elements, where AFLOW has none of the same formula, space
    group and Pearson symbol. These three make the name, with Wyckoff letters where two share it.
    """

    def wanted(atoms: ase.Atoms) -> bool:
        return formulas is None or _plain(reduced_formula(atoms)) in formulas

    aflow = [
        (standard(atoms, source), wyckoff)
        for atoms, source, wyckoff in _aflow()
        if wanted(atoms) and _is_plausible(atoms)
    ]
    names = Counter(material.name for material, _ in aflow)
    found = {}
    for material, wyckoff in aflow:
        name = material.name if names[material.name] == 1 else f"{material.name}-{wyckoff}"
        found[name] = replace(material, name=name)
    for symbol, state in zip(chemical_symbols, reference_states, strict=True):
        if state and state["symmetry"] in ASE_COMPLETE and state.get("basis", ()) is not None:
            atoms = bulk(symbol)
            if wanted(atoms):
                material = standard(atoms, f"ASE reference state of {symbol}")
                found.setdefault(material.name, material)
    return tuple(found[name] for name in sorted(found))


def _aflow() -> Iterator[tuple[ase.Atoms, str, str]]:
    """(primitive cell, source, Wyckoff letters) of each prototype."""
    # Read as data: importing pymatgen.analysis.prototypes takes seconds, for pandas and for what is not needed here.
    library = files("pymatgen.analysis") / "prototypes" / "aflow_prototypes.json.gz"
    for entry in json.loads(gzip.decompress(library.read_bytes())):
        structure, tags = entry["snl"], entry["tags"]
        atoms = ase.Atoms(
            symbols=[site["species"][0]["element"] for site in structure["sites"]],
            scaled_positions=[site["abc"] for site in structure["sites"]],
            cell=structure["lattice"]["matrix"],
            pbc=True,
        )
        wyckoff = "".join(tags["aflow"].split("_")[3:])
        yield atoms, f"AFLOW {tags['aflow']} {tags['mineral']}".strip(), wyckoff


def _is_plausible(atoms: ase.Atoms) -> bool:
    radii = covalent_radii[atoms.numbers]
    return not len(neighbor_list("i", atoms, SHORTEST_BOND * radii))  # no two spheres of these radii touch


def standard(atoms: ase.Atoms, source: str, kind: Kind = "builtin", symprec: float = SYMPREC) -> Material:
    """The conventional cell of the International Tables, named by formula, space group and Pearson symbol.

    symprec: how far atoms may be, in Å, from where the space group puts them
    """
    symmetry = spglib.get_symmetry_dataset((atoms.cell[:], atoms.get_scaled_positions(), atoms.numbers), symprec)
    if symmetry is None:
        raise WorkError(f"spglib finds no symmetry in {source}")
    conventional = ase.Atoms(
        numbers=symmetry.std_types, scaled_positions=symmetry.std_positions, cell=symmetry.std_lattice, pbc=True
    )
    formula = reduced_formula(conventional)
    pearson = _pearson(symmetry.number, symmetry.international[0], len(conventional))
    name = f"{_plain(formula)}-{symmetry.number}-{pearson}"
    return Material(name, formula, symmetry.international, conventional, source, kind)


def _plain(formula: str) -> str:
    """KAg(CN)2 without the brackets: for names of files."""
    return re.sub(r"\W", "_", formula)


def _pearson(space_group_number: int, centring: str, atoms: int) -> str:
    """The Pearson symbol; a rhombohedral lattice counts the atoms of its primitive cell, as AFLOW has it."""
    last = (2, 15, 74, 142, 194, 230)
    family = "amothc"[bisect_left(last, space_group_number)]
    if centring == "R":
        return f"{family}R{atoms // 3}"
    return f"{family}{'C' if centring == 'A' else centring}{atoms}"
