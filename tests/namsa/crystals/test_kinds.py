"""Specimens with defects, boundaries, surfaces and glass, against crystallography."""

from typing import Any

import ase
import numpy as np
import pytest
from ase.build import bulk
from scipy.spatial import KDTree

import namsa
from namsa.base.errors import InputError
from namsa.config.specimen import KINDS
from namsa.crystals.kinds.inclusions import PART
from namsa.crystals.kinds.overlaps import CLOSEST, pair_distances
from namsa.crystals.kinds.specimen import WITH_PARTNER
from namsa.crystals.sites import check_atoms
from namsa.crystals.supercell import Supercell
from namsa.scattering import scatter

GOLD = bulk("Au", cubic=True)
ARSENIDE = bulk("GaAs", "zincblende", 5.653, cubic=True)


def perovskite(large: str, side: float) -> ase.Atoms:
    places = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)]
    return ase.Atoms(f"{large}TiO3", scaled_positions=places, cell=[side] * 3, pbc=True)


TITANATE = perovskite("Sr", 3.905)
PARTNER = perovskite("Ba", 4.0)


def specimen(
    kind: str, crystal: ase.Atoms = TITANATE, axis: tuple[int, int, int] = (0, 0, 1), **more: Any
) -> Supercell:
    partner = {"partner": PARTNER} if kind in WITH_PARTNER else {}
    size = {"lateral_angstrom": (18, 15), "thickness_angstrom": 30}  # (y, x): not square
    return namsa.make_specimen(crystal, kind, zone_axis=axis, **size | partner | more)


def nearest(atoms: ase.Atoms) -> dict[tuple[int, int], float]:
    """The shortest distance of each pair of elements in the periodic cell, Å."""
    sides = atoms.cell.lengths()
    pairs = KDTree(atoms.positions % sides, boxsize=sides).query_pairs(4.0, output_type="ndarray")
    offset = atoms.positions[pairs[:, 0]] - atoms.positions[pairs[:, 1]]
    distance = np.linalg.norm(offset - sides * np.round(offset / sides), axis=1)
    shortest: dict[tuple[int, int], float] = {}
    for pair, length in zip(
        np.sort(atoms.numbers[pairs], axis=1).tolist(), distance.tolist(), strict=True
    ):
        shortest[pair[0], pair[1]] = min(length, shortest.get((pair[0], pair[1]), np.inf))
    return shortest


