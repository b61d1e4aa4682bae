"""Segments a 4D-STEM scan of any size with a network of the task segment.

The scan passes through in strips of rows. Windows overlap by half, and the probabilities of the
classes are blended as reconstructed densities are (`train.apply.tiles`). The label of a position is
its most probable class.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from rich.console import Console
from scipy import special

from fcdensenet.config import NetworkConfig
from namsa.base.arrays import Array
from namsa.base.notebook_progress import Report
from namsa.base.pixels import PixelGrid
from namsa.base.provenance_values import Provenance
from namsa.io.calibration import CalibrationOverrides

from ...apply import resampling, tiles
from ...apply.models import Model
from ...apply.scan_result import Maps, ScanResult
from ...apply.scans import Notes, network_for, nonnegative_patterns, open_scan
from ...apply.weights import load_network
from ...networks.deeplabv3plus import STRIDE, DeepLabV3PlusConfig
from .task import predictor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# arrays have no single truth value and long representations
@dataclass(frozen=True, eq=False, repr=False)
class SegmentedScan(ScanResult):
    """The classes of a scan's positions.

    Attributes:
        labels: Number of the most probable class of each position, `(ny, nx)`, uint8.
        probabilities: Probability of each class, `(ny, nx)`, float32, by its name and in the order
            of the numbers.
        bright_field: Fraction of the beam in the bright disk, `(ny, nx)`.
        pixels: Pixels of all images, Å.
        provenance: Data, network, and under "notes" one line about each thing that was done or
            assumed; JSON types.
    """

    group = "segmentation"

    labels: npt.NDArray[np.uint8]
    probabilities: Mapping[str, npt.NDArray[np.float32]]
    bright_field: Array
    pixels: PixelGrid
    provenance: Provenance

    def _maps(self) -> Maps:
        maps: dict[str, tuple[Array, str]] = {"labels": (self.labels, "")}
        maps |= {f"probability_{name}": (image, "") for name, image in self.probabilities.items()}
        return maps | {"bright_field": (self.bright_field, "fraction of the beam")}

    def _figure(self, title: str) -> "Figure":
        from .pictures import segments_figure

        return segments_figure(
            self.bright_field, self.labels, self.probabilities, self.pixels, title
        )

    @property
    def _summary(self) -> str:
        fractions = (
            np.bincount(self.labels.ravel(), minlength=len(self.probabilities)) / self.labels.size
        )
        shares = ", ".join(
            f"{name} {fraction:.0%}"
            for name, fraction in zip(self.probabilities, fractions, strict=True)
        )
        sy, sx = self.labels.shape
        return f"{sy} × {sx} positions, {shares}"


def segment(
    data: str | Path | npt.ArrayLike,
    model: Model | str | Path,
    calibration: CalibrationOverrides = CalibrationOverrides(),  # noqa: B008 - frozen
    *,
    beam_intensity: float | None = None,
    layout: Mapping[str, object] | None = None,
    console: Console | None = None,
    on_progress: Report | None = None,
) -> SegmentedScan:
    """Segments a scan.

    Args:
        data: Path of a file that `namsa.read` opens, or patterns `(sy, sx, dy, dx)`, in any units
            of intensity.
        model: The network, or what `train.load_model` finds it by.
        calibration: What the file does not say, or says wrongly.
        beam_intensity: Sum of a pattern without a specimen, in the data's units; see
            `train.reconstruct`.
        layout: How the patterns lie in a file that does not say it, as `namsa.read` takes it.
        console: Where notes and progress are printed. `None` prints nothing; the notes are in the
            result.
        on_progress: Called as `on_progress(stage, done, total)`. Default: a bar in a notebook,
            if the call takes long, and else nothing.

    Raises:
        InputError: If the network is of another task, the data do not fit it, or their calibration
            is not complete.
        WorkError: If the file is damaged.
    """
    note = Notes(console, on_progress)
    model = network_for("segment", model)
    config = model.experiment.network
    assert isinstance(config, NetworkConfig | DeepLabV3PlusConfig)
    # of the sides of an image
    multiple = 2**config.pools if isinstance(config, NetworkConfig) else STRIDE
    with open_scan(
        data, model, calibration, note, beam_intensity=beam_intensity, layout=layout
    ) as scan:
        plan = scan.plan
        sides = zip(plan.scan_shape, model.conditions.scan_shape, strict=True)
        window = tuple(tiles.window_side(size, trained, multiple) for size, trained in sides)
        note(f"{model.name}: windows of {window[0]}×{window[1]} positions")
        network = load_network(model, (window[0], window[1]), config, scan.weights_digest)
        predict = predictor(model.experiment, network)
        images = _SegmentImages(plan.scan_shape, (window[0], window[1]), multiple, model)
        with scan.bands() as bands:
            for strip in tiles.strips(bands, plan.along_y, images.rows):
                images.add(strip, predict)
        probabilities = images.blend.mean()
        labels = probabilities.argmax(axis=0).astype(np.uint8)
        for index, name in enumerate(images.classes):
            note(
                f"{name}: {100 * np.count_nonzero(labels == index) / labels.size:.3g} % of the "
                "positions"
            )
        return SegmentedScan(
            labels,
            dict(zip(images.classes, probabilities.astype(np.float32), strict=True)),
            images.bright_field,
            scan.pixels,
            {**scan.provenance, "classes": list(images.classes), "notes": note.lines},
        )


class _SegmentImages:
    """The images of a scan, which grow strip by strip.

    Attributes:
        classes: Names of the classes.
        rows: Rows of the network's positions of each strip of windows.
        bright_field: Fraction of the beam in the bright disk.
        blend: The probability of each class, `(classes, ny, nx)`.
    """

    def __init__(
        self, scan: tuple[int, int], window: tuple[int, int], multiple: int, model: Model
    ) -> None:
        self.classes = model.experiment.training.segment.classes
        self._model = model
        self.rows, self._columns = (
            tiles.window_slices(size, side, multiple)
            for size, side in zip(scan, window, strict=True)
        )
        self.blend = tiles.Blend(scan, int(tiles.MARGIN * min(window)), (len(self.classes),))
        self.bright_field = np.zeros(scan, np.float32)
        self._disk = resampling.in_bright_disk(model.conditions)
        self._strips = 0
        self._intensity = np.zeros(2)

    def add(self, strip: Array, predict: Callable[[Array, float], Array]) -> None:
        """Predicts the windows of the next strip, `(rows, positions along x, network's pixels)`."""
        patterns = nonnegative_patterns(
            strip, self._model.conditions.detector_shape, self._intensity
        )
        row = self.rows[self._strips]
        self._strips += 1
        self.bright_field[row] = strip[..., self._disk].sum(axis=-1)
        size = max(1, tiles.BATCH_BYTES // patterns[:, self._columns[0]].nbytes)
        for start in range(0, len(self._columns), size):
            columns = self._columns[start : start + size]
            logits = predict(np.stack([patterns[:, column] for column in columns]), 1.0)
            for column, probabilities in zip(
                columns, special.softmax(logits, axis=-1), strict=True
            ):
                self.blend.add((row, column), np.moveaxis(probabilities, -1, 0)[None])
