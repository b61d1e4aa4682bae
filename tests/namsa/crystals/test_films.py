"""Films of few layers of layered crystals, also twisted: distances, layers, cells, selection and
splits.
"""

import math
from collections import defaultdict

import numpy as np
import pytest
import yaml
from ase import Atoms
from ase.build import graphene
from ase.data import covalent_radii
from ase.neighborlist import neighbor_list
from pymatgen.core import Composition

import namsa
from namsa.base.errors import InputError
from namsa.base.names import is_name
from namsa.config.materials import Materials, Split
from namsa.config.simulation import SimulationConfig
from namsa.crystals import layers
from namsa.crystals.builtin import SHORTEST_BOND, builtin_materials, standardize
from namsa.crystals.layers import layer_materials
from namsa.crystals.material import Material
from namsa.crystals.orient import find_rectangular_cells, fit_to_size
from namsa.crystals.select import select_materials
from namsa.crystals.supercell import make_supercell
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import assign
from namsa.dataset.sample_setup import build_supercell

# Shortest distances of neighbours, Å, as textbooks give them. Whoever wrote the table may have
# known some of them.
BONDS = {
    "C-graphite": ("C", "C", 1.42),
    "BN-194": ("B", "N", 1.45),
    "MoS2-2H": ("Mo", "S", 2.42),
    "MoSe2-2H": ("Mo", "Se", 2.53),
    "MoTe2-2H": ("Mo", "Te", 2.72),
    "WS2-2H": ("W", "S", 2.41),
    "WSe2-2H": ("W", "Se", 2.53),
    "NbSe2-2H": ("Nb", "Se", 2.60),
    "TiS2-1T": ("Ti", "S", 2.43),
    "TiSe2-1T": ("Ti", "Se", 2.55),
    "PtSe2-1T": ("Pt", "Se", 2.52),
    "PbI2-1T": ("Pb", "I", 3.22),
    "CdI2-1T": ("Cd", "I", 2.99),
    "MgCl2-3R": ("Mg", "Cl", 2.49),
    "CdCl2-3R": ("Cd", "Cl", 2.64),
    "CrCl3-3R": ("Cr", "Cl", 2.34),
    "MnPS3-12": ("P", "S", 2.03),
    "GaS-194": ("Ga", "S", 2.33),
    "Bi2Se3-166": ("Bi", "Se", 2.85),
    "Bi2Te3-166": ("Bi", "Te", 3.07),
    "P-black": ("P", "P", 2.22),
    "SnS-62": ("Sn", "S", 2.63),
    "GeSe-62": ("Ge", "Se", 2.56),
    "MoO3-62": ("Mo", "O", 1.67),
    "V2O5-59": ("V", "O", 1.58),
    "PbO-129": ("Pb", "O", 2.32),
    "FeSe-129": ("Fe", "Se", 2.39),
    "BiOCl-129": ("Bi", "O", 2.32),
}


@pytest.fixture(scope="module")
def films() -> dict[str, Material]:
    return {film.name: film for film in layer_materials()}


def crystals(films: dict[str, Material]) -> dict[str, list[Material]]:
    """The films of one, two and three layers by crystal."""
    by_crystal = defaultdict(list)
    for name, film in films.items():
        by_crystal[name.rpartition("-")[0]].append(film)
    return by_crystal


def test_every_crystal_has_films_of_one_two_and_three_layers(films: dict[str, Material]) -> None:
    assert len(films) == 240
    assert list(films) == sorted(films)
    for name, (one, two, three) in crystals(films).items():
        assert [film.name for film in (one, two, three)] == [f"{name}-{n}L" for n in (1, 2, 3)]
        for film in (one, two, three):
            assert is_name(film.name)
            assert film.kind == "layers"
        assert len(two.atoms) == 2 * len(one.atoms)
        assert len(three.atoms) == 3 * len(one.atoms)
        assert two.atoms.cell[2] == pytest.approx(2 * one.atoms.cell[2])
        assert {film.formula for film in (one, two, three)} == {one.formula}


@pytest.mark.parametrize("crystal", BONDS)
def test_bonds_have_their_length(films: dict[str, Material], crystal: str) -> None:
    one, other, length = BONDS[crystal]
    atoms = films[f"{crystal}-1L"].atoms
    assert neighbor_list("d", atoms, {(one, other): length + 0.5}).min() == pytest.approx(
        length, abs=0.02
    )


