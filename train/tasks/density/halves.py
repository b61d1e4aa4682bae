"""Reconstructs the halves of a scan, of which each predicts the patterns of the other: `reconstruct --halves`.

The halves are the fields of a chessboard. A network needs a pattern at every position: the mean of the neighbours
stands for those of the other half, so that each density is worse than that of the whole scan.

What two densities say of their errors without a truth holds for any method (`compare`?). A method that adds the same to
both halves, as a network adds what it has learnt, agrees with itself better than with the specimen: the numbers are
lower bounds of the errors.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from scipy.spatial import KDTree

from namsa.arrays import Array, Floats
from namsa.errors import InputError
from namsa.inverse import consistency
from namsa.inverse.columns import RADIUS_ANGSTROM, local_maxima
from namsa.physics.grid import hann_window
from namsa.pixels import PixelGrid

from ...apply import tiles
from ...apply.resampling import ResamplingPlan
from ...apply.scans import FittedScan
from ...apply.trust import WindowSimulation
from ...apply.windows import ScanImages, ScanNetwork

THRESHOLD = 1 / 7  # of the correlation: 0.5 for the mean of both halves with the specimen (Rosenthal & Henderson 2003)


class RingCorrelation(NamedTuple):
    """The Fourier ring correlation of two images.

    Attributes:
        q_per_angstrom: Middles of the rings, `(n,)`, 1/Å.
        correlation: Re Σ F₁F₂* / √(Σ|F₁|² Σ|F₂|²) of each ring, `(n,)`.
        snr: Spectral signal-to-noise ratio of the mean of both, 2C/(1 − C), `(n,)`; infinite for equal images.
        resolution_angstrom: 1/q where the correlation first falls below `THRESHOLD`; of the last ring if it does not.
    """

    q_per_angstrom: Floats
    correlation: Floats
    snr: Floats
    resolution_angstrom: float


class ColumnErrors(NamedTuple):
    """How the columns of two images differ, as errors of the mean of both."""

    columns: int  # found in both
    unmatched: float  # share of the maxima of either that the other has not within `RADIUS_ANGSTROM`
    position_angstrom: float  # rms along one axis
    intensity: float  # rms of the height, relative


def ring_correlation(first: Array, second: Array, pixels: PixelGrid) -> RingCorrelation:
    """Returns the Fourier ring correlation of two images `(ny, nx)` under a Hann window, without their means.

    Raises:
        InputError: If shapes differ, a pixel is not finite or an image is constant.
    """
    shape = np.shape(first)
    if shape != np.shape(second) or len(shape) != 2 or min(shape) < 8:
        raise InputError(f"images of {shape} and {np.shape(second)} pixels: give two of one shape, 8×8 or more")
    window = hann_window(shape)
    a, b = (np.fft.fft2(window * (image - np.average(image, weights=window))) for image in (first, second))
    if not (np.isfinite(a).all() and np.isfinite(b).all() and np.any(a) and np.any(b)):
        raise InputError("a ring correlation needs images that are finite and not constant")
    y, x = (np.fft.fftfreq(n, step) for n, step in zip(shape, pixels.step, strict=True))
    width = 2 / min(n * step for n, step in zip(shape, pixels.step, strict=True))  # the window joins two frequencies
    ring = np.round(np.hypot(y[:, None], x) / width).astype(int).ravel()
    count = int(min(np.abs(y).max(), np.abs(x).max()) / width)
    cross, own, other = (
        np.bincount(ring, each.ravel(), count + 1)[1 : count + 1]
        for each in ((a * b.conj()).real, np.abs(a) ** 2, np.abs(b) ** 2)
    )
    correlation = cross / np.sqrt(own * other)
    q = np.arange(1, count + 1) * width
    with np.errstate(divide="ignore"):
        snr = 2 * np.maximum(correlation, 0) / np.maximum(1 - correlation, 0)
    below = np.flatnonzero(correlation < THRESHOLD)
    return RingCorrelation(q, correlation, snr, float(1 / q[below[0] if len(below) else -1]))


def column_errors(first: Array, second: Array, pixels: PixelGrid) -> ColumnErrors | None:
    """Returns how the maxima of two images differ; `None` if they have none in common. Arguments as above."""
    (a, heights), (b, others) = (local_maxima(image, pixels) for image in (first, second))
    if not len(a) or not len(b):
        return None
    distance, index = (np.asarray(each) for each in KDTree(b).query(a))
    near = distance <= RADIUS_ANGSTROM
    if not near.any():
        return None
    offset, mean = a[near] - b[index[near]], (heights[near] + others[index[near]]) / 2
    relative = (heights[near] - others[index[near]]) / mean
    matched = int(near.sum())
    return ColumnErrors(
        matched,
        1 - 2 * matched / (len(a) + len(b)),
        float(np.sqrt(np.mean(offset**2)) / 2),
        float(np.sqrt(np.mean(relative**2)) / 2),
    )


def check_halves(plan: ResamplingPlan, whole_scan: bool) -> None:
    """Raises InputError if the scan has no halves that share no pattern."""
    resampled = any(
        axis.nnz != axis.shape[0] or axis.shape[0] != axis.shape[1] for axis in (plan.along_y, plan.along_x)
    )
    if resampled or whole_scan:
        raise InputError("halves need a network of layout scan and the scan step that it was trained with")


def measure_halves(
    scan: FittedScan,
    network: ScanNetwork,
    simulation: WindowSimulation | None,  # of a window; `None` compares no patterns
    new_images: Callable[[], ScanImages],  # returns images before the first strip is added
) -> tuple[dict[str, Any], list[str]]:
    """Returns what the halves say, as a result's file holds it, and lines about it. The file is read twice."""
    densities, window = [], _middle(scan.plan.scan_shape, network.window)
    patterns = np.zeros(0)
    for half in (0, 1):
        images, kept = new_images(), list[Array]()
        with scan.bands(Console(quiet=True), "") as bands:
            for strip in tiles.strips(_without(bands, half, window, kept), scan.plan.along_y, images.rows):
                images.add(strip)
        densities.append(images.densities.mean())
        patterns = np.concatenate(kept)
    first, second = densities
    frc = ring_correlation(first, second, scan.pixels)
    facts: dict[str, Any] = {
        "resolution_angstrom": frc.resolution_angstrom,
        "q_per_angstrom": frc.q_per_angstrom.tolist(),
        "ring_correlation": frc.correlation.tolist(),
        "signal_to_noise": np.minimum(frc.snr, 1e6).tolist(),
    }
    lines = [f"halves: their densities agree to {frc.resolution_angstrom:.2f} Å (ring correlation 1/7)"]
    if (columns := column_errors(first, second, scan.pixels)) is not None:
        named = columns._asdict()
        facts |= {"columns": named.pop("columns")} | {f"column_{name}": value for name, value in named.items()}
        lines.append(
            f"halves: {columns.columns} columns in both, {100 * columns.position_angstrom:.1f} pm and "
            f"{100 * columns.intensity:.1f} % rms error of the mean; {100 * columns.unmatched:.0f} % of the maxima are "
            "in one alone"
        )
    if simulation is not None:
        stack = np.maximum(patterns, 0).reshape(-1, *network.conditions.detector_shape)
        used, out = _residuals(simulation, densities, stack, window)
        facts |= {"residual_used": used, "residual_kept_out": out}
        lines.append(f"halves: R of the patterns is {used:.3f} at the positions used, {out:.3f} at those kept out")
    return facts, lines


