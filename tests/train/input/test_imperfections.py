"""Imperfections against simulations of the same imperfection, and what they conserve."""

import ase
import numpy as np
import pytest

import namsa
from namsa.config.instrument import Detector
from train.experiment.imperfections import Imperfections
from train.input.imperfections import Drawn, Geometry, apply, damage, draw

SCAN = (9, 11)
STEP = 0.4
FIRST = (1.1, 0.7)
DETECTOR = Detector(shape=(21, 25), pixel_mrad=3)
GEOMETRY = Geometry(200e3, 20, (STEP, STEP), (3, 3), (10, 12))
MIDDLE = np.s_[3:-3, 3:-3]


def positions():
    return np.argwhere(np.ones(SCAN)) * STEP + FIRST


def simulated(at=None, **changes):
    """Patterns `(sy, sx, dy, dx)` of two columns of gold in a cell of 12 × 14 Å."""
    columns = [(2.2, 2.2), (3.6, 3.1)]
    atoms = ase.Atoms(
        "Au10", [(x, y, z) for x, y in columns for z in (1, 4, 7, 10, 13)], cell=(14, 12, 16)
    )
    settings = {
        "energy_ev": 200e3,
        "semiangle_mrad": 20,
        "grid_shape": (96, 112),
        "detector": DETECTOR,
    } | changes
    stack = namsa.simulate(
        atoms, positions_angstrom=positions() if at is None else at, **settings
    ).cbed
    return stack.reshape(*SCAN, *stack.shape[1:])


@pytest.fixture(scope="module")
def patterns():
    return simulated()


def difference(one, other, where=MIDDLE):
    return np.linalg.norm(one[where] - other[where]) / np.linalg.norm(other[where])


@pytest.mark.parametrize(("size", "most"), [(0.5, 0.02), (0.8, 0.02)])
def test_a_source_blurs_as_the_simulation_does(patterns, size, most):
    expected = simulated(source_size_angstrom=size, source_points=8)
    assert difference(patterns, expected) > 5 * most
    assert difference(apply(patterns, Drawn(source_size_angstrom=size), GEOMETRY), expected) < most


def test_errors_of_position_give_the_patterns_of_where_the_beam_was(patterns):
    drawn = Drawn(
        jitter_angstrom=0.1,
        drift_angstrom=(0.5, -0.3),
        flyback_angstrom=0.4,
        scan_order=5,
        seed=(3,),
    )
    error = drawn.displacements(SCAN)
    expected = simulated(positions() + error.reshape(2, -1).T)
    assert difference(patterns, expected) > 0.2
    assert difference(apply(patterns, drawn, GEOMETRY), expected) < 0.08


def test_a_point_spread_is_that_of_the_detector(patterns):
    expected = simulated(detector=DETECTOR.model_copy(update={"point_spread_pixels": 0.9}))
    assert difference(patterns, expected) > 0.1
    assert difference(apply(patterns, Drawn(detector_spread_pixels=0.9), GEOMETRY), expected) < 0.03


def test_a_shift_by_whole_pixels_moves_them(patterns):
    moved = apply(patterns, Drawn(centre_shift_pixels=(1.0, -2.0)), GEOMETRY)
    np.testing.assert_allclose(
        moved[..., 1:, :-2], patterns[..., :-1, 2:], atol=2e-3 * patterns.max()
    )


