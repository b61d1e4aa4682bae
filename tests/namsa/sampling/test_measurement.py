"""Pixels and slices that are chosen are tried on the specimen itself, and made smaller until they
hold.
"""

import numpy as np
import pytest
from ase.build import bulk

import namsa
from namsa.sampling import measurement, resolution, trial
from namsa.sampling.evidence import errors_of
from namsa.setup.settings import settings_of
from namsa.simulation_plan import plan_simulation

# A scan of many patterns in a small cell, (Lx, Ly) differ.
GOLD = bulk("Au", "fcc", a=4.078, cubic=True) * (2, 1, 4)
BEAM = {"energy_ev": 200e3, "semiangle_mrad": 20.0, "reach_mrad": 40.0, "backend": "cpu"}


def planned(atoms, **changed):
    return plan_simulation(atoms, settings_of(BEAM | {"scan": (48, 40)} | changed))


def true_errors(slicing, probes, times=5):
    """Against pixels a fifth as large and every layer in a slice of its own."""
    tried = trial.Trial(slicing, probes, slicing.required.reach_mrad)
    patterns = tried.patterns(slicing.grid, slicing.plan)
    finest = trial.finer_grid(slicing.grid, times)
    return errors_of(patterns, tried.patterns(finest, slicing.finer_plan(50)))


def test_a_choice_that_does_not_hold_is_made_smaller_until_it_does(monkeypatch):
    monkeypatch.setattr(resolution, "MARGIN", 1.6)
    plan = planned(GOLD)
    probes = np.array([[0.0, 0.0], [0.7, 1.1]])
    assert true_errors(plan.slicing, probes).error > 0.01
    measured = plan.measured().slicing
    assert measured.measurement.raised > 0
    assert max(measured.grid.sampling_angstrom) < max(plan.slicing.grid.sampling_angstrom)
    error, worst = true_errors(measured, probes)
    assert error < 0.012  # other probes than those that were measured
    assert worst < 0.022
    references = measured.measurement.reference_pixels_angstrom
    assert references[-1] < max(measured.grid.sampling_angstrom) / 1.85


def test_layers_that_share_a_slice_are_divided_where_that_is_the_error(monkeypatch):
    monkeypatch.setattr(resolution, "_LAYER_PHASE", 8.0)
    glass = bulk("W", "bcc", a=3.2, cubic=True) * (2, 3, 5)
    glass.rattle(0.3, seed=2)
    glass.wrap()
    monkeypatch.setattr(measurement, "SHARE", 2.0)
    monkeypatch.setattr(resolution, "_LAYER_LIMITS_ANGSTROM", (0.01, 4.0))
    settings = settings_of(BEAM | {"scan": (40, 30)})
    plan = plan_simulation(glass, settings)
    measured = plan.measured().slicing
    assert measured.slices > plan.slicing.slices
    assert true_errors(measured, np.array([[1.0, 2.0], [5.0, 3.0]])).error < 0.012


def test_the_provenance_says_what_was_compared_and_found():
    sample = namsa.simulate(GOLD, **BEAM, scan=(48, 40))
    evidence = sample.provenance["accuracy_evidence"]
    assert evidence["basis"] == "measured"
    assert evidence["probes"] >= 2
    assert 0 < evidence["error"] <= 0.01
    assert evidence["error"] <= evidence["worst_pattern"] <= 0.02
    pixel = max(sample.provenance["density_sampling_angstrom"])
    assert evidence["pixel_angstrom"] == pytest.approx(pixel)
    assert max(evidence["reference_pixels_angstrom"]) <= pixel / 2


def test_of_few_patterns_the_model_stands_for_the_measurement(monkeypatch):
    monkeypatch.setattr(measurement, "_FREE_OPERATIONS", 0)
    sample = namsa.simulate(GOLD, **BEAM, positions_angstrom=[(0, 0)])
    assert sample.provenance["accuracy_evidence"]["basis"] == "model"
    given = namsa.simulate(
        GOLD, **BEAM, positions_angstrom=[(0, 0)], grid_shape=(48, 96), accuracy=None
    )
    assert "accuracy_evidence" not in given.provenance


def test_what_does_not_hold_in_the_end_is_said(monkeypatch):
    monkeypatch.setattr(resolution, "MARGIN", 2.5)
    monkeypatch.setattr(measurement, "_ROUNDS", 0)
    with pytest.warns(namsa.SimulationWarning, match="a relative error of .* the worst one"):
        sample = namsa.simulate(GOLD, **BEAM, scan=(48, 40))
    assert sample.provenance["accuracy_evidence"]["error"] > 0.01


def test_few_patterns_are_measured_where_that_takes_a_moment():
    """Copper at 200 kV: 4a/λ is a square, and zones of higher order are excited exactly."""
    copper = bulk("Cu", "fcc", a=3.61, cubic=True) * (1, 1, 33)
    plan = planned(copper, scan=None, positions_angstrom=[(0, 0)], semiangle_mrad=0.5)
    centre = np.zeros((1, 2))
    assert true_errors(plan.slicing, centre, times=3).error > 0.015
    measured = plan.measured().slicing
    assert measured.measurement.probes == 1  # all patterns of a parallel beam are alike
    assert true_errors(measured, centre, times=3).error < 0.012


def test_the_operations_of_the_measurement_are_a_small_part(monkeypatch):
    monkeypatch.setattr(measurement, "_FREE_OPERATIONS", 0)
    plan = planned(GOLD)
    references = trial.References.of(plan.slicing, (2, 3))
    fewer = planned(GOLD, scan=(20, 20))
    assert references.operations_per_probe(plan.slicing) > 0
    assert fewer.measured().slicing.measurement is None
