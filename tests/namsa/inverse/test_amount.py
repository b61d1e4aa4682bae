"""Columns of a band-limited density, and its amount by the rings of the mean pattern."""

import json

import ase.build
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.spatial import KDTree

from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.config.instrument import Detector
from namsa.config.specimen import FrozenPhonons
from namsa.inverse import rings as ring_sums
from namsa.inverse.amount import fit_amount
from namsa.inverse.cell_patterns import AMOUNTS, simulate
from namsa.inverse.columns import atom_density, find_columns, share_out
from namsa.inverse.repeating_cell import RepeatingCell, find_cells
from namsa.inverse.rings import Known, RingMeasurement
from namsa.pacbed import position_averaged
from namsa.physics.optics import BeamSettings

EDGE = 4.09
LAYERS = 6
MAX_Q = 1.25
PIXELS = PixelGrid((EDGE / 10, EDGE / 11), (0.0, 0.0))
SCAN = (34, 38)
DETECTOR = Detector(shape=(33, 33), pixel_mrad=3.0)
DETECTOR_PIXELS = PixelGrid((3.0, 3.0), (-48.0, -48.0))
BEAM = BeamSettings(200e3, 20.0, {})
MASKS = ring_sums.ring_masks(DETECTOR_PIXELS, (33, 33), ring_sums.ring_edges(20.0, 3.0, 49.5))
MEASUREMENT = RingMeasurement(BEAM, DETECTOR, MASKS, MAX_Q)
RINGS = np.ones(ring_sums.RINGS)


@pytest.fixture(scope="module")
def silver() -> tuple[np.ndarray, np.ndarray]:
    """The true density of 25 Å of silver along [001] at the positions of a scan, and the rings of
    its patterns.
    """
    y, x = PIXELS.coordinates(SCAN)
    r = np.linspace(0, 8, 800)
    profile = LAYERS * 47 * atom_density(r, 47, MAX_Q, 0.07)
    density = sum(
        np.interp(np.hypot(y[:, None] - EDGE / 2 * i, x - EDGE / 2 * j), r, profile, right=0.0)
        for i in range(-4, 13)
        for j in range(-4, 13)
    )
    atoms = ase.build.bulk("Ag", "fcc", a=EDGE, cubic=True).repeat((3, 3, LAYERS))
    thermal = FrozenPhonons(rms_angstrom=0.07, configurations=2)
    (pattern,) = position_averaged(
        atoms,
        energy_ev=200e3,
        semiangle_mrad=20.0,
        detector=DETECTOR,
        frozen_phonons=thermal,
        accuracy=0.03,
    )
    return np.asarray(density), np.broadcast_to(pattern.ravel() @ MASKS, (*SCAN, ring_sums.RINGS))


def test_a_density_of_the_wrong_size_gets_its_amount_by_a_known_thickness(silver):
    density, rings = silver
    known = Known({47: 1.0}, LAYERS * EDGE)
    amount = fit_amount(0.75 * density, rings, PIXELS, MEASUREMENT, known)
    assert amount.determined
    assert amount.changes_density
    assert amount.scale == pytest.approx(1 / 0.75, rel=0.1)
    assert amount.misfit < 0.1
    assert set(amount.facts()) >= {
        "scale",
        "scale_error",
        "thickness_angstrom",
        "thickness_error",
        "determined",
    }
    assert f"{amount.scale:.2f} times the network's" in amount.line()
    assert json.loads(json.dumps(amount.facts()))["scaled"] is True  # as in a result's file


def test_a_thickness_that_counts_a_support_is_contradicted(silver):
    density, rings = silver
    thick = fit_amount(density, rings, PIXELS, MEASUREMENT, Known({47: 1.0}, 2 * LAYERS * EDGE))
    assert thick.contradicts_thickness
    assert not thick.changes_density
    assert thick.thickness_of_rings_angstrom == pytest.approx(LAYERS * EDGE, rel=0.25)
    assert "contradict the given thickness" in thick.line()
    assert thick.facts()["contradicted"]


def test_an_amount_within_its_error_changes_nothing(silver):
    density, rings = silver
    known = Known({47: 1.0}, LAYERS * EDGE)
    equal = fit_amount(density, rings, PIXELS, MEASUREMENT, known)
    assert equal.determined
    assert not equal.contradicts_thickness
    assert not equal.changes_density
    assert "no clear difference" in equal.line()


@pytest.mark.parametrize("first_pixel", [0, 3])
def test_columns_at_the_edge_of_a_cell_count_once(silver, first_pixel):
    density, rings = (image[first_pixel:, first_pixel:] for image in silver)
    (cell,) = find_cells(density, rings, PIXELS, MEASUREMENT, Known({47: 1.0}))
    assert cell.density == pytest.approx(LAYERS * 47 * 4 / EDGE**2, rel=0.02)
    periods = np.divide(cell.extent, EDGE / 2)
    assert np.allclose(periods, np.round(periods), atol=0.03)


def test_noise_of_a_density_neither_moves_columns_nor_makes_them_unequal(silver):
    density, rings = silver
    noise = gaussian_filter(
        np.random.default_rng(3).standard_normal(SCAN), 0.8
    )  # as smooth as a network's errors
    noisy = density + 0.25 * density.std() / noise.std() * noise
    (cell,) = find_cells(noisy, rings, PIXELS, MEASUREMENT, Known({47: 1.0}))
    places = cell.yx / (EDGE / 2)
    phase = np.angle(np.exp(2j * np.pi * places).mean(axis=0)) / (2 * np.pi)
    off = (places - phase + 0.5) % 1 - 0.5
    assert EDGE / 2 * off.std() < 0.03
    assert cell.electrons.std() / cell.electrons.mean() < 0.05


