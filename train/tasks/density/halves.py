"""Reconstructs the halves of a scan, of which each predicts the patterns of the other: `reconstruct --halves`.

The halves are the fields of a chessboard. A network needs a pattern at every position: the mean of the neighbours
stands for those of the other half, so that each density is worse than that of the whole scan.

How far the two densities agree is measured by `namsa.inverse.agreement`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.console import Console

from namsa.arrays import Array
from namsa.errors import InputError
from namsa.inverse import consistency
from namsa.inverse.agreement import column_errors, ring_correlation

from ...apply import tiles
from ...apply.resampling import ResamplingPlan
from ...apply.scans import FittedScan
from ...apply.trust import WindowSimulation
from ...apply.windows import ScanImages, ScanNetwork


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
        field = _chessboard(*(np.arange(part.start, part.stop) for part in window))
        stack = np.maximum(patterns, 0).reshape(-1, *network.conditions.detector_shape)
        known = simulation.simulation, simulation.conversion
        each = [consistency.kept_out(densities[half][window], stack, *known, field != half) for half in (0, 1)]
        used, out = np.mean(each, axis=0).tolist()
        facts |= {"residual_used": used, "residual_kept_out": out}
        lines.append(f"halves: R of the patterns is {used:.3f} at the positions used, {out:.3f} at those kept out")
    return facts, lines


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
