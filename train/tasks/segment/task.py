"""The task segment: which class every position of a scan has, from the patterns around it.

Classes are the parts that a specimen can have: the matrix, grains of the same crystal along another
zone axis, and other phases. They are rare: the defaults have 98.2, 1.7 and 0.1 % of the positions,
as in the climate data that Kurth et al. (2018) segment. The loss is the cross-entropy of each
position's softmax, weighted by its class.

Networks are trained on composites (`composites`), made anew in each epoch. They are scored on
composites of held-out samples, and on held-out specimens that were simulated as a whole, whose
records have labels. The score is the mean over classes of the intersection over union, from
confusion matrices summed over samples and ranks. The trivial baseline calls every position matrix.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from keras import ops

from namsa.base.arrays import Array, Floats, Tensor
from namsa.base.errors import InputError
from namsa.dataset import manifest
from namsa.dataset.entry import Entry
from namsa.dataset.labels import LABEL_NAMES
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset

from ...execution import backend
from ...experiment.experiment import Experiment
from ...input.batches import Target
from ...input.normalisation import Batch, Normalisation, normalise_graph
from ...input.views import Readable, ReadCache, SampleView, find_view
from ...measure.results import RunFacts
from ...networks import build
from ..splits import held_out_row
from ..task import Answers, FixedLoss, Row, Task, check_finite
from .composer import LARGEST_DIAMETER, Composer, composers
from .pictures import FILE_NAME, Examples, write_examples
from .scores import SegmentEvaluation, SegmentRow, confusion, scores, summarise
from .section import Segment

if TYPE_CHECKING:
    import keras

    from ...input.division import RankDivision

Predict = Callable[[Array, float], npt.NDArray[np.float32]]

MOST_SHOWN = 4  # scans in the report
_REMEDIES = {"grain": "give specimen.zone_axes another direction", "phase": "add materials"}


def class_weights(fractions: Sequence[float], rule: str) -> tuple[float, ...]:
    """Returns the weight of each class in the loss by its fraction f of the positions, whose mean
    weight is 1.

    Weights go as 1/√f ("inverse_sqrt"), as 1/f ("inverse"), or are equal ("none").
    """
    power = {"inverse_sqrt": -0.5, "inverse": -1.0, "none": 0.0}[rule]
    mean = sum(fraction ** (1 + power) for fraction in fractions)
    return tuple(fraction**power / mean for fraction in fractions)


def weighted_cross_entropy(weights: Sequence[float], channels_first: bool) -> FixedLoss:
    """Returns the loss of classes of positions: the mean over positions of cross-entropy times the
    class's weight.
    """

    def compute(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        """Takes logits `(n, h, w, classes)` and classes `(n, h, w)`."""
        logits = ops.cast(output, "float32")
        labels = ops.cast(target, "int32")
        if channels_first:
            logits = ops.transpose(logits, (0, 2, 3, 1))
        losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return (
            ops.mean(losses * ops.take(ops.convert_to_tensor(weights, "float32"), labels, axis=0)),
        )

    return FixedLoss(("cross_entropy",), compute)


class Segmentation(Task):
    """See `train.tasks.task.Task`, which documents the methods."""

    @property
    def objective(self) -> FixedLoss:
        segment = self.experiment.training.segment
        weights = class_weights(segment.fractions, segment.weights)
        return weighted_cross_entropy(
            weights, self.experiment.network.data_format == "channels_first"
        )

    @property
    def target(self) -> Target:
        return lambda entries, x, labels: labels

    def check_listed(self, entries: Sequence[Entry]) -> None:
        for name, inclusion in self._segment.inclusions.items():
            largest = LARGEST_DIAMETER * min(self._scan)
            if inclusion.diameter_positions[1] > largest:
                raise InputError(
                    f"training.segment.{name}.diameter_positions "
                    f"{list(inclusion.diameter_positions)} go beyond {largest:g}, "
                    f"{LARGEST_DIAMETER:g} of the scan's shorter side: lower them, or raise "
                    "scan.shape"
                )
        for split, composer in composers(self._segment, self._scan, entries).items():
            crystals = [entry for entry in composer.entries if entry.kind == "crystal"]
            # Classes that no crystal can have in a composite.
            lacking = set(self._segment.inclusions) if crystals else set()
            for entry in crystals:
                lacking &= set(composer.lacking(entry))
            for name in self._segment.inclusions:
                if name in lacking:
                    raise InputError(
                        f"no sample of the {split} split goes with another as class {name} of a "
                        f"composite, of the same thickness and settings: {_REMEDIES[name]}, or set "
                        f"training.segment.{name}.fraction to 0"
                    )

    def resolve(self, entries: Sequence[Entry], dataset: Readable) -> Experiment:
        self.check_listed(entries)
        return self.experiment

    def usable(self, entries: Sequence[Entry]) -> list[Entry]:
        composers_of_splits = composers(self._segment, self._scan, entries)
        return [
            entry
            for entry in entries
            if (
                not composers_of_splits[entry.split].lacking(entry)
                if entry.kind == "crystal"
                else self._is_labelled(entry)
            )
        ]

    def statistic(self, dataset: Readable, entries: Sequence[Entry]) -> Floats:
        """Returns the fractions of the classes in the first epoch, which the evaluation shows
        beside the expected.
        """
        assert isinstance(dataset, Dataset)
        composer = self._composers(dataset)["train"]
        classes = len(self._segment.classes)
        counts = [
            np.bincount(composer.labels(entry, 0)[1].ravel(), minlength=classes)
            for entry in entries
        ]
        return np.asarray(np.mean(counts, axis=0) / np.prod(self._scan))

    def composer(self, dataset: Dataset) -> Composer:
        return self._composers(dataset)["train"]

    def random_target(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        axis = 1 if self.experiment.network.data_format == "channels_first" else -1
        return ops.zeros_like(ops.squeeze(batch[1], axis))

    def row_scorer(
        self, model: "keras.Model", dataset: Dataset, baseline: Floats | None = None
    ) -> Callable[[Entry], SegmentRow]:
        predict = predictor(self.experiment, model, self.split)
        scans = self.held_out_scans(dataset)
        return lambda entry: self._row(entry, scans(entry), predict)

    def numbers(self, rows: Sequence[Row]) -> dict[str, float | None]:
        composites = [row for row in rows if row["source"] == "composite"]
        evaluation_scores = scores(composites or rows, self._segment.classes)
        by_class = {f"iou_{name}": evaluation_scores["iou"][name] for name in self._segment.classes}
        return {
            "error": 1 - evaluation_scores["mean_iou"],
            "mean_iou": evaluation_scores["mean_iou"],
            **by_class,
        }

    def summarise(
        self, rows: Sequence[SegmentRow], baseline: Floats, run: RunFacts
    ) -> SegmentEvaluation:
        return summarise(rows, self._segment, baseline.tolist(), run)

    def draw(self, answers: Answers, run_dir: Path) -> None:
        # Specimens that were simulated as a whole come first.
        if shown := sorted(answers.entries, key=lambda entry: entry.kind == "crystal")[:MOST_SHOWN]:
            write_examples(run_dir / FILE_NAME, self._examples(shown, answers))

    @property
    def _segment(self) -> Segment:
        return self.experiment.training.segment

    @property
    def _scan(self) -> tuple[int, int]:
        return self.experiment.sample_shapes()[1]

    def _composers(self, dataset: Dataset) -> dict[str, Composer]:
        """Returns the composer of each split, of all samples that this rank can read."""
        present = manifest.present(self.experiment.data.directory, dataset.ids)
        return composers(self._segment, self._scan, present)

    # ---- Held-out scans
    # ---------------------------------------------------------------------------------------------

    def held_out_scans(self, dataset: Dataset) -> Callable[[Entry], list[SampleView]]:
        """Returns a function from a sample to its held-out scans, with labels in place of the
        density.
        """
        composer_of = self._composers(dataset)
        cache = ReadCache()
        find = partial(find_view, dataset, self.experiment, cache)

        def scans(entry: Entry) -> list[SampleView]:
            if entry.kind != "crystal":
                return [
                    find(entry.id)._replace(density=self._labels(dataset.read(entry.id), entry))
                ]
            return [
                composer_of[entry.split](entry, draw, find) for draw in range(self._segment.draws)
            ]

        return scans

    def _is_labelled(self, entry: Entry) -> bool:
        """Returns whether a specimen is held out and all of its parts are classes of the
        network.
        """
        names = LABEL_NAMES.get(entry.kind)
        return (
            entry.split != "train"
            and names is not None
            and set(names) <= set(self._segment.classes)
        )

    def _labels(self, record: Record, entry: Entry) -> npt.NDArray[np.float32]:
        """Returns the class of each position of a specimen that was simulated as a whole."""
        if record.labels is None:
            raise InputError(f"{entry.id} has no labels")
        classes = [self._segment.classes.index(name) for name in LABEL_NAMES[entry.kind]]
        return np.asarray(classes, np.float32)[record.labels]

    def _row(self, entry: Entry, scans: Sequence[SampleView], predict: Predict) -> SegmentRow:
        """Scores the scans of a sample."""
        table = np.zeros((len(self._segment.classes),) * 2, np.int64)
        for view in scans:
            truth, labels, _ = self.segmented(entry, view, predict)
            table += confusion(truth, labels, len(table))
        return {
            **held_out_row(entry),
            "kind": entry.kind,
            "source": "composite" if entry.kind == "crystal" else "specimen",
            "scans": len(scans),
            "confusion": table.tolist(),
        }

    def segmented(
        self, entry: Entry, view: SampleView, predict: Predict
    ) -> tuple[Array, Array, Array]:
        """Returns the middle window of a scan: true classes, those of the network, and the bright
        field; `(h, w)`.
        """
        window = self.experiment.window_shapes()[1]
        rows = _middle(view.patterns.shape[0], window[0])
        columns = _middle(view.patterns.shape[1], window[1])
        patterns = view.patterns[rows, columns]
        truth = view.density[rows, columns]
        logits = predict(patterns[None], view.scale)[0]
        check_finite(entry, logits)
        grid = self.experiment.conditions().detector_pixels
        disk = grid.distance(patterns.shape[2:]) < self.experiment.microscope.semiangle_mrad
        bright_field = patterns[..., disk].sum(axis=-1, dtype=np.float64) / view.scale
        return truth, logits.argmax(axis=-1), bright_field

    def _examples(self, entries: Sequence[Entry], answers: Answers) -> Examples:
        """Returns a scan of each sample, that with the most positions outside of the matrix."""
        model = answers.model
        if self.split:  # of which this rank has a part, and it draws alone
            model = build(self.experiment.network, None)
            model.set_weights(answers.model.get_weights())
        predict = predictor(self.experiment, model)
        scans = self.held_out_scans(answers.dataset)
        samples = []
        for entry in entries:
            view = max(scans(entry), key=lambda view: np.count_nonzero(view.density))
            samples.append(self.segmented(entry, view, predict))
        truth, labels, images = (np.stack(arrays) for arrays in zip(*samples, strict=True))
        return Examples(
            images.astype(np.float32),
            truth.astype(np.uint8),
            labels.astype(np.uint8),
            [entry.id for entry in entries],
            self.experiment.conditions().scan_step_angstrom,
        )


def _middle(length: int, window: int) -> slice:
    """Returns the middle of an axis."""
    start = (length - window) // 2
    return slice(start, start + window)


def predictor(
    experiment: Experiment, model: "keras.Model", split: "RankDivision | None" = None
) -> Predict:
    """Returns what a network of the task predicts.

    Args:
        split: What the ranks that divide samples exchange. All of them call the function with the
            same patterns.

    Returns:
        A function from patterns `(n, sy, sx, dy, dx)`, fractions of the beam times a scale, and the
        scale, to logits `(n, sy, sx, classes)`.
    """
    data_format = experiment.network.data_format
    channels_first = data_format == "channels_first"
    settings = Normalisation.of(experiment.training.inputs, data_format, "float32")
    channels = experiment.channels()

    def forward(patterns: Tensor, scale: Tensor) -> Tensor:
        x, _ = normalise_graph(Batch(patterns, scale, ops.zeros((1, 1, 1))), settings, channels)
        if split:
            x = split.take_part(x, data_format)
        logits = ops.cast(model(x, training=False), "float32")
        if split:
            logits = split.join_parts(logits, data_format, "logits")
        return ops.transpose(logits, (0, 2, 3, 1)) if channels_first else logits

    compiled = backend.execution().compiled(forward, model.variables)
    return lambda patterns, scale: np.asarray(
        compiled(patterns, np.full((1, 1, 1, 1), scale, np.float32))
    )


TASK = Segmentation