def test_atoms_of_neighbouring_columns_may_overlap():
    cell = RepeatingCell(
        np.array([(3.0, 3.0), (3.0, 3.1)]),
        np.array([60.0, 40.0]),
        (10.0, 11.0),
        100 / 110,
        RINGS,
        0.0,
    )
    rings = simulate(cell, 0.1, Known({47: 1.0}), MEASUREMENT, 0.07, waves=4)
    assert rings.shape == (len(AMOUNTS), ring_sums.RINGS)
    assert (rings[0] > 0).all()
    assert (rings[-1] > 2 * rings[0]).all()


def test_what_cannot_be_compared_is_refused(silver):
    density, rings = silver
    with pytest.raises(InputError, match="needs a detector of 31.2 mrad or more"):
        ring_sums.ring_edges(20.0, 3.0, 30.0)
    with pytest.raises(InputError, match="the scan is 8.2 Å wide, and pacbed needs 10.0 Å or more"):
        fit_amount(density[:20], rings[:20], PIXELS, MEASUREMENT)
    with pytest.raises(InputError, match="no part of the density has columns"):
        fit_amount(np.ones(SCAN), rings, PIXELS, MEASUREMENT)


# ---- Columns
# ------------------------------------------------------------------------------------------------

TITANATE = {38: 1, 22: 1, 8: 3}
SIDE = 3.905
RASTER = PixelGrid((0.4, 0.38), (0.1, -0.2))
RASTER_SHAPE = (30, 34)


def titanate(cells: float = 16.0) -> np.ndarray:
    """The density of SrTiO3 along [001], of 16 cells along the beam, on a raster; the columns go on
    beyond it.
    """
    y, x = RASTER.coordinates(RASTER_SHAPE)
    sites = ((38, 0, 0), (22, 0.5, 0.5), (8, 0.5, 0.5), (8, 0.5, 0), (8, 0, 0.5))
    r = np.linspace(0, 8, 800)
    density = np.zeros(RASTER_SHAPE)
    for atomic_number, sy, sx in sites:
        profile = cells * atomic_number * atom_density(r, atomic_number, MAX_Q)
        for i in range(-2, 6):
            for j in range(-2, 6):
                distance = np.hypot(y[:, None] - SIDE * (i + sy), x - SIDE * (j + sx))
                density += np.interp(distance, r, profile, right=0.0)
    return density


def test_an_atom_in_the_band_has_one_electron_per_electron():
    r = np.linspace(0, 30, 3_000)
    assert 2 * np.pi * np.trapezoid(r * atom_density(r, 22, MAX_Q), r) == pytest.approx(1, abs=0.02)


def test_columns_are_found_with_their_electrons():
    columns = find_columns(titanate(), RASTER, TITANATE, MAX_Q)
    inside = np.all((columns.yx > 1) & (columns.yx < (10.5, 11)), axis=1)
    offset = columns.yx[inside] / (SIDE / 2) - np.round(columns.yx[inside] / (SIDE / 2))
    assert np.abs(offset * SIDE / 2).max() < 0.05
    kinds = np.round(columns.yx[inside] / (SIDE / 2)).astype(int) % 2
    electrons = columns.electrons[inside] / 16
    for kind, expected in (((0, 0), 38), ((1, 1), 30), ((0, 1), 8), ((1, 0), 8)):
        electrons_of_kind = electrons[(kinds == kind).all(axis=1)]
        assert len(electrons_of_kind) >= 4
        np.testing.assert_allclose(electrons_of_kind, expected, rtol=0.08)


def test_a_flat_density_has_no_columns():
    assert len(find_columns(np.ones(RASTER_SHAPE), RASTER, TITANATE, MAX_Q).electrons) == 0


def test_elements_are_shared_out_as_the_formula_has_them():
    electrons = np.array([8.0, 38.0, 8.0, 30.0, 8.0, 30.0, 8.0, 38.0])
    shares = share_out(electrons, TITANATE)
    np.testing.assert_allclose(shares[38], [0, 38, 0, 0, 0, 0, 0, 38], atol=1e-9)
    np.testing.assert_allclose(shares[22], [0, 0, 0, 22, 0, 22, 0, 0], atol=1e-9)
    of_half = share_out(
        np.array([20.0, 20.0]), {8: 1, 22: 1}
    )  # no element is for one of two equal columns alone
    np.testing.assert_allclose(of_half[22], [44 / 3, 44 / 3])
    np.testing.assert_allclose(sum(shares.values()), electrons)


def test_a_maximum_that_is_longer_than_wide_is_two_columns_and_others_are_one():
    middle = np.array([[3.0, 3.2], [3.1, 7.0], [7.4, 5.0]])
    half = 0.36 * np.array([np.sin(0.4), np.cos(0.4)])
    true = np.concatenate([middle[:1], middle[1:] - half, middle[1:] + half])
    y, x = np.meshgrid(*RASTER.coordinates(RASTER_SHAPE), indexing="ij")
    r = np.linspace(0, 5, 500)
    atom = 14 * atom_density(r, 14, MAX_Q)
    distances = np.hypot(y - true[:, 0, None, None], x - true[:, 1, None, None])
    density = np.interp(distances, r, atom, right=0.0).sum(axis=0)
    density += 0.01 * density.max() * np.random.default_rng(0).standard_normal(density.shape)
    columns = find_columns(density, RASTER, {14: 1.0}, MAX_Q, least_pair_angstrom=0.45)
    assert columns.pairs == 2
    strong = columns.electrons > 7
    assert strong.sum() == len(true)
    assert KDTree(columns.yx[strong]).query(true)[0].max() < 0.08
    assert find_columns(density, RASTER, {14: 1.0}, MAX_Q).pairs == 0
