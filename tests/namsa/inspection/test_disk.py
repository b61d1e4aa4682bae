"""The fit of the bright disk against known ellipses, steps by a lattice, and bad pixels, saturation
and vacuum.
"""

import numpy as np
import pytest
from amorphous_scan import disk_pattern
from ase.spacegroup import crystal

import namsa
from namsa import InputError
from namsa.inspection import bad_pixels
from namsa.inspection.bad_pixels import find_bad_pixels
from namsa.inspection.disk import Disk, edge, first_guess, fit_disk
from namsa.inspection.lattice import find_peaks, step_from_crystal, step_from_spacing
from namsa.inspection.quantities import disk_quantities
from namsa.inspection.survey import read_pieces, survey
from namsa.inspection.virtual_images import vacuum_intensity
from namsa.io.calibration_file import CalibratedQuantity

SALT = crystal(
    ["Na", "Cl"],
    [(0, 0, 0), (0.5, 0.5, 0.5)],
    spacegroup=225,
    cellpar=[5.64, 5.64, 5.64, 90, 90, 90],
)


@pytest.mark.parametrize("seed", range(4))
def test_centre_radius_and_ellipse_are_within_three_errors_of_the_truth(seed):
    rng = np.random.default_rng(seed)
    shape = [(50, 62), (33, 36)][seed % 2]
    centre = np.array(shape) / 2 + rng.normal(size=2)
    radius = [14.0, 7.0][seed % 2] + rng.random()
    truth = np.array([*centre, radius, *(0.02 * rng.normal(size=2)), 0, 0, 0])
    disk = fit_disk(disk_pattern(shape, Disk(truth, np.zeros((8, 8))), 2e6, seed))
    assert (np.abs(disk.parameters - truth)[:5] < 3 * disk.errors[:5]).all()
    assert disk.errors[2] < 0.012 * radius
    assert disk.errors[:2].max() < 0.05


def test_bad_pixels_that_are_marked_do_not_matter():
    truth = Disk(np.array([24.2, 29.7, 12.3, 0.0, 0.0, 0, 0, 0]), np.zeros((8, 8)))
    pattern = disk_pattern((50, 62), truth, 2e6, 0)
    usable = np.ones(pattern.shape, bool)
    pattern[24, 42], usable[24, 42] = 1e7, False
    assert fit_disk(pattern, usable).radius == pytest.approx(12.3, abs=0.1)


def test_the_mean_of_the_fall_is_the_edge():
    d = np.linspace(-60, 60, 24001)
    for inner, outer in ((0.02, 3.0), (2.0, 2.0), (1.5, 0.1)):
        step = edge(d, 0.7, inner, outer)
        assert step[0] == pytest.approx(1)
        assert step[-1] == pytest.approx(0, abs=1e-8)
        assert np.trapezoid(d, -step) == pytest.approx(0, abs=1e-3)


def test_a_pattern_without_a_disk_is_refused():
    with pytest.raises(InputError, match="no contrast"):
        fit_disk(np.ones((20, 24)))
    spot = np.zeros((20, 24))
    spot[10, 12] = 1000.0
    with pytest.raises(InputError):
        fit_disk(spot)


@pytest.mark.parametrize(
    ("across", "noted"), [(1.2, False), (1.0, True)], ids=["as stated", "round"]
)
def test_pixels_that_are_not_square_must_make_the_disk_a_circle(across, noted):
    """A disk of 12 mrad on pixels of 1 × 1.2 mrad is wider along y than along x; one that is round
    is noted.
    """
    radius = 12 / np.sqrt(1.2)
    stretched = np.log(across) / 2
    truth = Disk(np.array([24.0, 30.0, radius, stretched, 0.0, 0, 0, 0]), np.zeros((8, 8)))
    disk = fit_disk(disk_pattern((50, 62), truth, 5e6, 0))
    notes = []
    quantities = disk_quantities(
        disk, None, {"pixel_mrad": CalibratedQuantity((1.0, 1.2), None, "stated")}, notes
    )
    assert quantities["semiangle_mrad"].value == pytest.approx(12, rel=0.01)
    assert any("ellipse of ratio 1.2" in note for note in notes) is noted
    assert not {"ellipse_ratio", "pixel_mrad"} & set(quantities)  # the pixels stay as stated


