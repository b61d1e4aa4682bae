"""Twisted bilayers: commensurate angles, strain, right angles, and what is refused."""

import math

import numpy as np
import pytest
from ase import Atoms
from ase.build import graphene
from ase.data import covalent_radii
from ase.neighborlist import neighbor_list

import namsa
from namsa.crystals.layers import layer_materials
from namsa.errors import InputError


@pytest.fixture(scope="module")
def films() -> dict[str, Atoms]:
    return {film.name: film.atoms for film in layer_materials()}


# cos θ = (n² + 4nm + m²) / (2 (n² + nm + m²)) with (n, m) = (1, 2), (2, 3): 4 (n² + nm + m²) atoms in a hexagon's cell.
@pytest.mark.parametrize(("n", "m"), [(1, 2), (2, 3)])
def test_graphene_has_its_commensurate_angles_without_strain(films: dict[str, Atoms], n: int, m: int) -> None:
    angle = math.degrees(math.acos((n * n + 4 * n * m + m * m) / (2 * (n * n + n * m + m * m))))
    layer = films["C-graphite-1L"]
    bilayer = namsa.make_twisted_bilayer(layer, layer, round(angle, 2), max_strain=0.002)
    assert bilayer.strain < 1e-9
    assert bilayer.angle_deg == pytest.approx(angle, abs=1e-6)
    assert len(bilayer.atoms) == 2 * 4 * (n * n + n * m + m * m)
    assert bilayer.atoms.cell.angles() == pytest.approx([90, 90, 90])


def bond_angles(atoms: Atoms) -> np.ndarray:
    """Directions of the bonds in the plane, degrees modulo 60."""
    vectors = neighbor_list("D", atoms, 1.6)
    return np.degrees(np.arctan2(vectors[:, 1], vectors[:, 0])) % 60


def test_the_top_is_turned_counter_clockwise_by_the_stated_angle(films: dict[str, Atoms]) -> None:
    layer = films["C-graphite-1L"]
    bilayer = namsa.make_twisted_bilayer(layer, layer, 13.2, max_strain=0.01, lateral_angstrom=(10, 15))
    x, y, _ = bilayer.atoms.cell.lengths()
    assert x >= 15
    assert y >= 10
    assert abs(bilayer.angle_deg - 13.2) <= 0.2
    bottom, top = (bond_angles(bilayer.atoms[bilayer.atoms.get_tags() == tag]) for tag in (0, 1))
    turned = np.exp(6j * np.radians(top)).mean() / np.exp(6j * np.radians(bottom)).mean()
    assert math.degrees(np.angle(turned)) / 6 % 60 == pytest.approx(bilayer.angle_deg, abs=0.05)


def test_different_films_share_a_cell_within_the_strain(films: dict[str, Atoms]) -> None:
    top, bottom = films["MoS2-2H-2L"], films["C-graphite-1L"]
    bilayer = namsa.make_twisted_bilayer(top, bottom, 10, max_strain=0.02)
    x, y, z = bilayer.atoms.cell.lengths()
    assert z == pytest.approx(12.295 + 6.711 / 2)
    assert 0 < bilayer.strain <= 0.02
    for tag, film in ((0, bottom), (1, top)):
        part = bilayer.atoms[bilayer.atoms.get_tags() == tag]
        per_area = len(film) / np.linalg.norm(np.cross(film.cell[0], film.cell[1]))
        assert len(part) / (x * y) == pytest.approx(per_area, rel=0.04)  # twice the strain
        heights = part.positions[:, 2] - (0 if tag == 0 else 6.711 / 2)
        assert np.unique(heights.round(4)) == pytest.approx(np.unique(film.positions[:, 2].round(4)))
    bonds = neighbor_list("d", bilayer.atoms, {("Mo", "S"): 3.0})
    assert np.abs(bonds / 2.417 - 1).max() < 0.025
    assert not len(neighbor_list("i", bilayer.atoms, 0.7 * covalent_radii[bilayer.atoms.numbers]))


def test_films_and_limits_that_fit_nothing_are_refused(films: dict[str, Atoms]) -> None:
    layer = films["C-graphite-1L"]
    with pytest.raises(InputError, match="turned by 1.1°.*keeps to max_strain 0.01"):
        namsa.make_twisted_bilayer(layer, layer, 1.1, max_strain=0.01)
    with pytest.raises(InputError, match="the top film has no height"):
        namsa.make_twisted_bilayer(graphene(), layer, 5)
    with pytest.raises(InputError, match="the bottom film.*along z"):
        namsa.make_twisted_bilayer(layer, Atoms("C", cell=[[2, 0, 0], [0, 2, 0], [1, 0, 3]]), 5)
    with pytest.raises(InputError, match="max_strain is 0;"):
        namsa.make_twisted_bilayer(layer, layer, 5, max_strain=0)
