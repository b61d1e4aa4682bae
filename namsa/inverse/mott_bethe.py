"""Converts electron densities to the potentials that they belong to, without knowing the elements.

By Mott–Bethe an atom's potential is V(q) = C (Z − f_x(q)) / (2π²a₀q²) and its density is f_x(q).
The density does not contain the nuclei, so the ratio V/ρ depends on the element. Its shape, a slow
fall with q, is nearly the same for all elements. Its size, the scale, falls with the density of the
specimen (heavy atoms have more electrons for their potential). A `DensityToPotential` is therefore
one radial curve, fitted to samples that hold both fields, times a scale of which only a power law
of the mean density and its spread are known. For known elements `from_elements` gives both.

Densities are band-limited by the cosine window of `namsa.physics.density_target`; the conversion
restores what the window removed as far as it can. Fields are periodic, `(ny, nx)`; densities in
e/Å², potentials in V·Å, q in 1/Å.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ase.data import atomic_numbers

from namsa.base.arrays import Array, Floats
from namsa.base.digested_json import DIGEST, check_digest, with_digest
from namsa.base.errors import InputError, WorkError
from namsa.base.files import write_text_atomic
from namsa.base.json_files import read_json
from namsa.base.pixels import density_grid
from namsa.base.provenance_values import provenance_error, value
from namsa.dataset.records import Record
from namsa.physics import density_target
from namsa.physics.form_factors import Table, electron, xray
from namsa.physics.grid import Grid, hann_window
from namsa.physics.optics import interaction_constant
from namsa.physics.potential import POTENTIAL_CONSTANT

BINS = 12  # of the curve, from 0 to the end of the band: its shells
LEAST_POWER = 1e-4  # of a shell that holds a reflection, relative to the strongest
ROUNDS = 10  # of fitting curve and scales in turn
FEWEST_SAMPLES = 3  # that a power law is fitted to
# of the numbers of a stored conversion
LARGEST = 1e9
LARGEST_EXPONENT = 10.0
PHASE_SPREAD = 0.2  # rms of the logarithm of a phase's scale, which depends on the method
RESTORED = 0.05  # value of the window below which it is no longer inverted


@dataclass(frozen=True)
class DensityToPotential:
    """The conversion from density to potential: V/ρ as a curve of q times a scale."""

    q_per_angstrom: tuple[float, ...]  # q of the curve's points, 1/Å
    # V/ρ at these points, V·Å³/e, at the specimens' middle density. Constant beyond the ends.
    ratio: tuple[float, ...]
    # Relative rms error of a sample's potential at each q, with the best scale.
    spread: tuple[float, ...]
    middle_density: float  # mean density at which the scale is 1, e/Å³
    exponent: float  # exponent of the scale's power law in the mean density
    scale_spread: float  # rms deviation of log(scale) from the power law. 0 if the scale is known
    max_q_per_angstrom: float  # band limit of the densities, 1/Å

    def expected_scale(self, density: Array, thickness_angstrom: float) -> float:
        """Returns the expected scale for a specimen of a given mean density."""
        mean = max(float(np.mean(density)) / thickness_angstrom, 1e-3)
        return float((mean / self.middle_density) ** self.exponent)

    def curve(self, q: Array) -> Floats:
        """Returns V/ρ at scale 1, V·Å³/e, for q in 1/Å."""
        return np.exp(np.interp(q, self.q_per_angstrom, np.log(self.ratio)))

    def potential(self, density: Array, grid: Grid, scale: float = 1.0) -> Floats:
        """Returns the projected potential of a density, `(ny, nx)`, V·Å.

        Args:
            density: Periodic and band-limited, `(ny, nx)`, e/Å².
        """
        q = np.sqrt(grid.squared_frequency())
        window = density_target.window(q, self.max_q_per_angstrom)
        restored = window * (1 + RESTORED**2) / (window**2 + RESTORED**2)
        spectrum = np.fft.fft2(np.asarray(density, np.float64)) * (scale * self.curve(q) * restored)
        return np.fft.ifft2(spectrum).real

    def density(self, potential: Array, grid: Grid, scale: float = 1.0) -> Floats:
        """Returns the density of a potential: band-limited density, `(ny, nx)`, e/Å².

        Args:
            potential: Periodic projected potential, `(ny, nx)`, V·Å.
        """
        coefficients = density_target.band_limited(
            np.asarray(potential, np.float64), grid, self.max_q_per_angstrom
        )
        curve = self.curve(np.sqrt(grid.squared_frequency()))
        return np.fft.ifft2(coefficients / (scale * curve)).real


class _SampleSpectra(NamedTuple):
    """A sample's fields at the frequencies of the band."""

    potential: Array  # coefficients, `(n,)`
    density: Array  # coefficients, `(n,)`
    q: Floats  # frequencies, `(n,)`, 1/Å
    max_q: float  # band limit, 1/Å
    mean_density: float  # e/Å³

    @property
    def shells(self) -> Array:
        """The shell of each frequency, from 0 to `BINS` − 1."""
        return np.minimum((self.q / self.max_q * BINS).astype(int), BINS - 1)

    def log_ratio(self) -> Floats:
        """Returns the logarithm of V/ρ in each shell, `(BINS,)`; NaN where it is not known."""
        product = (self.potential * self.density.conj()).real
        cross = np.bincount(self.shells, product, BINS)
        power = np.bincount(self.shells, abs(self.density) ** 2, BINS)
        # A shell without a reflection holds only what leaks from its neighbours.
        filled = (cross > 0) & (power > LEAST_POWER * power.max())
        logs = np.full(BINS, np.nan)
        logs[filled] = np.log(cross[filled] / power[filled])
        return logs

    def relative_power(self, coefficients: Array) -> Floats:
        """Returns the power of coefficients in each shell, relative to the potential's."""
        power = np.bincount(self.shells, abs(coefficients) ** 2, BINS)
        return power / np.sum(abs(self.potential) ** 2)