def test_crystals_agree_with_those_of_aflow(films: dict[str, Material]) -> None:
    table = yaml.safe_load(
        layers.files("namsa.crystals").joinpath("layers.yaml").read_text(encoding="utf-8")
    )
    aflow = []
    for material in builtin_materials():
        if material.source.startswith("AFLOW"):
            aflow.append(material)
    compared = set()
    for name, entry in table["crystals"].items():
        bulk = standardize(
            films[f"{name}-{entry['layers']}L"].atoms, name
        )  # whole periods repeat as the bulk does
        alike = []
        for m in aflow:
            if (m.formula, m.space_group) == (bulk.formula, bulk.space_group):
                alike.append(m.atoms)
        if not alike:
            continue
        compared.add(name)
        nearest = min(
            alike, key=lambda atoms: abs(atoms.cell.volume - bulk.atoms.cell.volume)
        )  # of several carbons
        assert bulk.atoms.cell.cellpar() == pytest.approx(nearest.cell.cellpar(), rel=0.006), name
        reach = 1.3 * covalent_radii[nearest.numbers]
        shortest, expected = (
            neighbor_list("d", atoms, reach).min() for atoms in (bulk.atoms, nearest)
        )
        assert shortest == pytest.approx(expected, rel=0.022), name
    assert compared == {
        *(
            "BN-194",
            "BiI3-3R",
            "Bi2Te3-166",
            "C-graphite",
            "CdI2-1T",
            "GeS-62",
            "MoS2-2H",
            "P-black",
            "PbO-129",
        ),
        "SnS-62",
    }


def test_coordinates_that_follow_from_bonds_do_so(films: dict[str, Material]) -> None:
    table = yaml.safe_load(
        layers.files("namsa.crystals").joinpath("layers.yaml").read_text(encoding="utf-8")
    )
    given = {}
    for name, entry in table["crystals"].items():
        if "bond" in entry:
            given[name] = entry["bond"]
    assert given
    for name, bonds in given.items():
        for pair, length in bonds.items():
            distances = neighbor_list(
                "d", films[f"{name}-1L"].atoms, {tuple(pair.split("-")): length + 0.5}
            )
            assert distances.min() == pytest.approx(length, abs=0.015), (name, pair)


def test_layers_do_not_overlap_and_are_apart(films: dict[str, Material]) -> None:
    for film in films.values():
        radii = covalent_radii[film.atoms.numbers]
        assert not len(neighbor_list("i", film.atoms, SHORTEST_BOND * radii)), film.name
        heights = film.atoms.positions[:, 2]
        # Half of the gap is left at either face; the terminal O of MoO3 and the vanadyl O of V2O5
        # lie the highest.
        assert heights.min() > 0.7, film.name
        assert film.atoms.cell[2, 2] - heights.max() > 0.7, film.name


def test_a_bilayer_has_the_stacking_of_the_bulk(films: dict[str, Material]) -> None:
    atoms = films["MoS2-2H-2L"].atoms
    columns = set()
    for x, y, _ in np.round(atoms.get_scaled_positions(), 3):
        columns.add((round(x, 3) % 1, round(y, 3) % 1))
    assert len(columns) == 2  # each column has a Mo and two S, as in a honeycomb
    below = atoms[atoms.positions[:, 2] < 6.15]
    above = atoms[atoms.positions[:, 2] > 6.15]
    molybdenum = below.symbols == "Mo"
    sulphur = above.symbols == "S"
    apart = above.positions[sulphur][:, None, :2] - below.positions[molybdenum][None, :, :2]
    assert np.abs(apart).max() == pytest.approx(0, abs=1e-6)
    # Graphite: half of the atoms have a neighbour 3.36 Å above, half are over the middle of a ring.
    over = neighbor_list("d", films["C-graphite-2L"].atoms, 3.4)
    assert np.count_nonzero(np.abs(over - 3.3555) < 1e-3) > 0