@pytest.mark.parametrize("crystal", [TITANATE, ARSENIDE], ids=["perovskite", "zincblende"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_specimen_has_atoms_nearer_than_the_limit(kind: str, crystal: ase.Atoms) -> None:
    for seed in range(2):
        given = {"parameters": {"composition": "own"}} if kind.startswith("amorphous") else {}
        if kind in WITH_PARTNER:
            partner = {"partner": bulk("AlAs", "zincblende", 5.661, cubic=True)}
        else:
            partner = {}
        if crystal is TITANATE:
            partner = {}
        made = specimen(kind, crystal, seed=seed, **given | partner)
        check_atoms(made.atoms)
        assert made.atoms.cell.orthorhombic
        assert made.atoms.positions.min() >= 0
        assert np.all(made.atoms.positions < made.atoms.cell.lengths())
        limits = CLOSEST * pair_distances(
            [crystal, PARTNER if crystal is TITANATE else bulk("AlAs", "zincblende", 5.6)]
        )
        if kind == "substitution":  # takes the places of others
            continue
        for (one, other), length in nearest(made.atoms).items():
            # The distances in glass are those of the crystal less 5%.
            assert length >= (0.95 if "amorphous" in kind else 1) * limits[one, other] - 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_alone_decides_a_specimen(kind: str) -> None:
    one, same, other = (specimen(kind, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(one.atoms.positions, same.atoms.positions)
    assert np.array_equal(one.atoms.numbers, same.atoms.numbers)
    assert one.parameters == same.parameters
    assert (kind == "crystal") == (one.parameters == other.parameters)


def test_vacancies_are_the_share_of_their_element_and_in_few_columns() -> None:
    perfect, holed = (
        specimen(kind, **more).atoms
        for kind, more in (("crystal", {}), ("vacancies", _holes("random")))
    )
    removed = {}
    for symbol in perfect.symbols:
        removed[symbol] = int(np.sum(perfect.symbols == symbol) - np.sum(holed.symbols == symbol))
    assert removed == {"Sr": 0, "Ti": 0, "O": round(0.1 * np.sum(perfect.symbols == "O"))}

    def columns_with_vacancies(arrangement: str) -> int:
        def columns(atoms: ase.Atoms) -> dict[tuple[float, ...], int]:
            places, counts = np.unique(
                atoms.positions[atoms.numbers == 8, :2].round(2), axis=0, return_counts=True
            )
            return dict(zip(map(tuple, places.tolist()), counts.tolist(), strict=True))

        perfect = columns(specimen("crystal").atoms)
        holed = columns(specimen("vacancies", **_holes(arrangement)).atoms)
        return sum(holed.get(place, 0) < count for place, count in perfect.items())

    assert columns_with_vacancies("columns") < 0.6 * columns_with_vacancies("random")


def _holes(arrangement: str) -> dict[str, Any]:
    return {"parameters": {"element": "O", "share": 0.1, "arrangement": arrangement}}


def test_substitution_changes_elements_and_no_positions() -> None:
    perfect = specimen("crystal").atoms
    doped = specimen(
        "substitution", parameters={"element": "Sr", "replacement": "La", "share": 0.2}
    )
    assert np.array_equal(doped.atoms.positions, perfect.positions)
    changed = doped.atoms.numbers != perfect.numbers
    assert (
        changed.sum()
        == doped.parameters["replaced_sites"]
        == round(0.2 * np.sum(perfect.symbols == "Sr"))
    )
    assert set(perfect.symbols[changed]) == {"Sr"}
    assert set(doped.atoms.symbols[changed]) == {"La"}


def test_an_interface_keeps_all_planes_of_both_crystals() -> None:
    made = specimen("interface", parameters={"axis": "x", "position": 0.0})
    first, second = made.parameters["planes_angstrom"]
    x = made.atoms.positions[:, 0]
    in_first = (x > first - 1e-3) & (x < second - 1e-3)
    assert set(made.atoms.symbols[in_first]) == {"Sr", "Ti", "O"}
    assert set(made.atoms.symbols[~in_first]) == {"Ba", "Ti", "O"}
    cells = round(np.prod(made.atoms.cell.lengths()) / 3.905**3)
    assert len(made.atoms) == 5 * cells
    assert made.parameters["misfit"] == pytest.approx(1 - 3.905 / 4.0, abs=1e-5)
    # Every titanium has its six oxygen atoms, also at the interface.
    sides = made.atoms.cell.lengths()
    oxygen = KDTree(made.atoms.positions[made.atoms.numbers == 8], boxsize=sides)
    titanium = made.atoms.positions[made.atoms.numbers == 22]
    assert set(map(len, oxygen.query_ball_point(titanium, 2.2))) == {6}


def test_a_twin_of_gold_along_110_is_the_coherent_one() -> None:
    twin = specimen("twin", GOLD, (1, 1, 0), parameters={"position": 0.25})
    atoms, (first, second) = twin.atoms, twin.parameters["planes_angstrom"]
    sides = atoms.cell.lengths()
    assert second - first == pytest.approx(sides[0] / 2, abs=2e-3)
    # Σ3 (111): every atom keeps its twelve neighbours at their distance.
    tree = KDTree(atoms.positions, boxsize=sides)
    neighbours = tree.query_ball_point(atoms.positions, 4.08 / np.sqrt(2) + 0.01)
    assert set(map(len, neighbours)) == {13}
    # In the crystal each neighbour has another opposite to it. In the two planes of the twin that
    # is not so.
    opposite = []
    for i, n in enumerate(neighbours):
        opposite.append(tree.query((2 * atoms.positions[i] - atoms.positions[n]) % sides)[0])
    in_plane = atoms.positions[np.array([distance.max() > 0.5 for distance in opposite]), 0]
    layer = 4.08 / np.sqrt(3)
    assert len(in_plane) == 2 * len(atoms) / round(sides[0] / layer)
    for x in in_plane:
        assert min(abs(x - first), abs(x - second)) < 1.01 * layer


def test_the_smallest_boundary_of_gold_along_001_is_sigma_5() -> None:
    made = specimen("boundary", GOLD, (0, 0, 1), parameters={"plane": 0})
    period = 4.08 * np.sqrt(5)
    assert np.allclose(made.atoms.cell.lengths()[:2] / period % 1 % 0.999999, 0, atol=1e-3)
    full = 4 * np.prod(made.atoms.cell.lengths()) / 4.08**3
    assert 0.85 * full < len(made.atoms) <= full


def test_a_crystal_whose_mirror_images_are_itself_has_no_twin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("namsa.crystals.kinds.halves._SAME_DIRECTION", 10.0)
    with pytest.raises(InputError, match="every mirror image"):
        specimen("twin")


def test_a_surface_and_a_step_have_vacuum_where_they_say() -> None:
    made = specimen("surface", parameters={"axis": "y", "start": 0.8, "vacuum": 0.4})
    fraction = made.atoms.positions[:, 1] / made.atoms.cell.lengths()[1]
    assert np.all((fraction >= 0.2 - 1e-9) & (fraction < 0.8))
    with pytest.raises(InputError, match="leaves no atom"):
        specimen("surface", parameters={"vacuum": 1.0})
    made = specimen(
        "step", parameters={"axis": "x", "start": 0.5, "width": 0.5, "depth_angstrom": 12.0}
    )
    crystal = specimen("crystal")
    above = crystal.atoms.positions[:, 2] < 12
    assert np.sum(made.atoms.positions[:, 2] < 12) == above.sum()
    deep = made.atoms.positions[made.atoms.positions[:, 2] >= 12]
    assert len(deep)
    assert np.all(deep[:, 0] < 0.5 * made.atoms.cell.lengths()[0])


@pytest.mark.parametrize(
    ("composition", "bond", "neighbours"),
    [("C", 1.45, (2.3, 3.2)), ("Si", 2.35, (3.4, 4.2)), ("SiO2", 1.62, (2.0, 2.8))],
)
def test_glass_has_its_density_bonds_and_coordination(
    composition: str, bond: float, neighbours: tuple[float, float]
) -> None:
    made = specimen("amorphous", parameters={"composition": composition})
    atoms = made.atoms
    sides = made.atoms.cell.lengths()
    density = atoms.get_masses().sum() * 1.66054 / np.prod(sides)
    assert density == pytest.approx(made.parameters["density_g_per_cm3"], rel=0.02)
    pairs = KDTree(atoms.positions, boxsize=sides).query_pairs(1.25 * bond, output_type="ndarray")
    assert neighbours[0] < 2 * len(pairs) / len(atoms) < neighbours[1]
    # No peak of a crystal: no two-dimensional frequency carries much of the projected atoms.
    waves = np.exp(
        2j
        * np.pi
        * atoms.positions[:, :2]
        @ (np.indices((9, 9)).reshape(2, -1)[:, 1:] / sides[:2, None])
    )
    assert abs(waves.mean(axis=0)).max() < 0.2


def test_an_amorphous_layer_lies_where_the_beam_enters() -> None:
    made = specimen("amorphous_layer", parameters={"layer_angstrom": 10.0})
    crystal = specimen("crystal")
    below = made.atoms.positions[:, 2] >= 10
    kept = crystal.atoms[crystal.atoms.positions[:, 2] >= 10]
    assert np.array_equal(made.atoms.positions[below], kept.positions)
    assert np.sum(~below) > 0.5 * len(kept) / 2


@pytest.mark.parametrize("kind", ["amorphous_layer", "step", "interface", "amorphous"])
def test_samples_cut_at_two_depths_have_the_matter_above_them(kind: str) -> None:
    atoms = specimen(kind, lateral_angstrom=(8, 8), seed=1).atoms
    depth = float(atoms.cell.lengths()[2])
    scattering = scatter(
        atoms, energy_ev=200e3, max_angle_mrad=8, grid_shape=(32, 32),
        thicknesses_angstrom=[depth / 2, depth],
        slice_thickness_angstrom=depth / 16,
    )  # fmt: skip
    samples = []
    for index in (0, 1):
        samples.append(
            scattering.simulate(
                index, semiangle_mrad=8, positions_angstrom=[[0.0, 0.0], [3.0, 2.0]]
            )
        )
    thin, thick = (float(sample.density.sum()) for sample in samples)
    above = atoms.numbers[atoms.positions[:, 2] < depth / 2].sum() / atoms.numbers.sum()
    assert thin / thick == pytest.approx(above, rel=0.05)
    assert not np.allclose(samples[0].cbed, samples[1].cbed)


def test_a_mixed_site_stays_whole() -> None:
    mixed = perovskite("Sr", 3.905) + ase.Atoms("La", positions=[(0, 0, 0)])
    mixed.set_array("occupancy", np.array([0.7, 1, 1, 1, 1, 0.3]))
    for kind in ("vacancies", "boundary", "amorphous_layer"):
        atoms = specimen(
            kind, mixed, parameters={"composition": "Ge"} if kind == "amorphous_layer" else {}
        ).atoms
        places = []
        for symbol in ("Sr", "La"):
            places.append(set(map(tuple, atoms.positions[atoms.symbols == symbol].round(4))))
        assert places[0] == places[1]


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("vacancies", {"parameters": {"shares": 0.1}}, "not known"),
        ("vacancies", {"parameters": {"share": 1.5}}, "number of 0 to 1"),
        ("vacancies", {"parameters": {"element": "Xx"}}, "one of any, O, Ti, Sr"),
        ("amorphous", {"parameters": {"composition": "glass"}}, "one of own"),
        ("crystals", {}, "kind is crystals"),
        ("interface", {"partner": perovskite("Ba", 4.35)}, "does not fit"),
        ("interface", {"partner": None}, "needs a second crystal"),
        ("twin", {"partner": PARTNER}, "has no partner"),
        ("stack", {"partner": bulk("W", "sc", 5.2)}, "does not fit"),
        ("cap", {"parameters": {"side": "entrance", "part": 0.0}}, "without an atom"),
        ("doped_layer", {"parameters": {"top": 0.3, "part": 0.0}}, "no atom lies"),
    ],
)
def test_parameters_and_partners_are_checked(kind: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        specimen(kind, **more)


# ---- Kinds that vary along the beam

SILVER = bulk("Ag", cubic=True)  # 4.09 Å; gold has 4.08 Å
SIZE = {"zone_axis": (0, 0, 1), "lateral_angstrom": (12, 16), "thickness_angstrom": 40}


def made(kind, crystal=SILVER, partner=GOLD, **parameters):
    partner = {} if kind in ("doped_layer", "vacuum") else {"partner": partner}
    specimen = namsa.make_specimen(crystal, kind, parameters=parameters, seed=2, **SIZE, **partner)
    return specimen, specimen.atoms.positions[:, 2] / float(specimen.atoms.cell.lengths()[2])


@pytest.mark.parametrize(
    ("kind", "given", "start", "end"),
    [
        ("stack", {"side": "exit", "part": 0.4}, 0.6, 1.0),
        ("stack", {"side": "entrance", "part": 0.4}, 0.0, 0.4),
        ("cap", {"side": "entrance", "part": 0.2}, 0.0, 0.2),
        ("buried_layer", {"top": 0.3, "part": 0.3}, 0.3, 0.6),
    ],
)
def test_a_partner_has_its_layer_and_the_crystal_the_rest(kind, given, start, end):
    specimen, depth = made(kind, **given)
    gold = specimen.atoms.numbers == 79
    inside = (depth >= start - 1e-9) & (depth < end - 1e-9)
    np.testing.assert_array_equal(gold, inside)
    np.testing.assert_array_equal(specimen.atoms.arrays[PART] == 1, gold)
    lz = float(specimen.atoms.cell.lengths()[2])
    assert specimen.parameters["planes_angstrom"] == pytest.approx([start * lz, end * lz], abs=1e-3)
    assert specimen.parameters["misfit"] == pytest.approx(4.09 / 4.08 - 1, abs=1e-5)
    # Gold keeps its own period along the beam: layers are 2.04 Å apart, and 2.045 Å in silver.
    layers = np.unique(specimen.atoms.positions[gold, 2].round(4))
    assert np.diff(layers) == pytest.approx(2.04, abs=1e-3)
    # Nearly as many atoms as the crystal had: at most a layer at each plane is free.
    assert len(specimen.atoms) >= 0.85 * len(namsa.make_specimen(SILVER, "crystal", **SIZE).atoms)


def test_dopants_are_in_their_layer_alone():
    specimen, depth = made(
        "doped_layer", top=0.25, part=0.5, share=0.5, arrangement="random", replacement="Cu"
    )
    dopant = specimen.atoms.numbers == 29
    inside = (depth >= 0.25) & (depth < 0.75)
    assert not dopant[~inside].any()
    assert dopant.sum() == round(0.5 * inside.sum())
    assert set(specimen.atoms.numbers[~dopant].tolist()) == {47}


def test_vacuum_is_above_and_below():
    specimen, depth = made("vacuum", above=0.3, below=0.2)
    crystal = namsa.make_specimen(SILVER, "crystal", **SIZE).atoms
    kept = (crystal.positions[:, 2] >= 0.3 * 40.9) & (crystal.positions[:, 2] < 0.8 * 40.9)
    np.testing.assert_array_equal(specimen.atoms.positions, crystal.positions[kept])
    assert (depth.min(), depth.max()) == (pytest.approx(0.3), pytest.approx(0.75))
    with pytest.raises(InputError, match="no atom"):
        made("vacuum", above=0.6, below=0.6)
