"""Multislice against independent theory: Bloch waves, reciprocity, Friedel's law, the kinematical
limit.
"""

import ase.build
import numpy as np
import pytest

from namsa.crystals.supercell import make_supercell
from namsa.engines import multislice
from namsa.physics import optics, potential, specimen
from namsa.physics.grid import Grid

ENERGY = 200e3
WAVELENGTH = optics.wavelength_angstrom(ENERGY)
SIGMA = optics.interaction_constant(ENERGY)
GAAS = ase.build.bulk("GaAs", "zincblende", a=5.653, cubic=True)


def sliced(atoms, grid, thickness):
    return specimen.build(atoms, grid, thickness, SIGMA, "lobato", np.complex128, np)


def diffract(grid, slices, beam=(0, 0)):
    """Amplitudes behind `slices` of the plane wave with grid frequency `beam` (rows, columns)."""
    wave = np.zeros((1, *grid.shape), dtype=complex)
    wave[0, beam[0], beam[1]] = 1
    fresnel = multislice.propagator(grid, WAVELENGTH, slices.thicknesses_angstrom[0])
    return multislice.exit_waves(wave, slices, fresnel)[0]


def gaas_110(depth=None):
    extent = {"lateral_angstrom": (4.0, 5.0), "thickness_angstrom": depth or 3.9}
    cell = make_supercell(
        GAAS, zone_axis=(1, 1, 0), **extent, max_strain=0.0, max_atoms=10_000
    ).atoms
    lx, ly, _ = cell.cell.lengths()
    return cell, Grid((24, 36) if ly < lx else (36, 24), (ly, lx))


def test_thickness_fringes_agree_with_bloch_waves():
    """dψ_g/dz = i(−πλg² ψ_g + σ Σ_h U_{g−h} ψ_h), solved by diagonalisation over all beams inside
    the band limit.
    """
    cell, grid = gaas_110()
    depth = cell.cell.lengths()[2]
    mean_potential = sliced(cell, grid, depth).projected_potential / depth  # V

    inside = grid.squared_frequency() < (0.99 * grid.band_limit) ** 2
    rows, columns = np.nonzero(inside)
    coefficients = np.fft.fft2(mean_potential) * grid.antialias() / mean_potential.size
    ny, nx = grid.shape
    structure = SIGMA * coefficients[(rows[:, None] - rows) % ny, (columns[:, None] - columns) % nx]
    structure -= np.diag(np.pi * WAVELENGTH * grid.squared_frequency()[inside])
    values, vectors = np.linalg.eigh(structure)
    excited = vectors.conj().T @ ((rows == 0) & (columns == 0))

    def multislice_intensities(thickness, thin):
        transmission = potential.transmission(
            mean_potential * thin, SIGMA, grid.antialias(), np.complex128
        )
        slices = potential.Slices.equally_thick(
            [transmission], np.zeros(round(thickness / thin), dtype=int), thin
        )
        return np.abs(diffract(grid, slices)[inside]) ** 2

    for thickness in (40.0, 120.0):
        bloch = np.abs(vectors @ (np.exp(1j * values * thickness) * excited)) ** 2
        coarse, fine = (multislice_intensities(thickness, thin) for thin in (0.25, 0.125))
        assert (
            np.abs(fine - bloch).max() < 0.55 * np.abs(coarse - bloch).max()
        )  # what the band limit takes a slice
        assert (
            np.abs(2 * fine - coarse - bloch).max() < 2e-4
        )  # extrapolated to slices of no thickness
    assert bloch.max() < 0.75  # the beam has scattered many times


def test_source_and_detector_can_be_exchanged():
    """Reciprocity: k → k' through the crystal equals −k' → −k through the crystal turned over."""
    cell, grid = gaas_110(depth=40.0)
    cell.positions += np.random.default_rng(1).normal(0, 0.1, cell.positions.shape)
    slices = sliced(cell, grid, 2.0).slices
    turned = potential.Slices.equally_thick(
        slices.transmissions, slices.order[::-1], slices.thicknesses_angstrom[0]
    )
    for source, detector in (((0, 0), (2, 3)), ((1, -2), (-4, 5)), ((3, 1), (3, -1))):
        forward = diffract(grid, slices, source)[detector]
        backward = diffract(grid, turned, tuple(-k for k in detector))[tuple(-k for k in source)]
        assert abs(forward) == pytest.approx(abs(backward), rel=1e-9)


def asymmetry(amplitudes):
    intensity = np.abs(amplitudes) ** 2
    intensity[0, 0] = 0
    mirrored = np.roll(intensity[::-1, ::-1], (1, 1), axis=(0, 1))
    return np.abs(intensity - mirrored).sum() / intensity.sum()


def test_friedels_law_holds_where_thin_and_breaks_where_thick():
    """A real potential scatters ±g alike once; many times, it tells GaAs from its inversion."""
    cell, grid = gaas_110(depth=100.0)
    slices = sliced(cell, grid, 2.0).slices
    one = potential.Slices.equally_thick(
        slices.transmissions, slices.order[:1], slices.thicknesses_angstrom[0]
    )
    assert asymmetry(diffract(grid, one)) < 0.02
    assert asymmetry(diffract(grid, slices)) > 0.1


def test_a_weak_slice_scatters_kinematically():
    """I_g = (σ v_g)² where a single light atom is all there is."""
    grid = Grid((64, 80), (8.0, 9.0))
    atom = ase.Atoms("H", positions=[[2.0, 3.0, 0.5]], cell=[9.0, 8.0, 1.0], pbc=True)
    built = sliced(atom, grid, 1.0)
    expected = np.abs(SIGMA * np.fft.fft2(built.projected_potential) / np.prod(grid.shape)) ** 2
    scattered = np.abs(diffract(grid, built.slices)) ** 2
    inside = np.sqrt(grid.squared_frequency()) < 0.9 * grid.band_limit
    inside[0, 0] = False
    np.testing.assert_allclose(scattered[inside], expected[inside], rtol=0.02)
