"""Refinement by columns: patterns and slopes of its model, a lens that is found again, densities
that get no worse.
"""

import ase
import numpy as np
import pytest

import namsa
from namsa.base.pixels import PixelGrid
from namsa.config.instrument import Detector
from namsa.inverse import refinement
from namsa.inverse import scan_model as scan_models
from namsa.inverse.microscope import MicroscopeValues
from namsa.inverse.scan_fit import KnownScan
from namsa.inverse.scan_model import scan_model
from namsa.physics import density_target
from namsa.physics.grid import Grid
from namsa.physics.optics import BeamSettings

MAX_Q = 1.25
THICKNESS = 20.0
STEP = (0.4, 0.45)
SCAN = (22, 24)
CELL = (11.4, 13.0)  # (y, x), Å
LENS = {"C10": -20.0, "C12": 8.0, "phi12": 0.5}
DETECTOR = (25, 27)
PIXELS = PixelGrid((3.0, 3.0), (-36.0, -39.0))


@pytest.fixture(scope="module")
def silicon():
    """Columns of silicon without symmetry: true density at the positions and patterns, by the
    simulation.
    """
    rng = np.random.default_rng(4)
    y, x = np.meshgrid(np.arange(0.9, 11, 1.9), np.arange(1.0, 13, 1.85), indexing="ij")
    flat = np.column_stack([x.ravel(), y.ravel()]) + rng.uniform(-0.2, 0.2, (y.size, 2))
    atoms = []
    for z in np.arange(1.25, THICKNESS, 2.5):
        atoms.append(np.column_stack([flat, np.full(len(flat), z)]))
    specimen = ase.Atoms(
        ["Si"] * (8 * len(flat)), np.concatenate(atoms), cell=[*CELL[::-1], THICKNESS], pbc=True
    )
    rows, columns = (1.2 + step * np.arange(n) for step, n in zip(STEP, SCAN, strict=True))
    sample = namsa.simulate(
        specimen,
        energy_ev=200e3,
        semiangle_mrad=20,
        grid_shape=(90, 100),
        slice_thickness_angstrom=2.5,
        aberrations=LENS,
        positions_angstrom=np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2),
        scan_shape=SCAN,
        detector=Detector(shape=DETECTOR, pixel_mrad=3.0),
    )
    grid = Grid((90, 100), CELL)
    coefficients = density_target.band_limited(sample.density.astype(float), grid, MAX_Q)
    return density_target.at_positions(coefficients, grid, rows, columns), sample.cbed.reshape(
        *SCAN, *DETECTOR
    )


def experiment(lens: dict[str, float]) -> KnownScan:
    return KnownScan(BeamSettings(200e3, 20.0, lens), PIXELS, STEP, THICKNESS, {14: 1.0}, MAX_Q)


def error(density: np.ndarray, truth: np.ndarray) -> float:
    inner = np.s_[4:-4, 4:-4]
    return float(np.sqrt(np.mean((density[inner] - truth[inner]) ** 2)) / truth[inner].std())


@pytest.mark.parametrize("shift", [0.0, 1.5], ids=["axis in a pixel", "axis between pixels"])
def test_the_slope_is_that_of_the_misfit(monkeypatch, shift):
    rng = np.random.default_rng(0)
    scan = (4, 5)
    pixels = PixelGrid(PIXELS.step, (PIXELS.origin[0] + shift, PIXELS.origin[1] + shift))
    model = scan_model(
        BeamSettings(200e3, 20.0, {"C30": 1e4}, aperture_edge="amplitude"),
        pixels,
        DETECTOR,
        scan,
        STEP,
        3,
        3.0,
    )
    y, x = (np.arange(n) / n for n in model.grid.shape)
    field = 60 * (1 + np.sin(6 * np.pi * y)[:, None] * np.cos(4 * np.pi * x))
    numbers = np.array([9.0, 3, -4, 90, 50, 18, 2e-3, -3e-3, 2e-3, 1e-3, -1e-3, 3e-3, 0.02])
    measured = rng.random((20, *DETECTOR)).astype(np.float32) / 675
    used = np.arange(20) % 8 != 0
    known = np.arange(20) != 3

    def misfit(field, numbers):
        return model.misfit(field, MicroscopeValues.from_vector(numbers), measured, used, known)

    reference = misfit(field, numbers)
    by_numbers = reference.by_microscope.to_vector()
    monkeypatch.setattr(scan_models, "LARGEST_BYTES", 0)
    twice = misfit(field, numbers)
    np.testing.assert_allclose(
        twice.by_potential, reference.by_potential, atol=1e-6 * abs(reference.by_potential).max()
    )
    sizes = (0.5, 0.5, 0.5, 20, 20, 0.3, 2e-4, 2e-4, *[3e-4] * 4, 2e-3)
    for index, size in enumerate(sizes):
        change = np.where(np.arange(13) == index, size, 0)
        high = misfit(field, numbers + change).divergences.used
        low = misfit(field, numbers - change).divergences.used
        slope = (high - low) / 2
        assert by_numbers[index] * size == pytest.approx(slope, rel=0.03, abs=3e-6), index
    change = 3 * np.cos(2 * np.pi * y)[:, None] * np.sin(6 * np.pi * x)
    high = misfit(field + change, numbers).divergences.used
    low = misfit(field - change, numbers).divergences.used
    slope = (high - low) / 2
    assert np.sum(reference.by_potential * change) == pytest.approx(slope, rel=0.03, abs=3e-6)


