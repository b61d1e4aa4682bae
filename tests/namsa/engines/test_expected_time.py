"""Warnings before a long simulation."""

import warnings

import ase
import pytest

import namsa
from namsa.engines import expected_time, prism

ATOMS = ase.Atoms("Si", positions=[[2, 2, 1]], cell=[4, 5, 2], pbc=True)


def warnings_of_time():
    """The warnings of a small simulation that are about its time, and its sample."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sample = namsa.simulate(
            ATOMS, energy_ev=200e3, semiangle_mrad=20, scan=(2, 2), grid_shape=(32, 32)
        )
    return [warning for warning in caught if "on this machine" in str(warning.message)], sample


def test_a_long_simulation_says_its_time_before_it_begins_and_a_short_one_nothing(monkeypatch):
    assert not warnings_of_time()[0]
    monkeypatch.setattr(expected_time, "LONG_SECONDS", 0.0)
    warned, sample = warnings_of_time()
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert "this simulation takes about" in str(warned[0].message)
    for text in sample.provenance["warnings"]:
        assert "on this machine" not in text


def test_scatter_and_interpolation_say_their_time_too(monkeypatch):
    monkeypatch.setattr(expected_time, "LONG_SECONDS", 0.0)
    beam = {"energy_ev": 200e3, "grid_shape": (32, 32), "accuracy": None}
    with pytest.warns(namsa.SimulationWarning, match="fewer thermal configurations") as caught:
        namsa.scatter(ATOMS, max_angle_mrad=20, **beam)
    assert caught[0].filename == __file__
    with pytest.warns(namsa.SimulationWarning, match="this simulation takes about"):
        namsa.simulate(ATOMS, semiangle_mrad=20, scan=(2, 2), interpolation=2, **beam)


def test_interpolation_counts_fewer_plane_waves_and_pixels():
    work = prism.Work((64, 32), 10, 100, 10, 1, 81, 9, 1500)
    fewer = expected_time.interpolated_work(work, 2)
    assert (fewer.beams, fewer.pixels) == (21, 512)
    assert prism.product_operations(fewer) == 8 * 512 * 101 * 21
