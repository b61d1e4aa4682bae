"""Converts electron densities to the potentials that they belong to, without knowing the elements.

By Mott–Bethe an atom's potential is V(q) = C (Z − f_x(q)) / (2π²a₀q²) and its density is f_x(q). The density does not
contain the nuclei, so the ratio V/ρ depends on the element. Its shape, a slow fall with q, is nearly the same for all
elements. Its size, the scale, falls with the density of the specimen (heavy atoms have more electrons for their
potential). A `DensityToPotential` is therefore one radial curve, fitted to samples that hold both fields, times a
scale of which only a power law of the mean density and its spread are known. For known elements `from_elements` gives
both.

Densities are band-limited by the cosine window of `namsa.physics.density_target`; the conversion restores what the
window removed as far as it can. Fields are periodic, `(ny, nx)`; densities in e/Å², potentials in V·Å, q in 1/Å.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ase.data import atomic_numbers

from namsa.arrays import Array, Floats
from namsa.dataset.records import Record
from namsa.errors import InputError, WorkError
from namsa.files import write_text_atomic
from namsa.json_files import read_json
from namsa.physics import density_target
from namsa.physics.form_factors import Table, electron, xray
from namsa.physics.grid import Grid, hann_window
from namsa.physics.optics import interaction_constant
from namsa.physics.potential import POTENTIAL_CONSTANT
from namsa.pixels import density_grid
from namsa.provenance_values import fault, value

BINS = 12  # of the curve, from 0 to the end of the band
LARGEST, LARGEST_EXPONENT = 1e9, 10.0  # of the numbers of a stored conversion
PHASE_SPREAD = 0.2  # rms of the logarithm of a phase's scale, which depends on the method
RESTORED = 0.05  # value of the window below which it is no longer inverted


@dataclass(frozen=True)
class DensityToPotential:
    """The conversion from density to potential: V/ρ as a curve of q times a scale."""

    q_per_angstrom: tuple[float, ...]  # q of the curve's points, 1/Å
    ratio: tuple[float, ...]  # V/ρ at these points, V·Å³/e, at the specimens' middle density. Constant beyond the ends
    spread: tuple[float, ...]  # relative rms error of a sample's potential at each q, with the best scale
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
        coefficients = density_target.band_limited(np.asarray(potential, np.float64), grid, self.max_q_per_angstrom)
        return np.fft.ifft2(coefficients / (scale * self.curve(np.sqrt(grid.squared_frequency())))).real


class _SampleSpectra(NamedTuple):
    """A sample's potential `v` and density `rho` at the frequencies `q` of the band; the band limit; e/Å³."""

    v: Array
    rho: Array
    q: Floats
    max_q: float
    mean_density: float


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
    shells = [np.minimum((sample.q / max_q * BINS).astype(int), BINS - 1) for sample in samples]
    logs = np.full((len(samples), BINS), np.nan)
    for row, shell, (v, rho, *_) in zip(logs, shells, samples, strict=True):
        cross = np.bincount(shell, (v * rho.conj()).real, BINS)
        own = np.bincount(shell, abs(rho) ** 2, BINS)
        # A shell without a reflection holds only what leaks from its neighbours.
        filled = (cross > 0) & (own > 1e-4 * own.max())
        row[filled] = np.log(cross[filled] / own[filled])
    known = ~np.isnan(logs).all(axis=0)
    centres = (np.flatnonzero(known) + 0.5) * max_q / BINS
    logs = logs[:, known]
    # Samples lack shells, so curve and scales are fitted in turn, each as the median over the other.
    curve, scales = np.nanmedian(logs, axis=0), np.zeros(len(logs))
    for _ in range(10):
        scales = np.nanmedian(logs - curve, axis=1)
        curve = np.nanmedian(logs - scales[:, None], axis=0)
    densities = np.log([sample.mean_density for sample in samples])
    middle = float(np.median(densities))
    varied = len(samples) > 2 and float(np.ptp(densities)) > 0
    slope, offset = np.polyfit(densities - middle, scales, 1) if varied else (0.0, float(np.median(scales)))
    power = np.zeros((2, BINS))  # of the error and of the potential, relative to the sample's potential
    for scale, shell, (v, rho, q, *_) in zip(scales, shells, samples, strict=True):
        model = np.exp(scale + np.interp(q, centres, curve)) * rho
        power += [np.bincount(shell, abs(part) ** 2, BINS) / np.sum(abs(v) ** 2) for part in (v - model, v)]
    return DensityToPotential(
        tuple(centres.tolist()),
        tuple(np.exp(curve + offset).tolist()),
        tuple(np.sqrt(power[0][known] / power[1][known]).tolist()),
        float(np.exp(middle)),
        float(slope),
        float(np.std(scales - offset - slope * (densities - middle))),
        max_q,
    )


