"""Reads a scan pattern by pattern, as a network of patterns sees it: on its detector, at the scan's own positions."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from namsa.errors import InputError
from namsa.io.calibration import CalibrationOverrides
from namsa.io.reading import open_patterns
from namsa.pixels import PixelGrid
from train.experiment.conditions import describe_unchecked
from train.measure import telemetry
from train.optimization import checkpoint
from train.reconstruction import reading, resampling
from train.reconstruction.models import Model
from train.reconstruction.reading import AddNote
from train.reconstruction.reconstruct import ReconstructionOptions, check_arguments
from train.reconstruction.windows import NEGATIVE

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class ScanPatterns:
    """A scan that is being read.

    Attributes:
        shape: Number of positions, (y, x).
        pixels: Pixels of the scan, Å.
        bands: The patterns in bands of rows, `(rows, sx, dy, dx)`, fractions of the beam, none negative; read once.
        provenance: Of the data and the network; JSON types only.
    """

    shape: tuple[int, int]
    pixels: PixelGrid
    bands: Iterator[Array]
    provenance: dict[str, Any]


@contextmanager
def open_pattern_scan(
    data: str | Path | npt.ArrayLike,
    model: Model,
    calibration: CalibrationOverrides,
    *,
    beam_intensity: float | None,
    layout: Mapping[str, Any] | None,
    console: Console,
    note: AddNote,
) -> Iterator[ScanPatterns]:
    """Opens a scan for a network of patterns. The arguments are those of `train.reconstruct`.

    Args:
        data: Path or patterns.
        model: The network.
        calibration: What the file does not say, or says wrongly.
        beam_intensity: Sum of a pattern without a specimen, in the data's units; `None` if it is not known.
        layout: How the patterns lie in a file that does not say it.
        console: Where progress is printed.
        note: Called with a line about each thing that is done or assumed.

    Raises:
        InputError: If the data do not fit the network, or if their calibration is not complete.
        WorkError: If the file is damaged.
    """
    check_arguments(beam_intensity, None, ReconstructionOptions())
    if isinstance(data, str | Path):
        data, name, origin = Path(data), str(data), os.path.realpath(data)
    else:
        name = origin = "array"
    with open_patterns(data, calibration, **(layout or {})) as scan:
        sy, sx, dy, dx = scan.shape
        note(f"{name}: {sy}×{sx} patterns of {dy}×{dx} pixels, {scan.data.dtype}")
        # The network sees one pattern at a time, so that the scan may have any step.
        conditions = replace(model.conditions, scan_step_angstrom=scan.scan_step_angstrom)
        resampling.check_fit(scan, conditions, name)
        reading.check_memory(scan, conditions, name)
        pattern = reading.mean_pattern(scan, name)
        centre = reading.optic_axis(scan, pattern, note)
        scale = reading.intensity_scale(scan, pattern, beam_intensity, model, note)
        plan = resampling.plan_resampling(scan, centre, conditions, name)
        *fitted, _ = plan.notes  # without that of the step
        for line in (*fitted, describe_unchecked(model.experiment, model.experiment.training.inputs)):
            note(line)
        provenance = {
            "data": origin,
            "model": model.name,
            "weights": str(model.weights.resolve()),
            "weights_digest": checkpoint.read(model.weights)[0]["digest"],
            "namsa": version("namsa"),
            "energy_ev": model.conditions.energy_ev,
            "semiangle_mrad": model.conditions.semiangle_mrad,
        }
        with (
            telemetry.counter(console, "scan rows") as count,
            closing(reading.read_bands(scan, plan, scale, lambda row: count(row, sy))) as bands,
        ):
            patterns = _patterns(bands, conditions.detector_shape)
            pixels = PixelGrid(scan.scan_step_angstrom, scan.scan_origin_angstrom)
            yield ScanPatterns((sy, sx), pixels, patterns, provenance)


def _patterns(bands: Iterator[Array], detector: tuple[int, int]) -> Iterator[Array]:
    """Yields bands as patterns, without the negative values that a subtracted dark level may leave."""
    negative = total = 0.0
    for band in bands:
        negative -= float(band[band < 0].sum(dtype=np.float64))
        total += float(band.sum(dtype=np.float64))
        if negative > NEGATIVE * total:
            raise InputError(
                f"more than {100 * NEGATIVE:g} % of the intensity is negative: subtract no more than the dark level"
            )
        yield np.maximum(band, 0).reshape(*band.shape[:2], *detector)
