"""Densities of DFT codes: one that is made of independent atoms gives namsa's density, potential
and patterns.
"""

import ase
import ase.io
import numpy as np
import pytest
from dft_files import CELL, POINTS, crystal, independent_atoms, write_chgcar

import namsa
from namsa import InputError
from namsa.cli.parser import main
from namsa.io import charge_density
from namsa.io.charge_density import ChargeDensity, read_charge_density
from namsa.physics import potential
from namsa.physics.form_factors import electron, xray
from namsa.physics.grid import Grid
from namsa.physics.optics import interaction_constant
from namsa.physics.specimen import atom_list

GRID = Grid((48, 36), (CELL[1], CELL[0]))


def write_cube(path, atoms, density):
    with path.open("w") as file:
        ase.io.write(file, atoms, format="cube", data=density * charge_density.BOHR_RADIUS**3)
    return path


def expected(atoms, factor):
    listed = atom_list(atoms)
    sums = potential.structure_sums(listed, GRID, np)
    return potential.field(
        sums, potential.element_factors(listed.numbers, GRID, "lobato", np, factor), GRID, np
    )


@pytest.mark.parametrize("write", [write_chgcar, write_cube], ids=["CHGCAR", "cube"])
def test_independent_atoms_give_namsas_density_and_potential(tmp_path, write):
    name = "AECCAR" if write is write_chgcar else "density.cube"
    charge = read_charge_density(write(tmp_path / name, crystal(), independent_atoms(crystal())))
    assert charge.density.shape == POINTS
    assert charge.electrons == pytest.approx(crystal().numbers.sum(), rel=1e-4)
    density = charge.projected_density(GRID)
    electrons = expected(crystal(), xray)
    wanted = expected(crystal(), potential.electron) * potential.POTENTIAL_CONSTANT
    # The digits of the files limit the agreement, and the elements' field at the Nyquist frequency.
    assert np.linalg.norm(density - electrons) < 1e-4 * np.linalg.norm(electrons)
    assert np.linalg.norm(charge.projected_potential(GRID) - wanted) < 1e-4 * np.linalg.norm(wanted)


def test_where_electrons_are_missing_the_potential_is_higher(tmp_path):
    neutral = read_charge_density(
        write_chgcar(tmp_path / "AECCAR0", crystal(), independent_atoms(crystal()))
    )
    ionic = read_charge_density(
        write_chgcar(
            tmp_path / "AECCAR2", crystal(), independent_atoms(crystal(), [-2.0, 1.0, 1.0])
        )
    )
    change = ionic.projected_potential(GRID) - neutral.projected_potential(GRID)
    columns = []
    for r in crystal().positions:
        columns.append(tuple(np.round((r[1] / CELL[1] * 48, r[0] / CELL[0] * 36)).astype(int)))
    titanium, *oxygens = (change[at] for at in columns)
    assert titanium > 0 > max(oxygens)
    assert change.mean() == pytest.approx(0, abs=1e-9)


def test_core_and_valence_are_added(tmp_path):
    density = independent_atoms(crystal())
    core = write_chgcar(
        tmp_path / "AECCAR0", crystal(), 0.25 * density, "augmentation occupancies   1  15\n 0.1\n"
    )
    valence = write_chgcar(tmp_path / "AECCAR2", crystal(), 0.75 * density)
    np.testing.assert_allclose(read_charge_density(core, valence).density, density, atol=1e-6)
    with pytest.raises(InputError, match="AECCAR0 and AECCAR2"):
        read_charge_density(valence).projected_potential(GRID)


def test_a_coarse_grid_is_completed_by_the_atoms(tmp_path):
    charge = read_charge_density(
        write_chgcar(tmp_path / "AECCAR", crystal(), independent_atoms(crystal()))
    )
    fine = Grid((120, 96), GRID.extent_angstrom)  # beyond the band limit of 40 × 54 points
    listed = atom_list(crystal())
    sums = potential.structure_sums(listed, fine, np)
    factors = potential.element_factors(listed.numbers, fine, "lobato", np, xray)
    electrons = potential.field(sums, factors, fine, np)
    assert np.linalg.norm(charge.projected_density(fine) - electrons) < 1e-3 * np.linalg.norm(
        electrons
    )