def test_every_film_fits_a_right_angled_cell_within_3_percent(films: dict[str, Material]) -> None:
    for name, (one, two, _) in crystals(films).items():
        cells = find_rectangular_cells(one.atoms, (0, 0, 1), max_strain=0.03)
        for lateral in (16.0, 20.0):
            fit = fit_to_size(cells, (lateral, lateral + 2), thickness_angstrom=3, max_atoms=6000)
            assert fit.strain <= 0.03
            assert fit.lengths_angstrom[0] >= lateral + 2, name
            assert fit.lengths_angstrom[1] >= lateral, name
            assert fit.lengths_angstrom[2] == pytest.approx(one.atoms.cell[2, 2])
        # The film once, whatever its layers: its cell across the beam is that of one layer.
        np.testing.assert_allclose(two.atoms.cell[:2], one.atoms.cell[:2], err_msg=name)
        assert max(1, math.floor(3 / one.atoms.cell[2, 2] + 0.5)) == 1


def test_a_thickness_repeats_the_film(films: dict[str, Material]) -> None:
    counts = []
    for thickness in (3, 6.5, 13):
        cell = make_supercell(
            films["MoS2-2H-1L"].atoms,
            zone_axis=(0, 0, 1),
            lateral_angstrom=(10, 10),
            thickness_angstrom=thickness,
        )
        assert cell.atoms.cell.angles() == pytest.approx([90, 90, 90])
        counts.append(
            len(cell.atoms)
            / math.prod(cell.atoms.cell.lengths()[:2])
            * 3.1604**2
            * math.sqrt(3)
            / 2
        )
    assert counts == pytest.approx([3, 3, 6])


def test_names_select_films(films: dict[str, Material]) -> None:
    chosen = select_materials(
        Materials(layers=("MoS2-2H", "C-graphite-1L"), builtin=("MoS2-194-hP6",))
    )
    # The film of two layers, repeated, would be the crystal: it is not a duplicate of it.
    names = ["C-graphite-1L", "MoS2-194-hP6", "MoS2-2H-1L", "MoS2-2H-2L", "MoS2-2H-3L"]
    assert [material.name for material in chosen] == names
    assert len(select_materials(Materials(layers="all"))) == len(films)
    with pytest.raises(
        InputError, match=r"materials.layers: MoS3-2H is not known; nearest are MoS2-2H,"
    ):
        select_materials(Materials(layers=("MoS3-2H",)))


def test_prototypes_are_few(films: dict[str, Material]) -> None:
    split = Split(train=0.7, dev=0.15, test=0.15, by="prototype")
    by_prototype = dict(zip(films, assign(list(films.values()), split), strict=True))
    dichalcogenides = []
    for n in films:
        if n.split("-")[1] in ("1T", "2H") and "2-" in n:
            dichalcogenides.append(n)
    assert (
        len({by_prototype[name] for name in dichalcogenides}) == 1
    )  # TaS2 and TaSe2 connect 1T and 2H
    assert {Composition(films[n].formula).anonymized_formula for n in dichalcogenides} == {"AB2"}


@pytest.mark.parametrize("method", ["auto", "scatter"])
def test_samples_of_a_dataset_are_whole_films(films: dict[str, Material], method: str) -> None:
    specimen = {"thickness_angstrom": [3], "lateral_angstrom": [10, 12], "max_strain": 0.03}
    simulation = {"sampling_angstrom": 0.3, "method": method}
    config = SimulationConfig.model_validate({"specimen": specimen, "simulation": simulation})
    chosen = [films[name] for name in ("C-graphite-1L", "CdI2-1T-3L", "Bi2Te3-166-2L")]
    for film, entry in zip(chosen, build_entries(config, chosen), strict=True):
        cell = build_supercell(config, film, entry).atoms
        assert cell.cell[2, 2] == pytest.approx(film.atoms.cell[2, 2])
        assert cell.symbols.formula.reduce()[0] == film.atoms.symbols.formula.reduce()[0]
        areal = len(film.atoms) / np.linalg.norm(np.cross(film.atoms.cell[0], film.atoms.cell[1]))
        assert len(cell) / math.prod(cell.cell.lengths()[:2]) == pytest.approx(areal, rel=0.03)


# ---- Twisted bilayers
# ------------------------------------------------------------------------------------------------


