"""Dead lines, bars, chips and corners of a detector are found and bridged; what merely ends is
not.
"""

import numpy as np
import pytest

import namsa

SIDES = (80, 96)
CENTRE = (42.0, 44.0)
RADIUS = 20.0
Y, X = np.mgrid[: SIDES[0], : SIDES[1]]
DISTANCE = np.hypot(Y - CENTRE[0], X - CENTRE[1])
STOP = (np.abs((Y - 42) - 0.5 * (X - 46)) < 4) & (X > 46)


def measured(peak=60.0):
    mean = peak / (1 + np.exp((DISTANCE - RADIUS) / 0.6)) + 0.5 * np.exp(-DISTANCE / 40)
    return np.random.default_rng(1).poisson(mean, (5, 6, *SIDES)).astype("u2")


def with_value(dead, value=0):
    scan = measured()
    scan[..., dead] = value
    return scan


DEAD = {
    "cross": (np.isin(Y, (40, 41)) | np.isin(X, (47, 48)), 0),
    "rows": (np.isin(Y, (52, 53)), 0),
    "rows of the largest value": (np.isin(Y, (52, 53)), 65535),
    "bar": ((abs(Y - 45) < 6) & (abs(X - 45) < 15), 0),
    "stop from the edge": ((abs(Y - 40) < 5) & (X > 44), 0),
    "tilted stop": (STOP, 0),
    "chip": ((Y < 40) & (X < 44), 0),
    "another chip": ((Y >= 40) & (X >= 48), 0),
}


@pytest.mark.parametrize("kind", DEAD)
def test_the_disk_is_that_without_the_dead_region(kind):
    dead, value = DEAD[kind]
    inspection = namsa.inspect(with_value(dead, value), semiangle_mrad=20)
    radius = inspection.calibration.quantities["disk_radius_pixels"]
    assert abs(radius.value - RADIUS) < 2 * radius.error < 0.5
    centre = inspection.calibration.quantities["centre_pixels"]
    assert np.abs(np.subtract(centre.value, CENTRE)).max() < 0.15
    assert any("taken as dead" in note for note in inspection.calibration.notes)


@pytest.mark.parametrize("kind", ["cross", "rows", "rows of the largest value"])
def test_a_dead_line_is_bridged_as_patterns_are_read(kind):
    dead, value = DEAD[kind]
    with namsa.read(with_value(dead, value)) as scan:
        assert set(scan.bad_pixels) == set(map(tuple, np.argwhere(dead).tolist()))
        mean = scan.read(slice(0, 5), slice(0, 6)).mean(axis=(0, 1))
    inside = dead & (DISTANCE < RADIUS - 3)
    assert np.abs(mean[inside] / 60 - 1).max() < 0.15


@pytest.mark.parametrize(
    "dark",
    [DISTANCE > 35, (Y < 10) & (X < 10), DISTANCE > RADIUS + 2, np.zeros(SIDES, bool)],
)
def test_the_end_of_what_is_lit_is_not_dead(dark):
    with namsa.read(with_value(dark)) as scan:
        assert scan.bad_pixels == ()
        assert scan.dtype == np.uint16


def test_few_counts_leave_no_pixel_dead():
    with namsa.read(measured(peak=0.3)) as scan:
        assert scan.bad_pixels == ()


def test_separate_disks_in_darkness_leave_what_is_between_them():
    mean = np.zeros(SIDES)
    for y in (15, 38, 61):
        for x in (20, 43, 66):
            mean += 80.0 / (1 + np.exp((np.hypot(Y - y, X - x) - 8) / 0.5))
    mean[mean < 0.01] = 0
    scan = np.random.default_rng(0).poisson(mean, (5, 6, *SIDES)).astype("u2")
    with namsa.read(scan) as recording:
        assert recording.bad_pixels == ()


@pytest.mark.parametrize("radius", [5, 8, 10])
def test_disks_with_hard_edges_in_darkness_leave_what_is_between_them(radius):
    mean = np.zeros(SIDES)
    for y in (15, 38, 61):
        for x in (20, 43, 66):
            mean[np.hypot(Y - y, X - x) < radius] = 40.0
    scan = np.random.default_rng(0).poisson(mean, (5, 6, *SIDES)).astype("u2")
    with namsa.read(scan) as recording:
        assert recording.bad_pixels == ()


def lattice(aperture):
    """Apertures in exact zeros, 23 pixels apart."""
    mean = np.zeros(SIDES)
    for y in (15, 38, 61):
        for x in (20, 43, 66):
            mean[aperture(Y - y, X - x)] = 40.0
    return mean


SQUARES = {
    "small": lattice(lambda y, x: np.maximum(abs(y), abs(x)) <= 3),
    "large": lattice(lambda y, x: np.maximum(abs(y), abs(x)) <= 9),
    "turned": lattice(lambda y, x: np.maximum(abs(y - 0.2 * x), abs(x + 0.2 * y)) < 8),
    "on their corners": lattice(lambda y, x: abs(y) + abs(x) < 11),
    "one": 40.0 * ((abs(Y - 40) < 20) & (abs(X - 44) < 20)),
    "a slit": 40.0 * ((abs(Y - 40) < 15) & (abs(X - 50) < 30)),
}


@pytest.mark.parametrize("kind", SQUARES)
def test_square_apertures_in_exact_zeros_leave_what_is_between_and_around_them(kind):
    scan = np.random.default_rng(0).poisson(SQUARES[kind], (5, 6, *SIDES)).astype("u2")
    with namsa.read(scan) as recording:
        assert recording.bad_pixels == ()


def test_dead_lines_in_a_square_aperture_are_found():
    dead = np.isin(Y, (30, 31)) | np.isin(X, (52, 53))
    scan = np.random.default_rng(0).poisson(SQUARES["one"], (5, 6, *SIDES)).astype("u2")
    scan[..., dead] = 0
    with namsa.read(scan) as recording:
        assert set(recording.bad_pixels) == set(map(tuple, np.argwhere(dead).tolist()))