def test_another_cell_is_refused(tmp_path):
    path = write_chgcar(tmp_path / "CHGCAR", crystal(), independent_atoms(crystal()))
    with pytest.raises(InputError, match="make them the same"):
        read_charge_density(path).projected_density(Grid((48, 36), (4.2, 5.6)))
    skew = crystal()
    skew.set_cell([[4.2, 0, 0], [1.0, 5.6, 0], [0, 0, 3.9]])
    with pytest.raises(InputError, match="not right-angled"):
        read_charge_density(write_chgcar(tmp_path / "CHGCAR", skew, independent_atoms(crystal())))
    other = write_chgcar(tmp_path / "AECCAR0", crystal(), independent_atoms(crystal()))
    wide = crystal()
    wide.set_cell([4.3, 5.6, 3.9])
    with pytest.raises(InputError, match="another grid or cell"):
        read_charge_density(
            other, write_chgcar(tmp_path / "AECCAR2", wide, independent_atoms(crystal()))
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "finite numbers, and"),
        (lambda text: text.replace(" 40 54 36", " 40000 54000 36000"), "at most"),
        (lambda text: text.replace(" 40 54 36", " -1 54 36"), "at most"),
        (lambda text: text.replace(" 40 54 36", " forty"), "cannot be read as a density"),
        (lambda text: text.replace("E+00", "E+999", 1), "finite numbers"),
        (lambda text: "", "cannot be read as a density|name the elements"),
    ],
)
def test_damaged_files_are_refused(tmp_path, change, message):
    path = write_chgcar(tmp_path / "CHGCAR", crystal(), independent_atoms(crystal()))
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=message):
        read_charge_density(path)


def test_other_files_are_no_densities(tmp_path):
    (tmp_path / "density.npy").write_bytes(b"")
    with pytest.raises(InputError, match="give a CHGCAR, AECCAR or cube file"):
        read_charge_density(tmp_path / "density.npy")


REPEATS = (2, 1, 2)  # of a specimen of 8.4 × 5.6 × 7.8 Å
COARSE = {
    "energy_ev": 200e3,
    "semiangle_mrad": 12,
    "grid_shape": (64, 90),
    "accuracy": None,
    "precision": "float64",
}
PROBES = {"positions_angstrom": [(1.0, 0.6), (3.1, 5.0)]}


def charged(charges, atoms=None):
    atoms = atoms or crystal()
    return ChargeDensity(independent_atoms(atoms, charges), atoms)


@pytest.mark.parametrize(
    "slices",
    [
        {},
        {"slice_thickness_angstrom": 1.5},
        {"slice_thickness_angstrom": 1.5, "projection": "finite"},
    ],
)
def test_patterns_of_a_density_of_independent_atoms_are_those_of_the_atoms(slices):
    atoms = crystal().repeat(REPEATS)
    wanted = namsa.simulate(atoms, **COARSE, **PROBES, **slices)
    bonded = namsa.simulate(atoms, charge_density=charged(None), **COARSE, **PROBES, **slices)
    moved = namsa.simulate(
        atoms, charge_density=charged([-1, 0.5, 0.5]), **COARSE, **PROBES, **slices
    )
    for name in ("cbed", "density", "projected_potential"):
        one, other, third = (getattr(sample, name) for sample in (wanted, bonded, moved))
        assert np.linalg.norm(other - one) < 1e-6 * np.linalg.norm(one)
        assert np.linalg.norm(third - one) > 1e-3 * np.linalg.norm(one)


