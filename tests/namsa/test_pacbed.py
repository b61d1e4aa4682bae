"""Position-averaged patterns: against the mean over all probes of a cell, and by depth."""

import ase.build
import numpy as np
import pytest

import namsa
from namsa.config.instrument import Detector
from namsa.errors import InputError
from namsa.pacbed import position_averaged

OPTICS = {"energy_ev": 200e3, "semiangle_mrad": 15.0, "detector": Detector(shape=(12, 14), pixel_mrad=4.0)}


def copper(layers: int):
    return ase.build.bulk("Cu", "fcc", a=3.61, cubic=True).repeat((3, 2, layers))


def test_it_is_the_mean_of_the_patterns_of_all_positions_whatever_the_lens():
    """15 mrad reach 0.6/Å; a raster of 3/Å resolves all that varies with the position."""
    y, x = np.arange(22) * 7.22 / 22, np.arange(32) * 10.83 / 32
    positions = np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)
    lens = {"C10": -70.0, "C12": 20.0, "C21": 400.0}
    patterns = namsa.simulate(copper(3), **OPTICS, positions_angstrom=positions, aberrations=lens).cbed
    (averaged,) = position_averaged(copper(3), **OPTICS)
    np.testing.assert_allclose(averaged, patterns.mean(axis=0), rtol=1e-3, atol=1e-7)


def test_a_part_of_the_plane_waves_stands_for_all_and_none_is_refused():
    (whole,), (part,) = position_averaged(copper(2), **OPTICS), position_averaged(copper(2), **OPTICS, every=(3, 1))
    assert part.sum() == pytest.approx(whole.sum(), rel=0.01)
    with pytest.raises(InputError, match="take fewer"):
        position_averaged(copper(2), **OPTICS, every=(1000, 999))


def test_a_depth_is_a_thinner_specimen():
    by_depth = position_averaged(copper(4), **OPTICS, thicknesses_angstrom=[7.22, 14.44])
    (thin,) = position_averaged(copper(2), **OPTICS)
    np.testing.assert_allclose(by_depth[0], thin, rtol=0.02, atol=1e-5)
    assert not np.allclose(by_depth[1], thin, rtol=0.02, atol=1e-5)
