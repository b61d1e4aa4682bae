"""Potential and density: sums over structure factors against what they must equal; slices and the
grid.
"""

import ase
import numpy as np
import pytest
from scipy import constants

from namsa import InputError
from namsa.physics import form_factors, potential, slice_plan, specimen
from namsa.physics.grid import Grid, fast_shape
from namsa.physics.slice_plan import equal_slices, layer_slices, slice_count

GRID = Grid((60, 84), (9.0, 10.5))


def atoms_of(symbols, positions, depth=8.0, occupancy=None):
    ly, lx = GRID.extent_angstrom
    atoms = ase.Atoms(symbols, positions=positions, cell=[lx, ly, depth], pbc=True)
    if occupancy is not None:
        atoms.set_array("occupancy", np.array(occupancy, dtype=float))
    return atoms


def build(atoms, table="lobato", thickness=2.0):
    return specimen.build(atoms, GRID, thickness, 7.3e-4, table, np.complex128, np)


def mean(field):
    return field.mean() * GRID.extent_angstrom[0] * GRID.extent_angstrom[1]


def test_mean_potential_is_the_forward_scattering():
    built = build(atoms_of("Si", [[1.234, 2.345, 3]]))
    forward = form_factors.electron(14, np.zeros(1))[0]
    h2_over_2pi_me = constants.h**2 / (2 * np.pi * constants.m_e * constants.e) * 1e20
    assert mean(built.projected_potential) == pytest.approx(h2_over_2pi_me * forward, rel=1e-9)
    assert h2_over_2pi_me == pytest.approx(47.878, abs=1e-3)


def test_the_two_tables_describe_the_same_atoms():
    squared_q = np.linspace(0, 2, 50) ** 2
    for atomic_number in (6, 14, 38, 79):
        lobato, kirkland = (
            form_factors.electron(atomic_number, squared_q, t) for t in ("lobato", "kirkland")
        )
        np.testing.assert_allclose(lobato, kirkland, rtol=0.08)
        assert form_factors.xray(atomic_number, squared_q)[0] == atomic_number


def test_unknown_element_and_table_are_refused():
    with pytest.raises(InputError, match="atomic number 120"):
        form_factors.electron(120, np.zeros(1))
    with pytest.raises(InputError, match="'peng'"):
        form_factors.electron(14, np.zeros(1), "peng")


@pytest.mark.parametrize("shape", [(60, 84), (60, 81), (55, 84), (55, 81)])
def test_structure_sums_equal_the_full_direct_sum(shape):
    """Half-plane, separable and real by construction, against Re F⁻¹ of the plain sum over all
    k.
    """
    grid = Grid(shape, GRID.extent_angstrom)
    rng = np.random.default_rng(3)
    listed = specimen.atom_list(
        atoms_of("Si8", rng.uniform(-5, 15, (8, 3)), occupancy=rng.uniform(0.1, 1, 8))
    )
    factors = potential.element_factors(listed.numbers, grid, "lobato", np)
    field = potential.field(potential.structure_sums(listed, grid, np), factors, grid, np)

    ky, kx = grid.frequencies()
    f = form_factors.electron(14, grid.squared_frequency())
    phases = [np.exp(-2j * np.pi * (ky * y + kx * x)) for y, x in listed.yx]
    direct = np.fft.ifft2(
        f * sum(o * p for o, p in zip(listed.occupancies, phases, strict=True))
    ).real
    direct *= np.prod(shape) / np.prod(grid.extent_angstrom)
    np.testing.assert_allclose(field, direct, atol=1e-12 * direct.max())


