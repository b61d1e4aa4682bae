"""Pixels and slices for an accuracy of the patterns, and the error that given pixels are expected
to have.

Electrons that scatter beyond the band limit are lost. Of those that atoms further down would
scatter back, coherently with the wave, patterns within the detector miss the contribution. It grows
with the square of the projected potential that atoms of one column have per length, and with the
thickness. Calibrated on 11 crystals and a few variants of them, 60 to 300 kV and 10 to 400 Å, the
largest pixel at which the relative L2 error of all patterns within 50 mrad is 1 % is

    d = 0.084 Å · (S σ²/λ)^−0.19 · (t/Å)^−0.315   with a band of the Nyquist frequency,

within 14 % (root mean square; see `Grid.band`), where S = Σ_columns (Σ Z/t)² / area. The chosen
pixel is smaller by `MARGIN`: of 47 other cases, crystals from Be to U, 60 to 300 kV, 5 to 40 mrad
and 15 to 300 Å, none then had more than 0.98 %. With a band of 2/3 and transmissions that alias,
pixels must be smaller by `CONVENTIONAL`. The exponents are a fit, not a theory; the program that
made it is not kept, and scripts/bench/random_specimens.py measures the error at the chosen
pixels.
Thermal displacements change the result by less than its scatter.

A ring is wrong by less than 10 % up to about 2/3 of the band limit, so that the detector ends at
`DETECTED` of it.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.fft
import scipy.ndimage

from namsa.base.arrays import Floats
from namsa.config.bounds import DEFAULT_ACCURACY, DEFAULT_REACH_MRAD
from namsa.physics.grid import CONVENTIONAL_BAND, Grid
from namsa.physics.optics import interaction_constant, wavelength_angstrom
from namsa.physics.potential import AtomList

MARGIN = 0.77
CONVENTIONAL = 1.8
DETECTED = 0.6
LARGEST_PIXEL_ANGSTROM = 0.2
_FIT = (0.084, -0.192, -0.315)
# exponents of the accuracy above and below 1 %, each on the side of smaller pixels
_LOOSE = 1 / 3
_TIGHT = 1 / 2
# Of `divided_atoms_factor`: platinum of 20 Å at 200 kV needs pixels 3.3 times as small.
_DIVIDED = 450.0
_STEP = 1.02  # pixels are powers of it, so that rounding differs on no machine
# rms width of an atom when columns are looked for: more than strain and thermal displacements
_COLUMN_ANGSTROM = 0.15
# rms width of the region whose columns count: a heavy part is not averaged with a light one
_REGION_ANGSTROM = 4.0
# rms width of a probe on a column. Where it holds this many times the mean of a region, the column
# stands alone, and counts this many times; crystals have 1.0 to 2.0 times.
_ALONE_ANGSTROM = 1.2
_ALONE_RATIOS = (2.0, 2.4)
_ALONE_SHARES = (0.5, 1.5)
_BIN_ALONG_BEAM_ANGSTROM = 4.0  # of the weight of atoms by depth
_MOST_BINS = 2048
_THINNEST_ANGSTROM = 2.0  # about one atom
# rad, of an atom that lies half of `layer_extent` away from its slice, at the detector's edge
_LAYER_PHASE = 0.2
_LAYER_LIMITS_ANGSTROM = (0.01, 1.0)
# Of probes with a smaller semi-angle in specimens as thick as this, pixels are smaller by this part
# at most.
_NARROW_MRAD = 16.0
_THICK_ANGSTROM = 150.0
_NARROW_SHARE = 0.45


class ColumnStrength(NamedTuple):
    """Strength of scattering of a specimen's atoms."""

    strength: float  # largest Σ_columns (Σ Z/t)² / area of any region, 1/Å⁴
    thickness_angstrom: float  # thickness t that the scattering atoms fill, Å


def measure_columns(
    atoms: AtomList,
    extent_angstrom: tuple[float, float],
    specimen_tilt_mrad: tuple[float, float] = (0.0, 0.0),
) -> ColumnStrength:
    """Finds the columns of atoms in a periodic cell of sides (Ly, Lx), Å.

    With ρ the atoms as Gaussians of rms w, Σ (Σ Z)² is 4πw² ∫ρ²: the overlap of atoms above each
    other. A column that stands alone counts more than the mean of its region: probes are on it,
    too. The thickness is that of the atoms that scatter: with W(z) = Σ Z² it is (∫W)²/∫W², to
    which a light atom far from the others adds nothing.

    Args:
        specimen_tilt_mrad: Tilt (y, x), which takes atoms out of some columns and into others.
    """
    strength = _strength(atoms, extent_angstrom)
    if any(specimen_tilt_mrad):
        shift = np.outer(atoms.z, np.tan(1e-3 * np.asarray(specimen_tilt_mrad)))
        strength = max(strength, _strength(replace(atoms, yx=atoms.yx + shift), extent_angstrom))
    thickness = _THINNEST_ANGSTROM + _filled_thickness(atoms)
    return ColumnStrength(strength / thickness**2, thickness)