@pytest.mark.parametrize("slices", [{}, {"slice_thickness_angstrom": 1.0}])
@pytest.mark.filterwarnings(
    "ignore:semiangle_mrad .* the illumination is parallel:namsa.SimulationWarning"
)
def test_moved_charge_changes_weak_reflections_as_mott_and_bethe_say(slices):
    atoms = ase.Atoms("LiH", positions=[[0.6, 1.0, 0.4], [2.7, 1.9, 2.3]], cell=CELL, pbc=True)
    charges = [-0.8, 0.8]
    energy = 300e3
    shape = (96, 72)
    parallel = {
        "energy_ev": energy,
        "semiangle_mrad": 0.01,
        "positions_angstrom": [(0, 0)],
        "accuracy": None,
    }
    sample = namsa.simulate(
        atoms,
        charge_density=charged(charges, atoms),
        grid_shape=shape,
        precision="float64",
        **parallel,
        **slices,
    )
    neutral = namsa.simulate(atoms, grid_shape=shape, precision="float64", **parallel, **slices)
    for h, k in ((1, 0), (0, 1), (1, 1), (-1, 1), (2, 1)):  # along x and y
        q = np.array([h / CELL[0], k / CELL[1]])
        q2 = q @ q
        phases = np.exp(-2j * np.pi * atoms.positions[:, :2] @ q)
        atom_factors = np.array(
            [electron(int(atomic_number), np.array([q2]))[0] for atomic_number in atoms.numbers]
        )
        change = (
            np.array(charges)
            * np.exp(-2 * np.pi**2 * 0.3**2 * q2)
            / (2 * np.pi**2 * charge_density.BOHR_RADIUS * q2)
        )
        scale = interaction_constant(energy) * potential.POTENTIAL_CONSTANT / (CELL[0] * CELL[1])
        wanted, unchanged = (
            float(abs(scale * (factors * phases).sum()) ** 2)
            for factors in (atom_factors - change, atom_factors)
        )
        place = shape[0] // 2 + k, shape[1] // 2 + h
        assert abs(wanted / unchanged - 1) > 0.1
        # Weak phase objects, to second order: the phases are below 0.05 rad.
        assert sample.cbed[0][place] / neutral.cbed[0][place] == pytest.approx(
            wanted / unchanged, rel=0.05
        )
        assert sample.cbed[0][place] == pytest.approx(wanted, rel=0.08)


def test_the_density_of_the_specimen_holds_the_electrons_and_is_that_of_the_cell_repeated():
    given = charged([-2.0, 1.0, 1.0])
    atoms = crystal().repeat(REPEATS)
    sample = namsa.simulate(atoms, charge_density=given, depth_bins=3, **COARSE, **PROBES)
    pixel = np.prod(sample.provenance["density_sampling_angstrom"])
    assert sample.density.sum() * pixel == pytest.approx(4 * given.electrons, rel=1e-9)
    cell = given.projected_density(Grid((64, 45), GRID.extent_angstrom))
    potentials = given.projected_potential(Grid((64, 45), GRID.extent_angstrom))
    # The fields of atoms differ at the Nyquist frequencies of the two grids.
    assert np.linalg.norm(sample.density - 2 * np.tile(cell, 2)) < 1e-3 * np.linalg.norm(
        sample.density
    )
    error = sample.projected_potential - 2 * np.tile(potentials, 2)
    assert np.linalg.norm(error) < 1e-3 * np.linalg.norm(sample.projected_potential)
    np.testing.assert_allclose(sample.density_by_depth.sum(axis=0), sample.density, atol=1e-9)
    described = sample.provenance["charge_density"]
    assert (described["points"], described["repeats"]) == (list(POINTS), list(REPEATS))


def test_scatter_takes_the_density_too():
    given = charged([-2.0, 1.0, 1.0])
    atoms = crystal().repeat(REPEATS)
    lens = COARSE["semiangle_mrad"]
    shared = {}
    for name, value in COARSE.items():
        if name != "semiangle_mrad":
            shared[name] = value
    scattering = namsa.scatter(atoms, charge_density=given, max_angle_mrad=lens, **shared)
    scattered = scattering.simulate(semiangle_mrad=lens, **PROBES)
    wanted = namsa.simulate(atoms, charge_density=given, **COARSE, **PROBES)
    np.testing.assert_allclose(scattered.cbed, wanted.cbed, atol=1e-9 * wanted.cbed.max())
    np.testing.assert_array_equal(scattered.density, wanted.density)
    assert scattered.provenance["charge_density"] == wanted.provenance["charge_density"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda atoms: atoms.set_cell(atoms.cell.lengths() * [1, 1.01, 1], scale_atoms=True),
            "8.4×5.656×7.8 Å, no whole multiple of the density's 4.2×5.6×3.9 Å",
        ),
        (
            lambda atoms: np.add.at(atoms.positions, (4, 0), 0.15),
            "an atom of O is 0.15 Å from the density's nearest nucleus, and at most 0.1 Å",
        ),
        (
            lambda atoms: np.put(atoms.numbers, 0, 40),
            "3 atoms of Ti, and 2×1×2 cells of the density have 4",
        ),
        (lambda atoms: atoms.pop(0), "the specimen has 11 atoms, 11 of which fill their sites"),
    ],
)
def test_a_specimen_that_is_not_the_densitys_cell_repeated_is_refused(change, message):
    atoms = crystal().repeat(REPEATS)
    change(atoms)
    with pytest.raises(InputError, match=message):
        namsa.simulate(atoms, charge_density=charged(None), **COARSE, **PROBES)