@pytest.mark.parametrize("hot", [0.0, 0.08])
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("shape", [(96, 160), (96, 161), (95, 160), (95, 161)])
def test_structure_sums_keep_their_precision(shape, dtype, bound, hot):
    """Against exp(−2πi k·r) summed atom by atom in double precision, of a crystal and of one with
    displaced atoms.
    """
    grid = Grid(shape, (11.0, 19.0))
    cells = np.stack(np.mgrid[-3:8, -1:9], axis=-1).reshape(-1, 2) * [1.0, 1.9]
    yx = cells + np.random.default_rng(6).normal(0, hot, cells.shape) + 1e-3
    occupancies = np.linspace(0.2, 1, len(yx))
    atoms = potential.AtomList(np.arange(len(yx)) % 3, yx, np.zeros(len(yx)), occupancies)
    sums = potential.structure_sums(atoms, grid, np, dtype)
    assert {total.dtype for total in sums.values()} == {np.dtype(dtype)}

    ky, kx = (
        np.fft.fftfreq(n, 1 / n) / length
        for n, length in zip(shape, grid.extent_angstrom, strict=True)
    )
    y = np.exp(-2j * np.pi * np.outer(ky, yx[:, 0]))
    x = np.exp(-2j * np.pi * np.outer(yx[:, 1], kx))
    below_nyquist = (
        np.abs(np.fft.fftfreq(shape[0])) < 0.5,
        np.fft.fftfreq(shape[1])[: shape[1] // 2 + 1] >= 0,
    )
    inside = np.ix_(*(np.flatnonzero(axis) for axis in below_nyquist))
    for atomic_number, total in sums.items():
        of_element = atoms.numbers == atomic_number
        direct = ((y * (occupancies * of_element)) @ x)[:, : shape[1] // 2 + 1]
        computed = potential.half_plane(total, grid)
        assert np.linalg.norm((computed - direct)[inside]) < bound * np.linalg.norm(direct[inside])
        assert np.abs((computed - direct)[inside]).max() < bound * occupancies[of_element].sum()


@pytest.mark.parametrize("shape", [(60, 84), (55, 81)])
def test_single_precision_changes_a_heated_specimen_by_no_more_than_it_rounds(shape):
    atoms = atoms_of(
        "SrTiO3", np.random.default_rng(8).uniform(-3, 12, (5, 3)), occupancy=[1, 0.7, 1, 1, 0.4]
    )
    single, double = (
        specimen.build(atoms, Grid(shape, GRID.extent_angstrom), 2.0, 7.3e-4, "lobato", dtype, np)
        for dtype in (np.complex64, np.complex128)
    )

    def error(computed, expected):
        return np.linalg.norm(computed - expected) / np.linalg.norm(expected)

    assert error(single.density, double.density) < 1e-6
    assert error(single.projected_potential, double.projected_potential) < 1e-6
    for t, expected in zip(single.slices.transmissions, double.slices.transmissions, strict=True):
        assert t.dtype == np.complex64
        assert error(t, expected) < 1e-6
    assert mean(single.density) == pytest.approx(38 + 0.7 * 22 + 2.4 * 8, rel=1e-6)


def test_repeated_slices_are_computed_once_and_counted_fully():
    z = 2.0 * np.arange(4) + 0.5
    column = build(atoms_of("Au4", [[3, 4, v] for v in z]))
    assert len(column.slices.order) == 4
    assert len(column.slices.transmissions) == 1
    single = build(atoms_of("Au", [[3, 4, 0.5]], depth=2.0))
    np.testing.assert_allclose(column.projected_potential, 4 * single.projected_potential)
    np.testing.assert_allclose(column.density, 4 * single.density)


def test_slices_hold_their_lower_edge_and_what_has_left_the_cell():
    numbers = np.array([1, 2, 3, 4, 5])
    z = np.array([2.0, 2.0 - 5e-10, 2.0 - 1e-6, -0.1, 8.0])
    atoms = potential.AtomList(numbers, np.zeros((5, 2)), z, np.ones(5))
    distinct, order = potential.distinct_slices(atoms, slice_plan.equal_slices(z, 8.0, 2.0))
    members = [sorted(distinct[i].numbers.tolist()) for i in order]
    assert members == [[3, 4], [1, 2], [], [5]]


def test_a_transmission_of_finer_pixels_has_the_frequencies_of_the_waves_alone():
    grid = Grid((30, 40), (3.0, 4.4), 1.0)
    fine = grid.refined(heaviest=10)
    assert (fine.shape, grid.refined(heaviest=80).shape) == ((90, 120), (120, 160))
    volts = np.random.default_rng(0).uniform(0, 300, fine.shape)
    transmission = potential.transmission(volts, 1e-2, grid.antialias(), np.complex128)
    spectrum = np.fft.fft2(np.exp(1j * 1e-2 * volts)) / volts.size
    rows, columns = (np.fft.fftfreq(n, 1 / n).astype(int) for n in grid.shape)
    wanted = spectrum[rows[:, None], columns] * grid.antialias()
    np.testing.assert_allclose(np.fft.fft2(transmission) / transmission.size, wanted, atol=1e-12)


# ---- Slices and grids
# -----------------------------------------------------------------------------------------------


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
    """Four layers per period of 2.84 Å, of which three fit into a slice: grouped by threes they
    would have another.
    """
    z = np.arange(40) * 0.71
    plan = layer_slices(z, 40 * 0.71, 1.5)
    # One layer is the period, so that no layers are merged unequally.
    assert np.ptp(np.diff(plan.fronts_angstrom[1:-1])) < 1e-6
    irregular = np.concatenate(
        [period * 4.0 + np.array([0.0, 0.4, 0.9, 2.5, 2.8]) for period in range(10)]
    )
    plan = layer_slices(irregular, 40.0, 1.0)
    assert plan.count == 20
    np.testing.assert_allclose(
        np.diff(plan.fronts_angstrom)[1:].reshape(-1, 2), [[1.8, 2.2]] * 9, atol=1e-6
    )
    assert np.abs(plan.fronts_angstrom[plan.slice_of_atom] - irregular)[3:].max() <= 0.5 + 1e-9


def test_a_specimen_without_layers_has_slices_of_the_largest_extent():
    z = np.sort(np.random.default_rng(0).uniform(0, 50, 400))
    plan = layer_slices(z, 50.0, 0.5)
    assert 90 < plan.count < 180
    assert np.abs(plan.fronts_angstrom[plan.slice_of_atom] - z).max() <= 0.5


def test_dense_heights_do_not_chain_into_one_slice():
    """Of 400 snapshots of a glass, atoms are nearer to each other than rounding, all the way."""
    z = np.random.default_rng(1).uniform(0, 32.6, 30_000)
    plan = layer_slices(z, 32.6, 0.3)
    assert np.diff(plan.fronts_angstrom).max() < 0.6
    assert np.abs(plan.fronts_angstrom[plan.slice_of_atom] - z).max() < 0.33
    assert len(plan.distinct_thicknesses()[0]) < 10  # each has a propagator


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


@pytest.mark.parametrize(
    ("extent", "expected"),
    [((17.5, 20.7), (90, 108)), ((16.0, 16.2), (80, 84)), ((19.2, 22.2), (96, 112))],
)
def test_fast_shapes_are_even_and_have_small_factors_only(extent, expected):
    assert fast_shape(extent, 0.2) == expected
