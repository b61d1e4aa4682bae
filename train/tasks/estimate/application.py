"""Estimates thickness, defocus and tilt of a 4D-STEM scan with a network of the task estimate.

The scan is brought onto the network's detector and step, and divided into windows of the network's
shape, side by side and in its middle. Each window is estimated by itself.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.notebook_progress import Report
from namsa.base.pixels import PixelGrid
from namsa.io.calibration import CalibrationOverrides

from ...apply import tiles
from ...apply.models import Model
from ...apply.scans import (
    FittedScan,
    Notes,
    check_answer,
    network_for,
    nonnegative_patterns,
    open_scan,
)
from ...apply.weights import build_loaded
from ...program import PROGRAM
from .calibrate import EstimateCalibration, read_estimate_calibration
from .quantities import QUANTITIES
from .result import EstimatedScan
from .task import Estimation, predictor


def estimate(
    data: str | Path | npt.ArrayLike,
    model: Model | str | Path,
    calibration: CalibrationOverrides = CalibrationOverrides(),  # noqa: B008 - frozen
    *,
    beam_intensity: float | None = None,
    layout: Mapping[str, object] | None = None,
    console: Console | None = None,
    on_progress: Report | None = None,
) -> EstimatedScan:
    """Estimates thickness, defocus and tilt of a scan with a trained network.

    Args:
        data: Path of a file that `namsa.read` opens, or patterns `(sy, sx, dy, dx)`, in any units
            of intensity.
        model: The network, or what `train.load_model` finds it by.
        calibration: What the file does not say, or says wrongly; see `train.reconstruct`.
        beam_intensity: Sum of a pattern without a specimen, in the data's units; see
            `train.reconstruct`.
        layout: How the patterns lie in a file that does not say it, as `namsa.read` takes it.
        console: Where notes and progress are printed. `None` prints nothing; the notes are in the
            result.
        on_progress: Called as `on_progress(stage, done, total)`. Default: a bar in a notebook,
            if the call takes long, and else nothing.

    Returns:
        Values and errors of the scan and of its windows, with axes and provenance.

    Raises:
        InputError: If the network is of another task, the data do not fit it, or their calibration
            is not complete.
        WorkError: If the file is damaged.
    """
    note = Notes(console, on_progress)
    model = network_for("estimate", model)
    measured = read_estimate_calibration(model)
    ranges = Estimation(model.experiment).ranges
    varied = {QUANTITIES[name].varied for name in ranges}
    with open_scan(
        data,
        model,
        calibration,
        note,
        beam_intensity=beam_intensity,
        layout=layout,
        estimated=varied,
    ) as scan:
        window_rows, window_columns = model.conditions.scan_shape
        rows = _windows(scan.plan.scan_shape[0], window_rows, scan.name)
        columns = _windows(scan.plan.scan_shape[1], window_columns, scan.name)
        note(
            f"{model.name}: {len(rows)}×{len(columns)} windows of {window_rows}×{window_columns} "
            "positions"
        )
        if measured is None:
            note(
                f"errors: not calibrated, for {model.name} has no calibration.json: run {PROGRAM} "
                "calibrate"
            )
        values, deviations = _estimate_windows(scan, rows, columns)
    calibrated = _with_factors(list(ranges), values, deviations, measured)
    return EstimatedScan(
        calibrated.estimates,
        calibrated.errors,
        ranges,
        calibrated.two_sigma_factors,
        _window_pixels(scan, rows[0], columns[0]),
        {**scan.provenance, **scan.beam, "calibrated": measured is not None, "notes": note.lines},
    )


class _Estimates(NamedTuple):
    """Estimates by the name of the quantity."""

    estimates: dict[str, Array]
    errors: dict[str, Array]
    two_sigma_factors: dict[str, float]


def _with_factors(
    names: Sequence[str],
    values: Array,
    deviations: Array,
    calibration: EstimateCalibration | None,
) -> _Estimates:
    """Returns estimates whose errors are calibrated, if there is a calibration."""
    result = _Estimates({}, {}, {})
    for index, name in enumerate(names):
        factor = 1.0
        two_sigma_factor = 2.0
        if calibration:
            factors = calibration["quantities"][name]
            factor = factors["uncertainty_factor"]
            two_sigma_factor = factors["two_sigma_factor"]
        result.estimates[name] = values[..., index]
        result.errors[name] = factor * deviations[..., index]
        result.two_sigma_factors[name] = two_sigma_factor
    return result


def _estimate_windows(
    scan: FittedScan, rows: Sequence[slice], columns: Sequence[slice]
) -> tuple[Array, Array]:
    """Returns the quantities of each window and the deviations of their errors, `(ny, nx,
    quantities)` each.
    """
    model = scan.model
    intensity = np.zeros(2)
    network = build_loaded(model, model.experiment.network, scan.weights_digest)
    predict = predictor(model.experiment, network)
    predictions = []
    with scan.bands() as bands:
        for strip in tiles.strips(bands, scan.plan.along_y, rows):
            patterns = nonnegative_patterns(strip, model.conditions.detector_shape, intensity)
            predictions.append(predict(np.stack([patterns[:, column] for column in columns])))
    values, deviations = (np.stack(arrays) for arrays in zip(*predictions, strict=True))
    check_answer(model, values, deviations)
    return values, deviations


def _window_pixels(scan: FittedScan, first_rows: slice, first_columns: slice) -> PixelGrid:
    """Returns the middles of the windows, Å, by the positions of the first one."""
    step_y, step_x = scan.plan.step_angstrom
    window_rows, window_columns = scan.model.conditions.scan_shape
    origin_y, origin_x = scan.data.scan_origin_angstrom
    middle_y = origin_y + step_y * (first_rows.start + first_rows.stop - 1) / 2
    middle_x = origin_x + step_x * (first_columns.start + first_columns.stop - 1) / 2
    return PixelGrid((step_y * window_rows, step_x * window_columns), (middle_y, middle_x))


def _windows(size: int, side: int, name: str) -> list[slice]:
    """Returns as many windows side by side as fit in the middle of an axis. Raises InputError if
    none does.
    """
    count = size // side
    if not count:
        raise InputError(
            f"{name}: the scan has {size} of the network's positions along one side, and it needs "
            f"{side}"
        )
    start = (size - count * side) // 2
    return [slice(start + i * side, start + (i + 1) * side) for i in range(count)]