def test_slices_that_follow_layers_have_the_bonds_of_their_layers():
    atoms = crystal()
    atoms.positions[:, 2] = 1.0  # one layer every 3.9 Å: the change is as far above as below it
    given = charged([-2.0, 1.0, 1.0], atoms)
    thick = atoms.repeat((2, 1, 4))
    thin = {"slice_thickness_angstrom": 0.15, "projection": "finite"}
    computed, wanted = (
        namsa.simulate(thick, charge_density=given, **COARSE, **PROBES, **slices).cbed
        - namsa.simulate(thick, **COARSE, **PROBES, **slices).cbed
        for slices in ({}, thin)
    )
    # 0.025 if slices had what lies between their faces.
    assert np.linalg.norm(computed - wanted) < 0.015 * np.linalg.norm(wanted)


CONFIG = """
specimen: {zone_axes: [[0, 0, 1]], thickness_angstrom: [7.8], lateral_angstrom: [5, 8]}
microscope: {energy_ev: 200e3, semiangle_mrad: 12}
scan: {shape: [2, 3], step_angstrom: [1, 1]}
simulation: {sampling_angstrom: 0.1, slice_thickness_angstrom: 1.95}
detector: {shape: [10, 12], pixel_mrad: 5}
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "scatter"])
def test_the_command_line_simulates_files_of_a_density(tmp_path, monkeypatch, capsys, method):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(CONFIG)
    density = independent_atoms(crystal(), [-2.0, 1.0, 1.0])
    core, valence = (
        write_chgcar(tmp_path / f"AECCAR{n}", crystal(), share * density)
        for n, share in ((0, 0.4), (2, 0.6))
    )
    options = ["simulate", "c.yaml", "--set", f"simulation.method={method}"]
    both = [*options, "--charge-density", str(core), str(valence)]
    assert main([*both, "--dry-run"]) == 0
    assert main([*both, "--out", "a.h5"]) == 0
    assert main(["info", "a.h5"]) == 0
    sample = namsa.read_sample("a.h5")
    assert sample.provenance["charge_density"]["repeats"] == list(REPEATS)
    assert sample.provenance["source"] == core.name
    again = namsa.simulate(
        crystal().repeat(REPEATS),
        charge_density=charged([-2.0, 1.0, 1.0]),
        energy_ev=200e3,
        semiangle_mrad=12,
        grid_shape=sample.provenance["grid_shape"],
        slice_thickness_angstrom=1.95,
        positions_angstrom=sample.provenance["positions_angstrom"],
        detector=namsa.Detector(shape=(10, 12), pixel_mrad=5),
        accuracy=None,
    )
    np.testing.assert_allclose(sample.cbed, again.cbed, atol=1e-5 * again.cbed.max())
    for wrong, message in (
        ([str(valence)], "all; of VASP give AECCAR0 and AECCAR2"),
        (
            [str(core), str(valence), "--set", "specimen.zone_axes=[[1, 1, 0]]"],
            "no whole multiple of the density's",
        ),
        ([str(core), "--vacuum"], "are mutually exclusive"),
    ):
        assert main([*options, "--dry-run", "--charge-density", *wrong]) == 2
        assert message in capsys.readouterr().err
