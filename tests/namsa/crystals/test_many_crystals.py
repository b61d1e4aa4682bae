"""Hypothetical crystals in number: distinct, plausible, derived by name; zone axes that no symmetry
relates.
"""

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from ase.build import bulk
from ase.data import covalent_radii
from ase.neighborlist import neighbor_list

from namsa.config.materials import Materials, Substitution
from namsa.crystals import substitution
from namsa.crystals.builtin import SHORTEST_BOND, builtin_materials
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.crystals.sites import check_crystal, occupancies
from namsa.crystals.substitution import substitute_ions
from namsa.crystals.symmetry import simplest_zone_axes

MANY = Substitution(limit=200, max_ions=2, mixing_steps=2, alloys=True)
NAMES = (
    "NaCl-225-cF8",
    "CaTiO3-221-cP5",
    "Al2O3-167-hR10",
    "MgCu2-227-cF24",
    "Cu-225-cF4",
    "TiO2-136-tP6",
)


@pytest.fixture(scope="module", autouse=True)
def similar_ions_once() -> Iterator[None]:
    """The statistics of ions take a second to read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(substitution, "similar_ions", cache(substitution.similar_ions))
        yield


@pytest.fixture(scope="module")
def prototypes() -> list[Material]:
    known = {}
    for material in builtin_materials([name.split("-")[0] for name in NAMES]):
        known[material.name] = material
    return [known[name] for name in NAMES]


@pytest.fixture(scope="module")
def many(prototypes: list[Material]) -> list[Material]:
    return substitute_ions(MANY, prototypes, 83).materials


def test_crystals_are_distinct_and_fewer_are_the_first(
    many: list[Material], prototypes: list[Material]
) -> None:
    everything = [(material.formula, material.space_group) for material in [*many, *prototypes]]
    assert len(many) == 200
    assert len(set(everything)) == len(everything)
    assert len({material.name for material in many}) == len(many)
    fewer = substitute_ions(MANY.model_copy(update={"limit": 40}), prototypes, 83).materials
    assert [material.name for material in fewer] == [material.name for material in many[:40]]


def test_prototypes_give_equally_many_and_whole_replacements_come_first(
    many: list[Material],
) -> None:
    by_prototype = {}
    for name in NAMES:
        by_prototype[name] = [m for m in many if m.prototype == name]
    counts = [len(group) for group in by_prototype.values()]
    assert min(counts) >= 2  # of 2 that NaCl can give
    assert sorted(counts)[-1] > 100  # of those that are left, CaTiO3 gives all
    mixed = []
    for group in by_prototype.values():
        mixed.append(["occupancy" in material.atoms.arrays for material in group])
    for kinds in mixed:
        assert kinds == sorted(kinds)
    assert any(map(any, mixed))
    assert not all(map(all, mixed))


def test_atoms_share_sites_keep_their_distance_and_make_the_formula(many: list[Material]) -> None:
    for material in many:
        check_crystal(material.atoms)  # sites hold at most one atom
        assert occupancies(material.atoms).min() >= 0.5
        first, second, distance = neighbor_list("ijd", material.atoms, 2.5)
        apart = distance > 0.01
        touching = (
            covalent_radii[material.atoms.numbers[first]]
            + covalent_radii[material.atoms.numbers[second]]
        )
        assert np.all(distance[apart] >= SHORTEST_BOND * touching[apart]), material.name
    from pymatgen.core import Composition

    for material in many:
        amounts: dict[str, float] = {}
        for symbol, share in zip(material.atoms.symbols, occupancies(material.atoms), strict=True):
            amounts[symbol] = amounts.get(symbol, 0) + share
        expected = Composition(material.formula).fractional_composition
        assert Composition(amounts).fractional_composition.almost_equals(expected), material.name


def test_named_crystals_are_the_same_as_among_all(
    many: list[Material], prototypes: list[Material]
) -> None:
    chosen = many[7::50]
    named, _ = substitute_ions(
        MANY, prototypes, 83, {material.name for material in chosen} | {"Xy-from-nothing"}
    )
    assert {m.name for m in named} == {m.name for m in chosen}
    for material in named:
        (same,) = [other for other in chosen if other.name == material.name]
        assert (material.formula, material.source) == (same.formula, same.source)
        assert np.array_equal(material.atoms.positions, same.atoms.positions)
        assert np.array_equal(material.atoms.numbers, same.atoms.numbers)


def test_select_returns_the_named_materials_only() -> None:
    config = Materials(builtin=("NaCl-225-cF8", "Cu-225-cF4"), substitute=Substitution(limit=5))
    everything = select_materials(config)
    names = {everything[0].name, everything[-1].name}
    assert {material.name for material in select_materials(config, names=names)} == names


@pytest.mark.parametrize(
    ("atoms", "expected"),
    [
        (bulk("Cu", cubic=True), [(0, 0, 1), (0, 1, 1), (1, 1, 1), (0, 1, 2), (1, 1, 2)]),
        (bulk("Zn", a=2.66, c=4.95), None),
    ],
)
def test_zone_axes_are_the_simplest_that_differ(atoms, expected) -> None:
    axes = simplest_zone_axes(atoms, 5)
    assert axes[0] == (0, 0, 1)
    assert len(set(axes)) == 5
    if atoms.symbols[0] == "Cu":
        assert list(axes) == expected
    # Lattice vectors of equivalent axes are equally long and have the same angle to c; here one of
    # both differs.
    vectors = np.array(axes) @ np.asarray(atoms.cell)
    invariants = {(round(float(v @ v), 6), round(abs(float(v[2])), 6)) for v in vectors}
    if atoms.symbols[0] == "Zn":
        assert len(invariants) == 5


def test_a_cubic_crystal_has_as_many_zone_axes_as_may_be_asked_for() -> None:
    axes = simplest_zone_axes(bulk("Cu", cubic=True), 20)
    assert len({tuple(sorted(map(abs, axis))) for axis in axes}) == len(axes) == 20
    for axis in itertools.chain(axes):
        assert max(map(abs, axis)) <= 4
