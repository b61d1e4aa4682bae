"""The scan's step from lattices in images."""

import numpy as np
import pytest
from ase.spacegroup import crystal

from namsa.inspection.lattice import find_peaks, step_from_crystal, step_from_spacing

SALT = crystal(["Na", "Cl"], [(0, 0, 0), (0.5, 0.5, 0.5)], spacegroup=225, cellpar=[5.64, 5.64, 5.64, 90, 90, 90])


def image(step, turn_deg=17.0, shape=(40, 52), seed=0):
    """Returns an image of the columns of rock salt along [001], whose square has sides of 2.82 Å, turned."""
    angle, side = np.deg2rad(turn_deg), 2.82
    y, x = np.meshgrid(*(np.arange(n) * s for n, s in zip(shape, step, strict=True)), indexing="ij")
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    first, second = np.cos(2 * np.pi * u / side), np.cos(2 * np.pi * v / side)
    noise = np.random.default_rng(seed).normal(size=shape)
    return (first + second + 0.5 * first * second + 0.2 * noise)[None]


@pytest.mark.parametrize("seed", range(3))
def test_a_crystal_gives_both_steps(seed):
    true, stated = np.array([0.41, 0.395]), (0.4, 0.4)
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
    assert step_from_crystal(find_peaks(image((0.488, 0.488))), (0.4, 0.4), SALT, (0, 0, 1)) is None  # 22 % wrong
