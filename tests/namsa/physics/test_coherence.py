"""Partial coherence: what the quadrature keeps of the coherence, and patterns against plain
averages.
"""

import ase
import numpy as np
import pytest

import namsa
from namsa import InputError
from namsa.physics import coherence, optics
from namsa.physics.grid import Grid

ENERGY = 200e3
SEMIANGLE = 20.0
WAVELENGTH = optics.wavelength_angstrom(ENERGY)
GRID = Grid((48, 60), (7.8, 8.6))
ARGUMENTS = {
    "energy_ev": ENERGY,
    "semiangle_mrad": SEMIANGLE,
    "grid_shape": GRID.shape,
    "precision": "float64",
    "backend": "cpu",
}


def specimen():
    z = np.arange(8) * 2.0
    positions = np.stack([3.0 + 0.05 * z, 2.6 + 0.02 * z, z + 0.2], axis=1)
    ly, lx = GRID.extent_angstrom
    return ase.Atoms("AuSrAuSrAuSrAuO", positions=positions, cell=[lx, ly, 16.0], pbc=True)


def raster(shape, origin=(0.3, 0.7)):
    return np.array(origin) + np.argwhere(np.ones(shape)) * np.array(GRID.extent_angstrom) / shape


def test_focal_spread_of_a_lens():
    """C_c = 1.2 mm at 200 kV, 0.8 eV wide: 23.7 Å."""
    assert coherence.focal_spread_angstrom(200e3, 1.2, 0.8) == pytest.approx(23.72, rel=1e-3)
    # a ripple of the voltage is a spread of the energy, and one of the current counts twice
    of_spread = coherence.focal_spread_angstrom(200e3, 1.2, 0.4 * coherence.FWHM)
    of_voltage = coherence.focal_spread_angstrom(200e3, 1.2, high_tension_ripple_ppm=2.0)
    of_current = coherence.focal_spread_angstrom(200e3, 1.2, lens_current_ripple_ppm=3.0)
    assert of_voltage == pytest.approx(of_spread)
    assert of_current == pytest.approx(1.2e7 * 6e-6)
    together = coherence.focal_spread_angstrom(200e3, 1.2, 0.4 * coherence.FWHM, 2.0, 3.0)
    assert together**2 == pytest.approx(of_spread**2 + of_voltage**2 + of_current**2)


def test_no_spread_is_one_probe():
    assert coherence.modes(WAVELENGTH, SEMIANGLE) == [(1.0, 0.0, (0.0, 0.0))]
    assert coherence.modes(WAVELENGTH, SEMIANGLE, source_points=5, focal_points=3) == [
        (1.0, 0.0, (0.0, 0.0))
    ]


@pytest.mark.parametrize("size", [0.05, 0.5, 1.2])
def test_the_source_keeps_the_coherence_of_any_two_rays(size):
    modes = coherence.modes(WAVELENGTH, SEMIANGLE, source_size_angstrom=size)
    share = np.array([m.share for m in modes])
    shift = np.array([m.shift for m in modes])
    diameter = 2 * SEMIANGLE * 1e-3 / WAVELENGTH
    g = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    g *= (
        diameter
        * np.random.default_rng(1).uniform(0, 1, (200, 1))
        / np.linalg.norm(g, axis=1, keepdims=True)
    )
    sigma = size / np.sqrt(8 * np.log(2))
    expected = np.exp(-2 * np.pi**2 * sigma**2 * (g**2).sum(axis=1))
    np.testing.assert_allclose(np.exp(2j * np.pi * g @ shift.T) @ share, expected, atol=2.1e-3)


@pytest.mark.parametrize("spread", [5.0, 30.0, 100.0])
def test_the_focal_spread_keeps_the_coherence_of_any_two_rays(spread):
    modes = coherence.modes(WAVELENGTH, SEMIANGLE, focal_spread_angstrom=spread)
    share = np.array([m.share for m in modes])
    c10 = np.array([m.c10 for m in modes])
    assert share.sum() == pytest.approx(1)
    k = np.linspace(0, SEMIANGLE * 1e-3 / WAVELENGTH, 30)
    phase = np.pi * WAVELENGTH * (k[:, None] ** 2 - k**2)
    expected = np.exp(-((phase * spread) ** 2) / 2)
    np.testing.assert_allclose(np.exp(-1j * phase[..., None] * c10) @ share, expected, atol=1.1e-3)


def test_more_points_for_wider_spreads_and_a_limit():
    few, more = (len(coherence.modes(WAVELENGTH, SEMIANGLE, size)) for size in (0.2, 1.0))
    assert 1 < few < more
    with pytest.raises(InputError, match="source width of 30 Å needs more than"):
        coherence.modes(WAVELENGTH, SEMIANGLE, 30.0)
    with pytest.raises(InputError, match="0 or more"):
        coherence.modes(WAVELENGTH, SEMIANGLE, focal_spread_angstrom=-1.0)
    with pytest.raises(InputError, match="source_points is 0"):
        coherence.modes(WAVELENGTH, SEMIANGLE, 1.0, source_points=0)