def test_distortions_are_those_of_a_detector_in_another_place():
    """Pixels of a smooth pattern, whose integral over a distorted pixel is its value in the
    middle.
    """
    y, x = np.indices((31, 35)) - np.array([15, 17])[:, None, None]

    def smooth(y, x):
        return np.exp(-((y - 3) ** 2) / 40 - (x + 2) ** 2 / 70) * 1e-3

    flat = np.broadcast_to(smooth(y, x), (2, 3, 31, 35))
    geometry = GEOMETRY._replace(axis_pixels=(15, 17))
    drawn = Drawn(
        centre_shift_pixels=(0.4, -0.3),
        turn_degrees=4,
        ellipticity=0.06,
        ellipse_degrees=0,
        pixel_scale=0.05,
    )
    angle = np.radians(4)
    # back through the shift, the scale, the turn and the ellipse
    v = (y - 0.4) * 1.05
    u = (x + 0.3) * 1.05
    v, u = v * np.cos(angle) - u * np.sin(angle), v * np.sin(angle) + u * np.cos(angle)
    expected = smooth(v / 0.97, u / 1.03) * 1.05**2 / (0.97 * 1.03)
    inside = np.s_[3:-3, 3:-3]  # further out is what came from beyond the edge
    distorted = apply(flat, drawn, geometry)
    np.testing.assert_allclose(distorted[1, 2][inside], expected[inside], atol=5e-3 * flat.max())
    assert distorted.sum() == pytest.approx(flat.sum(), rel=0.01)


def test_intensity_is_conserved_by_the_background_and_scaled_by_the_gain(patterns):
    for plasmon_part in (0.0, 1.0):
        drawn = Drawn(background_fraction=0.3, plasmon_part=plasmon_part)
        diffuse = apply(patterns, drawn, GEOMETRY)
        np.testing.assert_allclose(
            diffuse.sum((2, 3)), patterns.sum((2, 3)), rtol=0.03 if plasmon_part else 1e-5
        )
        assert difference(diffuse, patterns) > 0.05
    np.testing.assert_allclose(
        apply(patterns, Drawn(beam_gain=-0.25), GEOMETRY), 0.75 * patterns, rtol=1e-6
    )
    np.testing.assert_array_equal(apply(patterns, Drawn(), GEOMETRY), patterns)


def test_a_window_has_what_lies_around_it(patterns):
    drawn = Drawn(source_size_angstrom=0.8, centre_shift_pixels=(0.3, 0.1))
    full_scan = apply(patterns, drawn, GEOMETRY)
    window = apply(patterns, drawn, GEOMETRY, corner=(2, 3), shape=(4, 5))
    np.testing.assert_allclose(window, full_scan[2:6, 3:8], atol=1e-6 * full_scan.max())


def test_a_periodic_scan_has_no_edge(patterns):
    drawn = Drawn(source_size_angstrom=0.6, drift_angstrom=(0.8, 0.8))
    geometry = GEOMETRY._replace(periodic=True)
    rolled = apply(np.roll(patterns, (4, 3), (0, 1)), drawn, geometry)
    np.testing.assert_allclose(
        rolled,
        apply(np.tile(patterns, (3, 3, 1, 1)), drawn, GEOMETRY, corner=(5, 8), shape=SCAN),
        atol=1e-6,
    )


def test_pixels_and_rows_are_lost_after_the_noise(patterns):
    damaged = damage(
        patterns.copy(), Drawn(hot_pixels=0.05, dead_pixels=0.1, missing_rows=0.3, seed=(1,))
    )
    rows = damaged.any(axis=(1, 2, 3))
    assert 0 < (~rows).sum() < SCAN[0]
    dead = ~damaged[rows].any(axis=(0, 1))
    hot = np.ptp(damaged[rows], axis=(0, 1)) == 0
    assert 20 < dead.sum() < 85
    assert 8 < (hot & ~dead).sum() < 50
    assert damaged[rows][..., hot & ~dead].min() >= 0.99 * patterns.mean()
    kept = damaged[rows][..., ~hot & ~dead]
    np.testing.assert_array_equal(kept, patterns[rows][..., ~hot & ~dead])


