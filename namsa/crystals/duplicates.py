"""Removal of duplicates: the same crystal from several sources is kept once.

Two crystals are the same if formula and space group agree and pymatgen's StructureMatcher maps one onto the other. The
space group distinguishes polymorphs that differ by a small distortion. The matcher distinguishes crystals that have the
same atoms at other positions. Lattice parameters may differ by as much as those of measurements and calculations do.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from pymatgen.core import Structure

from namsa.crystals.cif import to_structure
from namsa.crystals.material import Material, MaterialKind
from namsa.crystals.symmetry import MOST_ATOMS

# A crystal of one of these kinds is not compared with others of its kind.
NOT_COMPARED: tuple[MaterialKind, ...] = ("builtin", "layers", "generator", "substituted")
PREFERENCE: tuple[MaterialKind, ...] = get_args(MaterialKind)
MAX_SCALE = 1.1  # largest ratio of the lattice parameters: calculated cells are closer to the measured ones
LENGTH_TOLERANCE, SITE_TOLERANCE, ANGLE_TOLERANCE = 0.1, 0.15, 5.0  # fractions of sides and of spacings, degrees


def merge_duplicates(materials: Sequence[Material]) -> list[Material]:
    """Keeps one of all materials that are the same crystal.

    The material of the preferred source is kept, and of one source the first by name. Built-in crystals are not
    compared with each other, because the library holds each once, and substituted ones are not, because no two have the
    same formula and space group. The crystals of a generator are not either, because they may differ as little as the
    user wants. A film of few layers is another specimen than the crystal that its period would make, and is kept.
    Crystals of more than `namsa.crystals.symmetry.MOST_ATOMS` atoms are not compared.

    Returns:
        The kept materials in their order. Their `merged` lists what was left out.
    """
    groups: dict[tuple[str, str, bool], list[Material]] = defaultdict(list)
    for material in sorted(materials, key=lambda material: (PREFERENCE.index(material.kind), material.name)):
        groups[material.formula, material.space_group, material.kind == "layers"].append(material)
    kept = {}
    for group in groups.values():
        for material in _distinct(group):
            kept[material.name] = material
    return [kept[material.name] for material in materials if material.name in kept]


def _distinct(group: Sequence[Material]) -> list[Material]:
    """The different crystals of one formula and space group, in order of preference."""
    if len({material.kind for material in group}) == 1 and group[0].kind in NOT_COMPARED:
        return list(group)
    from pymatgen.analysis.structure_matcher import StructureMatcher

    # The time of a comparison grows fast with the number of atoms.
    large = [material for material in group if len(material.atoms) > MOST_ATOMS]
    group = [material for material in group if len(material.atoms) <= MOST_ATOMS]
    matcher = StructureMatcher(ltol=LENGTH_TOLERANCE, stol=SITE_TOLERANCE, angle_tol=ANGLE_TOLERANCE)
    kept: list[tuple[Material, Structure]] = []
    for material in group:
        structure = to_structure(material.atoms)
        for index, (other, other_structure) in enumerate(kept):
            compared = material.kind != other.kind or material.kind not in NOT_COMPARED
            if compared and _similar_volume(structure, other_structure) and matcher.fit(structure, other_structure):
                duplicate = f"{material.name} ({material.source})"
                kept[index] = (replace(other, merged=(*other.merged, duplicate)), other_structure)
                break
        else:
            kept.append((material, structure))
    return [material for material, _ in kept] + large


def _similar_volume(one: Structure, other: Structure) -> bool:
    """Whether the volumes per atom are similar: the matcher scales cells and would accept any pressure."""
    ratio = one.volume / one.composition.num_atoms / (other.volume / other.composition.num_atoms)
    return MAX_SCALE**-3 < ratio < MAX_SCALE**3