def test_a_source_averages_patterns_over_positions():
    """Against a plain sum over a fine grid of shifted probes, weighted by the Gaussian."""
    at = np.array([2.7, 3.3])
    size = 0.6
    offsets = np.linspace(-1, 1, 21)
    weight = np.exp(-(offsets**2) * 4 * np.log(2) / size**2)
    shifted = at + np.stack(np.meshgrid(offsets, offsets, indexing="ij"), axis=-1).reshape(-1, 2)
    patterns = namsa.simulate(specimen(), **ARGUMENTS, positions_angstrom=shifted).cbed
    share = np.outer(weight, weight).ravel() / weight.sum() ** 2
    expected = np.einsum("n,nyx->yx", share, patterns)
    sample = namsa.simulate(
        specimen(), **ARGUMENTS, positions_angstrom=[at], source_size_angstrom=size
    )
    assert sample.provenance["coherent_probes"] > 9
    point = patterns[len(patterns) // 2]
    assert np.linalg.norm(sample.cbed[0] - expected) < 3e-3 * np.linalg.norm(point - expected)
    assert np.linalg.norm(point - expected) > 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_fine_scan_is_its_own_average_over_the_source(precision):
    """30×32 positions resolve 20 mrad in this cell: convolving along the scan is exact, and costs
    one probe each.
    """
    shape = (30, 32)
    size = 0.8
    arguments = ARGUMENTS | {"precision": precision, "positions_angstrom": raster(shape)}
    scanned = namsa.simulate(specimen(), **arguments, scan_shape=shape, source_size_angstrom=size)
    assert scanned.provenance["coherent_probes"] == 1
    assert scanned.cbed.min() >= 0
    some = [0, 17, 500, 959]
    arguments["positions_angstrom"] = raster(shape)[some]
    summed = namsa.simulate(specimen(), **arguments, source_size_angstrom=size, source_points=12)
    assert summed.provenance["coherent_probes"] == 144
    error = np.linalg.norm(scanned.cbed[some] - summed.cbed, axis=(1, 2)) / np.linalg.norm(
        summed.cbed, axis=(1, 2)
    )
    assert error.max() < 1e-4


def test_a_scan_that_is_coarse_or_partial_is_not_its_own_average():
    def resolving(shape, positions):
        return coherence.resolved_scan_shape(shape, positions, GRID, WAVELENGTH, SEMIANGLE)

    assert resolving((30, 32), raster((30, 32))) == (30, 32)
    assert resolving((26, 32), raster((26, 32))) is None
    assert resolving((30, 32), raster((30, 32)) * 0.5) is None
    assert resolving(None, raster((30, 32))) is None
    with pytest.raises(InputError, match="scan_shape is \\(2, 2\\), and there are 3"):
        namsa.simulate(
            specimen(), **ARGUMENTS, positions_angstrom=np.ones((3, 2)), scan_shape=(2, 2)
        )


def test_a_focal_spread_averages_patterns_over_defocus():
    at = [[2.7, 3.3]]
    spread = 30.0
    defoci = np.linspace(-4, 4, 33)
    share = np.exp(-(defoci**2) / 2)
    expected = sum(
        s
        * namsa.simulate(
            specimen(), **ARGUMENTS, positions_angstrom=at, aberrations={"C10": c, "C30": 1e5}
        ).cbed
        for c, s in zip(-50 + spread * defoci, share / share.sum(), strict=True)
    )
    arguments = ARGUMENTS | {"positions_angstrom": at, "aberrations": {"C10": -50.0, "C30": 1e5}}
    sharp = namsa.simulate(specimen(), **arguments).cbed
    cbed = namsa.simulate(specimen(), **arguments, focal_spread_angstrom=spread).cbed
    assert np.linalg.norm(cbed - expected) < 3e-3 * np.linalg.norm(sharp - expected)
    assert np.linalg.norm(sharp - expected) > 0.02 * np.linalg.norm(expected)
    np.testing.assert_array_equal(
        cbed, namsa.simulate(specimen(), **arguments, focal_spread_angstrom=spread).cbed
    )


def test_the_beam_is_conserved_and_recorded():
    spreads = {"source_size_angstrom": 0.5, "focal_spread_angstrom": 20.0}
    at = {"positions_angstrom": [[1.0, 1.0]]}
    stack = namsa.simulate(
        specimen(), **ARGUMENTS, **at, **spreads, source_points=2, focal_points=3
    )
    sharp = namsa.simulate(specimen(), **ARGUMENTS, **at)
    assert stack.cbed.sum() == pytest.approx(sharp.cbed.sum(), abs=0.01)
    assert {name: stack.provenance[name] for name in spreads} == spreads
    assert stack.provenance["coherent_probes"] == 12
