"""Equal slices, and slices that follow the layers of atoms."""

import numpy as np
import pytest

from namsa.errors import InputError
from namsa.physics.grid import Grid, fast_shape
from namsa.physics.slice_plan import equal_slices, layer_slices, slice_count


def test_equal_slices_are_as_few_as_fill_the_cell():
    assert slice_count(8.0, 2.0) == 4
    assert slice_count(8.1, 2.0) == 5
    assert slice_count(0.3 * 7, 0.3) == 7
    plan = equal_slices(np.array([0.0, 7.9]), 8.1, 2.0)
    np.testing.assert_allclose(plan.ends_angstrom, 1.62 * np.arange(1, 6))
    assert plan.slice_of_atom.tolist() == [0, 4]


def test_too_many_slices_are_refused():
    with pytest.raises(InputError, match=r"into 10000000 slices; use 1 Å or more"):
        slice_count(1e5, 0.01)
    with pytest.raises(InputError, match=r"has 100001 layers of atoms"):
        layer_slices(np.arange(100_001) * 0.01, 1e4, 0.0)


def test_slices_begin_at_the_layers_and_distances_are_few():
    """ZnO [100]: two layers 0.94 Å apart, the next two 1.88 Å further on."""
    z = np.concatenate([period * 2.8141 + np.array([0.0, 0.0, 0.9380]) for period in range(6)])
    plan = layer_slices(z, 6 * 2.8141, 0.5)
    np.testing.assert_allclose(plan.fronts_angstrom, np.unique(z))
    np.testing.assert_allclose(plan.fronts_angstrom[plan.slice_of_atom], z)
    thicknesses, index = plan.distinct_thicknesses()
    np.testing.assert_allclose(thicknesses, [0.9380, 1.8761], atol=1e-6)
    assert index.tolist() == [0, 1] * 6


def test_layers_are_merged_alike_in_every_period():
    """Four layers per period of 2.84 Å, of which three fit into a slice: grouped by threes they would have another."""
    z = np.arange(40) * 0.71
    plan = layer_slices(z, 40 * 0.71, 1.5)
    for fronts in (plan.fronts_angstrom[1:-1],):
        assert np.ptp(np.diff(fronts)) < 1e-6  # one layer is the period, so that no layers are merged unequally
    irregular = np.concatenate([period * 4.0 + np.array([0.0, 0.4, 0.9, 2.5, 2.8]) for period in range(10)])
    plan = layer_slices(irregular, 40.0, 1.0)
    assert plan.count == 20
    np.testing.assert_allclose(np.diff(plan.fronts_angstrom)[1:].reshape(-1, 2), [[1.8, 2.2]] * 9, atol=1e-6)
    assert np.abs(plan.fronts_angstrom[plan.slice_of_atom] - irregular)[3:].max() <= 0.5 + 1e-9


def test_a_specimen_without_layers_has_slices_of_the_largest_extent():
    z = np.sort(np.random.default_rng(0).uniform(0, 50, 400))
    plan = layer_slices(z, 50.0, 0.5)
    assert 60 < plan.count < 110
    assert np.abs(plan.fronts_angstrom[plan.slice_of_atom] - z).max() <= 0.5


def test_atoms_below_the_entrance_have_nothing_above_them():
    plan = layer_slices(np.array([3.0, 5.0]), 10.0, 0.2)
    assert plan.fronts_angstrom.tolist() == [0.0, 3.0, 5.0]
    assert plan.slice_of_atom.tolist() == [1, 2]
    assert plan.ends_angstrom.tolist() == [3.0, 5.0, 10.0]


def test_band_limit_is_two_thirds_of_the_coarser_axis_nyquist():
    grid = Grid((60, 84), (9.0, 10.5))  # pixels of 0.15 and 0.125 Å
    assert grid.band_limit == pytest.approx(2 / 3 / (2 * 0.15))
    k = np.sqrt(grid.squared_frequency())
    aperture = grid.antialias()
    assert np.all(aperture[k >= grid.band_limit] == 0)
    assert np.all(aperture[k <= grid.band_limit - 0.01 / 0.15] == 1)


def test_frequencies_are_those_of_the_extent():
    ky, kx = Grid((60, 84), (9.0, 10.5)).frequencies()
    assert ky.shape == (60, 1)
    assert kx.shape == (1, 84)
    assert (ky[1, 0], kx[0, 1]) == pytest.approx((1 / 9.0, 1 / 10.5))


@pytest.mark.parametrize(
    ("extent", "expected"), [((17.5, 20.7), (90, 108)), ((16.0, 16.2), (80, 84)), ((19.2, 22.2), (96, 112))]
)
def test_fast_shapes_are_even_and_have_small_factors_only(extent, expected):
    assert fast_shape(extent, 0.2) == expected
