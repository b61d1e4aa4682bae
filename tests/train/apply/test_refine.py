"""The differentiable multislice compared with namsa's, its gradient, and the effect of a few steps."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from plane_of_atoms import EXPERIMENT, MAX_Q, SCAN, THICKNESS, crystal, sample

from namsa.engines import multislice
from namsa.errors import InputError
from namsa.inverse import consistency, mott_bethe
from namsa.physics import detector as detectors
from namsa.physics import optics, potential
from namsa.physics.grid import Grid
from train.apply import refine
from train.experiment.experiment import Experiment

GRID = Grid((40, 48), (7.6, 8.8))
POSITIONS = np.array([[0.3, 1.1], [3.7, 2.9], [6.6, 8.1]])


def simulation_at(positions: np.ndarray, experiment: Experiment = EXPERIMENT) -> consistency.ScanSimulation:
    """Returns the simulation of probes that all stay within the known density."""
    return consistency.ScanSimulation(experiment, THICKNESS, GRID, positions, np.ones(len(positions), bool))


def potentials(count: int) -> np.ndarray:
    """(count, 40, 48) V·Å, smooth, all different."""
    rng = np.random.default_rng(7)
    q = np.sqrt(GRID.squared_frequency())
    noise = np.fft.fft2(rng.normal(size=(count, *GRID.shape))) * np.exp(-(q**2))
    fields = np.fft.ifft2(noise).real
    return (300 * (fields - fields.min()) / np.ptp(fields)).astype(np.float32)


def test_tensorflow_simulates_what_namsa_does() -> None:
    v = potentials(3)
    model = refine.differentiable_multislice(simulation_at(POSITIONS), distinct=3)
    assert model.counts == (2, 2, 2)
    differentiable = model.patterns(tf.constant(v), POSITIONS).numpy()

    antialias, sigma = GRID.antialias(), optics.interaction_constant(200e3)
    slices = [potential.transmission(field.astype(float), sigma, antialias, np.complex128) for field in v]
    order = np.repeat(np.arange(3), 2)
    wavelength = optics.wavelength_angstrom(200e3)
    fresnel = multislice.propagator(GRID, wavelength, 2.0)
    lens = optics.lens(GRID, optics.BeamSettings(200e3, 20, {"C10": -40.0}))
    engine = multislice.PlainEngine(GRID, potential.Slices.equally_thick(slices, order, 2.0), fresnel)
    patterns = engine.prepare(lens).patterns(POSITIONS)
    expected = detectors.bin_patterns(patterns, detectors.bin_matrices(GRID, wavelength, EXPERIMENT.detector))
    np.testing.assert_allclose(differentiable, expected, atol=2e-6 * expected.max())


def test_partial_coherence_is_the_same_sum() -> None:
    blurred = EXPERIMENT.microscope.model_copy(update={"source_size_angstrom": 0.8, "source_points": 2})
    experiment = EXPERIMENT.model_copy(update={"microscope": blurred})
    v = potentials(1)
    simulation = simulation_at(POSITIONS, experiment)
    expected = consistency.simulate(6 * v[0].astype(float), simulation)
    patterns = refine.differentiable_multislice(simulation).patterns(tf.constant(v), POSITIONS).numpy()
    np.testing.assert_allclose(patterns, expected, atol=3e-6 * expected.max())


def test_gradient_is_the_slope() -> None:
    model = refine.differentiable_multislice(simulation_at(POSITIONS))
    truth, v = potentials(1), tf.Variable(0.7 * potentials(1))
    measured = model.patterns(tf.constant(truth), POSITIONS)

    def value(field: tf.Tensor) -> tf.Tensor:
        return refine.loss(model.patterns(field, POSITIONS), measured)

    with tf.GradientTape() as tape:
        at = value(v)
    gradient = tape.gradient(at, v).numpy()
    rng, q = np.random.default_rng(3), np.sqrt(GRID.squared_frequency())
    for _ in range(3):
        way = np.fft.ifft2(np.fft.fft2(rng.normal(size=GRID.shape)) * np.exp(-(q**2))).real[None].astype(np.float32)
        way *= 3 / abs(way).max()  # V·Å: the loss is even, and single precision sees it
        slope = (value(v + way) - value(v - way)) / 2
        np.testing.assert_allclose(np.sum(gradient * way), slope, rtol=0.02, atol=1e-5 * float(at))


def test_truth_stays_and_a_perturbed_truth_comes_back() -> None:
    model = refine.differentiable_multislice(simulation_at(POSITIONS))
    simulated, _ = sample(crystal("Cu"))
    positions = np.array(simulated.provenance["positions_angstrom"])
    truth = (simulated.projected_potential / 6)[None].astype(np.float32)
    chosen = np.arange(0, len(positions), 9)
    own = refine.loss(model.patterns(tf.constant(truth), positions[chosen]), simulated.cbed[chosen])
    assert own < 1e-8
    v = keras.Variable(truth * 0.8)
    losses = refine.descend(model, v, positions, simulated.cbed, steps=12, batch=48, rate=8.0, seed=0)
    assert losses[-1] < 0.5 * losses[0]
    errors = [np.sqrt(np.mean((field - truth) ** 2)) for field in (truth * 0.8, v.numpy())]
    assert errors[1] < errors[0]
    assert v.numpy().min() >= 0


def test_refinement_explains_more_of_the_patterns() -> None:
    simulated, density = sample(crystal("Cu"))
    transfer = mott_bethe.from_elements({"Cu": 1}, MAX_Q)
    simulation = consistency.scan_simulation(EXPERIMENT, THICKNESS, SCAN)
    estimate = density + 0.15 * np.std(density) * np.random.default_rng(1).normal(size=SCAN)
    refined = refine.refine(estimate, simulated.cbed, simulation, transfer, steps=12, seed=1)
    assert refined.density.shape == SCAN
    assert refined.scores[1] < 0.9 * refined.scores[0]
    unrefined = refine.refine(estimate, simulated.cbed, simulation, transfer, steps=0)
    # Without a step the estimate is changed by the potential's band limit and the scan's edges only.
    assert np.corrcoef(unrefined.density.ravel(), estimate.ravel())[0, 1] > 0.99
    with pytest.raises(InputError, match="7 distinct slices of 6"):
        refine.differentiable_multislice(simulation_at(POSITIONS), distinct=7)
