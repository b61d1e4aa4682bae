"""Tilts of beam and specimen against what they must be: shifts of the pattern, shears of the atoms."""

import ase
import numpy as np
import pytest

import namsa
from namsa import InputError
from namsa.physics import optics
from namsa.physics.grid import Grid

ENERGY = 200e3
WAVELENGTH = optics.wavelength_angstrom(ENERGY)
GRID = Grid((96, 120), (14.4, 16.2))
PIXEL_MRAD = np.array([WAVELENGTH / extent * 1e3 for extent in GRID.extent_angstrom])
BEAM = {"energy_ev": ENERGY, "semiangle_mrad": 12.0, "positions_angstrom": [[5.3, 6.2], [7.6, 9.4]]}
ARGUMENTS = BEAM | {"grid_shape": GRID.shape, "precision": "float64", "backend": "cpu"}


def columns(n=20, spacing=2.0, tilt_mrad=(0.0, 0.0)):
    """A column of silicon and one of oxygen, sheared by the tilt: y += z tan θy, x += z tan θx."""
    z = spacing * np.arange(n)
    tan_y, tan_x = np.tan(np.array(tilt_mrad) * 1e-3)
    sheared = [np.stack([x + z * tan_x, y + z * tan_y, z], axis=1) for y, x in ((8.0, 9.5), (5.0, 6.0))]
    ly, lx = GRID.extent_angstrom
    return ase.Atoms(f"Si{n}O{n}", positions=np.concatenate(sheared), cell=[lx, ly, spacing * n], pbc=True)


def vacuum():
    """One hydrogen atom, far off and thin."""
    ly, lx = GRID.extent_angstrom
    return ase.Atoms("H", positions=[[0.0, 0.0, 1.0]], cell=[lx, ly, 2.0], pbc=True)


def difference(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def test_beam_tilt_shifts_the_pattern_in_vacuum():
    pixels = np.array([5, -7])
    aberrations = {"C10": -200.0, "C12": 50.0, "phi12": 0.4}
    upright = optics.lens(GRID, optics.BeamSettings(ENERGY, 12.0, aberrations))
    tilted = optics.lens(GRID, optics.BeamSettings(ENERGY, 12.0, aberrations, tuple(pixels * PIXEL_MRAD)))
    np.testing.assert_allclose(tilted, np.roll(upright, pixels, axis=(0, 1)), atol=1e-12)

    tilt = np.array([6.3, -9.1])  # between pixels
    pattern = namsa.simulate(vacuum(), **ARGUMENTS, beam_tilt_mrad=tuple(tilt)).cbed[0]
    rows, columns_ = (np.arange(n) - n // 2 for n in GRID.shape)
    centre = np.array([(pattern.sum(axis=1) * rows).sum(), (pattern.sum(axis=0) * columns_).sum()]) / pattern.sum()
    np.testing.assert_allclose(centre * PIXEL_MRAD, tilt, atol=0.06)  # of a soft-edged disc 15 pixels wide


def test_a_tilted_probe_enters_where_an_upright_one_does():
    at = np.array([[6.0, 8.1]])
    tilts = ((0.0, 0.0), tuple(np.array([4, -3]) * PIXEL_MRAD))
    lenses = (optics.lens(GRID, optics.BeamSettings(ENERGY, 12.0, {"C10": -300.0}, tilt)) for tilt in tilts)
    upright, tilted = (np.abs(np.fft.ifft2(optics.probes(lens, GRID, at))[0]) for lens in lenses)
    np.testing.assert_allclose(tilted, upright, atol=1e-12)


def test_a_tilted_aperture_must_fit_the_band_limit():
    limit = GRID.band_limit * WAVELENGTH * 1e3
    optics.lens(GRID, optics.BeamSettings(ENERGY, 20.0, {}, (0.0, limit - 23)))
    with pytest.raises(InputError, match=r"semiangle_mrad 20 with a beam tilt of .* mrad does not fit"):
        optics.lens(GRID, optics.BeamSettings(ENERGY, 20.0, {}, (0.0, limit - 19)))
    with pytest.raises(InputError, match="beam_tilt_mrad"):
        optics.lens(GRID, optics.BeamSettings(ENERGY, 20.0, {}, (0.0, float("nan"))))


def test_specimen_tilt_shears_the_atoms():
    """Atoms at the slices' faces, where the propagator's shear and the atoms' are one and the same.

    What is left is exp(iσv), which is not band-limited between pixels: a quarter with pixels half as wide.
    """
    tilt = (8.0, -15.0)

    def errors(refine):
        arguments = ARGUMENTS | {"grid_shape": tuple(refine * n for n in GRID.shape), "slice_thickness_angstrom": 2.0}
        by_atoms = namsa.simulate(columns(tilt_mrad=tilt), **arguments).cbed
        tilts = (tilt, (0.0, 0.0), (-8.0, 15.0), (-15.0, 8.0))
        return [difference(namsa.simulate(columns(), **arguments, specimen_tilt_mrad=t).cbed, by_atoms) for t in tilts]

    right, *wrong = errors(1)
    assert right < 1.5e-3
    assert min(wrong) > 0.2
    assert errors(2)[0] < 0.4 * right


def test_tilting_the_specimen_is_tilting_the_beam_the_other_way():
    """But for the band limit, which stays on the axis."""
    pixels = np.array([3, -4])
    tilt_mrad = np.arctan(pixels * PIXEL_MRAD * 1e-3) * 1e3  # tan θ = λk
    specimen = namsa.simulate(columns(), **ARGUMENTS, specimen_tilt_mrad=tuple(-tilt_mrad)).cbed
    beam = namsa.simulate(columns(), **ARGUMENTS, beam_tilt_mrad=tuple(pixels * PIXEL_MRAD)).cbed
    upright = namsa.simulate(columns(), **ARGUMENTS).cbed
    assert difference(np.roll(beam, -pixels, axis=(1, 2)), specimen) < 6e-3
    assert difference(upright, specimen) > 0.15


def test_large_specimen_tilts_are_refused():
    with pytest.raises(InputError, match="turn the atoms"):
        namsa.simulate(columns(2), **ARGUMENTS, specimen_tilt_mrad=(80.0, 60.0))
    with pytest.raises(InputError, match="specimen_tilt_mrad"):
        namsa.simulate(columns(2), **ARGUMENTS, specimen_tilt_mrad=(float("nan"), 0.0))