def image(step, turn_deg=17.0, shape=(40, 52), seed=0):
    """Returns an image of the columns of rock salt along [001], whose square has sides of 2.82 Å,
    turned.
    """
    angle = np.deg2rad(turn_deg)
    side = 2.82
    y, x = np.meshgrid(*(np.arange(n) * s for n, s in zip(shape, step, strict=True)), indexing="ij")
    u = x * np.cos(angle) + y * np.sin(angle)
    v = y * np.cos(angle) - x * np.sin(angle)
    first = np.cos(2 * np.pi * u / side)
    second = np.cos(2 * np.pi * v / side)
    noise = np.random.default_rng(seed).normal(size=shape)
    return (first + second + 0.5 * first * second + 0.2 * noise)[None]


@pytest.mark.parametrize("seed", range(3))
def test_a_crystal_gives_both_steps(seed):
    true = np.array([0.41, 0.395])
    stated = (0.4, 0.4)
    fit = step_from_crystal(find_peaks(image(true, seed=seed)), stated, SALT)
    assert fit.described == "lattice along [0 0 1]"
    assert (np.abs(fit.factors * stated / true - 1) < 3 * fit.errors).all()
    assert fit.errors.max() < 0.006
    assert fit.peaks >= 2


def test_a_spacing_gives_one_factor_for_both_steps():
    fit = step_from_spacing(find_peaks(image((0.412, 0.412))), (0.4, 0.4), 2.82)
    np.testing.assert_allclose(fit.factors, 1.03, rtol=0.003)
    assert fit.errors[0] < 0.01


def test_no_lattice_gives_no_step():
    noise = np.random.default_rng(0).normal(size=(2, 40, 52))
    assert len(find_peaks(noise)) == 0
    assert step_from_spacing(find_peaks(noise), (0.4, 0.4), 3.0) is None
    assert (
        step_from_crystal(find_peaks(image((0.488, 0.488))), (0.4, 0.4), SALT, (0, 0, 1)) is None
    )  # 22 % wrong


# ---- Bad pixels, saturation and vacuum
# ------------------------------------------------------------------------------

SHAPE = (9, 11, 24, 28)


def stack(seed=0):
    y, x = (np.arange(n) - n / 2 for n in SHAPE[2:])
    mean = 40.0 * (np.hypot(y[:, None], x) < 7) + 1.5
    return np.random.default_rng(seed).poisson(np.broadcast_to(mean, SHAPE)).astype(np.float32)


def surveyed(values):
    with namsa.read(values) as recording:
        return survey(read_pieces(recording, lambda row: None), recording.shape)


def test_hot_dead_and_missing_pixels_are_found_and_no_others():
    values = stack()
    assert find_bad_pixels(surveyed(values), 99) == []
    values[:, :, 3, 5] += 30
    values[:, :, 12, 14] = 0
    values[:, :, 13, 15] = 0  # a neighbour at a corner
    values[:, :, 20, 2] = np.nan
    pixels = {(pixel.row, pixel.column): pixel for pixel in find_bad_pixels(surveyed(values), 99)}
    kinds = {place: pixel.kind for place, pixel in pixels.items()}
    assert kinds == {(3, 5): "hot", (12, 14): "dead", (13, 15): "dead", (20, 2): "missing"}
    assert pixels[3, 5].sigmas > 10


def test_dark_pixels_at_the_edge_of_what_is_lit_are_not_dead():
    """As at the band limit of a simulation, whose edge has notches."""
    values = stack() + 50
    y, x = np.indices(SHAPE[2:])
    values[:, :, np.hypot(y - 12, x - 14) > 9] = 0
    values[:, :, [12, 12, 5, 19], [7, 21, 14, 14]] = 0  # two pixels inside the edge
    values[:, :, 12, 14] = 0
    assert [(pixel.row, pixel.column) for pixel in find_bad_pixels(surveyed(values), 99)] == [
        (12, 14)
    ]