def fit(records: Iterable[Record]) -> DensityToPotential:
    """Fits the conversion to samples: its curve, the power law of their scales and both spreads.

    Args:
        records: Samples whose densities have the same band limit.

    Raises:
        InputError: If there are no samples.
    """
    samples = [_spectra(record) for record in records]
    if not samples:
        raise InputError("there are no samples to fit the transfer from density to potential to")
    max_q = samples[0].max_q
    logs = np.stack([sample.log_ratio() for sample in samples])
    known = ~np.isnan(logs).all(axis=0)
    centres = (np.flatnonzero(known) + 0.5) * max_q / BINS
    curve, scales = _curve_and_scales(logs[:, known])

    log_densities = np.log([sample.mean_density for sample in samples])
    middle = float(np.median(log_densities))
    slope, offset = _power_law(log_densities - middle, scales)

    error_power = np.zeros(BINS)
    potential_power = np.zeros(BINS)
    for scale, sample in zip(scales, samples, strict=True):
        model = np.exp(scale + np.interp(sample.q, centres, curve)) * sample.density
        error_power += sample.relative_power(sample.potential - model)
        potential_power += sample.relative_power(sample.potential)
    spread = np.sqrt(error_power[known] / potential_power[known])
    return DensityToPotential(
        q_per_angstrom=tuple(centres.tolist()),
        ratio=tuple(np.exp(curve + offset).tolist()),
        spread=tuple(spread.tolist()),
        middle_density=float(np.exp(middle)),
        exponent=float(slope),
        scale_spread=float(np.std(scales - offset - slope * (log_densities - middle))),
        max_q_per_angstrom=max_q,
    )


def _curve_and_scales(logs: Floats) -> tuple[Floats, Floats]:
    """Returns the curve of all samples, `(shells,)`, and the scale of each, `(samples,)`.

    Samples lack shells, so curve and scales are fitted in turn, each as the median over the other.

    Args:
        logs: Logarithm of the ratio, `(samples, shells)`; NaN where it is not known.
    """
    curve = np.nanmedian(logs, axis=0)
    scales = np.zeros(len(logs))
    for _ in range(ROUNDS):
        scales = np.nanmedian(logs - curve, axis=1)
        curve = np.nanmedian(logs - scales[:, None], axis=0)
    return curve, scales


def _power_law(log_densities: Floats, log_scales: Floats) -> tuple[float, float]:
    """Returns the slope and the offset of scales over densities, both as logarithms.

    The slope is 0 for samples that do not differ, or too few.
    """
    if len(log_scales) < FEWEST_SAMPLES or not np.ptp(log_densities) > 0:
        return 0.0, float(np.median(log_scales))
    slope, offset = np.polyfit(log_densities, log_scales, 1)
    return float(slope), float(offset)


def from_elements(
    composition: Mapping[str, float], max_q_per_angstrom: float, table: Table = "lobato"
) -> DensityToPotential:
    """Returns the conversion of known elements: least squares over separate atoms.

    It is exact for one element.

    Args:
        composition: Number of atoms of each element, by symbol.

    Raises:
        InputError: If a symbol is not that of an element, or if the composition is empty.
    """
    if not composition:
        raise InputError("an empty composition is no chemical element: give symbols")
    for symbol in composition:
        if symbol not in atomic_numbers:
            raise InputError(f"{symbol} is no chemical element: give symbols")
    q = (np.arange(4 * BINS) + 0.5) * max_q_per_angstrom / (4 * BINS)
    cross = np.zeros_like(q)
    density_power = np.zeros_like(q)
    for symbol, count in composition.items():
        potential, density = _atom(symbol, q, table)
        cross += count * potential * density
        density_power += count * density * density
    ratio = cross / density_power
    error_power = np.zeros_like(q)
    potential_power = np.zeros_like(q)
    for symbol, count in composition.items():
        potential, density = _atom(symbol, q, table)
        error_power += count * (potential - ratio * density) ** 2
        potential_power += count * potential * potential
    return DensityToPotential(
        q_per_angstrom=tuple(q),
        ratio=tuple(ratio),
        spread=tuple(np.sqrt(error_power / potential_power)),
        middle_density=1.0,
        exponent=0.0,
        scale_spread=0.0,
        max_q_per_angstrom=max_q_per_angstrom,
    )