@pytest.mark.slow
def test_a_lens_is_found_again_and_a_disturbed_density_gets_better(silicon):
    truth, patterns = silicon
    rng = np.random.default_rng(1)
    disturbed = truth * 1.15 + 0.15 * truth.std() * rng.normal(size=truth.shape)
    lost = patterns.copy()
    lost[10, 11] = np.nan
    uncertainty = np.full(truth.shape, 0.2 * truth.std())
    refined = refinement.refine(disturbed, uncertainty, lost, experiment({"C10": -5.0}), steps=15)
    assert refined is not None
    assert not {"rows", "columns"} & refined.facts.keys()  # which say where a block lies
    assert refined.facts["C10"] == pytest.approx(LENS["C10"], abs=4)
    assert refined.facts["C12"] == pytest.approx(LENS["C12"], abs=3)
    assert refined.facts["kept_out_divergence"] < 0.9 * refined.facts["kept_out_divergence_before"]
    assert refined.facts["gain_of_columns"] > 0.1
    assert error(refined.density, truth) < error(disturbed, truth)
    assert refined.uncertainty is not None
    assert np.isfinite(refined.uncertainty).all()


@pytest.mark.slow
def test_a_true_density_stays_true(silicon):
    truth, patterns = silicon
    refined = refinement.refine(
        truth, np.full(truth.shape, 0.05 * truth.std()), patterns, experiment(LENS), steps=15
    )
    assert refined is not None
    assert error(refined.density, truth) < 0.1


def test_what_patterns_kept_out_contradict_is_not_taken(silicon):
    truth, patterns = silicon
    # so many at the edges are left out
    row, column = np.indices(SCAN) - np.array([4, 3])[:, None, None]
    used = (3 * row + column) % refinement.KEPT_OUT != 0
    angle = np.hypot(*np.meshgrid(*PIXELS.coordinates(DETECTOR), indexing="ij"))
    vacuum = (angle < 20) / (angle < 20).sum()
    refined = refinement.refine(
        truth, None, np.where(used[..., None, None], vacuum, patterns), experiment(LENS), steps=3
    )
    assert refined is not None
    assert refined.facts["steps"] == 0
    assert refined.facts["steps_tried"] > 0
    np.testing.assert_array_equal(refined.density, truth)


def test_without_the_fit_of_columns_the_density_stays(silicon):
    truth, patterns = silicon
    refined = refinement.refine(
        truth, None, patterns, experiment({"C10": -5.0}), steps=2, fit_columns=False
    )
    assert refined is not None
    np.testing.assert_array_equal(refined.density, truth)
    assert refined.facts["steps_tried"] > 0
    assert "gain_of_columns" not in refined.facts
    assert abs(refined.facts["C10"] - LENS["C10"]) < 15


def test_a_density_without_columns_is_not_refined(silicon):
    smooth = np.add.outer(np.linspace(1, 2, SCAN[0]), np.linspace(0, 9, SCAN[1]))
    assert refinement.refine(smooth, None, silicon[1], experiment(LENS), steps=3) is None
    assert refinement.refine(np.ones(SCAN), None, silicon[1], experiment(LENS), steps=3) is None
    for nothing in (np.nan, 0):
        assert (
            refinement.refine(silicon[0], None, nothing * silicon[1], experiment(LENS), steps=3)
            is None
        )


def test_a_scan_whose_middle_is_lost_is_refined_by_what_is_left(silicon):
    truth, patterns = silicon
    lost = patterns.copy()
    lost[:, 4:-4] = np.nan
    refined = refinement.refine(truth * 1.1, None, lost, experiment(LENS), steps=2)
    assert refined is not None
    assert refined.facts["steps_tried"] > 0
    assert np.isfinite(refined.density).all()


def test_a_source_leaves_what_changes_evenly_along_the_scan():
    model = scan_model(BeamSettings(200e3, 20.0, {}), PIXELS, DETECTOR, SCAN, STEP, 2, 3.0)
    y, x = np.indices(SCAN)
    even = (
        ((2 * y - 3 * x + 100)[..., None, None] * np.ones((2, 3)))
        .astype(np.float32)
        .reshape(-1, 2, 3)
    )
    np.testing.assert_allclose(model.blurred(even, 0.3), even, rtol=1e-5)
    k = 2 * np.pi * 0.31  # 1/Å
    wave = np.cos(k * STEP[0] * y)[..., None, None].astype(np.float32).reshape(-1, 1, 1)
    inner = np.s_[8:-8]
    expected = np.exp(-0.3 * k**2 / 2) * wave
    np.testing.assert_allclose(
        model.blurred(wave, 0.3).reshape(SCAN)[inner], expected.reshape(SCAN)[inner], atol=2e-3
    )
