"""What is asked before the work starts: refusals with the remedy, and notes on what will run but may mislead.

A note is a sentence with numbers, issued as a `SimulationWarning` and kept in the sample's provenance.
"""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from namsa.config.instrument import Detector
from namsa.errors import InputError
from namsa.physics import optics
from namsa.physics.detector import sampling_and_origin
from namsa.physics.grid import Grid
from namsa.text import plural

THICK_SLICE_ANGSTROM = 4.0  # two layers of atoms in most crystals


class SimulationWarning(UserWarning):
    """The simulation goes on, and its result may not be what was meant."""


def check_positions(positions_angstrom: npt.ArrayLike, scan_shape: tuple[int, int] | None = None) -> npt.NDArray[np.float64]:
    """Probe positions as an array (n, 2). Raises InputError for another shape or number and what is not finite."""
    found = np.asarray(positions_angstrom, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != 2 or not len(found):
        raise InputError(f"positions_angstrom has shape {found.shape}; it must be (n, 2), as (y, x), with n >= 1")
    if not np.all(np.isfinite(found)):
        row = int(np.argmin(np.all(np.isfinite(found), axis=1)))
        raise InputError(f"positions_angstrom[{row}] is {found[row].tolist()}; positions must be finite")
    if scan_shape is not None and len(found) != scan_shape[0] * scan_shape[1]:
        raise InputError(f"scan_shape is {tuple(scan_shape)}, and there are {len(found)} positions")
    return found


def check_choices(
    grid_shape: tuple[int, int],
    slice_thickness_angstrom: float,
    precision: str,
    projection: str,
    engine: str,
    method: str,
) -> None:
    """Raises InputError for a value that is none of those there are."""
    if min(grid_shape) < 2:
        raise InputError(f"grid_shape is {tuple(grid_shape)}; give two pixels (y, x) or more along each axis")
    if not slice_thickness_angstrom > 0:
        raise InputError(f"slice_thickness_angstrom is {slice_thickness_angstrom}; it must be positive")
    if precision not in ("float32", "float64"):
        raise InputError(f"precision is {precision!r}; it must be 'float32' or 'float64'")
    if projection not in ("infinite", "finite"):
        raise InputError(f"projection is {projection!r}; it must be 'infinite' or 'finite'")
    if engine not in ("auto", "plain", "fused"):
        raise InputError(f"engine is {engine!r}; it must be 'auto', 'plain' or 'fused'")
    if method not in ("auto", "multislice", "prism"):
        raise InputError(f"method is {method!r}; it must be 'auto', 'multislice' or 'prism'")


def check_engine(wanted: str, shape: tuple[int, int], supported: bool) -> None:
    """Raises InputError where the fused engine is insisted on, and has no transform of `shape`."""
    if wanted == "fused" and not supported:
        raise InputError(
            f"engine 'fused' is not there for a grid of {shape} in this precision: use sides without prime factors "
            "beyond 7 (on a GPU up to 1024, float32), install namsa where a C compiler is, or use engine 'auto'"
        )


def warn(
    grid: Grid,
    energy_ev: float,
    semiangle_mrad: float,
    aberrations: Mapping[str, float],
    thickness_angstrom: float,
    slice_thickness_angstrom: float,
    detector: Detector | None,
    probe_positions: npt.NDArray[np.float64],
) -> list[str]:
    """Warns of probes larger than the cell, slices too thick and negative positions; returns the warnings' texts.

    slice_thickness_angstrom: the actual one
    """
    wavelength = optics.wavelength_angstrom(energy_ev)
    recorded_mrad = min(np.abs(sampling_and_origin(grid, wavelength, detector)[1]).max(), grid.band_limit * wavelength * 1e3)
    found = [
        *_probe_size(grid, energy_ev, semiangle_mrad, aberrations, thickness_angstrom),
        *_slice_thickness(wavelength, slice_thickness_angstrom, semiangle_mrad, recorded_mrad),
        *_negative_positions(probe_positions),
    ]
    for note in found:
        warnings.warn(note, SimulationWarning, stacklevel=4)  # where `simulate`, which is wrapped, was called
    return found


def _probe_size(
    grid: Grid, energy_ev: float, semiangle_mrad: float, aberrations: Mapping[str, float], thickness_angstrom: float
) -> Iterator[str]:
    diameter = optics.probe_diameter_angstrom(energy_ev, semiangle_mrad, aberrations, thickness_angstrom)
    width = min(grid.extent_angstrom)
    if diameter > width:
        yield (
            f"the probe spreads to {diameter:.1f} Å and overlaps its periodic copies in a cell {width:.1f} Å wide: "
            "use a larger cell, less defocus or a thinner specimen"
        )


def _slice_thickness(
    wavelength: float, slice_thickness_angstrom: float, semiangle_mrad: float, recorded_mrad: float
) -> Iterator[str]:
    """Equal slices diffract like a lattice along the beam: its first Laue zone is where λk²/2 = 1/Δz."""
    if slice_thickness_angstrom > THICK_SLICE_ANGSTROM:
        yield (
            f"slices are {slice_thickness_angstrom:.2f} Å thick, and {THICK_SLICE_ANGSTROM:g} Å hold two layers of "
            "atoms: use about 2 Å"
        )
    zone_mrad = np.sqrt(2 * wavelength / slice_thickness_angstrom) * 1e3
    if zone_mrad < semiangle_mrad + recorded_mrad:
        thin = 2 * wavelength / ((semiangle_mrad + recorded_mrad) * 1e-3) ** 2
        yield (
            f"slices of {slice_thickness_angstrom:.2f} Å have a Laue zone of their own at {zone_mrad:.0f} mrad, and "
            f"patterns reach {recorded_mrad:.0f} mrad: use {thin:.2f} Å or less, unless the crystal has the same layers"
        )


def _negative_positions(probe_positions: npt.NDArray[np.float64]) -> Iterator[str]:
    negative = int(np.count_nonzero((probe_positions < 0).any(axis=1)))
    if negative:
        yield (
            f"{negative} of {len(probe_positions)} positions are negative, down to {probe_positions.min():.2f} Å: they "
            "wrap into the cell, whose origin is (0, 0)"
        )


def check_memory(patterns: int, shape: tuple[int, ...], bytes_a_pixel: int, available_bytes: int | None = None) -> None:
    """Raises InputError where `patterns` of `shape` do not fit into memory, by default into this machine's."""
    available = available_memory_bytes() if available_bytes is None else available_bytes
    needed = patterns * shape[0] * shape[1] * bytes_a_pixel
    if needed > available:
        raise InputError(
            f"{plural(patterns, 'pattern')} of {shape[0]}×{shape[1]} pixels: {needed / 1e9:.1f} GB of memory, and "
            f"{available / 1e9:.1f} GB are available: use fewer positions, a detector, or a smaller grid"
        )


def available_memory_bytes() -> int:
    """What this process can still take: of the machine's memory, and of its control group's where that is limited."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    limit, used = (Path(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.exists() and (text := limit.read_text(encoding="ascii").strip()) != "max":
        available = min(available, int(text) - int(used.read_text(encoding="ascii")))
    return available