def _residuals(
    known: WindowSimulation, densities: list[Array], stack: Array, window: tuple[slice, slice]
) -> tuple[float, float]:
    """Returns the mean R of the middle window's patterns at the positions that were used and at the others."""
    field = _chessboard(*(np.arange(part.start, part.stop) for part in window)).ravel()
    used, out = [], []
    for half, density in enumerate(densities):
        found = consistency.check(density[window], stack, known.simulation, known.conversion).map.ravel()
        inside = known.simulation.inside & np.isfinite(found)
        used.append(found[inside & (field != half)])
        out.append(found[inside & (field == half)])
    return float(np.mean(np.concatenate(used))), float(np.mean(np.concatenate(out)))


def _without(bands: Iterator[Array], half: int, window: tuple[slice, slice], kept: list[Array]) -> Iterator[Array]:
    """Yields the rows of a scan without the patterns of a half, and keeps those of the window."""
    row, (rows, columns) = 0, window
    for band in bands:
        numbers = np.arange(row, row + len(band))
        inside = (numbers >= rows.start) & (numbers < rows.stop)
        kept.append(band[inside][:, columns].copy())
        left = band.copy()
        left[_chessboard(numbers, np.arange(band.shape[1])) == half] = np.nan
        row += len(band)
        yield left


def _chessboard(rows: Array, columns: Array) -> Array:
    return (rows[:, None] + columns) % 2


def _middle(scan: tuple[int, int], window: tuple[int, int]) -> tuple[slice, slice]:
    """Returns the rows and columns of a window in the middle of the scan."""
    y, x = (slice((n - size) // 2, (n - size) // 2 + size) for n, size in zip(scan, window, strict=True))
    return y, x