def _strength(atoms: AtomList, extent_angstrom: tuple[float, float]) -> float:
    """Returns the largest Σ_columns (Σ Z)² / area of any region, 1/Å²."""
    density, pixel = _binned(atoms, atoms.numbers * atoms.occupancies, extent_angstrom)
    density = _smoothed(density, [_COLUMN_ANGSTROM / size for size in pixel])
    squared = density**2
    region = _smoothed(squared, _region(extent_angstrom, pixel, _REGION_ANGSTROM)).max()
    alone = _smoothed(squared, _region(extent_angstrom, pixel, _ALONE_ANGSTROM)).max()
    if region > 0:
        share = np.interp(alone / region, _ALONE_RATIOS, _ALONE_SHARES)
        region = max(region, share * alone)
    return float(4 * np.pi * _COLUMN_ANGSTROM**2 * region)


def _filled_thickness(atoms: AtomList) -> float:
    """Returns the thickness that atoms fill along the beam, weighted by Z², Å."""
    if not len(atoms.z):
        return 0.0
    height = float(np.ptp(atoms.z))
    bins = math.ceil(height / _BIN_ALONG_BEAM_ANGSTROM)
    if bins < 2:
        return height
    weights, _ = np.histogram(atoms.z, bins, weights=(atoms.numbers * atoms.occupancies) ** 2)
    if not weights.any():
        return height
    return height / bins * float(weights.sum() ** 2 / (weights**2).sum())


def density_of_region(
    atoms: AtomList, weights: Floats, extent_angstrom: tuple[float, float]
) -> float:
    """Returns the largest sum of weights (n,) of atoms per area of any region, 1/Å²; the rest as
    `measure_columns`.
    """
    density, pixel = _binned(atoms, weights, extent_angstrom)
    region = _region(extent_angstrom, pixel, _REGION_ANGSTROM)
    return float(_smoothed(density, region).max())


def _binned(
    atoms: AtomList, weights: Floats, extent_angstrom: tuple[float, float]
) -> tuple[Floats, list[float]]:
    """Returns the sum of weights per area on pixels, 1/Å², and the sides (y, x) of a pixel, Å."""
    wanted = np.ceil(np.array(extent_angstrom) / (_COLUMN_ANGSTROM / 1.5))
    ny, nx = np.clip(wanted, 1, _MOST_BINS).astype(int).tolist()
    ly, lx = extent_angstrom
    pixel = [ly / ny, lx / nx]
    rows = np.rint(atoms.yx[:, 0] / pixel[0]).astype(np.int64) % ny
    columns = np.rint(atoms.yx[:, 1] / pixel[1]).astype(np.int64) % nx
    counts = np.bincount(rows * nx + columns, weights, ny * nx)
    return counts.reshape(ny, nx) / np.prod(pixel), pixel


def _region(
    extent_angstrom: tuple[float, float], pixel: list[float], rms_angstrom: float
) -> list[float]:
    """Returns the rms widths (y, x) of a region, not larger than the cell, in pixels."""
    ly, lx = extent_angstrom
    return [min(rms_angstrom, ly) / pixel[0], min(rms_angstrom, lx) / pixel[1]]


