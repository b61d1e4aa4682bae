"""Patterns of a phase object by optics alone, for exports to other programs."""

import numpy as np

from namsa.base.arrays import Array
from namsa.physics import optics

N = 48
SCAN = (5, 7)
STEP = (0.7, 0.9)
TURN = 25.0
DEFOCUS = 90.0
ENERGY = 200e3
SEMIANGLE = 20.0
WAVELENGTH = optics.wavelength_angstrom(ENERGY)
PIXEL = WAVELENGTH / 16.0 * 1e3  # mrad: the window is 16 Å wide
CENTRE = (N // 2 - 2, N // 2 + 1)  # of the patterns as they are stored


def potential(yx: Array) -> Array:
    """A smooth potential without symmetry in the scan's frame, rad at these energies of order 1."""
    spots = [(0.5, 1.0, 0.8), (2.2, 3.1, 0.5), (1.1, 4.6, 0.3)]
    total = np.zeros(yx.shape[:-1])
    for y, x, amplitude in spots:
        square = (yx[..., 0] - y) ** 2 + (yx[..., 1] - x) ** 2
        total += amplitude * np.exp(-square / 0.8)
    return total


def turned(yx: Array) -> Array:
    """The scan's frame in the detector's, where the waves are."""
    angle = np.deg2rad(TURN)
    y = yx[..., 0]
    x = yx[..., 1]
    return np.stack(
        [y * np.cos(angle) + x * np.sin(angle), x * np.cos(angle) - y * np.sin(angle)], -1
    )


def patterns(flip: bool) -> Array:
    """Patterns of a phase object by optics alone: a probe at each position of a window that moves
    with it.
    """
    coordinate = (np.arange(N) - N // 2) * 16.0 / N
    window = np.stack(np.meshgrid(coordinate, coordinate, indexing="ij"), -1)
    angle = np.deg2rad(TURN)
    k = np.fft.fftfreq(N, 16.0 / N)
    alpha = WAVELENGTH * np.hypot(k[:, None], k[None])
    inside = np.clip((SEMIANGLE - 1e3 * alpha) / PIXEL + 0.5, 0, 1)
    probe = np.fft.fftshift(
        np.fft.ifft2(inside * np.exp(1j * np.pi / WAVELENGTH * DEFOCUS * alpha**2))
    )
    probe /= np.linalg.norm(probe)
    stack = np.zeros((*SCAN, N, N), np.float32)
    for i, j in np.ndindex(*SCAN):
        y, x = np.moveaxis(window + turned(np.array([i * STEP[0], j * STEP[1]])), -1, 0)
        at = np.stack(
            [y * np.cos(angle) - x * np.sin(angle), x * np.cos(angle) + y * np.sin(angle)], -1
        )
        wave = np.fft.fft2(probe * np.exp(1j * potential(at)))
        pattern = np.fft.fftshift(abs(wave) ** 2) / N**2
        centre = CENTRE[::-1] if flip else CENTRE
        pattern = np.roll(pattern, np.subtract(centre, N // 2), (0, 1))
        stack[i, j] = pattern.T if flip else pattern
    return stack
