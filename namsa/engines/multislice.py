"""Multislice propagation (Cowley & Moodie 1957): ψ ← F⁻¹[P · F[t ψ]] for each slice, from the entrance down.

t is a slice's transmission, P = exp(−iπλΔz k²) the Fresnel propagator over its thickness, both band-limited.
Waves are batches of probes (n, ny, nx) in reciprocal space, scaled so that Σ|ψ|² is the fraction of the beam.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from namsa.physics import optics
from namsa.physics.backend import array_module, fft_module
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import Slices

Scan = Callable[[npt.NDArray[np.float64]], Array]
PlaneWaves = Callable[[npt.NDArray[np.int64]], Array]


def propagator(grid: Grid, wavelength: float, distance_angstrom: float) -> npt.NDArray[np.complex128]:
    """Band-limited Fresnel propagator, (ny, nx), zero frequency first."""
    along_y, along_x = (np.exp(-1j * np.pi * wavelength * distance_angstrom * k**2) for k in grid.frequencies())
    return (grid.antialias() * along_y) * along_x


def engine(grid: Grid, slices: Slices, fresnel: Array) -> Callable[[Array], Scan]:
    """lens -> positions (n, 2) in Å -> patterns (n, ny, nx), zero frequency in the centre; threads may share it.

    lens, fresnel: (ny, nx) complex, zero frequency first. For every grid and array module, and what the faster engines
    are held against.
    """
    return lambda lens: lambda positions: intensity(exit_waves(optics.probes(lens, grid, positions), slices, fresnel))


def plane_waves(grid: Grid, slices: Slices, fresnel: Array) -> PlaneWaves:
    """Flat indices (n,) on the grid -> the exit waves (n, ny, nx) of the plane waves there, each of amplitude 1."""
    xp = array_module(fresnel)

    def exits(indices: npt.NDArray[np.int64]) -> Array:
        waves = xp.zeros((len(indices), fresnel.size), fresnel.dtype)
        waves[xp.arange(len(indices)), xp.asarray(indices)] = 1
        return exit_waves(waves.reshape(-1, *grid.shape), slices, fresnel)

    return exits


def exit_waves(waves: Array, slices: Slices, fresnel: Array) -> Array:
    """The waves behind the last slice, in reciprocal space; `waves` (n, ny, nx) is overwritten.

    After the last slice the wave already is in reciprocal space, where it is measured: no transform is wasted.
    """
    fft = fft_module(waves)
    for index in slices.order:
        waves = fft.ifft2(waves, overwrite_x=True)
        waves *= slices.transmissions[index]
        waves = fft.fft2(waves, overwrite_x=True)
        waves *= fresnel
    return waves


def intensity(waves: Array) -> Array:
    """|ψ|² with the zero frequency in the centre, (n, ny, nx)."""
    return fft_module(waves).fftshift(waves.real**2 + waves.imag**2, axes=(-2, -1))
