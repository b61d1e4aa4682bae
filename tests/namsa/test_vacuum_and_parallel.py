"""A probe without a specimen is its aperture; a plane wave gives diffraction spots as kinematic
theory has them.
"""

import warnings

import ase
import ase.build
import numpy as np
import pytest

import namsa
from namsa.base.errors import SimulationWarning
from namsa.cli.parser import main
from namsa.physics import optics, potential
from namsa.physics.form_factors import electron
from namsa.physics.grid import Grid

ENERGY = 200e3
SHAPE = (96, 90)
SHARED = {"energy_ev": ENERGY, "grid_shape": SHAPE, "precision": "float64"}
EMPTY = ase.Atoms(cell=(12.0, 10.0, 8.0), pbc=True)
GRID = Grid(SHAPE, (10.0, 12.0))


@pytest.mark.parametrize("method", ["multislice", "prism"])
@pytest.mark.parametrize("projection", ["infinite", "finite"])
def test_the_pattern_of_a_probe_in_vacuum_is_the_aperture(method, projection):
    arguments = SHARED | {"semiangle_mrad": 20.0, "method": method, "projection": projection}
    positions = [[0.0, 0.0], [3.3, 7.1]]
    aberrations = {"C10": -80.0, "C30": 1e5}
    sample = namsa.simulate(
        EMPTY, positions_angstrom=positions, aberrations=aberrations, **arguments
    )
    through = np.fft.fftshift(optics.aperture(GRID, optics.BeamSettings(ENERGY, 20.0, {})) ** 2)
    np.testing.assert_allclose(sample.cbed, [through / through.sum()] * 2, atol=1e-12)
    assert not sample.density.any()
    assert not sample.projected_potential.any()
    assert sample.provenance["atoms"] == 0


def test_the_probe_in_vacuum_has_no_vibrations_and_any_number_of_thicknesses():
    phonons = namsa.FrozenPhonons(rms_angstrom=0.1, configurations=2)
    depths = {"thicknesses_angstrom": [2, 8], "slice_thickness_angstrom": 2}
    scattering = namsa.scatter(EMPTY, max_angle_mrad=20, **depths, frozen_phonons=phonons, **SHARED)
    probe = {"semiangle_mrad": 20, "positions_angstrom": [[1.0, 2.0]]}
    thin, thick = (scattering.simulate(depth, **probe).cbed for depth in (0, 1))
    np.testing.assert_allclose(thin, thick, atol=1e-12)
    assert thin.sum() == pytest.approx(1)


@pytest.mark.parametrize("semiangle", [0.0, 1.0])
def test_parallel_illumination_is_one_plane_wave(semiangle):
    lens = optics.lens(GRID, optics.BeamSettings(ENERGY, semiangle, {"C10": 500.0}))
    assert np.abs(lens[0, 0]) == pytest.approx(1)
    assert np.count_nonzero(lens) == 1


