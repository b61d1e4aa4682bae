"""From an electron density to the potential that it belongs to, without the elements.

By Mott–Bethe an atom's potential is V(q) = C (Z − f_x(q)) / (2π²a₀q²), its density f_x(q): the density does not hold
the nuclei, and their ratio V/ρ is the element's. What is nearly true of all elements is its shape, a slow fall with q;
its size, the scale, falls with the density of the specimen (heavy atoms have more electrons for their potential). So a
`Transfer` is one radial curve, fitted to samples that hold both fields, times a scale of which no more is known than a
power law of the mean density and its spread. Who knows the elements has both from `of_elements`.

Densities are band-limited by `namsa.physics.density_target`'s cosine window; what it took is given back as far as it
can be. Fields are periodic, (ny, nx); densities in e/Å², potentials in V·Å, q in 1/Å.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ase.data import atomic_numbers

from namsa.dataset.records import Record
from namsa.errors import InputError, WorkError
from namsa.physics import density_target as target
from namsa.physics.form_factors import Table, electron, xray
from namsa.physics.grid import Grid
from namsa.physics.potential import POTENTIAL_CONSTANT
from namsa.pixels import density_grid

Array = npt.NDArray[np.float64]

BINS = 12  # of the curve, from 0 to the band's end
RESTORED = 0.05  # the window's value about which what it took is no longer given back


@dataclass(frozen=True)
class Transfer:
    """V/ρ as a curve of q times a scale.

    q_per_angstrom, ratio: the curve's points, V·Å³/e at the specimens' middle density; it is flat beyond its ends
    spread: what the curve at the best scale leaves of a sample's potential, relative rms, at each q
    middle_density: e/Å³, where the scale is 1; exponent: its power law's, in density over that
    scale_spread: rms of log(scale) about the power law; 0 where the scale is known
    max_q_per_angstrom: where the densities' band ends
    """

    q_per_angstrom: tuple[float, ...]
    ratio: tuple[float, ...]
    spread: tuple[float, ...]
    middle_density: float
    exponent: float
    scale_spread: float
    max_q_per_angstrom: float

    def expected_scale(self, density: npt.NDArray[Any], thickness_angstrom: float) -> float:
        """What the scale of a specimen of this mean density is likely to be."""
        mean = max(float(np.mean(density)) / thickness_angstrom, 1e-3)
        return float((mean / self.middle_density) ** self.exponent)

    def curve(self, q: npt.NDArray[Any]) -> Array:
        """V/ρ at scale 1."""
        return np.exp(np.interp(q, self.q_per_angstrom, np.log(self.ratio)))

    def potential(self, density: npt.NDArray[Any], grid: Grid, scale: float = 1.0) -> Array:
        """The projected potential of a periodic, band-limited `density`."""
        q = np.sqrt(grid.squared_frequency())
        window = target.window(q, self.max_q_per_angstrom)
        restored = window * (1 + RESTORED**2) / (window**2 + RESTORED**2)
        spectrum = np.fft.fft2(np.asarray(density, np.float64)) * (scale * self.curve(q) * restored)
        return np.fft.ifft2(spectrum).real

    def density(self, potential: npt.NDArray[Any], grid: Grid, scale: float = 1.0) -> Array:
        """The band-limited density that a periodic projected `potential` belongs to."""
        coefficients = target.band_limited(np.asarray(potential, np.float64), grid, self.max_q_per_angstrom)
        return np.fft.ifft2(coefficients / (scale * self.curve(np.sqrt(grid.squared_frequency())))).real


def fit(records: Iterable[Record]) -> Transfer:
    """The curve, its scales' law and their spreads, of samples with densities of one band.

    Raises InputError where there is none.
    """
    samples = [_spectra(record) for record in records]
    if not samples:
        raise InputError("there are no samples to fit the transfer from density to potential to")
    max_q = samples[0][3]
    index = [np.minimum((q / max_q * BINS).astype(int), BINS - 1) for _, _, q, _, _ in samples]
    logs = np.full((len(samples), BINS), np.nan)
    for row, at, (v, rho, _, _, _) in zip(logs, index, samples, strict=True):
        cross = np.bincount(at, (v * rho.conj()).real, BINS)
        own = np.bincount(at, abs(rho) ** 2, BINS)
        # A shell without a reflection holds only what leaks from its neighbours.
        there = (cross > 0) & (own > 1e-4 * own.max())
        row[there] = np.log(cross[there] / own[there])
    known = ~np.isnan(logs).all(axis=0)
    centres = (np.flatnonzero(known) + 0.5) * max_q / BINS
    logs = logs[:, known]
    # Samples lack shells: curve and scales are each the other's median, a few times over.
    curve, scales = np.nanmedian(logs, axis=0), np.zeros(len(logs))
    for _ in range(10):
        scales = np.nanmedian(logs - curve, axis=1)
        curve = np.nanmedian(logs - scales[:, None], axis=0)
    densities = np.log([density for *_, density in samples])
    middle = float(np.median(densities))
    varied = len(samples) > 2 and float(np.ptp(densities)) > 0
    slope, offset = np.polyfit(densities - middle, scales, 1) if varied else (0.0, float(np.median(scales)))
    left = np.zeros((2, BINS))
    for scale, at, (v, rho, q, _, _) in zip(scales, index, samples, strict=True):
        model = np.exp(scale + np.interp(q, centres, curve)) * rho
        left += [np.bincount(at, abs(part) ** 2, BINS) / np.sum(abs(v) ** 2) for part in (v - model, v)]
    return Transfer(
        tuple(centres.tolist()),
        tuple(np.exp(curve + offset).tolist()),
        tuple(np.sqrt(left[0][known] / left[1][known]).tolist()),
        float(np.exp(middle)),
        float(slope),
        float(np.std(scales - offset - slope * (densities - middle))),
        max_q,
    )


def of_elements(composition: Mapping[str, float], max_q_per_angstrom: float, table: Table = "lobato") -> Transfer:
    """The transfer of known elements (symbol -> number of atoms), by least squares over atoms apart from each other.

    Of one element it is exact. Raises InputError for what is no element.
    """
    unknown = [symbol for symbol in composition if symbol not in atomic_numbers]
    if unknown or not composition:
        raise InputError(f"{unknown[0] if unknown else 'an empty composition'} is no chemical element: give symbols")
    q = (np.arange(4 * BINS) + 0.5) * max_q_per_angstrom / (4 * BINS)
    atoms = [(count, atomic_numbers[symbol]) for symbol, count in composition.items()]
    factors = [(count, POTENTIAL_CONSTANT * electron(z, q**2, table), xray(z, q**2, table)) for count, z in atoms]
    ratio = sum(n * v * rho for n, v, rho in factors) / sum(n * rho * rho for n, _, rho in factors)
    left = sum(n * (v - ratio * rho) ** 2 for n, v, rho in factors) / sum(n * v * v for n, v, _ in factors)
    return Transfer(tuple(q), tuple(ratio), tuple(np.sqrt(left)), 1.0, 0.0, 0.0, max_q_per_angstrom)


def write(transfer: Transfer, path: Path) -> None:
    """As JSON."""
    path.write_text(json.dumps(asdict(transfer), indent=1), encoding="utf-8")


def read(path: Path) -> Transfer:
    """What `write` wrote. Raises InputError where there is no such file, WorkError where it is damaged."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        numbers: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else float(v) for key, v in values.items()}
        return Transfer(**numbers)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        raise WorkError(f"{path} is damaged: fit the transfer again") from None


def _spectra(record: Record) -> tuple[Any, Any, Array, float, float]:
    """(V, ρ, q) of all frequencies, both fields in the density's window and band; its band; its mean density, e/Å³."""
    p, shape = record.provenance, record.density.shape
    grid = Grid(tuple(p["grid_shape"]), tuple(p["extent_angstrom"]))
    max_q = float(p["density_max_q_per_angstrom"])
    frame = density_grid(p)
    coefficients = target.band_limited(record.projected_potential.astype(np.float64), grid, max_q)
    fields = target.at_positions(coefficients, grid, *frame.coordinates(shape)), record.density.astype(np.float64)
    # Without jumps at the window's edges and without the mean, which would leak to its neighbours.
    taper = np.outer(*(np.hanning(n + 2)[1:-1] for n in shape))
    v, rho = (np.fft.fft2(taper * (field - np.average(field, weights=taper))).ravel() for field in fields)
    y, x = (n * step for n, step in zip(shape, frame.step, strict=True))
    q = np.sqrt(Grid((shape[0], shape[1]), (y, x)).squared_frequency()).ravel()
    inside = (q > 0) & (q < max_q)
    return v[inside], rho[inside], q[inside], max_q, float(record.density.mean() / p["thickness_angstrom"])
