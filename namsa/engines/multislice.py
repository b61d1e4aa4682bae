"""Multislice propagation (Cowley & Moodie 1957): ψ ← F⁻¹[P · F[t ψ]] for each slice, from the
entrance down.

t is a slice's transmission, P = exp(−iπλΔz k²) the Fresnel propagator over its thickness, or the
exact one, exp(2πiΔz(√(1/λ² − k²) − 1/λ)), both band-limited. Waves are batches of probes
(n, ny, nx) in reciprocal space, scaled so that Σ|ψ|² is the fraction of the beam.

The plain engine works for every grid and array module. The faster engines are tested against it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from namsa.config.numerics import PropagatorName
from namsa.engines.interface import BatchedProbes, waves_per_batch
from namsa.physics import optics
from namsa.physics.backend import array_module, fft_module
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import Slices


@dataclass(frozen=True)
class PlainEngine:
    """Multislice of probes, and of plane waves, with the FFT of SciPy or CuPy."""

    grid: Grid
    slices: Slices  # the specimen's transmission functions
    # the propagator over one slice, (ny, nx) complex, zero frequency first, or several, (m, ny, nx)
    fresnel: Array

    def prepare(self, lens: Array) -> "PlainProbes":
        """Returns the probes of `lens` (ny, nx); see `namsa.engines.interface.Engine.prepare`."""
        return PlainProbes(self, lens)

    def exit_waves(
        self, indices: npt.NDArray[np.int64], depths: Sequence[int], pixels: npt.NDArray[np.int64]
    ) -> Array:
        """Returns waves (m, n, p); see `namsa.engines.interface.PlaneWaves.exit_waves`."""
        xp = array_module(self.fresnel)
        waves = xp.zeros(
            (len(indices), self.grid.shape[0] * self.grid.shape[1]), self.fresnel.dtype
        )
        waves[xp.arange(len(indices)), xp.asarray(indices)] = 1
        waves = waves.reshape(-1, *self.grid.shape)
        pixels = xp.asarray(pixels)
        out = xp.empty((len(depths), len(indices), len(pixels)), waves.dtype)
        for behind, segment in zip(out, self.slices.parts(depths), strict=True):
            waves = exit_waves(waves, segment, self.fresnel)
            behind[...] = waves.reshape(len(indices), -1)[:, pixels]
        return out


class PlainProbes(BatchedProbes):
    """The probes of one lens, propagated by a `PlainEngine`."""

    def __init__(self, engine: PlainEngine, lens: Array) -> None:
        super().__init__(waves_per_batch(lens), isinstance(lens, np.ndarray))
        self._engine = engine
        self._lens = lens

    def patterns(self, positions: npt.NDArray[np.float64]) -> Array:
        """Returns the patterns (n, ny, nx) of probes at `positions` (n, 2), in the precision of the
        lens.
        """
        return intensity(self.exit_waves(positions))

    def exit_waves(self, positions: npt.NDArray[np.float64]) -> Array:
        """Returns the exit waves (n, ny, nx) in reciprocal space, zero frequency first."""
        waves = optics.probes(self._lens, self._engine.grid, positions)
        return exit_waves(waves, self._engine.slices, self._engine.fresnel)


def propagator(
    grid: Grid, wavelength: float, distance_angstrom: float, kind: PropagatorName = "paraxial"
) -> npt.NDArray[np.complex128]:
    """Returns the band-limited propagator of free space over a distance: P(k), (ny, nx), zero
    frequency first.

    Args:
        kind: "paraxial" is Fresnel's, "exact" that of plane waves of all angles. Waves of k > 1/λ
            decay.
    """
    if kind == "paraxial":
        along_y, along_x = (
            np.exp(-1j * np.pi * wavelength * distance_angstrom * k**2) for k in grid.frequencies()
        )
        return (grid.antialias() * along_y) * along_x
    squared = grid.squared_frequency()
    along_beam = np.emath.sqrt(wavelength**-2 - squared)  # 1/Å
    # kz − 1/λ without cancellation
    change = -squared / (along_beam + 1 / wavelength)
    return grid.antialias() * np.exp(2j * np.pi * distance_angstrom * change)


def exit_waves(waves: Array, slices: Slices, fresnel: Array) -> Array:
    """Returns the waves behind the last slice, in reciprocal space.

    Patterns are measured in reciprocal space, so the last slice needs no transform back.

    Args:
        waves: Waves at the entrance, (n, ny, nx) in reciprocal space, zero frequency first;
            overwritten.
        slices: The specimen's transmission functions.
        fresnel: The propagator over one slice, (ny, nx), or those of slices of several thicknesses,
            (m, ny, nx).
    """
    fft = fft_module(waves)
    propagators = fresnel.reshape(-1, *fresnel.shape[-2:])
    for index, distance in zip(slices.order, slices.propagators, strict=True):
        waves = fft.ifft2(waves, overwrite_x=True)
        waves *= slices.transmissions[index]
        waves = fft.fft2(waves, overwrite_x=True)
        waves *= propagators[distance]
    return waves


def intensity(waves: Array) -> Array:
    """Returns |ψ|² of `waves` with the zero frequency in the centre, (n, ny, nx)."""
    return fft_module(waves).fftshift(waves.real**2 + waves.imag**2, axes=(-2, -1))
