"""Classifies the patterns of a scan, and the scan by the vote of its patterns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from rich.console import Console
from scipy import special

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.notebook_progress import Report
from namsa.base.pixels import PixelGrid
from namsa.base.provenance_values import Provenance
from namsa.io.calibration import CalibrationOverrides

from ...apply.models import Model
from ...apply.scan_result import Maps, ScanResult
from ...apply.scans import Notes, check_answer, network_for, open_scan
from ...apply.weights import build_loaded
from ...experiment.experiment import Experiment
from ..pattern_images import images
from .labels import in_words
from .task import logits_function

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_NAMED = 3  # classes that are printed


# arrays have no single truth value and long representations
@dataclass(frozen=True, eq=False, repr=False)
class ClassifiedScan(ScanResult):
    """The classes of the patterns of a scan.

    In a file the provenance names the classes, whose indices the map of classes holds, and the
    vote.

    Attributes:
        probabilities: Probability of each class, `(classes, sy, sx)`, float32.
        classes: Names of the classes.
        label: What the classes are, as "crystal_system".
        pixels: Pixels of the scan, Å.
        provenance: Data, network, the vote, and under "notes" the notes; JSON types only.
    """

    group = "classes"

    probabilities: Array
    classes: tuple[str, ...]
    label: str
    pixels: PixelGrid
    provenance: Provenance

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
    def lines(self) -> Sequence[str]:
        """A line about the class of the scan and the most probable ones."""
        means = self.mean_probabilities
        order = sorted(range(len(means)), key=lambda index: -means[index])[:MOST_NAMED]
        likely = ", ".join(f"{self.classes[index]} {means[index]:.3f}" for index in order)
        return (f"{in_words(self.label)} by vote: {self.vote} (mean probabilities: {likely})",)

    def _maps(self) -> Maps:
        return {"probability": (self.probabilities, ""), "class": (self.labels, "")}

    def _figure(self, title: str) -> "Figure":
        from .figure import class_figure

        return class_figure(
            self.probabilities, self.classes, in_words(self.label), self.pixels, title
        )

    @property
    def _summary(self) -> str:
        _, sy, sx = self.probabilities.shape
        return f"{self.label} of {sy} × {sx} patterns, by vote {self.vote}"


def classify(
    data: str | Path | npt.ArrayLike,
    model: Model | str | Path,
    calibration: CalibrationOverrides = CalibrationOverrides(),  # noqa: B008 - frozen
    *,
    beam_intensity: float | None = None,
    layout: Mapping[str, object] | None = None,
    console: Console | None = None,
    on_progress: Report | None = None,
) -> ClassifiedScan:
    """Classifies the patterns of a scan with a trained network.

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
        Probabilities, map of classes and vote, with axes and provenance.

    Raises:
        InputError: If the network gives no classes, the data do not fit it, or their calibration is
            not complete.
        WorkError: If the file is damaged.
    """
    note = Notes(console, on_progress)
    model = network_for("classify", model)
    check_single_patterns(model.experiment, str(model.folder))
    config = model.experiment.training.classify
    detector = model.conditions.detector_shape
    with open_scan(
        data,
        model,
        calibration,
        note,
        beam_intensity=beam_intensity,
        layout=layout,
        keeps_positions=True,
    ) as scan:
        network = build_loaded(model, model.experiment.network, scan.weights_digest)
        logits_of = logits_function(network)
        with scan.patterns() as bands:
            logits = [
                logits_of(images(model.experiment, band.reshape(-1, *detector))) for band in bands
            ]
    probabilities = special.softmax(np.concatenate(logits), axis=1).T.reshape(
        -1, *scan.plan.scan_shape
    )
    check_answer(model, probabilities)
    means = probabilities.mean(axis=(1, 2))
    facts: dict[str, object] = {
        "label": config.label,
        "classes": list(config.classes),
        "mean_probabilities": means.tolist(),
        "vote": config.classes[int(means.argmax())],
        "notes": note.lines,
    }
    provenance = scan.provenance | scan.beam | facts
    return ClassifiedScan(
        probabilities.astype(np.float32), config.classes, config.label, scan.pixels, provenance
    )


def check_single_patterns(experiment: Experiment, name: str) -> None:
    """Raises InputError if a network takes several patterns of a specimen at once, which a scan
    does not have.
    """
    if experiment.training.inputs.layout != "pattern":
        raise InputError(
            f"{name} has a network of {experiment.network.input_shape[0]} patterns of a specimen "
            "at once, which is trained and evaluated: a scan is classified pattern by pattern"
        )
