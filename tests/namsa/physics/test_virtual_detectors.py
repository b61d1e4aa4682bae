"""Virtual images against physics: vacuum, the pull of an atom, the phase of a thin object, the atomic number."""

import ase
import numpy as np
import pytest

from namsa import Detector, simulate
from namsa.physics import virtual_detectors
from namsa.physics.grid import Grid
from namsa.physics.optics import BeamSettings, interaction_constant, lens, wavelength_angstrom
from namsa.pixels import PixelGrid, pattern_grid, scan_grid

ENERGY, SEMIANGLE, EXTENT = 200e3, 20.0, (9.0, 10.0)
SCAN = (32, 36)  # every third of 96×108 pixels, finer than the λ/4α that the deflection needs
ATOMS = ase.Atoms("CNSi", [(2.0, 3.0, 1.0), (7.5, 4.0, 1.0), (5.0, 7.0, 1.0)], cell=(*EXTENT[::-1], 2.0), pbc=True)


def specimen(atoms, positions, detector=None):
    beam = {"energy_ev": ENERGY, "semiangle_mrad": SEMIANGLE, "grid_shape": (96, 108), "precision": "float64"}
    return simulate(atoms, positions_angstrom=positions, detector=detector, **beam)


def raster(start=(0.0, 0.0)):
    y, x = (s + np.arange(n) * length / n for s, n, length in zip(start, SCAN, EXTENT, strict=True))
    return np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2)


@pytest.fixture(scope="module")
def thin():
    return specimen(ATOMS, raster())


@pytest.mark.parametrize("detector", [None, Detector(binning=2), Detector(pixel_mrad=3.0), Detector(shape=(31, 40))])
def test_vacuum_has_its_centre_on_the_axis_and_all_of_the_beam_in_the_disk(detector):
    vacuum = ase.Atoms("H", [(5.0, 4.5, 1.0)], cell=ATOMS.cell, pbc=True)
    vacuum.arrays["occupancy"] = np.array([1e-9])
    sample = specimen(vacuum, [[0.0, 0.0], [3.3, 1.2]], detector)
    angles = pattern_grid(sample.provenance)
    pixel = max(angles.step)
    off_axis = 0.01 * pixel if detector and detector.binning == 2 else 1e-6  # even binning is not symmetric
    assert virtual_detectors.centre_of_mass(sample.cbed, angles) == pytest.approx(0, abs=off_axis)
    assert virtual_detectors.bright_field(sample.cbed, angles, SEMIANGLE + 2 * pixel) == pytest.approx(1, abs=1e-6)
    assert virtual_detectors.annular(sample.cbed, angles, SEMIANGLE + 2 * pixel, np.inf) == pytest.approx(0, abs=1e-6)


def test_the_beam_is_drawn_towards_an_atom():
    atom = ase.Atoms("Si", [(5.0, 4.0, 1.0)], cell=ATOMS.cell, pbc=True)
    sides = [[4.0, 4.6], [4.0, 5.4], [3.6, 5.0], [4.4, 5.0], [4.0, 5.0]]  # left, right, above, below, on it
    sample = specimen(atom, sides)
    (left, right, above, below, on) = virtual_detectors.centre_of_mass(sample.cbed, pattern_grid(sample.provenance))
    assert left[1] > 0.5
    assert right[1] == pytest.approx(-left[1], rel=1e-3)
    assert above[0] > 0.5
    assert below[0] == pytest.approx(-above[0], rel=1e-3)
    np.testing.assert_allclose([left[0], right[0], above[1], below[1], *on], 0, atol=1e-3)


def test_icom_of_a_thin_object_is_its_potential_as_the_probe_blurs_it(thin):
    deflection = virtual_detectors.centre_of_mass(thin.cbed, pattern_grid(thin.provenance)).reshape(*SCAN, 2)
    scan = scan_grid(thin.provenance | {"scan_shape": SCAN})
    phase = virtual_detectors.integrated_centre_of_mass(deflection, scan.step, wavelength_angstrom(ENERGY))
    wave = lens(Grid((96, 108), EXTENT), BeamSettings(ENERGY, SEMIANGLE, {}))
    probe = np.abs(np.fft.ifft2(wave)) ** 2  # around the origin
    blurred = np.fft.ifft2(np.fft.fft2(thin.projected_potential) * np.fft.fft2(probe / probe.sum())).real[::3, ::3]
    potential = phase / interaction_constant(ENERGY)
    assert np.corrcoef(potential.ravel(), blurred.ravel())[0, 1] > 0.99
    assert np.ptp(potential) == pytest.approx(np.ptp(blurred), rel=0.03)


def test_icom_undoes_a_gradient_on_and_off_the_period():
    wavelength, step = 0.025, (0.3, 0.2)
    y, x = np.arange(40) * step[0], np.arange(50) * step[1]
    phase = 0.3 * np.cos(2 * np.pi * (y / 12.0))[:, None] * np.sin(2 * np.pi * x / 5.0)[None, :]
    gradient = np.stack(
        [
            -0.3 * 2 * np.pi / 12.0 * np.sin(2 * np.pi * y / 12.0)[:, None] * np.sin(2 * np.pi * x / 5.0),
            0.3 * 2 * np.pi / 5.0 * np.cos(2 * np.pi * y / 12.0)[:, None] * np.cos(2 * np.pi * x / 5.0),
        ],
        axis=-1,
    )
    deflection = gradient * wavelength / (2e-3 * np.pi)
    np.testing.assert_allclose(
        virtual_detectors.integrated_centre_of_mass(deflection, step, wavelength), phase, atol=1e-12
    )
    part = deflection[3:30, 4:40]
    expected = phase[3:30, 4:40]
    phase = virtual_detectors.integrated_centre_of_mass(part, step, wavelength, periodic=False)
    np.testing.assert_allclose(phase, expected - expected.mean(), atol=0.04 * np.ptp(expected))
    wrapped = virtual_detectors.integrated_centre_of_mass(part, step, wavelength)  # this is what mirroring is for
    assert np.abs(wrapped - (expected - expected.mean())).max() > 0.2 * np.ptp(expected)


def test_dark_field_knows_the_atomic_number():
    atoms = ase.Atoms("SiAg", [(2.5, 4.5, 1.0), (7.5, 4.5, 1.0)], cell=ATOMS.cell, pbc=True)
    sample = specimen(atoms, [[4.5, 2.5], [4.5, 7.5]])
    light, heavy = virtual_detectors.annular(sample.cbed, pattern_grid(sample.provenance), 50.0, 80.0)
    assert 1.2 < np.log(heavy / light) / np.log(47 / 14) < 2.0


def test_rings_share_out_the_beam(thin):
    angles = pattern_grid(thin.provenance)
    parts = [virtual_detectors.annular(thin.cbed, angles, *ring) for ring in ((0, 20), (20, 50), (50, np.inf))]
    np.testing.assert_allclose(sum(parts), thin.cbed.sum(axis=(1, 2)))


def test_an_empty_pattern_has_no_deflection():
    deflection = virtual_detectors.centre_of_mass(np.zeros((1, 4, 5)), PixelGrid((1.0, 1.0), (0.0, 0.0)))
    assert deflection.tolist() == [[0.0, 0.0]]
