"""Pixels and slices for an accuracy of the patterns, and the error that given pixels are expected to have.

Electrons that scatter beyond the band limit are lost. Of those that atoms further down would scatter back, coherently
with the wave, patterns within the detector miss the contribution. It grows with the square of the projected potential
that atoms of one column have per length, and with the thickness. Calibrated on 11 crystals and a few variants of them,
60 to 300 kV and 10 to 400 Å, the largest pixel at which the relative L2 error of all patterns within 50 mrad is 1 % is

    d = 0.084 Å · (S σ²/λ)^−0.19 · (t/Å)^−0.315    with a band of the whole Nyquist frequency (`Grid.band`),

within 14 % (root mean square), where S = Σ_columns (Σ Z/t)² / area. The chosen pixel is smaller by `MARGIN`: of 47
other cases, crystals from Be to U, 60 to 300 kV, 5 to 40 mrad and 15 to 300 Å, none then had more than 0.98 %. With a
band of 2/3 and transmissions that alias, pixels must be smaller by `CONVENTIONAL`. The exponents are a fit, not a
theory; the program that made it is not kept, and scripts/bench/convergence.py measures the error at the chosen pixels.
Thermal displacements change the result by less than its scatter.

A ring is wrong by less than 10 % up to about 2/3 of the band limit, so that the detector ends at `DETECTED` of it.
"""

from typing import NamedTuple

import numpy as np
import scipy.fft
import scipy.ndimage

from namsa.arrays import Floats
from namsa.config.bounds import DEFAULT_ACCURACY
from namsa.physics.grid import CONVENTIONAL_BAND, Grid
from namsa.physics.optics import interaction_constant, wavelength_angstrom
from namsa.physics.potential import AtomList

DEFAULT_REACH_MRAD = 100.0  # of patterns without a detector
MARGIN = 0.77
CONVENTIONAL = 1.8
DETECTED = 0.6
LARGEST_PIXEL_ANGSTROM = 0.2
_FIT = (0.084, -0.192, -0.315)
_LOOSE, _TIGHT = 1 / 3, 1 / 2  # exponents of the accuracy above and below 1 %, each on the side of smaller pixels
_STEP = 1.02  # pixels are powers of it, so that rounding differs on no machine
_COLUMN_ANGSTROM = 0.15  # rms width of an atom when columns are looked for: more than strain and thermal displacements
_REGION_ANGSTROM = 4.0  # rms width of the region whose columns count: a heavy part is not averaged with a light one
_MOST_BINS = 2048
_THINNEST_ANGSTROM = 2.0  # about one atom
_LAYER_PHASE = 0.2  # rad, of an atom that lies half of `layer_extent` away from its slice, at the detector's edge
_LAYER_LIMITS_ANGSTROM = (0.02, 1.0)


class ColumnStrength(NamedTuple):
    """How strongly the atoms of a specimen scatter."""

    strength: float  # largest Σ_columns (Σ Z/t)² / area of any region, 1/Å⁴
    thickness_angstrom: float  # thickness t between the first and the last atom, Å


def measure_columns(atoms: AtomList, extent_angstrom: tuple[float, float]) -> ColumnStrength:
    """Finds the columns of atoms in a periodic cell of sides (Ly, Lx), Å.

    With ρ the atoms as Gaussians of rms w, Σ (Σ Z)² is 4πw² ∫ρ²: the overlap of atoms above each other.
    """
    density, pixel = _binned(atoms, atoms.numbers * atoms.occupancies, extent_angstrom)
    density = _smoothed(density, [_COLUMN_ANGSTROM / size for size in pixel])
    squared = _smoothed(density**2, _region(extent_angstrom, pixel))
    thickness = float(np.ptp(atoms.z)) + _THINNEST_ANGSTROM if len(atoms.z) else _THINNEST_ANGSTROM
    return ColumnStrength(float(4 * np.pi * _COLUMN_ANGSTROM**2 * squared.max() / thickness**2), thickness)


def density_of_region(atoms: AtomList, weights: Floats, extent_angstrom: tuple[float, float]) -> float:
    """Returns the largest sum of weights (n,) of atoms per area of any region, 1/Å²; the rest as `measure_columns`."""
    density, pixel = _binned(atoms, weights, extent_angstrom)
    return float(_smoothed(density, _region(extent_angstrom, pixel)).max())


