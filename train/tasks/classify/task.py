"""The task classify: the class of a pattern, and of a scan by the vote of its patterns.

Yoginath et al. (2019) train ResNet-50 to tell CBED patterns apart. The target of a pattern is the
class of its sample, from the manifest, or that of its position (`potential_clusters`). The loss is
the cross-entropy of the softmax. Scores are balanced, the mean over classes of the fraction that is
right, since crystals are unevenly spread over the classes: an answer that is always the same has
one over the number of classes, which is called chance. Beside them is the macro F1, the measure of
the STEMDL benchmark (mlcommons/science), whose samples are three patterns along three zone axes
with one class: with training.inputs.layout detector they are the channels of one image.

The trivial baseline is the class whose mean radial profile is nearest: the mean of a pattern, as
the network sees it, over rings of one pixel about the optic axis. It has no free parameter, and
knows neither angles within a ring nor more than one mean of each class.

With training.inputs.held_out_positions a part of each training sample's positions is kept for
evaluation, as split "images". That is the split of the paper. It leaks, for neighbouring patterns
of the same specimen were trained on.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
from keras import ops
from scipy import special

from namsa.base.arrays import Floats, Tensor
from namsa.dataset.entry import Entry
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset

from ...experiment.conditions import Conditions
from ...experiment.experiment import Experiment
from ...input.batches import Target
from ...input.views import Readable, WithTarget
from ...measure.results import RunFacts
from ...networks.config import ClassifierSection
from ..pattern_images import PATTERNS_AT_ONCE, chosen, patterns
from ..splits import held_out_row
from ..task import FixedLoss, Row, Task, check_finite, in_parts
from . import labels, potential_clusters
from .potential_clusters import Clusters, nearest
from .scores import ClassEvaluation, ClassRow, counts, in_top, scores, summarise
from .section import Classify

if TYPE_CHECKING:
    import keras

Classes = npt.NDArray[np.int64]
NUMBERS = (
    *("error", "top5_error", "balanced_accuracy", "macro_f1", "vote_balanced_accuracy"),
    "cross_entropy",
)
Logits = Callable[[npt.NDArray[np.float32]], Floats]


def cross_entropy(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    """Returns the mean cross-entropy of logits `(n, classes)` and classes `(n,)`."""
    logits = ops.cast(output, "float32")
    return (ops.mean(ops.sparse_categorical_crossentropy(target, logits, from_logits=True)),)


class Classification(Task):
    """See `train.tasks.task.Task`, which documents the methods."""

    @property
    def objective(self) -> FixedLoss:
        return FixedLoss(("cross_entropy",), cross_entropy)

    @property
    def target(self) -> Target:
        if self._of_positions:  # whose classes replace the density; see `readable`
            return lambda entries, x, classes: ops.cast(ops.reshape(classes, (-1,)), "int32")
        images = self.experiment.images_per_sample()
        return lambda entries, x, density: ops.repeat(
            ops.convert_to_tensor([self._class(entry) for entry in entries], "int32"), images
        )

    def check_listed(self, entries: Sequence[Entry]) -> None:
        if not self._of_positions:
            self._named(entries)

    def resolve(self, entries: Sequence[Entry], dataset: Readable) -> Experiment:
        training = self.experiment.training
        network = self.experiment.network
        assert isinstance(network, ClassifierSection)
        assert network.classes
        config = training.classify
        if not self._of_positions:
            config = self._named(entries)
        elif not config.potential_centres:  # those of a run directory are kept
            training_entries = [entry for entry in entries if entry.split == "train"]
            clusters = potential_clusters.find_clusters(
                dataset, training_entries, network.classes, self.experiment.seed
            )
            config = config.model_copy(update=potential_clusters.settings(clusters))
        return self.experiment.model_copy(
            update={"training": training.model_copy(update={"classify": config})}
        )

    def _named(self, entries: Sequence[Entry]) -> Classify:
        """Returns training.classify with the samples' classes. Raises InputError if they do not fit
        the network.
        """
        config = self.experiment.training.classify
        network = self.experiment.network
        assert isinstance(network, ClassifierSection)
        assert network.classes
        config = config.model_copy(update={"classes": labels.class_names(entries, config)})
        usable = [entry for entry in entries if labels.label(entry, config) in config.classes]
        labels.check_classes(usable, config, network.classes)
        return config

    def readable(self, dataset: Readable) -> Readable:
        if not self._of_positions:
            return dataset
        return WithTarget(dataset, Clusters.of(self.experiment.training.classify).image)

    def usable(self, entries: Sequence[Entry]) -> list[Entry]:
        config = self.experiment.training.classify
        if self._of_positions:
            return list(entries)
        return [entry for entry in entries if labels.label(entry, config) in config.classes]

    def statistic(self, dataset: Readable, entries: Sequence[Entry]) -> Floats:
        rings = ring_averages(self.experiment.conditions())
        numbers = 1 + self.experiment.network.input_shape[0] * rings.shape[1]
        sums = np.zeros((len(self.experiment.training.classify.classes), numbers))
        for entry in entries:
            with dataset.view(entry.id) as record:
                x, classes = self._images(entry, record, training=True)
                np.add.at(sums, classes, np.insert(self._profiles(x, rings), 0, 1, axis=1))
        return np.asarray(sums / len(entries))

    def random_target(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return ops.zeros((batch[0].shape[0],), "int32")

    def row_scorer(
        self, model: "keras.Model", dataset: Dataset, baseline: Floats | None = None
    ) -> Callable[[Entry], ClassRow]:
        logits_of = logits_function(model)
        means = None if baseline is None else centroids(baseline)
        return lambda entry: self._row(entry, dataset.read(entry.id), logits_of, means)

    def numbers(self, rows: Sequence[Row]) -> dict[str, float | None]:
        classes = len(self.experiment.training.classify.classes)
        result = cast(Mapping[str, float], scores(rows, classes))
        return {name: result[name] for name in NUMBERS if name in result}

    def summarise(
        self, rows: Sequence[ClassRow], baseline: Floats, run: RunFacts
    ) -> ClassEvaluation:
        config = self.experiment.training.classify
        return summarise(rows, config.label, config.classes, run)

    def _class(self, entry: Entry) -> int:
        config = self.experiment.training.classify
        return config.classes.index(labels.label(entry, config))

    @property
    def _of_positions(self) -> bool:
        """Whether each position of a scan has a class of its own."""
        return self.experiment.training.classify.label == "potential_clusters"

    def _images(
        self, entry: Entry, record: Record, training: bool
    ) -> tuple[npt.NDArray[np.float32], Classes]:
        """Returns the network's images of a sample and their classes, of a training sample those
        trained on or not.
        """
        x = patterns(self.experiment, entry, record, training)
        if not self._of_positions:
            return x, np.full(len(x), self._class(entry))
        classes = Clusters.of(self.experiment.training.classify).nearest(record)
        return x, classes[chosen(self.experiment, entry, record, training)]

    def _profiles(self, x: npt.NDArray[np.float32], rings: Floats) -> Floats:
        """Returns the radial profiles of images, those of all channels one after the other, `(n,
        channels · rings)`.
        """
        if self.experiment.network.data_format == "channels_first":
            planes = x
        else:
            planes = np.moveaxis(x, -1, 1)
        return np.asarray(planes.reshape(*planes.shape[:2], -1) @ rings).reshape(len(x), -1)

    def _row(
        self, entry: Entry, record: Record, logits_of: Logits, means: Floats | None
    ) -> ClassRow:
        """Scores the patterns of a sample, beside the baseline if its centroids are given."""
        x, true = self._images(entry, record, training=False)
        logits = logits_of(x)
        check_finite(entry, logits)
        log_probabilities = special.log_softmax(logits, axis=1)
        row: ClassRow = {
            **held_out_row(entry),
            "space_group": entry.space_group,
            "class": None if self._of_positions else self._class(entry),
            "patterns": len(x),
            "counts": counts(true, logits.argmax(axis=1)),
            "top5": in_top(true, logits),
            "probability": np.exp(log_probabilities).mean(axis=0).tolist(),
            "cross_entropy": float(
                -np.take_along_axis(log_probabilities, true[:, None], axis=1).mean()
            ),
        }
        if means is not None:
            rings = ring_averages(self.experiment.conditions())
            row["baseline_counts"] = counts(true, nearest(self._profiles(x, rings), means))
        return row


def logits_function(model: "keras.Model") -> Logits:
    """Returns the function from images to logits, in float64, that computes some images at once."""
    logits_of: Logits = in_parts(
        lambda x: model(x, training=False), model, PATTERNS_AT_ONCE, np.float64
    )
    return logits_of


def ring_averages(conditions: Conditions) -> Floats:
    """Returns the weights `(pixels, rings)` that average a pattern over rings. Pixels in the
    corners are left out.
    """
    y, x = (
        (np.arange(size) + 0.5 + edge) * pixel
        for size, edge, pixel in zip(
            conditions.detector_shape, conditions.first_edge, conditions.pixel_mrad, strict=True
        )
    )
    width = max(conditions.pixel_mrad)
    ring = np.floor(np.hypot(*np.meshgrid(y, x, indexing="ij")).ravel() / width).astype(int)
    rings = max(1, int(conditions.reach_mrad / width))
    inside = (ring[:, None] == np.arange(rings)).astype(np.float64)
    sizes = inside.sum(axis=0)
    return np.asarray(inside[:, sizes > 0] / sizes[sizes > 0])


def centroids(statistic: Floats) -> Floats:
    """Returns the mean profile `(classes, rings)` of each class; infinite for a class without
    patterns.

    The statistic `(classes, 1 + rings)` is the mean over samples of the sum of [1, profile] over a
    class's patterns.
    """
    patterns = statistic[:, :1]
    return np.where(patterns > 0, statistic[:, 1:] / np.where(patterns > 0, patterns, 1), np.inf)


TASK = Classification
