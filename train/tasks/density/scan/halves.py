"""Reconstructs the halves of a scan, of which each predicts the patterns of the other: `reconstruct
--halves`.

The halves are the fields of a chessboard. A network needs a pattern at every position: the mean of
the neighbours stands for those of the other half, so that each density is worse than that of the
whole scan.

How far the two densities agree is measured by `namsa.inverse.agreement`.
"""

import math

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.inverse import consistency
from namsa.inverse.agreement import column_errors, ring_correlation

from .preparation import Findings, Measure, Prepared


class Halves(Measure):
    """Comparison of the densities of two halves of a scan, which are predicted with the whole."""

    option = "halves"

    def __init__(self, prepared: Prepared) -> None:
        """Raises InputError if the scan has no halves that share no pattern."""
        super().__init__(prepared)
        plan = prepared.scan.plan
        network = prepared.network
        resampled = any(
            axis.nnz != axis.shape[0] or axis.shape[0] != axis.shape[1]
            for axis in (plan.along_y, plan.along_x)
        )
        if resampled or network.whole_scan:
            raise InputError(
                "halves need a network of layout scan and the scan step that it was trained with"
            )
        self._images = prepared.images(), prepared.images()
        self._window = _middle(plan.scan_shape, network.window)
        self._patterns: Array = np.zeros(
            (*network.window, math.prod(network.conditions.detector_shape))
        )

    def see(self, rows: slice, strip: Array) -> None:
        numbers, (y, x) = np.arange(rows.start, rows.stop), self._window
        field = _chessboard(numbers, np.arange(strip.shape[1]))
        for half, images in enumerate(self._images):
            images.add(np.where((field == half)[..., None], np.float32(np.nan), strip))
        inside = (numbers >= y.start) & (numbers < y.stop)
        self._patterns[numbers[inside] - y.start] = strip[inside][:, x]

    def after(self, findings: Findings) -> Findings:
        scan = self.scan
        simulation = self.prepared.simulation
        window = self._window
        first, second = (images.densities.mean() for images in self._images)
        frc = ring_correlation(first, second, scan.pixels)
        facts: dict[str, object] = {
            "resolution_angstrom": frc.resolution_angstrom,
            "q_per_angstrom": frc.q_per_angstrom.tolist(),
            "ring_correlation": frc.correlation.tolist(),
            "signal_to_noise": np.minimum(frc.snr, 1e6).tolist(),
        }
        self.note(
            f"halves: their densities agree to {frc.resolution_angstrom:.2f} Å (ring correlation "
            "1/7)"
        )
        columns = column_errors(first, second, scan.pixels)
        if columns is not None:
            named = columns._asdict()
            facts |= {"columns": named.pop("columns")} | {
                f"column_{name}": value for name, value in named.items()
            }
            self.note(
                f"halves: {columns.columns} columns in both, {100 * columns.position_angstrom:.1f} "
                f"pm and {100 * columns.intensity:.1f} % rms error of the mean; "
                f"{100 * columns.unmatched:.0f} % of the maxima are in one alone"
            )
        if simulation is not None:
            field = _chessboard(*(np.arange(span.start, span.stop) for span in window))
            stack = np.maximum(self._patterns, 0).reshape(-1, *scan.model.conditions.detector_shape)
            known = simulation.simulation, simulation.conversion
            residuals = [
                consistency.kept_out(first[window], stack, *known, field != 0),
                consistency.kept_out(second[window], stack, *known, field != 1),
            ]
            used, out = np.mean(residuals, axis=0).tolist()
            facts |= {"residual_used": used, "residual_kept_out": out}
            self.note(
                f"halves: R of the patterns is {used:.3f} at the positions used, {out:.3f} at "
                "those kept out"
            )
        return findings._replace(facts={**findings.facts, "halves": facts})


def _chessboard(rows: Array, columns: Array) -> Array:
    return (rows[:, None] + columns) % 2


def _middle(scan: tuple[int, int], window: tuple[int, int]) -> tuple[slice, slice]:
    """Returns the rows and columns of a window in the middle of the scan."""
    y, x = (
        slice((n - size) // 2, (n - size) // 2 + size) for n, size in zip(scan, window, strict=True)
    )
    return y, x
