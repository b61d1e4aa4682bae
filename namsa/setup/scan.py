"""Probe positions: of a raster, from a file, or as the probe asks."""

import io
import math
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.base.files import read_text
from namsa.base.numpy_files import read_npy
from namsa.base.text import shorten
from namsa.config.instrument import Microscope, Scan
from namsa.config.loading import validate
from namsa.config.simulation import LARGEST_SCAN_FILE_BYTES as LARGEST_FILE_BYTES
from namsa.physics.optics import wavelength_angstrom
from namsa.setup import checks
from namsa.setup.settings import SimulationSettings


def positions(
    scan: Scan, extent_angstrom: tuple[float, float], rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Returns the coordinates of the scan's rows and columns, (y, x), shapes (sy,) and (sx,), Å.

    Without a step the scan fills the periodic cell evenly: one step after the last position the
    first one repeats.

    Args:
        extent_angstrom: Sides (y, x) of the periodic cell, Å.
        rng: Draws the origin, if it is random.

    Raises:
        InputError: If the scan's positions are in a file.
    """
    if scan.shape is None:
        raise InputError(
            f"the positions in {scan.file} are no raster: give scan.shape in place of scan.file"
        )
    step = scan.step_angstrom or tuple(
        extent / count for extent, count in zip(extent_angstrom, scan.shape, strict=True)
    )
    if scan.origin_angstrom == "random":
        start_y, start_x = rng.uniform(0, extent_angstrom)
        origin = (start_y, start_x)
    else:
        origin = scan.origin_angstrom
    y, x = (origin[axis] + step[axis] * np.arange(scan.shape[axis]) for axis in (0, 1))
    return y, x


class ProbePositions(NamedTuple):
    """Positions of the probe."""

    positions: Floats  # (n, 2) as (y, x), Å
    scan_shape: tuple[int, int] | None  # rows and columns of their raster, if they are one

    @property
    def step_angstrom(self) -> float | None:
        """Smallest distance between rows or columns of the raster, Å; `None` without neighbours."""
        if self.scan_shape is None:
            return None
        rows, columns = self.scan_shape
        raster = self.positions.reshape(rows, columns, 2)
        steps = []
        if rows > 1:
            steps.append(np.linalg.norm(raster[1, 0] - raster[0, 0]))
        if columns > 1:
            steps.append(np.linalg.norm(raster[0, 1] - raster[0, 0]))
        smallest = float(min(steps, default=0.0))
        return round(smallest, 6) if smallest > 0 else None


def probe_positions(
    settings: SimulationSettings, extent_angstrom: tuple[float, float]
) -> ProbePositions:
    """Returns the probe positions of a simulation.

    Without a scan and positions, the raster fills the cell in steps of λ/4α or less, which sample
    the intensity of a probe of semi-angle α: it has no frequencies beyond 2α/λ.

    Args:
        extent_angstrom: Sides (y, x) of the periodic cell, Å.

    Raises:
        InputError: If positions are given in two ways, or are none.
    """
    if settings.positions_angstrom is not None:
        if settings.scan is not None:
            raise InputError("scan and positions_angstrom are mutually exclusive: give one of them")
        given = checks.check_positions(settings.positions_angstrom, settings.scan_shape)
        return ProbePositions(given, settings.scan_shape)
    if settings.scan_shape is not None:
        shape = tuple(settings.scan_shape)
        raise InputError(f"scan_shape is {shape}, without positions_angstrom: give scan={shape}")
    scan = settings.scan
    if scan is None:
        scan = _scan_of_probe(settings.microscope, extent_angstrom)
    elif not isinstance(scan, Scan):
        scan = validate(Scan, {"shape": scan}, "scan")
    if scan.file:
        return ProbePositions(read(scan.file), None)
    y, x = positions(scan, extent_angstrom, np.random.default_rng(settings.seed))
    return ProbePositions(checks.check_positions(raster(y, x)), (len(y), len(x)))


def _scan_of_probe(microscope: Microscope, extent_angstrom: tuple[float, float]) -> Scan:
    """Returns the raster over the cell whose steps sample the intensity of the probe."""
    semiangle_mrad = microscope.semiangle_mrad
    checks.check_ranges(energy_ev=microscope.energy_ev, semiangle_mrad=semiangle_mrad)
    per_angstrom = 4e-3 * semiangle_mrad / wavelength_angstrom(microscope.energy_ev)
    rows, columns = (max(1, math.ceil(side * per_angstrom)) for side in extent_angstrom)
    return Scan(shape=(rows, columns))


def raster(y: Floats, x: Floats) -> Floats:
    """Returns the positions (sy·sx, 2) of a scan's rows (sy,) and columns (sx,), x fastest."""
    return np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)


def read(path: Path) -> Floats:
    """Reads positions from a NumPy file, or from text with one pair per line; # begins a comment.

    Args:
        path: The file, .npy, .csv or .txt.

    Returns:
        Positions (n, 2) as (y, x), Å.

    Raises:
        InputError: If the file cannot be read, is larger than `LARGEST_FILE_BYTES`, or holds
            anything but finite pairs.
    """
    values: Array
    if path.suffix == ".npy":
        values = read_npy(path, largest_bytes=LARGEST_FILE_BYTES, kind="scan.file")
    elif path.suffix in (".csv", ".txt"):
        values = _read_columns(path, "," if path.suffix == ".csv" else None)
    else:
        raise InputError(f"scan.file {path} must end in .npy, .csv or .txt")
    if values.dtype.kind not in "iuf":
        raise InputError(f"scan.file {path} holds {values.dtype}, not real numbers")
    try:
        return checks.check_positions(values)
    except InputError as error:
        raise InputError(f"scan.file {path}: {error}") from None


def _read_columns(path: Path, delimiter: str | None) -> Floats:
    """Returns the numbers in a text file, `(rows, columns)`."""
    text = read_text(path, largest_bytes=LARGEST_FILE_BYTES, kind="scan.file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a file without numbers, which has a wrong shape
            return np.loadtxt(io.StringIO(text), delimiter=delimiter, ndmin=2)
    except ValueError as error:
        raise InputError(
            f"scan.file {path} is not two columns of numbers: {shorten(error, 200)}; begin a "
            "header with #"
        ) from None
