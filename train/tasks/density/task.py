"""The task density: the projected electron density, as Laanait et al. (2019) reconstruct it.

The target is the density of the sample, projected, or with `target.depth_bins` that of each bin
along the beam. The loss is Huber's, with a likelihood if the network predicts its own error. The
trivial baseline answers every sample with the mean of the training targets.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ase
import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Floats, Tensor
from namsa.base.errors import InputError, WorkError
from namsa.crystals.select import select_materials
from namsa.dataset.entry import Entry, material_of, materials_named
from namsa.dataset.records import Record
from namsa.dataset.sample_setup import build_supercell
from namsa.dataset.shards import Dataset

from ...experiment.experiment import Experiment
from ...input import views
from ...measure.metrics import Metrics, image_metrics, mean_metrics
from ...measure.results import RunFacts
from ...optimization.losses import DensityObjective
from ...ranks.interface import Ranks
from ..task import Answers, Row, Score, Task
from .evaluate import AtomsOf, HeldOut, Predict, evaluate, predictions, predictor
from .results import Evaluation, target_image

if TYPE_CHECKING:
    import keras


class Density(Task):
    """See `train.tasks.task.Task`, which documents the methods.

    All ranks that divide a sample predict it, and the first of them scores it.
    """

    error = "huber"

    @property
    def objective(self) -> DensityObjective:
        return DensityObjective(self.experiment.training.loss, self.split)

    def readable(self, dataset: views.Readable) -> views.Readable:
        if self.experiment.bins_shape():
            return views.WithTarget(dataset, _bins_of)
        return self._targets(dataset)

    def _targets(self, dataset: Any) -> Any:
        """Returns the samples with the target in place of the density."""
        kind = self.experiment.target.kind
        if kind == "density":
            return dataset
        return views.WithTarget(dataset, partial(target_image, kind=kind))

    def statistic(self, dataset: views.Readable, entries: Sequence[Entry]) -> Floats:
        window = self.experiment.window_shapes()[0][:2]
        return views.mean_target(self.readable(dataset), [entry.id for entry in entries], window)

    def random_target(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        # The target of a batch is a volume of one channel, too.
        if self.experiment.training.inputs.layout == "depth":
            return batch[1]
        axis = 1 if self.experiment.network.data_format == "channels_first" else -1
        return np.repeat(batch[1], self.experiment.target.depth_bins, axis)

    def scorer(self, model: "keras.Model", dataset: Dataset) -> Score:
        loss = self.experiment.training.loss
        inputs = self.experiment.training.inputs
        predict = self._predictor(model)

        def metrics(prediction: Array, record: Record) -> Metrics:
            if record.density_by_depth is None or prediction.ndim == 2:
                bins = [(prediction, record.density)]
            else:
                bins = list(zip(prediction, record.density_by_depth, strict=True))
            metrics_of_bins = []
            for estimate, truth in bins:
                metrics_of_bins.append(
                    image_metrics(
                        estimate,
                        truth,
                        huber_delta=loss.huber_delta,
                        density_scale=inputs.target_scale,
                        limits=loss.contrast_limits(),
                    )
                )
            return mean_metrics(metrics_of_bins)

        def score(entries: Sequence[Entry]) -> list[Row]:
            rows = []
            targets = self._targets(dataset)
            # All ranks that divide a sample predict it together.
            for entry, record, prediction in predictions(
                predict, self.experiment, targets, entries
            ):
                if self._is_scored:
                    rows.append({"id": entry.id} | metrics(prediction, record))
            return rows

        return score

    def numbers(self, rows: Sequence[Row]) -> dict[str, float | None]:
        return mean_metrics(rows)

    def evaluate(
        self, answers: Answers, run_dir: Path, *, ranks: Ranks, run: RunFacts
    ) -> Evaluation:
        atoms_of = None
        if answers.entries:
            atoms_of = _specimens(
                self.experiment, answers.entries, answers.run_generator, answers.log_line
            )
        dataset = self._targets(answers.dataset)
        held_out = HeldOut(dataset, answers.entries, answers.baseline, atoms_of, self._is_scored)
        return evaluate(
            self._predictor(answers.model), self.experiment, held_out, run_dir, ranks=ranks, run=run
        )

    def _predictor(self, model: "keras.Model") -> Predict:
        experiment = self.experiment
        data_format = experiment.network.data_format
        channels = experiment.channels()
        bins = experiment.target.depth_bins
        return predictor(model, experiment.training.inputs, data_format, channels, self.split, bins)


def _bins_of(record: Record) -> npt.NDArray[np.float32]:
    """Returns the density of each bin along the beam. Raises WorkError if a sample has none."""
    if record.density_by_depth is None:
        sample_id = record.header["provenance"].get("id")
        raise WorkError(f"{sample_id} has no density by depth: simulate it with target.depth_bins")
    return record.density_by_depth


def _specimens(
    experiment: Experiment,
    entries: Sequence[Entry],
    run_generator: bool,
    log_line: Callable[[str], None],
) -> AtomsOf | None:
    """Returns a function from one of `entries` to its atoms. `None` without crystals, as staged
    samples may be.

    Where a specimen is amorphous, or partly, projected atoms form no columns: of these it returns
    `None`.
    """
    try:
        chosen = select_materials(
            experiment.materials, run_generator=run_generator, names=materials_named(entries)
        )
    except InputError as error:
        log_line(f"atomic columns are not measured: {error}")
        return None
    materials = {material.name: material for material in chosen}

    def atoms_of(entry: Entry) -> ase.Atoms | None:
        if entry.kind.startswith("amorphous"):
            return None
        # the manifest's materials may be others
        if not materials_named([entry]) <= materials.keys():
            return None
        return build_supercell(experiment, material_of(entry, materials), entry).atoms

    return atoms_of


TASK = Density
