"""One propagation of a specimen for all its thicknesses, lenses and positions gives what a
simulation of each gives.
"""

import ase
import ase.build
import numpy as np
import pytest

import namsa
from namsa.base.errors import InputError
from namsa.config.instrument import Detector
from namsa.config.specimen import FrozenPhonons
from namsa.pacbed import position_averaged

SHARED = {
    "energy_ev": 200e3,
    "grid_shape": (80, 72),
    "slice_thickness_angstrom": 2.1,
    "precision": "float64",
}
RASTER = np.stack(np.meshgrid(0.5 * np.arange(3), 0.7 * np.arange(4), indexing="ij"), -1).reshape(
    -1, 2
)
CAMERA = Detector(shape=(18, 22), pixel_mrad=3)
LENSES = (
    {"semiangle_mrad": 20.0, "aberrations": {"C10": -60.0, "C12": 25.0, "phi12": 0.4}},
    {
        "semiangle_mrad": 14.0,
        "beam_tilt_mrad": (3.0, -4.0),
        "aberrations": {"C30": 1e5},
        "detector": CAMERA,
    },
)
SLICES = 8


@pytest.fixture(scope="module")
def gold():
    """Gold, 12.24 × 16.32 Å across the beam, two layers in each of 8 slices, none on a face of a
    slice.
    """
    atoms = ase.build.bulk("Au", a=4.08, cubic=True) * (4, 3, 4)
    atoms.positions[:, 2] += 0.7
    return atoms


@pytest.fixture(scope="module")
def scattering(gold):
    return namsa.scatter(gold, max_angle_mrad=25, thicknesses_angstrom=[4.1, 10, 16.32], **SHARED)


def upper_part(atoms: ase.Atoms, slices: int) -> ase.Atoms:
    """The atoms of the first slices, in a cell that ends there."""
    height = slices * float(atoms.cell.lengths()[2]) / SLICES
    upper = atoms[atoms.positions[:, 2] < height]
    upper.cell[2, 2] = height
    return upper


