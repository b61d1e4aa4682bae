"""Rocking and precession: tilted patterns shifted back, and their mean; on grids that are not
square.
"""

import ase
import numpy as np
import pytest
from molecule import CELL, molecule

import namsa
from namsa import Detector, InputError, SimulationWarning
from namsa.physics.optics import wavelength_angstrom

ENERGY = 100e3
PITCH = 1e3 * wavelength_angstrom(ENERGY) / np.array([CELL[1], CELL[0]])  # y, x, mrad
SHARED = {
    "energy_ev": ENERGY,
    "semiangle_mrad": 12.0,
    "positions_angstrom": [[1.0, 2.0], [4.4, 3.1]],
    "grid_shape": (60, 72),
    "precision": "float64",
    "accuracy": None,
}
DETECTOR = Detector(pixel_mrad=7.0, max_angle_mrad=42)


def test_without_a_tilt_it_is_a_simulation():
    plain = namsa.simulate(molecule(), detector=DETECTOR, **SHARED)
    (still,) = namsa.rocking(molecule(), tilts_mrad=[[0, 0]], detector=DETECTOR, **SHARED)
    precessed = namsa.precession(
        molecule(), angle_mrad=0.0, azimuths=3, detector=DETECTOR, **SHARED
    )
    np.testing.assert_allclose(still.cbed, plain.cbed, atol=1e-14)
    np.testing.assert_allclose(precessed.cbed, plain.cbed, atol=1e-14)
    for name in ("detector", "detector_origin_mrad", "detector_sampling_mrad", "grid_shape"):
        assert still.provenance[name] == plain.provenance[name]


def test_precession_is_the_mean_of_tilted_patterns_that_are_shifted_back():
    """By whole reciprocal pixels, so that shifting back is exact."""
    tilts = np.array([[0, 2], [3, 0], [0, -2], [-3, 0]]) * PITCH
    samples = namsa.rocking(molecule(), tilts_mrad=tilts, **SHARED)
    for tilt, shift, sample in zip(tilts, ([0, 2], [3, 0], [0, -2], [-3, 0]), samples, strict=True):
        tilted = namsa.simulate(molecule(), beam_tilt_mrad=tuple(tilt), **SHARED)
        back = np.roll(tilted.cbed, [-shift[0], -shift[1]], axis=(1, 2))
        np.testing.assert_allclose(sample.cbed, back, atol=1e-14)
        assert sample.provenance["descanned_tilt_mrad"] == pytest.approx(tilt.tolist())


def test_a_precessed_beam_in_vacuum_is_the_disk_at_rest_on_any_detector():
    empty = ase.Atoms(cell=CELL, pbc=True)
    plain = namsa.simulate(empty, detector=DETECTOR, **SHARED)
    precessed = namsa.precession(empty, angle_mrad=17.3, azimuths=7, detector=DETECTOR, **SHARED)
    assert precessed.centre_of_mass() == pytest.approx(0, abs=0.25)
    assert precessed.cbed.sum() == pytest.approx(plain.cbed.sum(), abs=1e-6)
    assert np.abs(precessed.cbed - plain.cbed).max() < 0.15 * plain.cbed.max()


def test_precession_is_the_mean_of_rocking_with_the_detector():
    turns = 2 * np.pi * np.arange(4) / 4
    tilts = 10.0 * np.stack([np.sin(turns), np.cos(turns)], axis=1)
    rocked = namsa.rocking(molecule(), tilts_mrad=tilts, detector=DETECTOR, **SHARED)
    mean = namsa.precession(molecule(), angle_mrad=10.0, azimuths=4, detector=DETECTOR, **SHARED)
    np.testing.assert_allclose(np.mean([s.cbed for s in rocked], axis=0), mean.cbed, atol=1e-14)
    assert mean.provenance["precession"] == {"angle_mrad": 10.0, "azimuths": 4}


def test_noise_is_of_the_mean_pattern():
    noisy = DETECTOR.model_copy(update={"electrons_per_pattern": 1000.0})
    sample = namsa.precession(molecule(), angle_mrad=8.0, azimuths=2, detector=noisy, **SHARED)
    counts = sample.cbed * 1000
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-9)


def test_tilts_are_rounded_with_a_warning_and_must_fit_the_grid():
    with pytest.warns(SimulationWarning, match="tilts are rounded by up to"):
        namsa.rocking(molecule(), tilts_mrad=[[0.4 * PITCH[0], 0]], **SHARED)
    with pytest.raises(InputError, match="tilted by 80 mrad, reaches 122"):
        namsa.rocking(molecule(), tilts_mrad=[[0, 80.0]], detector=DETECTOR, **SHARED)
    with pytest.raises(InputError, match="tilts_mrad has shape"):
        namsa.rocking(molecule(), tilts_mrad=[1.0, 2.0], **SHARED)
    with pytest.raises(InputError, match="azimuths is 0"):
        namsa.precession(molecule(), angle_mrad=1.0, azimuths=0, **SHARED)
    with pytest.raises(InputError, match="azimuths is 2.5; give a whole number"):
        namsa.precession(molecule(), angle_mrad=1.0, azimuths=2.5, **SHARED)
    with pytest.raises(InputError, match="angle_mrad is '1'; give a number"):
        namsa.precession(molecule(), angle_mrad="1", **SHARED)
    with pytest.raises(InputError, match="tilts_mrad is 'x'; give finite tilts"):
        namsa.rocking(molecule(), tilts_mrad="x", **SHARED)
    with pytest.raises(InputError, match="beam_tilt_mrad is no argument"):
        namsa.precession(molecule(), angle_mrad=1.0, beam_tilt_mrad=(0, 1), **SHARED)
