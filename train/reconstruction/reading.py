"""What is read of a scan: its mean pattern, optic axis and scale, and its rows as the network sees them."""

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError
from namsa.io.foreign import Patterns
from namsa.physics.backend import available_cores
from train.input.readahead import ahead
from train.reconstruction import resampling as fit
from train.reconstruction.models import Model

Array = npt.NDArray[Any]
Say = Callable[[str], None]

PIECE_BYTES = 16 * 2**20  # of patterns that a thread reads at once; three times as much is made of them
READERS = 4  # threads: HDF5 unpacks for one at a time
BAND_ROWS = 8  # scan rows that are read together, or more where the file keeps more together
SURVEY_ROWS = 16  # scan rows that the mean pattern is taken from


def survey(data: Patterns, path: Path) -> Array:
    """The mean pattern (dy, dx), float64, of rows of the scan, evenly spaced. Raises InputError where it is none."""
    rows = np.unique(np.linspace(0, data.shape[0] - 1, SURVEY_ROWS).round().astype(int))
    total = np.zeros(data.shape[2:])
    for row in rows:
        for columns in _pieces(data, 1):
            total += data.read(slice(row, row + 1), columns).sum(axis=(0, 1), dtype=np.float64)
    if not np.isfinite(total).all() or total.sum() <= 0:
        raise InputError(f"{path} holds patterns that are not finite or sum to nothing: mask its bad pixels")
    return total / (len(rows) * data.shape[1])


def centre(data: Patterns, pattern: Array, say: Say) -> tuple[float, float]:
    """The optic axis (y, x) in pixels: as the data say, or the centre of mass of the mean `pattern` (dy, dx)."""
    if data.centre_pixels is not None:
        y, x = data.centre_pixels
        say(f"optic axis at pixel ({y:.2f}, {x:.2f}), as the file or the command says")
    else:
        y, x = (
            float(pattern.sum(axis=1 - axis) @ np.arange(n)) / pattern.sum() for axis, n in enumerate(pattern.shape)
        )
        say(f"optic axis taken at pixel ({y:.2f}, {x:.2f}), the mean pattern's centre of mass")
    return y, x


def scale(data: Patterns, pattern: Array, beam_intensity: float | None, model: Model, say: Say) -> float:
    """What turns the file's intensities into fractions of the incident beam."""
    if beam_intensity is not None:
        part = pattern.sum() / beam_intensity
        say(f"intensities over the given {beam_intensity:g}: the mean pattern is {part:.3f} of the beam")
        return 1 / beam_intensity
    if data.fractions:
        say(f"intensities are fractions of the beam: {pattern.sum():.3f} of it in the mean pattern")
        return 1.0
    fraction = float(model.calibration.get("transmitted_fraction", 1.0))
    say(
        f"assumed: the mean pattern, {pattern.sum():.4g} in the file's units, is {fraction:g} of the beam; "
        "where the beam's own sum is known, give --beam-intensity"
    )
    return fraction / float(pattern.sum())


def bands(data: Patterns, plan: fit.Plan, scale: float, done: Callable[[int], None]) -> Generator[Array, None, None]:
    """The scan from its first row on, on the network's detector and along x on its positions: (rows, sx, pixels).

    Read and binned in threads, ahead of the network; to be closed before the file is.
    """
    binning = plan.binning * np.float32(scale)
    height = data.chunk[0] * -(-BAND_ROWS // data.chunk[0])
    bands = [slice(first, min(first + height, data.shape[0])) for first in range(0, data.shape[0], height)]
    pieces = _pieces(data, height)

    def binned(task: tuple[slice, slice]) -> Array:
        piece = data.read(*task)
        flat = piece.reshape(-1, piece.shape[2] * piece.shape[3]).astype(np.float32)
        return (binning @ flat.T).T.reshape(*piece.shape[:2], -1)

    threads = min(READERS, available_cores())
    with closing(
        ahead(binned, [(rows, columns) for rows in bands for columns in pieces], threads, 2 * threads)
    ) as ready:
        for rows in bands:
            band = np.concatenate([next(ready) for _ in pieces], axis=1)
            if not np.isfinite(band).all():
                raise InputError(
                    f"patterns in scan rows {rows.start} to {rows.stop - 1} are not finite: mask bad pixels"
                )
            same = plan.along.shape[0] == plan.along.shape[1] == plan.along.nnz
            yield band if same else np.stack([plan.along @ row for row in band])
            done(rows.stop)


def _pieces(data: Patterns, rows: int) -> list[slice]:
    """Columns of the scan in pieces of `PIECE_BYTES` at most, of whole chunks of the file."""
    _, sx, dy, dx = data.shape
    wide = data.chunk[1]
    size = max(1, PIECE_BYTES // (rows * wide * dy * dx * data.data.dtype.itemsize)) * wide
    return [slice(first, min(first + size, sx)) for first in range(0, sx, size)]
