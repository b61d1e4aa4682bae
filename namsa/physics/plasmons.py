"""Plasmons as a broadening of patterns: the convolution with Lorentzians of all orders of scattering.

A plasmon of energy ΔE scatters by angles with the density L(θ) = 1/(π ln(1 + θ_c²/θ_E²)) · 1/(θ² + θ_E²) up to the
critical angle θ_c, with θ_E = ΔE/(γmv²) (Egerton, Electron Energy-Loss Spectroscopy in the Electron Microscope, 3rd ed.
(2011), chapter 3). The number of plasmons is Poisson distributed with the mean t/λ, of thickness and mean free path.
Elastic scattering and plasmons are taken as independent, so that a pattern is convolved with Σ_n P_n L*L*...*L, whose
transform is exp(t/λ (L̂ − 1)). Measurements of low-angle patterns are described so (Beyer et al., Sci. Rep. 10 (2020)
17890; Robert et al., Appl. Phys. Lett. 121 (2022) 213502).
"""

import numpy as np
from scipy import constants

from namsa.arrays import Floats
from namsa.config.response import Plasmons

_REST_ENERGY_EV = constants.m_e * constants.c**2 / constants.e
_SAMPLES = 16  # per pixel and axis; the pixel in the centre, where L is steep, is integrated in polar coordinates
_DIRECTIONS = 4096


def characteristic_angle(energy_ev: float, energy_loss_ev: float) -> float:
    """Returns θ_E = ΔE/(γmv²) = ΔE (E + mc²)/(E (E + 2mc²)), rad; 0.0486 mrad for 16.7 eV at 200 kV."""
    return energy_loss_ev * (energy_ev + _REST_ENERGY_EV) / (energy_ev * (energy_ev + 2 * _REST_ENERGY_EV))


def critical_angle(plasmons: Plasmons, energy_ev: float) -> float:
    """Returns θ_c as given, or √(2θ_E), the angle of the Bethe ridge, rad."""
    if plasmons.critical_angle_mrad is not None:
        return plasmons.critical_angle_mrad * 1e-3
    return float(np.sqrt(2 * characteristic_angle(energy_ev, plasmons.energy_loss_ev)))


def single_scattering(
    plasmons: Plasmons, energy_ev: float, pixel_mrad: tuple[float, float], reach: tuple[int, int]
) -> Floats:
    """Returns the fraction that one plasmon scatters from the centre of a pixel into each pixel around it.

    Args:
        energy_ev: Electron energy, eV.
        pixel_mrad: Size (y, x) of a pixel, mrad.
        reach: Pixels (y, x) to each side; what is scattered farther is left out.

    Returns:
        Fractions (2·reach + 1), the pixel itself in the centre. Their sum is 1 if they reach to the critical angle.
    """
    inner = characteristic_angle(energy_ev, plasmons.energy_loss_ev)
    outer = critical_angle(plasmons, energy_ev)
    size_y, size_x = (size * 1e-3 for size in pixel_mrad)
    log = np.log1p((outer / inner) ** 2)

    direction = 2 * np.pi * (np.arange(_DIRECTIONS) + 0.5) / _DIRECTIONS
    edge = np.minimum(size_y / 2 / np.abs(np.sin(direction)), size_x / 2 / np.abs(np.cos(direction)))
    centre = float(np.mean(np.log1p((np.minimum(edge, outer) / inner) ** 2)) / log)

    # Pixels to the critical angle, from which those beyond `reach` are cut, so that the fractions stay right.
    far = [int(np.ceil(outer / size + 0.5)) for size in (size_y, size_x)]
    within = (np.arange(_SAMPLES) + 0.5) / _SAMPLES - 0.5
    y, x = (
        (np.arange(-n, n + 1)[:, None] + within).ravel() * size for n, size in zip(far, (size_y, size_x), strict=True)
    )
    squared = y[:, None] ** 2 + x**2
    density = np.where(squared < outer**2, 1 / (squared + inner**2), 0.0)
    kernel: Floats = density.reshape(2 * far[0] + 1, _SAMPLES, 2 * far[1] + 1, _SAMPLES).sum(axis=(1, 3))
    kernel[far[0], far[1]] = 0
    total = kernel.sum()
    kernel *= (1 - centre) / total if total else 0.0
    kernel[far[0], far[1]] = centre if total else 1.0
    out = np.zeros((2 * reach[0] + 1, 2 * reach[1] + 1))
    own = [min(n, m) for n, m in zip(far, reach, strict=True)]
    to, cut = (tuple(slice(n - m, n + m + 1) for n, m in zip(sizes, own, strict=True)) for sizes in (reach, far))
    out[to] = kernel[cut]
    return out