def _atom(symbol: str, q: Floats, table: Table) -> tuple[Floats, Floats]:
    """Returns the potential, V·Å³, and the density, electrons, of an atom at some q, 1/Å."""
    atomic_number = atomic_numbers[symbol]
    potential = POTENTIAL_CONSTANT * electron(atomic_number, q**2, table)
    return potential, xray(atomic_number, q**2, table)


def of_phase(energy_ev: float) -> DensityToPotential:
    """Returns the conversion of a phase (rad), as ptychography yields it, in place of a density."""
    return DensityToPotential(
        q_per_angstrom=(0.0,),
        ratio=(1 / interaction_constant(energy_ev),),
        spread=(0.0,),
        middle_density=1.0,
        exponent=0.0,
        scale_spread=PHASE_SPREAD,
        max_q_per_angstrom=LARGEST,  # no window is undone
    )


def write(transfer: DensityToPotential, path: Path) -> None:
    """Writes a conversion as JSON. Raises WorkError if the file cannot be written."""
    write_text_atomic(path, json.dumps(with_digest(asdict(transfer)), indent=1))


def read(path: Path) -> DensityToPotential:
    """Reads a conversion that `write` wrote.

    Raises:
        InputError: If the file cannot be read, or is not as it was written.
        WorkError: If its content is not valid.
    """
    values = read_json(path)
    if isinstance(values, dict):
        check_digest(values, str(path), "fit the transfer again")
        values.pop(DIGEST, None)
    try:
        transfer = DensityToPotential(**_numbers(values))
        valid = _is_valid(transfer)
    except (ValueError, TypeError, AttributeError, OverflowError):
        valid = False
    if not valid:
        raise WorkError(f"{path} is damaged: fit the transfer again")
    return transfer


def _numbers(values: Any) -> dict[str, Any]:
    """Returns the fields of a stored conversion as numbers and tuples of numbers."""
    numbers: dict[str, Any] = {}
    for key, stored in values.items():
        numbers[key] = tuple(stored) if isinstance(stored, list) else float(stored)
    return numbers


def _is_valid(transfer: DensityToPotential) -> bool:
    """Whether the points of the curve have increasing q, and all numbers are possible."""
    q = np.asarray(transfer.q_per_angstrom, float)
    ratio = np.asarray(transfer.ratio, float)
    spread = np.asarray(transfer.spread, float)
    return bool(
        q.ndim == 1
        and 0 < len(q) == len(ratio) == len(spread)
        and (np.diff(q) > 0).all()
        and abs(q).max() <= LARGEST
        and (ratio >= 1 / LARGEST).all()
        and (ratio <= LARGEST).all()
        and (spread <= LARGEST).all()
        and 1 / LARGEST <= transfer.middle_density <= LARGEST
        and abs(transfer.exponent) <= LARGEST_EXPONENT
        and 0 <= transfer.scale_spread <= LARGEST
        and 1 / LARGEST <= transfer.max_q_per_angstrom <= LARGEST
    )


def potential_like_density(record: Record) -> Floats:
    """Returns the projected potential of a sample at the pixels and in the band of its density.

    Returns:
        `(ty, tx)`, V·Å.
    """
    provenance = record.header["provenance"]
    grid = Grid(tuple(value(provenance, "grid_shape")), tuple(value(provenance, "extent_angstrom")))
    shape = record.projected_potential.shape
    if grid.shape != shape:
        raise provenance_error(provenance, f"has a grid of {grid.shape} and a potential of {shape}")
    max_q = float(value(provenance, "density_max_q_per_angstrom"))
    potential = record.projected_potential.astype(np.float64)
    coefficients = density_target.band_limited(potential, grid, max_q)
    places = density_grid(provenance).coordinates(record.density.shape)
    return density_target.at_positions(coefficients, grid, *places)


def _spectra(record: Record) -> _SampleSpectra:
    """Returns both fields of a sample, in the density's window and band."""
    provenance = record.header["provenance"]
    max_q = float(value(provenance, "density_max_q_per_angstrom"))
    step_y, step_x = density_grid(provenance).step
    ny, nx = record.density.shape
    potential = _tapered_spectrum(potential_like_density(record))
    density = _tapered_spectrum(record.density.astype(np.float64))
    q = np.sqrt(Grid((ny, nx), (ny * step_y, nx * step_x)).squared_frequency()).ravel()
    inside = (q > 0) & (q < max_q)
    thickness = value(provenance, "thickness_angstrom")
    mean_density = float(record.density.mean() / thickness)
    return _SampleSpectra(potential[inside], density[inside], q[inside], max_q, mean_density)


def _tapered_spectrum(field: Floats) -> Array:
    """Returns the coefficients of a field under a Hann window, without its mean, `(ny·nx,)`.

    Jumps at the window's edges and the mean would leak to neighbouring frequencies.
    """
    taper = hann_window((field.shape[0], field.shape[1]))
    mean = np.average(field, weights=taper)
    return np.asarray(np.fft.fft2(taper * (field - mean)).ravel())