def test_what_is_drawn_depends_on_sample_and_epoch_and_prefers_no_direction():
    ranges = Imperfections(
        source_size_angstrom=(0.2, 0.9),
        centre_shift_pixels=(0.5, 1.0),
        turn_degrees=(0, 3),
        drift_angstrom=(1, 1),
    )
    assert draw(ranges, 4, 7) == draw(ranges, 4, 7) != draw(ranges, 4, 8)
    all_drawn = [draw(ranges, seed, 1) for seed in range(400)]
    sizes = [drawn.source_size_angstrom for drawn in all_drawn]
    assert 0.2 <= min(sizes) < 0.21
    assert 0.89 < max(sizes) <= 0.9
    for name, scale in (
        ("centre_shift_pixels", 0.75),
        ("drift_angstrom", 1.0),
        ("turn_degrees", 1.5),
    ):
        values = np.array([getattr(drawn, name) for drawn in all_drawn])
        assert np.all(abs(values.mean(axis=0)) < 0.2 * scale)
    assert {drawn.scan_order for drawn in all_drawn} == set(range(8))
    assert {drawn.detector_spread_pixels for drawn in all_drawn} == {0.0}


def test_a_quantity_is_present_with_the_probability_given_independently_of_the_others():
    ranges = {
        "source_size_angstrom": [0.2, 1],
        "turn_degrees": [1, 3],
        "drift_angstrom": [0.1, 0.5],
    }
    some = Imperfections(probability=0.3, **ranges)
    every = Imperfections(**ranges)
    pairs = [(draw(some, seed, 2), draw(every, seed, 2)) for seed in range(600)]
    present = np.array(
        [[bool(np.any(getattr(drawn, name))) for name in ranges] for drawn, _ in pairs]
    )
    np.testing.assert_allclose(present.mean(0), 0.3, atol=0.06)
    np.testing.assert_allclose(np.corrcoef(present.T), np.eye(3), atol=0.12)
    for (drawn, always), there in zip(pairs, present, strict=True):
        for name, is_present in zip(ranges, there, strict=True):
            assert not is_present or getattr(drawn, name) == getattr(always, name)
    for drawn, always in pairs:
        assert drawn.scan_order == always.scan_order


def test_plasmons_are_those_of_a_simulation(patterns):
    plasmons = namsa.Plasmons(mean_free_path_angstrom=20, energy_loss_ev=18)
    expected = simulated(plasmons=plasmons)
    drawn = Drawn(plasmon_thickness=16 / 20, plasmon_ev=18)
    assert difference(patterns, expected, np.s_[:]) > 0.05
    assert difference(apply(patterns, drawn, GEOMETRY), expected, np.s_[:]) < 1e-5
    np.testing.assert_array_equal(
        apply(patterns, Drawn(plasmon_ev=18), GEOMETRY), apply(patterns, Drawn(), GEOMETRY)
    )


def test_the_brightest_pixel_loses_the_fraction_and_dark_ones_nothing(patterns):
    recorded = apply(patterns, Drawn(counting_loss=0.2), GEOMETRY)
    perfect = apply(patterns, Drawn(), GEOMETRY)
    lost = 1 - recorded / np.maximum(perfect, 1e-30)
    assert lost.ravel()[perfect.argmax()] == pytest.approx(0.2, rel=1e-4)
    dark = (perfect < 1e-3 * perfect.max()) & (perfect > 1e-8)
    assert lost[dark].max() < 3e-4
    assert (recorded <= perfect).all()


def test_what_is_drawn_for_other_quantities_does_not_change_with_the_later_ones():
    early = {"beam_gain": (0.0, 0.1), "jitter_angstrom": (0.0, 0.2)}
    later = {"plasmon_thickness": (0.1, 0.8), "counting_loss": (0.0, 0.3)}
    for seed in range(5):
        without, with_later = (
            draw(Imperfections(**ranges), seed, 2) for ranges in (early, early | later)
        )
        assert (without.beam_gain, without.scan_order) == (
            with_later.beam_gain,
            with_later.scan_order,
        )
        assert 0.1 <= with_later.plasmon_thickness <= 0.8
        assert without.plasmon_thickness == without.counting_loss == 0