def _binned(atoms: AtomList, weights: Floats, extent_angstrom: tuple[float, float]) -> tuple[Floats, list[float]]:
    """Returns the sum of weights per area on pixels, 1/Å², and the sides (y, x) of a pixel, Å."""
    shape = [int(np.clip(np.ceil(length / (_COLUMN_ANGSTROM / 1.5)), 1, _MOST_BINS)) for length in extent_angstrom]
    pixel = [length / n for length, n in zip(extent_angstrom, shape, strict=True)]
    bins = [np.rint(atoms.yx[:, axis] / pixel[axis]).astype(np.int64) % shape[axis] for axis in (0, 1)]
    counts = np.bincount(bins[0] * shape[1] + bins[1], weights, shape[0] * shape[1])
    return counts.reshape(shape) / np.prod(pixel), pixel


def _region(extent_angstrom: tuple[float, float], pixel: list[float]) -> list[float]:
    """Returns the rms widths of the region whose columns count, in pixels."""
    return [min(_REGION_ANGSTROM, length) / size for length, size in zip(extent_angstrom, pixel, strict=True)]


def strongest_column(atoms: AtomList, extent_angstrom: tuple[float, float]) -> Floats:
    """Returns the position (y, x) of the atom whose column has the largest Σ Z, Å."""
    pixel = np.array([length / max(1, round(length / _COLUMN_ANGSTROM)) for length in extent_angstrom])
    shape = np.rint(np.array(extent_angstrom) / pixel).astype(np.int64)
    bins = np.rint(atoms.yx / pixel).astype(np.int64) % shape
    flat = bins[:, 0] * shape[1] + bins[:, 1]
    totals = np.bincount(flat, atoms.numbers * atoms.occupancies)
    return np.array(atoms.yx[np.argmax(totals[flat])])


def _smoothed(field: Floats, rms_pixels: list[float]) -> Floats:
    """Returns a periodic field convolved with a Gaussian."""
    transform = scipy.fft.rfft2(field)
    smooth = scipy.ndimage.fourier_gaussian(transform, rms_pixels, n=field.shape[1])
    return np.asarray(scipy.fft.irfft2(smooth, s=field.shape))


def reach_of_interest(reach_mrad: float | None, semiangle_mrad: float) -> float:
    """Returns the angle that pixels and slices are chosen for, mrad.

    Args:
        reach_mrad: Largest angle along y and x that is recorded, mrad; `None`: `DEFAULT_REACH_MRAD`.
    """
    return max(reach_mrad or DEFAULT_REACH_MRAD, 1.25 * semiangle_mrad)


def largest_pixel(columns: ColumnStrength, energy_ev: float, reach_mrad: float, accuracy: float) -> float:
    """Returns the largest pixel for an accuracy, Å, for a grid whose band is the whole Nyquist frequency.

    Args:
        reach_mrad: Largest angle of interest along y and x, mrad.
        accuracy: Relative L2 error of all patterns within `reach_mrad`; that of any ring is ten times as large.
    """
    exponent = _LOOSE if accuracy > DEFAULT_ACCURACY else _TIGHT
    pixel = MARGIN * _pixel_of_one_percent(columns, energy_ev) * (accuracy / DEFAULT_ACCURACY) ** exponent
    by_angle = DETECTED * wavelength_angstrom(energy_ev) / (2e-3 * reach_mrad)
    pixel = min(pixel, by_angle, LARGEST_PIXEL_ANGSTROM)
    return float(_STEP ** np.floor(np.log(pixel) / np.log(_STEP) + 1e-6))


def expected_error(columns: ColumnStrength, energy_ev: float, grid: Grid) -> float:
    """Returns the relative L2 error that patterns on a grid are expected to have, within a factor of about two."""
    pixel = max(grid.sampling_angstrom) * (CONVENTIONAL if grid.band <= CONVENTIONAL_BAND else 1.0)
    ratio = pixel / _pixel_of_one_percent(columns, energy_ev)
    return float(min(1.0, DEFAULT_ACCURACY * ratio ** (1 / (_LOOSE if ratio > 1 else _TIGHT))))


def layer_extent(energy_ev: float, reach_mrad: float) -> float:
    """Returns the largest distance along the beam of atoms that may share a slice, Å.

    An atom half of it away from the front of its slice has a phase that is wrong by `_LAYER_PHASE` at `reach_mrad`.
    """
    extent = 2 * _LAYER_PHASE * wavelength_angstrom(energy_ev) / (np.pi * (1e-3 * reach_mrad) ** 2)
    return float(np.clip(extent, *_LAYER_LIMITS_ANGSTROM))


def _pixel_of_one_percent(columns: ColumnStrength, energy_ev: float) -> float:
    """Returns the pixel at which the error is expected to be 1 %, Å."""
    factor, by_strength, by_thickness = _FIT
    coupling = interaction_constant(energy_ev) ** 2 * columns.strength / wavelength_angstrom(energy_ev)
    return float(factor * max(coupling, 1e-12) ** by_strength * columns.thickness_angstrom**by_thickness)
