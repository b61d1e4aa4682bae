"""The task estimate: thickness, defocus and tilt of a scan, by a network of volumes as CosmoFlow's.

Mathuriya et al. (2018) and Oyama et al. (2020) estimate the parameters of a universe from a volume,
scaled to −1 … 1 by their ranges, by the mean squared error. Here the volume is a scan: its rows and
the binned detector's y and x, with the scan's columns as channels. Quantities are those of the
dataset's manifest (`quantities`).

With training.loss.likelihood a second set of outputs is the logarithm of the scale of each error.
No gradient of the likelihood reaches the estimates (`train.optimization.losses`). The predicted
errors are those of specimens that were trained on, so that one factor for each quantity, measured
on the dev split, makes them cover 68.27 % of the errors.

A mirrored scan has a mirrored tilt. Samples are read with a plane in place of the density, whose
gradient is the tilt: augmentation mirrors and cuts it as it does the density, and the target is the
gradient of what is left. The trivial baseline is the median of the training samples.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from keras import ops

from namsa.base.arrays import Floats, Tensor
from namsa.base.pixels import raster_shape
from namsa.dataset.entry import Entry
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset

from ...experiment.experiment import Experiment
from ...experiment.sections import Loss
from ...input.batches import Target
from ...input.normalisation import Batch, Normalisation, normalise_graph
from ...input.views import Readable, WithTarget
from ...input.windows import middle
from ...measure.results import RunFacts
from ...optimization.losses import (
    LIKELIHOOD_WEIGHT,
    log_scale,
    negative_log_likelihood,
    split_output,
)
from ..splits import held_out_row
from ..task import FixedLoss, Row, Task, check_finite, in_parts
from .quantities import QUANTITIES, Range, quantity_ranges, sample_value
from .scores import EstimateEvaluation, EstimateRow, errors, summarise

if TYPE_CHECKING:  # it needs Horovod, which an application does not
    import keras

    from ...input.division import RankDivision

Predict = Callable[[npt.NDArray[np.float32]], tuple[Floats, Floats]]

SCANS_AT_ONCE = 16  # in the forward pass of an evaluation
BINS = 2000  # of a range, by which the median of the training samples is found
VARIANCES = {"none": 1.0, "laplace": 2.0, "gaussian": 1.0}  # of a distribution of scale 1


def estimate_loss(loss: Loss) -> FixedLoss:
    """Returns the loss of quantities: the squared error, and the likelihood if the network predicts
    its own error.

    It takes estimates `(n, k)`, or with their errors `(n, 2k)`, and targets `(n, k)`.
    """

    def compute(output: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        if loss.likelihood == "none":
            return (_mean_square(output, target),)
        values, u = split_output(output, target)
        likelihood = LIKELIHOOD_WEIGHT * negative_log_likelihood(values, u, target, loss)
        return _mean_square(values, target), likelihood

    return FixedLoss(("mse",) if loss.likelihood == "none" else ("mse", "likelihood"), compute)


class Estimation(Task):
    """See `train.tasks.task.Task`, which documents the methods."""

    @property
    def objective(self) -> FixedLoss:
        return estimate_loss(self.experiment.training.loss)

    @property
    def target(self) -> Target:
        def targets(entries: Sequence[Entry], x: Tensor, planes: Tensor) -> Tensor:
            true = ops.convert_to_tensor(self._true(entries), "float32")
            slopes = gradients(planes)
            axes = enumerate(self._axes.values())
            columns = [true[:, index] if axis is None else slopes[:, axis] for index, axis in axes]
            return (ops.stack(columns, axis=1) - self._middles) / self._halves

        return targets

    def readable(self, dataset: Readable) -> Readable:
        return WithTarget(dataset, tilted_plane)

    def statistic(self, dataset: Readable, entries: Sequence[Entry]) -> Floats:
        """Returns the histogram of each quantity over its range, `(k, BINS)`."""
        scaled = (self._true(entries) - self._middles) / self._halves
        return np.stack(
            [np.histogram(column, BINS, (-1, 1))[0] / len(entries) for column in scaled.T]
        )

    def random_target(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return ops.zeros((batch[0].shape[0], len(self._axes)))

    def row_scorer(
        self, model: "keras.Model", dataset: Dataset, baseline: Floats | None = None
    ) -> Callable[[Entry], EstimateRow]:
        predict = predictor(self.experiment, model, self.split)
        return lambda entry: self._row(entry, dataset.read(entry.id), predict)

    def numbers(self, rows: Sequence[Row]) -> dict[str, float | None]:
        row = {f"mae_{name}": float(np.abs(errors(rows, name)).mean()) for name in self._axes}
        return {"error": float(np.mean(list(row.values()) / self._halves)), **row}

    def summarise(
        self, rows: Sequence[EstimateRow], baseline: Floats, run: RunFacts
    ) -> EstimateEvaluation:
        return summarise(rows, self.ranges, self._medians(baseline), run)

    @property
    def ranges(self) -> dict[str, Range]:
        """The least and the largest value of each quantity in the dataset."""
        return quantity_ranges(self.experiment, self.experiment.training.estimate.quantities)

    @property
    def _axes(self) -> dict[str, int | None]:
        return {
            name: QUANTITIES[name].axis for name in self.experiment.training.estimate.quantities
        }

    @property
    def _middles(self) -> npt.NDArray[np.float32]:
        return np.array([(low + high) / 2 for low, high in self.ranges.values()], np.float32)

    @property
    def _halves(self) -> npt.NDArray[np.float32]:
        return np.array([(high - low) / 2 for low, high in self.ranges.values()], np.float32)

    def _true(self, entries: Sequence[Entry]) -> Floats:
        return np.array(
            [[sample_value(entry, name) for name in self._axes] for entry in entries], np.float64
        )

    def _medians(self, histograms: Floats) -> dict[str, float]:
        middles = (2 * np.arange(BINS) + 1) / BINS - 1
        scaled = [
            middles[np.searchsorted(np.cumsum(histogram), 0.5 * histogram.sum())]
            for histogram in histograms
        ]
        return dict(
            zip(self._axes, (self._middles + self._halves * np.array(scaled)).tolist(), strict=True)
        )

    def _row(self, entry: Entry, record: Record, predict: Predict) -> EstimateRow:
        (*scan, dy, dx), _ = self.experiment.window_shapes()
        patterns = middle(record, (scan[0], scan[1])).patterns().reshape(1, *scan, dy, dx)
        values, deviations = predict(patterns)
        check_finite(entry, values, deviations)
        return {
            **held_out_row(entry),
            "true": dict(zip(self._axes, self._true([entry])[0].tolist(), strict=True)),
            "estimate": dict(zip(self._axes, values[0].tolist(), strict=True)),
            "deviation": dict(zip(self._axes, deviations[0].tolist(), strict=True)),
        }


def tilted_plane(record: Record) -> npt.NDArray[np.float32]:
    """Returns a plane over the positions, whose gradient by position is the specimen's tilt (y, x),
    mrad.
    """
    provenance = record.header["provenance"]
    y, x = np.indices(raster_shape(provenance, len(record.cbed)), np.float32)
    along_y, along_x = provenance.get("specimen_tilt_mrad", (0.0, 0.0))
    return np.float32(along_y) * y + np.float32(along_x) * x


def gradients(planes: Tensor) -> Tensor:
    """Returns the slopes (y, x) per row and column of planes `(n, h, w)`, by least squares, `(n,
    2)`.
    """
    slopes = []
    for axis in (1, 2):
        distance = np.arange(planes.shape[axis], dtype=np.float32) - (planes.shape[axis] - 1) / 2
        means = ops.mean(planes, axis=3 - axis)
        slopes.append(ops.matmul(means, distance / np.sum(distance**2)))
    return ops.stack(slopes, axis=1)


def predictor(
    experiment: Experiment, model: "keras.Model", split: "RankDivision | None" = None
) -> Predict:
    """Returns what a network of the task estimates.

    Args:
        split: What the ranks that divide samples exchange. All of them call the function with the
            same patterns.

    Returns:
        A function from patterns `(n, sy, sx, dy, dx)`, fractions of the beam, to the quantities and
        the standard deviations of their errors before calibration, `(n, k)` each, in the
        quantities' units.
    """
    training = experiment.training
    task = Estimation(experiment)
    settings = Normalisation.of(training.inputs, experiment.network.data_format, "float32")
    channels = experiment.channels()
    middles = task._middles
    halves = task._halves
    likelihood = training.loss.likelihood
    count = len(task.ranges)

    def forward(patterns: Tensor) -> tuple[Tensor, Tensor]:
        x, _ = normalise_graph(
            Batch(patterns, ops.ones((1, 1, 1, 1)), ops.zeros((1, 1, 1))), settings, channels
        )
        part_of_x = split.take_part(x, settings.data_format) if split else x
        output = ops.cast(model(part_of_x, training=False), "float32")
        values = output[:, :count]
        u = output[:, count:]
        scale = ops.ones_like(values) if likelihood == "none" else ops.exp(log_scale(u))
        return values * halves + middles, scale * (halves * VARIANCES[likelihood] ** 0.5)

    predict: Predict = in_parts(forward, model, SCANS_AT_ONCE, np.float64)
    return predict


def _mean_square(values: Tensor, target: Tensor) -> Tensor:
    return ops.mean(ops.square(ops.cast(values, "float32") - ops.cast(target, "float32")))


TASK = Estimation
