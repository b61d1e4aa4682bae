"""The same crystal from several sources, kept once.

Crystals are the same where formula and space group agree and pymatgen's StructureMatcher lays one on the other: the
space group keeps apart polymorphs that differ by a small distortion, and the matcher what has the same atoms in other
places. Lattice parameters may differ as those of measurements and calculations do.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pymatgen.core import Structure

from namsa.crystals.cif import as_structure
from namsa.crystals.material import Kind, Material

APART: tuple[Kind, ...] = ("builtin", "generator")
PREFERRED: tuple[Kind, ...] = ("cif", "materials_project", "builtin", "generator", "substituted")
MAX_SCALE = 1.1  # of the lattice, by which two may differ: a made-up or calculated cell is closer
LENGTHS, SITES, ANGLES = 0.1, 0.15, 5.0  # the matcher's tolerances: fractions of sides and of spacings, degrees


def merged(materials: Sequence[Material]) -> list[Material]:
    """`materials` without duplicates, in their order; those that were kept say in `merged` what was left out.

    Kept is the one of the preferred source, of one source the first by name. Built-in crystals are not compared with
    each other, as the library has each once, nor are those of a generator, which may differ by as little as is wanted.
    """
    groups: dict[tuple[str, str], list[Material]] = defaultdict(list)
    for material in sorted(materials, key=lambda material: (PREFERRED.index(material.kind), material.name)):
        groups[material.formula, material.space_group].append(material)
    kept = {}
    for group in groups.values():
        for material in _distinct(group):
            kept[material.name] = material
    return [kept[material.name] for material in materials if material.name in kept]


def _distinct(group: Sequence[Material]) -> list[Material]:
    if len({material.kind for material in group}) == 1 and group[0].kind in APART:
        return list(group)
    from pymatgen.analysis.structure_matcher import StructureMatcher

    matcher = StructureMatcher(ltol=LENGTHS, stol=SITES, angle_tol=ANGLES)
    kept: list[tuple[Material, Structure]] = []
    for material in group:
        structure = as_structure(material.atoms)
        for index, (other, same) in enumerate(kept):
            apart = material.kind == other.kind and material.kind in APART
            if not apart and _alike(structure, same) and matcher.fit(structure, same):
                said = f"{material.name} ({material.source})"
                kept[index] = (replace(other, merged=(*other.merged, said)), same)
                break
        else:
            kept.append((material, structure))
    return [material for material, _ in kept]


def _alike(one: Structure, other: Structure) -> bool:
    """Of about the same size: the matcher scales cells to the same volume, and so would take any pressure."""
    ratio = one.volume / one.composition.num_atoms / (other.volume / other.composition.num_atoms)
    return MAX_SCALE**-3 < ratio < MAX_SCALE**3