def strongest_column(atoms: AtomList, extent_angstrom: tuple[float, float]) -> Floats:
    """Returns the position (y, x) of the atom whose column has the largest Σ Z, Å."""
    pixel = np.array(
        [length / max(1, round(length / _COLUMN_ANGSTROM)) for length in extent_angstrom]
    )
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
        reach_mrad: Largest angle along y and x that is recorded, mrad; `None`:
            `DEFAULT_REACH_MRAD`.
    """
    return max(reach_mrad or DEFAULT_REACH_MRAD, 1.25 * semiangle_mrad)


class Illumination(NamedTuple):
    """Properties of the beam that limit pixels and slices."""

    energy_ev: float  # electron energy, eV
    # Semi-angle of the probe, mrad: of a narrower one, a pattern has fewer beams that average
    # their errors.
    semiangle_mrad: float
    beam_tilt_mrad: float = 0.0  # by which the wave is moved in the band, mrad
    specimen_tilt_mrad: float = 0.0  # by which atoms move from slice to slice, mrad

    @property
    def wavelength_angstrom(self) -> float:
        """Electron wavelength, Å."""
        return wavelength_angstrom(self.energy_ev)


def largest_pixel(
    columns: ColumnStrength, beam: Illumination, reach_mrad: float, accuracy: float
) -> float:
    """Returns the largest pixel for an accuracy, Å, for a grid whose band is the whole Nyquist
    frequency.

    Args:
        reach_mrad: Largest angle of interest along y and x, mrad.
        accuracy: Relative L2 error of all patterns within `reach_mrad`; that of any ring is ten
            times as large.
    """
    exponent = _LOOSE if accuracy > DEFAULT_ACCURACY else _TIGHT
    pixel = (
        MARGIN * _pixel_of_one_percent(columns, beam) * (accuracy / DEFAULT_ACCURACY) ** exponent
    )
    pixel = min(pixel, LARGEST_PIXEL_ANGSTROM)
    # A band about the tilted beam that is as wide as that about an upright one.
    pixel = 1 / (1 / pixel + 2e-3 * beam.beam_tilt_mrad / beam.wavelength_angstrom)
    by_angle = DETECTED * beam.wavelength_angstrom / (2e-3 * reach_mrad)
    pixel = min(pixel, by_angle)
    return float(_STEP ** np.floor(np.log(pixel) / np.log(_STEP) + 1e-6))


def divided_atoms_factor(columns: ColumnStrength, beam: Illumination) -> float:
    """Returns how many times as small pixels must be where slices are thinner than atoms.

    What a nucleus scatters twice, in two of its slices, through angles beyond the band, is lost. A
    slice of the whole atom has it. The factor is fitted to Si, Cu, W, Pt, Pb and U, 60 to 300 kV.
    """
    strength = interaction_constant(beam.energy_ev) * math.sqrt(columns.strength)
    return max(1.0, _DIVIDED * strength)


def expected_error(
    columns: ColumnStrength, beam: Illumination, grid: Grid, pixel_factor: float = 1.0
) -> float:
    """Returns the relative L2 error that patterns on a grid are expected to have, within a factor
    of about two.

    Args:
        pixel_factor: How many times as small as with slices of whole atoms pixels must be.
    """
    pixel = max(grid.sampling_angstrom) * pixel_factor
    if grid.band <= CONVENTIONAL_BAND:
        pixel *= CONVENTIONAL
    band = 1 / pixel - 2e-3 * beam.beam_tilt_mrad / beam.wavelength_angstrom
    if band <= 0:
        return 1.0
    ratio = 1 / band / _pixel_of_one_percent(columns, beam)
    exponent = _LOOSE if ratio > 1 else _TIGHT
    return float(min(1.0, DEFAULT_ACCURACY * ratio ** (1 / exponent)))


def layer_extent(
    beam: Illumination, reach_mrad: float, accuracy: float = DEFAULT_ACCURACY
) -> float:
    """Returns the largest distance along the beam of atoms that may share a slice, Å.

    An atom half of it away from the front of its slice has a phase π Δz (k² λ + 2 k θ) at
    `reach_mrad`, θ the specimen's tilt, which is wrong by `_LAYER_PHASE`, or by less in proportion
    to an accuracy below 1 %.
    """
    phase = _LAYER_PHASE * min(1.0, accuracy / DEFAULT_ACCURACY)
    reach = 1e-3 * reach_mrad
    slope = reach * (reach + 2e-3 * beam.specimen_tilt_mrad)
    extent = 2 * phase * beam.wavelength_angstrom / (np.pi * slope)
    return float(np.clip(extent, *_LAYER_LIMITS_ANGSTROM))


def _pixel_of_one_percent(columns: ColumnStrength, beam: Illumination) -> float:
    """Returns the pixel at which the error is expected to be 1 %, Å."""
    factor, by_strength, by_thickness = _FIT
    coupling = (
        interaction_constant(beam.energy_ev) ** 2 * columns.strength / beam.wavelength_angstrom
    )
    pixel = factor * max(coupling, 1e-12) ** by_strength * columns.thickness_angstrom**by_thickness
    # Fewer beams than those of a probe do not average the errors of thick specimens.
    narrow = max(0.0, 1 - beam.semiangle_mrad / _NARROW_MRAD)
    thick = min(1.0, columns.thickness_angstrom / _THICK_ANGSTROM)
    return float(pixel * (1 - _NARROW_SHARE * narrow * thick))