# cos θ = (n² + 4nm + m²) / (2 (n² + nm + m²)) with (n, m) = (1, 2), (2, 3): 4 (n² + nm + m²) atoms
# in a hexagon's cell.
@pytest.mark.parametrize(("n", "m"), [(1, 2), (2, 3)])
def test_graphene_has_its_commensurate_angles_without_strain(
    films: dict[str, Material], n: int, m: int
) -> None:
    angle = math.degrees(math.acos((n * n + 4 * n * m + m * m) / (2 * (n * n + n * m + m * m))))
    layer = films["C-graphite-1L"].atoms
    bilayer = namsa.make_twisted_bilayer(layer, layer, round(angle, 2), max_strain=0.002)
    assert bilayer.strain < 1e-9
    assert bilayer.angle_deg == pytest.approx(angle, abs=1e-6)
    assert len(bilayer.atoms) == 2 * 4 * (n * n + n * m + m * m)
    assert bilayer.atoms.cell.angles() == pytest.approx([90, 90, 90])


def bond_angles(atoms: Atoms) -> np.ndarray:
    """Directions of the bonds in the plane, degrees modulo 60."""
    vectors = neighbor_list("D", atoms, 1.6)
    return np.degrees(np.arctan2(vectors[:, 1], vectors[:, 0])) % 60


def test_the_top_is_turned_counter_clockwise_by_the_stated_angle(
    films: dict[str, Material],
) -> None:
    layer = films["C-graphite-1L"].atoms
    bilayer = namsa.make_twisted_bilayer(
        layer, layer, 13.2, max_strain=0.01, lateral_angstrom=(10, 15)
    )
    x, y, _ = bilayer.atoms.cell.lengths()
    assert x >= 15
    assert y >= 10
    assert abs(bilayer.angle_deg - 13.2) <= 0.2
    bottom, top = (bond_angles(bilayer.atoms[bilayer.atoms.get_tags() == tag]) for tag in (0, 1))
    turned = np.exp(6j * np.radians(top)).mean() / np.exp(6j * np.radians(bottom)).mean()
    assert math.degrees(np.angle(turned)) / 6 % 60 == pytest.approx(bilayer.angle_deg, abs=0.05)


def test_different_films_share_a_cell_within_the_strain(films: dict[str, Material]) -> None:
    top = films["MoS2-2H-2L"].atoms
    bottom = films["C-graphite-1L"].atoms
    bilayer = namsa.make_twisted_bilayer(top, bottom, 10, max_strain=0.02)
    x, y, z = bilayer.atoms.cell.lengths()
    assert z == pytest.approx(12.295 + 6.711 / 2)
    assert 0 < bilayer.strain <= 0.02
    for tag, film in ((0, bottom), (1, top)):
        layer = bilayer.atoms[bilayer.atoms.get_tags() == tag]
        per_area = len(film) / np.linalg.norm(np.cross(film.cell[0], film.cell[1]))
        assert len(layer) / (x * y) == pytest.approx(per_area, rel=0.04)  # twice the strain
        heights = layer.positions[:, 2] - (0 if tag == 0 else 6.711 / 2)
        assert np.unique(heights.round(4)) == pytest.approx(
            np.unique(film.positions[:, 2].round(4))
        )
    bonds = neighbor_list("d", bilayer.atoms, {("Mo", "S"): 3.0})
    assert np.abs(bonds / 2.417 - 1).max() < 0.025
    assert not len(neighbor_list("i", bilayer.atoms, 0.7 * covalent_radii[bilayer.atoms.numbers]))


def test_films_and_limits_that_fit_nothing_are_refused(films: dict[str, Material]) -> None:
    layer = films["C-graphite-1L"].atoms
    with pytest.raises(InputError, match="turned by 1.1°.*keeps to max_strain 0.01"):
        namsa.make_twisted_bilayer(layer, layer, 1.1, max_strain=0.01)
    with pytest.raises(InputError, match="the top film has no height"):
        namsa.make_twisted_bilayer(graphene(), layer, 5)
    with pytest.raises(InputError, match="the bottom film.*along z"):
        namsa.make_twisted_bilayer(layer, Atoms("C", cell=[[2, 0, 0], [0, 2, 0], [1, 0, 3]]), 5)
    with pytest.raises(InputError, match="max_strain is 0;"):
        namsa.make_twisted_bilayer(layer, layer, 5, max_strain=0)