def from_elements(
    composition: Mapping[str, float], max_q_per_angstrom: float, table: Table = "lobato"
) -> DensityToPotential:
    """Returns the conversion of known elements: least squares over separate atoms. Exact for one element.

    Args:
        composition: Number of atoms of each element, by symbol.

    Raises:
        InputError: If a symbol is not that of an element, or if the composition is empty.
    """
    unknown = [symbol for symbol in composition if symbol not in atomic_numbers]
    if unknown or not composition:
        raise InputError(f"{unknown[0] if unknown else 'an empty composition'} is no chemical element: give symbols")
    q = (np.arange(4 * BINS) + 0.5) * max_q_per_angstrom / (4 * BINS)
    atoms = [(count, atomic_numbers[symbol]) for symbol, count in composition.items()]
    factors = [(count, POTENTIAL_CONSTANT * electron(z, q**2, table), xray(z, q**2, table)) for count, z in atoms]
    ratio = sum(n * v * rho for n, v, rho in factors) / sum(n * rho * rho for n, _, rho in factors)
    error = sum(n * (v - ratio * rho) ** 2 for n, v, rho in factors) / sum(n * v * v for n, v, _ in factors)
    return DensityToPotential(tuple(q), tuple(ratio), tuple(np.sqrt(error)), 1.0, 0.0, 0.0, max_q_per_angstrom)


def of_phase(energy_ev: float) -> DensityToPotential:
    """Returns the conversion of a phase (rad), as ptychography yields it, in place of a density."""
    ratio = 1 / interaction_constant(energy_ev)
    return DensityToPotential((0.0,), (ratio,), (0.0,), 1.0, 0.0, PHASE_SPREAD, LARGEST)  # no window is undone


def write(transfer: DensityToPotential, path: Path) -> None:
    """Writes a conversion as JSON. Raises WorkError if the file cannot be written."""
    write_text_atomic(path, json.dumps(asdict(transfer), indent=1))


def read(path: Path) -> DensityToPotential:
    """Reads a conversion that `write` wrote.

    Raises:
        InputError: If the file cannot be read.
        WorkError: If its content is not valid.
    """
    values = read_json(path)
    try:
        numbers: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else float(v) for key, v in values.items()}
        transfer = DensityToPotential(**numbers)
        valid = _is_valid(transfer)
    except (ValueError, TypeError, AttributeError, OverflowError):
        valid = False
    if not valid:
        raise WorkError(f"{path} is damaged: fit the transfer again")
    return transfer


def _is_valid(transfer: DensityToPotential) -> bool:
    """Returns whether the curve has points of increasing q, and all numbers are in ranges that potentials can have."""
    q, ratio, spread = (
        np.asarray(values, float) for values in (transfer.q_per_angstrom, transfer.ratio, transfer.spread)
    )
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
    """Returns the projected potential of a sample at the pixels and in the band of its density, (ty, tx), V·Å."""
    p = record.header["provenance"]
    grid = Grid(tuple(value(p, "grid_shape")), tuple(value(p, "extent_angstrom")))
    if grid.shape != record.projected_potential.shape:
        raise fault(p, f"has a grid of {grid.shape} and a potential of {record.projected_potential.shape}")
    max_q = float(value(p, "density_max_q_per_angstrom"))
    coefficients = density_target.band_limited(record.projected_potential.astype(np.float64), grid, max_q)
    return density_target.at_positions(coefficients, grid, *density_grid(p).coordinates(record.density.shape))


def _spectra(record: Record) -> _SampleSpectra:
    """Returns both fields of a sample, in the density's window and band."""
    p, shape = record.header["provenance"], record.density.shape
    max_q, frame = float(value(p, "density_max_q_per_angstrom")), density_grid(p)
    fields = potential_like_density(record), record.density.astype(np.float64)
    # Jumps at the window's edges and the mean would leak to neighbouring frequencies.
    taper = hann_window(shape)
    v, rho = (np.fft.fft2(taper * (field - np.average(field, weights=taper))).ravel() for field in fields)
    y, x = (n * step for n, step in zip(shape, frame.step, strict=True))
    q = np.sqrt(Grid((shape[0], shape[1]), (y, x)).squared_frequency()).ravel()
    inside = (q > 0) & (q < max_q)
    mean_density = float(record.density.mean() / value(p, "thickness_angstrom"))
    return _SampleSpectra(v[inside], rho[inside], q[inside], max_q, mean_density)