def test_a_plane_wave_has_the_direction_of_the_nearest_one_that_the_cell_holds():
    pitch = 1e3 * optics.wavelength_angstrom(ENERGY) / np.array(GRID.extent_angstrom)
    for tilt in (tuple(pitch * (3, -2)), tuple(pitch * (3.2, -1.9))):
        lens = optics.lens(GRID, optics.BeamSettings(ENERGY, 0.0, {}, tilt))
        assert np.argwhere(lens).tolist() == [[3, SHAPE[1] - 2]]
    arguments = SHARED | {"semiangle_mrad": 0.0, "positions_angstrom": [[0.0, 0.0]]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        namsa.simulate(EMPTY, beam_tilt_mrad=tuple(pitch * (3, -2)), **arguments)
    with pytest.warns(
        SimulationWarning,
        match=r"tilted by \(7\.52, -4\.18\) mrad in place of beam_tilt_mrad \(8, -4\)",
    ):
        namsa.simulate(EMPTY, beam_tilt_mrad=(8.0, -4.0), **arguments)
    with pytest.warns(
        SimulationWarning,
        match=r"semiangle_mrad 1 is below one reciprocal pixel of 2\.51 mrad.* 25\.1 Å",
    ):
        namsa.simulate(EMPTY, **arguments | {"semiangle_mrad": 1.0})
    with pytest.warns(SimulationWarning, match=r"Is it in rad\? Then give semiangle_mrad 20$"):
        namsa.simulate(EMPTY, **arguments | {"semiangle_mrad": 0.02})


def rocksalt(share):
    """Two layers of lithium fluoride [001] in one slice, in 3 × 2 cells, whose sites are occupied
    by a share.
    """
    atoms = ase.build.bulk("LiF", "rocksalt", a=4.02, cubic=True) * (3, 2, 1)
    atoms.set_array("occupancy", np.full(len(atoms), share))
    return atoms


@pytest.mark.filterwarnings("ignore:slices are .* Å thick:namsa.SimulationWarning")
def test_the_spots_of_a_thin_crystal_are_its_structure_factors():
    """Kinematic limit: I(g)/I(0) = |σ V_g|², V_g = C/A Σ f(g) exp(−2πi g·r); all-even reflections
    and no others.
    """
    share = 0.02
    atoms = rocksalt(0.02)
    grid = Grid((90, 120), (8.04, 12.06))
    beam = {
        "energy_ev": ENERGY,
        "semiangle_mrad": 0,
        "positions_angstrom": [[1.0, 2.0], [0.0, 0.0]],
    }
    grids = {"grid_shape": grid.shape, "slice_thickness_angstrom": 10.0, "precision": "float64"}
    sample = namsa.simulate(atoms, **beam, **grids)
    np.testing.assert_allclose(
        sample.cbed[0], sample.cbed[1], rtol=1e-9, atol=1e-20
    )  # a plane wave has no position
    pattern = np.fft.ifftshift(sample.cbed[0])
    sigma = optics.interaction_constant(ENERGY)
    area = 8.04 * 12.06
    for h, k in ((2, 0), (0, 2), (2, 2), (4, 0), (4, 2), (6, 2)):  # along x and y, of the cube
        g2 = np.array([(h**2 + k**2) / 4.02**2])
        # 24 of each in the cell, in phase
        f = share * 24 * (electron(3, g2, "lobato") + electron(9, g2, "lobato"))[0]
        expected = (sigma * potential.POTENTIAL_CONSTANT / area * f) ** 2
        assert pattern[2 * k, 3 * h] / pattern[0, 0] == pytest.approx(expected, rel=5e-3)
    y, x = (np.fft.fftfreq(n, 1 / n).astype(int) for n in grid.shape)
    bragg = (y % 4 == 0)[:, None] & (x % 6 == 0)
    assert pattern[~bragg].max() < 1e-6 * pattern[4, 0]
    assert sample.bright_field()[0] == pytest.approx(pattern[0, 0])


CONFIG = """
materials: {builtin: [Al-225-cF4]}
split: {train: 1, dev: 0, test: 0}
specimen: {zone_axes: [[0, 0, 1]], thickness_angstrom: [8], lateral_angstrom: [10, 12]}
scan: {shape: [2, 2], step_angstrom: [0.5, 0.5]}
simulation: {sampling_angstrom: 0.2}
detector: {shape: [16, 18], pixel_mrad: 3}
"""


@pytest.mark.slow
@pytest.mark.parametrize("semiangle", ["20", "0"])
@pytest.mark.parametrize("vacuum", [True, False])
def test_both_are_simulated_from_the_command_line(tmp_path, monkeypatch, vacuum, semiangle):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(CONFIG)
    options = [
        "c.yaml",
        "--set",
        f"microscope.semiangle_mrad={semiangle}",
        *(["--vacuum"] if vacuum else []),
    ]
    assert main(["simulate", *options, "--dry-run"]) == 0
    assert main(["simulate", *options, "--out", "a.h5"]) == 0
    assert (tmp_path / "a.png").stat().st_size > 10_000
    assert main(["info", "a.h5"]) == 0
    sample = namsa.read_sample("a.h5")
    assert sample.provenance["extent_angstrom"] == pytest.approx(
        [10, 12] if vacuum else [12.15, 12.15], abs=0.02
    )
    np.testing.assert_allclose(sample.cbed.sum(axis=(1, 2)), 1, atol=1e-5 if vacuum else 0.2)
    if vacuum:
        # Pixels of 3 mrad whose centres are in the disk hold 0.944 of the disk of 20 mrad, whose
        # edge is a reciprocal pixel of 2.1 and 2.5 mrad wide (0.958 with a sharp edge).
        expected = 1.0 if semiangle == "0" else 0.944
        np.testing.assert_allclose(sample.bright_field(), expected, atol=1e-3)
    else:
        np.testing.assert_allclose(sample.bright_field(), 1, atol=0.9)
    assert (sample.density.max() > 1) is not vacuum


def test_vacuum_has_no_crystal(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(CONFIG)
    assert main(["simulate", str(tmp_path / "c.yaml"), "--vacuum", "--crystal", "a.cif"]) == 2
    assert (
        "--vacuum, --crystal and --charge-density are mutually exclusive" in capsys.readouterr().err
    )
