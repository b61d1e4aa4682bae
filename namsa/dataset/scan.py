"""Probe positions of a regular scan, or from a file."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from namsa import checks
from namsa.config.instrument import Scan
from namsa.errors import InputError


def positions(
    scan: Scan, extent_angstrom: tuple[float, float], rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns the coordinates of the scan's rows and columns.

    Without a step the scan fills the periodic cell evenly: one step after the last position the first one repeats.

    Args:
        scan: The scan.
        extent_angstrom: Sides (y, x) of the periodic cell, Å.
        rng: Draws the origin, if it is random.

    Returns:
        (y, x), shapes (sy,) and (sx,), Å.

    Raises:
        InputError: If the scan's positions are in a file.
    """
    if scan.shape is None:
        raise InputError(f"the positions in {scan.file} are no raster: give scan.shape in place of scan.file")
    step = scan.step_angstrom or tuple(
        extent / count for extent, count in zip(extent_angstrom, scan.shape, strict=True)
    )
    origin = rng.uniform(0, extent_angstrom) if scan.origin_angstrom == "random" else scan.origin_angstrom
    y, x = (origin[axis] + step[axis] * np.arange(scan.shape[axis]) for axis in (0, 1))
    return y, x


def raster(y: npt.NDArray[np.float64], x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the positions (sy·sx, 2) of a scan's rows (sy,) and columns (sx,), x fastest."""
    return np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)


def read(path: Path) -> npt.NDArray[np.float64]:
    """Reads positions from a NumPy file, or from text with one pair per line; # begins a comment.

    Args:
        path: The file, .npy, .csv or .txt.

    Returns:
        Positions (n, 2) as (y, x), Å.

    Raises:
        InputError: If the file cannot be read, or holds anything but finite pairs.
    """
    try:
        if path.suffix == ".npy":
            values = np.load(path, allow_pickle=False)
        elif path.suffix in (".csv", ".txt"):
            values = np.loadtxt(path, delimiter="," if path.suffix == ".csv" else None, ndmin=2, encoding="utf-8")
        else:
            raise InputError(f"scan.file {path} must end in .npy, .csv or .txt")
    except OSError as error:
        raise InputError(f"cannot read scan.file {path}: {error.strerror or error}") from None
    except ValueError as error:  # bad text, or pickled objects
        raise InputError(f"scan.file {path} is not two columns of numbers: {error}; begin a header with #") from None
    if values.dtype.kind not in "iuf":
        raise InputError(f"scan.file {path} holds {values.dtype}, not real numbers")
    try:
        return checks.check_positions(values)
    except InputError as error:
        raise InputError(f"scan.file {path}: {error}") from None