def error(computed, expected):
    return np.linalg.norm(computed - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("lens", LENSES)
def test_equals_multislice_of_the_upper_part(gold, scattering, depth, lens):
    slices = scattering.depths[depth]
    assert scattering.thicknesses_angstrom[depth] == pytest.approx(slices * 2.04)
    upper = upper_part(gold, slices)
    expected = namsa.simulate(
        upper, positions_angstrom=RASTER, method="multislice", **SHARED, **lens
    )
    sample = scattering.simulate(depth, positions_angstrom=RASTER, **lens)
    assert error(sample.cbed, expected.cbed) < 1e-12
    assert error(sample.density, expected.density) < 1e-12
    assert error(sample.projected_potential, expected.projected_potential) < 1e-12
    differing = set()
    for name in expected.provenance:
        if sample.provenance.get(name) != expected.provenance[name]:
            differing.add(name)
    assert differing <= {
        "method",
        "atoms",
        "thickness_angstrom",
        "slice_thickness_angstrom",
        "warnings",
    }


def test_thermal_displacements_and_the_source_are_those_of_a_simulation(gold):
    phonons = FrozenPhonons(configurations=2, rms_angstrom={"Au": 0.09})
    common = SHARED | {"precision": "float32", "frozen_phonons": phonons}
    lens = {
        "semiangle_mrad": 20.0,
        "source_size_angstrom": 0.6,
        "source_points": 2,
        "focal_spread_angstrom": 30.0,
    }
    lens |= {"positions_angstrom": RASTER, "scan_shape": (3, 4), "detector": CAMERA}
    scattering = namsa.scatter(gold, max_angle_mrad=20, max_detected_mrad=40, seed=7, **common)
    expected = namsa.simulate(gold, seed=7, **common, **lens)
    sample = scattering.simulate(**lens, seed=7)
    assert sample.provenance["coherent_probes"] == expected.provenance["coherent_probes"] > 4
    assert error(sample.cbed, expected.cbed) < 2e-6
    assert error(sample.density, expected.density) < 1e-6


def test_noise_has_a_seed_of_its_own(gold, scattering):
    noisy = CAMERA.model_copy(update={"electrons_per_pattern": 1e4})
    lens = {"semiangle_mrad": 20.0, "positions_angstrom": RASTER, "detector": noisy}
    first, again, other = (scattering.simulate(seed=seed, **lens).cbed for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
    assert np.all(np.abs(first * 1e4 - np.round(first * 1e4)) < 1e-6)


def test_a_lens_or_a_camera_beyond_the_scattered_angles_is_refused(gold):
    small = namsa.scatter(gold, max_angle_mrad=15, max_detected_mrad=20, **SHARED)
    probes = {"positions_angstrom": RASTER}
    with pytest.raises(
        InputError,
        match=r"max_angle_mrad is 15, .* waves up to 1[89]\.?\d* mrad: scatter with a larger",
    ):
        small.simulate(semiangle_mrad=15, beam_tilt_mrad=(4, 0), **probes)
    with pytest.raises(InputError, match="max_detected_mrad is 20, .* scatter with a larger one"):
        small.simulate(semiangle_mrad=15, detector=CAMERA, **probes)


@pytest.mark.parametrize("thicknesses", [[], [0.5], [4, 4.5], [10, 4], [17.4]])
def test_thicknesses_are_increasing_numbers_of_slices(gold, thicknesses):
    with pytest.raises(
        InputError, match="they must increase, by a slice of 2.04 Å at least, .* the cell's 16.3"
    ):
        namsa.scatter(gold, max_angle_mrad=15, thicknesses_angstrom=thicknesses, **SHARED)


@pytest.mark.gpu
@pytest.mark.usefixtures("cupy")
def test_a_gpu_scatters_as_a_processor_does(gold):
    common = SHARED | {
        "precision": "float32",
        "max_angle_mrad": 25,
        "thicknesses_angstrom": [4.1, 16.32],
    }
    cpu, gpu = (namsa.scatter(gold, backend=backend, **common) for backend in ("cpu", "cupy"))
    for depth in (0, 1):
        for lens in LENSES:
            expected, sample = (
                device.simulate(depth, positions_angstrom=RASTER, **lens) for device in (cpu, gpu)
            )
            assert error(sample.cbed, expected.cbed) < 1e-5


def test_the_source_is_averaged_exactly_whatever_the_scan(gold):
    """A scan that fills the cell is averaged by `namsa.simulate` itself; a part of it has the same
    patterns.
    """
    fine = {"grid_shape": (72, 80), "max_angle_mrad": 15.0}
    scattering = namsa.scatter(gold, max_detected_mrad=36, **SHARED | fine)
    y = 12.24 / 28 * np.arange(28)
    x = 16.32 / 36 * np.arange(36)
    raster = np.stack(np.meshgrid(y, x, indexing="ij"), -1)
    lens = {
        "semiangle_mrad": 12.0,
        "beam_tilt_mrad": (2.0, 0.0),
        "source_size_angstrom": 0.7,
        "detector": CAMERA,
    }
    camera = CAMERA.model_copy(update={"shape": (16, 20), "point_spread_pixels": 0.6})
    lens |= {"focal_spread_angstrom": 30.0, "detector": camera}
    expected = namsa.simulate(
        gold,
        positions_angstrom=raster.reshape(-1, 2),
        scan_shape=(28, 36),
        **SHARED | {"grid_shape": (72, 80)},
        **lens,
    )
    focal = expected.provenance["coherent_probes"]
    window = raster[3:9:2, 5:9]
    sample = scattering.simulate(
        positions_angstrom=window.reshape(-1, 2), scan_shape=(3, 4), **lens
    )
    assert (
        sample.provenance["coherent_probes"] > focal
    )  # few patterns: points of the source take fewer probes
    of_part = expected.cbed.reshape(28, 36, 16, 20)[3:9:2, 5:9].reshape(-1, 16, 20)
    assert error(sample.cbed, of_part) < 1e-3
    larger = raster[2:26, 4:34]
    sample = scattering.simulate(
        positions_angstrom=larger.reshape(-1, 2), scan_shape=larger.shape[:2], **lens
    )
    assert sample.provenance["coherent_probes"] == focal
    of_part = expected.cbed.reshape(28, 36, 16, 20)[2:26, 4:34].reshape(-1, 16, 20)
    assert error(sample.cbed, of_part) < 1e-12


# ---- Position-averaged patterns
# -------------------------------------------------------------------------------------

OPTICS = {
    "energy_ev": 200e3,
    "semiangle_mrad": 15.0,
    "detector": Detector(shape=(12, 14), pixel_mrad=4.0),
}


def copper(layers: int):
    return ase.build.bulk("Cu", "fcc", a=3.61, cubic=True).repeat((3, 2, layers))


def test_it_is_the_mean_of_the_patterns_of_all_positions_whatever_the_lens():
    """15 mrad reach 0.6/Å; a raster of 3/Å resolves all that varies with the position."""
    y = np.arange(22) * 7.22 / 22
    x = np.arange(32) * 10.83 / 32
    positions = np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)
    lens = {"C10": -70.0, "C12": 20.0, "C21": 400.0}
    patterns = namsa.simulate(
        copper(3), **OPTICS, positions_angstrom=positions, aberrations=lens
    ).cbed
    (averaged,) = position_averaged(copper(3), **OPTICS)
    np.testing.assert_allclose(averaged, patterns.mean(axis=0), rtol=1e-3, atol=1e-7)


def test_a_part_of_the_plane_waves_stands_for_all_and_none_is_refused():
    (all_waves,), (some_waves,) = (
        position_averaged(copper(2), **OPTICS),
        position_averaged(copper(2), **OPTICS, every=(3, 1)),
    )
    assert some_waves.sum() == pytest.approx(all_waves.sum(), rel=0.01)
    with pytest.raises(InputError, match="take fewer"):
        position_averaged(copper(2), **OPTICS, every=(1000, 999))


def test_a_depth_is_a_thinner_specimen():
    by_depth = position_averaged(copper(4), **OPTICS, thicknesses_angstrom=[7.22, 14.44])
    (thin,) = position_averaged(copper(2), **OPTICS)
    np.testing.assert_allclose(by_depth[0], thin, rtol=0.02, atol=1e-5)
    assert not np.allclose(by_depth[1], thin, rtol=0.02, atol=1e-5)
