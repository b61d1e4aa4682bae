"""Classifies the patterns of a scan, and the scan by the vote of its patterns."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from scipy import special

from namsa.errors import WorkError
from namsa.io import hdf5
from namsa.io.calibration import CalibrationOverrides
from namsa.pixels import PixelGrid

from ..tasks.classify import forward
from ..tasks.labels import in_words
from ..tasks.patterns import images
from .models import Model, load_model
from .scans import Notes, open_scan
from .weights import build_loaded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)  # arrays have no single truth value and long representations
class ClassifiedScan:
    """The classes of the patterns of a scan.

    Attributes:
        probabilities: Probability of each class, `(classes, sy, sx)`, float32.
        classes: Names of the classes.
        label: What the classes are, as "crystal_system".
        pixels: Pixels of the scan, Å.
        provenance: Data, network, the vote, and under "said" the notes; JSON types only.
    """

    probabilities: Array
    classes: tuple[str, ...]
    label: str
    pixels: PixelGrid
    provenance: dict[str, Any]

    @property
    def labels(self) -> Array:
        """The most probable class of each pattern, `(sy, sx)`: its index in `classes`, int32."""
        return self.probabilities.argmax(axis=0).astype(np.int32)

    @property
    def mean_probabilities(self) -> list[float]:
        """Mean probability of each class over the scan."""
        return list(self.provenance["mean_probabilities"])

    @property
    def vote(self) -> str:
        """The class of the scan: that of the largest mean probability."""
        return str(self.provenance["vote"])

    @property
    def notes(self) -> list[str]:
        """One line about each thing that was done to the data or assumed about them."""
        return list(self.provenance["said"])

    def save(self, path: str | Path) -> None:
        """Writes probabilities and classes as HDF5 (EMD 1.0) with axes and provenance.

        The provenance names the classes, whose indices the map of classes holds, and the vote.

        Args:
            path: The file; replaced if it exists.

        Raises:
            WorkError: If the file cannot be written.
        """
        images = {"probability": (self.probabilities, ""), "class": (self.labels, "")}
        hdf5.write_images(Path(path), "classes", images, self.pixels, self.provenance)

    def show(self, path: str | Path | None = None) -> "Figure":
        """Draws the map of classes, the probability of the most probable class, and the mean over the scan.

        Args:
            path: Where the picture is also written; the suffix names the format. `None` writes none.

        Returns:
            The Matplotlib figure.

        Raises:
            InputError: If Matplotlib does not know the format.
            WorkError: If the file cannot be written.
        """
        from ..reports.class_figure import class_figure
        from ..reports.figures import write_figure

        title = f"{Path(self.provenance['data']).name}  ·  {self.provenance['model']}"
        figure = class_figure(self.probabilities, self.classes, in_words(self.label), self.pixels, title)
        if path is not None:
            write_figure(figure, Path(path))
        return figure

    def __repr__(self) -> str:
        _, sy, sx = self.probabilities.shape
        return f"<ClassifiedScan: {self.label} of {sy} × {sx} patterns, by vote {self.vote}>"


def classify(
    data: str | Path | npt.ArrayLike,
    model: Model | str | Path,
    calibration: CalibrationOverrides = CalibrationOverrides(),  # noqa: B008 - frozen
    *,
    beam_intensity: float | None = None,
    layout: Mapping[str, Any] | None = None,
    console: Console | None = None,
) -> ClassifiedScan:
    """Classifies the patterns of a scan with a trained network.

    Args:
        data: Path of a file that `namsa.read` opens, or patterns `(sy, sx, dy, dx)`, in any units of intensity.
        model: The network, or what `train.load_model` finds it by.
        calibration: What the file does not say, or says wrongly; see `train.reconstruct`.
        beam_intensity: Sum of a pattern without a specimen, in the data's units; see `train.reconstruct`.
        layout: How the patterns lie in a file that does not say it, as `namsa.read` takes it.
        console: Where notes and progress are printed. `None` prints nothing; the notes are in the result.

    Returns:
        Probabilities, map of classes and vote, with axes and provenance.

    Raises:
        InputError: If the network gives no classes, the data do not fit it, or their calibration is not complete.
        WorkError: If the file is damaged.
    """
    console = console or Console(quiet=True)
    note = Notes(console)
    model = model if isinstance(model, Model) else load_model(model)
    training, detector = model.experiment.training, model.conditions.detector_shape
    if training.task != "classify":
        raise model.wrong_task("classify")
    logits_of = forward(build_loaded(model, model.experiment.network))
    with (
        open_scan(
            data, model, calibration, note, beam_intensity=beam_intensity, layout=layout, keeps_positions=True
        ) as scan,
        scan.patterns(console) as bands,
    ):
        logits = [logits_of(images(model.experiment, band.reshape(-1, *detector))) for band in bands]
    probabilities = special.softmax(np.concatenate(logits), axis=1).T.reshape(-1, *scan.plan.scan_shape)
    if not np.isfinite(probabilities).all():
        raise WorkError(f"the answer of {model.name} is not finite: nothing can be classified")
    label, classes, means = training.classify.label, training.classify.classes, probabilities.mean(axis=(1, 2))
    facts: dict[str, Any] = {"label": label, "classes": list(classes), "mean_probabilities": means.tolist()}
    vote = {"vote": classes[int(means.argmax())], "said": note.lines}
    provenance = scan.provenance | scan.beam | facts | vote
    return ClassifiedScan(probabilities.astype(np.float32), classes, label, scan.pixels, provenance)
