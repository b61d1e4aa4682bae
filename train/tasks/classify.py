"""The task classify: the class of a pattern, and of a scan by the vote of its patterns.

Yoginath et al. (2019) train ResNet-50 to tell CBED patterns apart. The target of a pattern is the class of its sample,
from the manifest. The loss is the cross-entropy of the softmax. Scores are balanced, the mean over classes of the
fraction that is right, since crystals are unevenly spread over the classes: an answer that is always the same has one
over the number of classes, which is called chance. The trivial baseline is `train.tasks.radial_profiles`.

With training.inputs.held_out_positions a part of each training sample's positions is kept for evaluation, as split
"images". That is the split of the paper. It leaks, for neighbouring patterns of the same specimen were trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from rich.table import Table

from namsa.dataset.entry import Entry
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset
from namsa.errors import WorkError
from namsa.pixels import raster_shape
from train.experiment.experiment import Experiment
from train.input import windows
from train.input.batches import Readable, Target
from train.input.normalisation import normalise
from train.measure.results import RunFacts
from train.networks.resnet50 import ResNet50Config
from train.ranks.protocol import Ranks
from train.reports.results import write_json
from train.tasks import labels
from train.tasks.class_report import class_table
from train.tasks.class_scores import ClassEvaluation, ClassRow, scores, summarise
from train.tasks.radial_profiles import centroids, nearest, ring_averages
from train.tasks.task import Answers, Array, Row, Score

Tensor = Any

PATTERNS_AT_ONCE = 256  # in the forward pass of an evaluation


@dataclass(frozen=True)
class CrossEntropy:
    """The loss of classes, a `train.optimization.objective.Objective`."""

    terms = ("cross_entropy",)

    def setting(self, epoch: int) -> dict[str, float]:
        return {}

    def __call__(self, output: Tensor, target: Tensor, setting: Tensor) -> tuple[Tensor, ...]:
        """Returns the mean cross-entropy of logits `(n, classes)` and classes `(n,)`."""
        logits = tf.cast(output, tf.float32)
        return (tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=logits)),)


@dataclass(frozen=True)
class Classification:
    """A `train.tasks.task.Task`, which documents the methods."""

    experiment: Experiment
    error = "error"
    objective = CrossEntropy()

    @property
    def target(self) -> Target:
        patterns = self.experiment.images_per_sample()

        def classes_of(entries: Sequence[Entry], x: Tensor, density: Tensor) -> Tensor:
            return tf.constant(np.repeat([self._class(entry) for entry in entries], patterns), tf.int32)

        return classes_of

    def resolve(self, entries: Sequence[Entry], dataset: Readable) -> Experiment:
        training, network = self.experiment.training, self.experiment.network
        assert isinstance(network, ResNet50Config)
        assert network.classes
        names = labels.class_names(entries, training.classify)
        config = training.classify.model_copy(update={"classes": names})
        usable = [entry for entry in entries if labels.label(entry, config) in names]
        labels.check_classes(usable, config, network.classes)
        return self.experiment.model_copy(update={"training": training.model_copy(update={"classify": config})})

    def readable(self, dataset: Readable) -> Readable:
        return dataset

    def usable(self, entries: Sequence[Entry]) -> list[Entry]:
        config = self.experiment.training.classify
        return [entry for entry in entries if labels.label(entry, config) in config.classes]

    def held_out(self, training: Sequence[Entry], others: Sequence[Entry]) -> list[Entry]:
        return [*(training if self.experiment.training.inputs.held_out_positions else ()), *others]

    def statistic(self, dataset: Readable, entries: Sequence[Entry]) -> Array:
        rings = ring_averages(self.experiment.conditions())
        sums = np.zeros((len(self.experiment.training.classify.classes), 1 + rings.shape[1]))
        for entry in entries:
            with dataset.view(entry.id) as record:
                profile = self._patterns(entry, record, training=True).reshape(-1, len(rings)) @ rings
            sums[self._class(entry)] += [1, *profile.mean(axis=0)]
        return np.asarray(sums / len(entries))

    def random_target(self, batch: tuple[Any, Any]) -> Any:
        return tf.zeros((batch[0].shape[0],), tf.int32)

    def scorer(self, model: Any, dataset: Dataset) -> Score:
        logits_of = _forward(model)

        def score(entries: Sequence[Entry]) -> list[Row]:
            return [dict(self._row(entry, dataset.read(entry.id), logits_of, None)) for entry in entries]

        return score

    def numbers(self, rows: Sequence[Row]) -> dict[str, float | None]:
        found = scores(rows, len(self.experiment.training.classify.classes))
        return {name: found[name] for name in ("error", "balanced_accuracy", "vote_balanced_accuracy", "cross_entropy")}

    def evaluate(self, answers: Answers, run_dir: Path, *, ranks: Ranks, run: RunFacts) -> ClassEvaluation:
        logits_of, means = _forward(answers.model), centroids(answers.baseline)
        with ranks.together():
            own = [self._row(entry, answers.dataset.read(entry.id), logits_of, means) for entry in answers.entries]
        rows = sorted((row for gathered in ranks.gather_json(own) for row in gathered), key=lambda row: row["id"])
        config = self.experiment.training.classify
        evaluation = summarise(rows, config.label, config.classes, run)
        with ranks.together():
            if ranks.rank() == 0:
                write_json(run_dir / "evaluation.json", evaluation)
        return evaluation

    def table(self, evaluation: Mapping[str, Any], run_dir: Path, report: Path | None) -> Table:
        return class_table(evaluation, run_dir, report)

    def _class(self, entry: Entry) -> int:
        config = self.experiment.training.classify
        return config.classes.index(labels.label(entry, config))

    def _patterns(self, entry: Entry, record: Record, training: bool) -> npt.NDArray[np.float32]:
        """Returns the network's images of a sample, of a training sample those that are trained on or held out."""
        inputs = self.experiment.training.inputs
        x, _ = normalise(record, inputs, self.experiment.network.data_format)
        if entry.split == "train" and inputs.held_out_positions:
            scan = raster_shape(record.header["provenance"], len(record.cbed))
            held_out = windows.held_out_positions(scan, inputs.held_out_positions, entry.seed).ravel()
            x = x[held_out != training]
        return x

    def _row(self, entry: Entry, record: Record, logits_of: Any, means: Array | None) -> ClassRow:
        """Scores the patterns of a sample, beside the baseline if its centroids are given."""
        x, true, classes = self._patterns(entry, record, training=False), self._class(entry), self._classes
        logits = np.concatenate([logits_of(x[at : at + PATTERNS_AT_ONCE]) for at in range(0, len(x), PATTERNS_AT_ONCE)])
        if not np.isfinite(logits).all():
            raise WorkError(f"the network's answer to {entry.id} is not finite: nothing can be measured")
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        probability = np.exp(log_probabilities).mean(axis=0)
        row: ClassRow = {
            "id": entry.id,
            "material": entry.material,
            "formula": entry.formula,
            "space_group": entry.space_group,
            "split": "images" if entry.split == "train" else entry.split,
            "class": true,
            "patterns": len(x),
            "votes": np.bincount(logits.argmax(axis=1), minlength=classes).tolist(),
            "probability": probability.tolist(),
            "cross_entropy": float(-log_probabilities[:, true].mean()),
        }
        if means is not None:
            rings = ring_averages(self.experiment.conditions())
            guesses = nearest(x.reshape(-1, len(rings)) @ rings, means)
            row["baseline_votes"] = np.bincount(guesses, minlength=classes).tolist()
        return row

    @property
    def _classes(self) -> int:
        return len(self.experiment.training.classify.classes)


def _forward(model: Any) -> Any:
    """Returns a function from images to logits, both NumPy arrays; the logits in float64."""
    forward = tf.function(lambda x: model(x, training=False), autograph=False, reduce_retracing=True)
    return lambda x: np.asarray(forward(tf.constant(x)), np.float64)