def test_statistics_are_those_of_the_whole_scan(monkeypatch):
    values = stack()
    monkeypatch.setattr(
        "namsa.inspection.survey.PIECE_BYTES", 7 * 24 * 28 * 4
    )  # several pieces in each row
    statistics = surveyed(values)
    np.testing.assert_allclose(statistics.mean, values.mean(axis=(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(statistics.sums, values.sum(axis=(2, 3)), rtol=1e-6)
    np.testing.assert_array_equal(statistics.extremes[1], values.max(axis=(0, 1)))
    np.testing.assert_allclose(
        statistics.regions.mean(axis=(0, 1)).sum(), values.mean(axis=(0, 1)).sum(), rtol=0.01
    )
    assert statistics.variance[12, 14] == pytest.approx(41.5, rel=0.5)
    assert statistics.whole
    assert statistics.at_top.sum() == (values == values.max()).sum()


def test_full_counters_are_saturation_and_other_largest_values_are_not():
    values = stack()
    with namsa.read(values) as recording:
        assert (
            bad_pixels.describe(recording, surveyed(values), [], np.ones(SHAPE[2:], bool))[
                "saturated_values"
            ]
            == 0
        )
        full = np.minimum(values, 31)
        assert (
            bad_pixels.describe(recording, surveyed(full), [], np.ones(SHAPE[2:], bool))[
                "saturated_values"
            ]
            == 0
        )
    full = np.minimum(values * 10, 255)
    with namsa.read(full) as recording:
        described = bad_pixels.describe(recording, surveyed(full), [], np.ones(SHAPE[2:], bool))
    assert described["saturated_values"] == (full == 255).sum()


def test_vacuum_is_where_nothing_is_scattered():
    rng = np.random.default_rng(0)
    thickness = np.clip(np.linspace(-1, 2, 32), 0, None) * np.ones((24, 1))
    dark = rng.poisson(1e4 * (1 - np.exp(-0.3 * thickness)))
    bright = rng.poisson(1e4 * np.exp(-0.3 * thickness))
    mean, error = vacuum_intensity(
        (bright + dark).astype(float), bright.astype(float), dark.astype(float)
    )
    assert abs(mean - 1e4) < 3 * error < 200
    columns = slice(16, None)  # without vacuum
    assert (
        vacuum_intensity(
            *(image[:, columns].astype(float) for image in (bright + dark, bright, dark))
        )
        is None
    )


@pytest.mark.parametrize("top", [300, 200, 100, 60])
def test_the_error_of_a_clipped_disk_holds_its_radius(top):
    y, x = np.mgrid[:96, :96]
    distance = np.hypot(y - 50, x - 44)
    mean = 400 / (1 + np.exp((distance - 22) / 1.2)) + 30 * np.exp(-distance / 30)
    scan = np.random.default_rng(1).poisson(mean, (4, 5, 96, 96)).astype("u2")
    inspection = namsa.inspect(np.minimum(scan, top), semiangle_mrad=20)
    radius = inspection.calibration.quantities["disk_radius_pixels"]
    assert abs(radius.value - 22) < 1.5 * radius.error
    assert any(f"cut off at {top}" in note for note in inspection.calibration.notes)


def test_the_direct_beam_is_the_disk_and_no_larger_diffracted_one():
    y, x = np.mgrid[:96, :96]
    mean = 100.0 * (np.hypot(y - 50, x - 44) < 6)
    mean += 25 * (np.hypot(y - 20, x - 20) < 8)
    (centre_y, centre_x), radius = first_guess(mean)
    assert (centre_y, centre_x) == pytest.approx((50, 44), abs=0.5)
    assert radius == pytest.approx(6, abs=0.5)
