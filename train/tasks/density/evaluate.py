"""Evaluates a trained network on held-out materials.

Every sample is scored beside the mean-image predictor, which answers every sample with the mean of
the training targets. A network that scores no better has learned nothing from the patterns. The
results are written to `evaluation.json` and `predictions.npz`, from which the report is made.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict, cast

import ase
import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Tensor
from namsa.base.pixels import density_grid
from namsa.base.provenance_values import value
from namsa.dataset.entry import Entry
from namsa.dataset.records import Record

from ...execution import backend
from ...experiment.channels import Channels
from ...experiment.experiment import Experiment
from ...experiment.inputs import Inputs
from ...experiment.sections import Training
from ...input import windows
from ...input.normalisation import DataFormat
from ...input.views import SampleReader
from ...measure.atomic_columns import column_metrics, specimen_columns
from ...measure.groups import sample_facts
from ...measure.metrics import image_metrics
from ...measure.results import RunFacts
from ...ranks.interface import Ranks
from ...reports.results import write_json
from . import depth_metrics
from .report import depth_section, pictures
from .report.summary import choose, summarise
from .results import Evaluation, SampleRow, Scores

if TYPE_CHECKING:  # it needs Horovod, which the evaluation of a run does not
    import keras

    from ...input.division import RankDivision

Array = npt.NDArray[np.float32]
Predict = Callable[[Sequence[Record]], Array]
AtomsOf = Callable[[Entry], ase.Atoms | None]


class ShownSample(TypedDict):
    """The arrays of a sample that the report shows, in JSON types."""

    picture: pictures.EncodedPicture
    bins: NotRequired[list[pictures.EncodedArray]]  # true and predicted bins along the beam


@dataclass(frozen=True)
class HeldOut:
    """One rank's share of the held-out samples."""

    dataset: SampleReader  # where the samples are read
    # The rank's manifest entries. Each held-out entry belongs to exactly one rank; a rank may have
    # none.
    entries: Sequence[Entry]
    # mean of the training targets, (h, w), or (bins, h, w) by depth, e/Å²
    mean_image: npt.NDArray[np.floating]
    # Returns the specimen of an entry, or `None` if it is not known. If given, samples with a known
    # specimen are also scored by `train.measure.atomic_columns`.
    atoms_of: AtomsOf | None = None
    # Whether this rank scores the samples. All ranks that divide a sample predict it, and one
    # scores it.
    is_reported: bool = True


def predictor(
    model: "keras.Model",  # Keras model, called without dropout
    inputs: Inputs,  # how patterns become the network's input
    data_format: DataFormat = "channels_last",  # position of the channel axis
    channels: Channels | None = None,  # channels of the input; see `train.experiment.channels`
    # What the ranks that divide a sample exchange. All of them call the function with the same
    # records.
    split: "RankDivision | None" = None,
    depth_bins: int = 1,  # bins of the densities along the beam
) -> Predict:
    """Returns a function from n records to estimated densities, (n, h, w), or (n, bins, h, w) of
    several bins, e/Å².
    """
    from ...input.normalisation import normalise

    def whole(x: Tensor) -> Tensor:
        if split is None:
            return model(x, training=False)
        part_of_output = model(split.take_part(x, data_format), training=False)
        return split.join_parts(part_of_output, data_format, "density")

    forward = backend.execution().compiled(whole, model.variables)

    def predict(records: Sequence[Record]) -> Array:
        x = []
        for record in records:
            x.append(normalise(record, inputs, data_format, channels=channels)[0])
        bins = np.asarray(forward(np.stack(x)), np.float32)
        if data_format != "channels_first":
            bins = np.moveaxis(bins, -1, 1)
        if bins.ndim == 5:  # a volume of one channel
            bins = bins[:, 0]
        density = bins if depth_bins > 1 else bins[:, 0]
        return density * np.float32(inputs.target_scale)

    return predict


def evaluate(
    predict: Predict,
    experiment: Experiment,
    held_out: HeldOut,
    run_dir: Path,
    *,
    ranks: Ranks,
    run: RunFacts,
) -> Evaluation:
    """Scores the held-out samples of all ranks; rank 0 writes `evaluation.json` and
    `predictions.npz`.

    Of densities by depth it scores the projections, adds scores by depth, and writes `depth.npz`.

    All ranks must call this function.

    Args:
        predict: Function from at most `training.batch_size` records to densities; see `predictor`.
        run: Facts about the run, of JSON types.

    Returns:
        The contents of `evaluation.json`, the same on every rank.

    Raises:
        WorkError: If a prediction is not finite or a file cannot be written.
    """
    with ranks.local_work():
        local_rows = _score_all(predict, experiment, held_out)
    samples: list[SampleRow] = []
    for rows in ranks.gather_json(local_rows):
        samples.extend(rows)
    samples.sort(key=lambda row: row["id"])
    chosen = choose(samples)
    with ranks.local_work():
        local_shown = _show_chosen(predict, experiment, held_out, chosen, local_rows)
    shown_of: dict[str, ShownSample] = {}
    for shown in ranks.gather_json(local_shown):
        shown_of.update(shown)
    evaluation: Evaluation = {**summarise(samples), "run": run, "samples": samples}
    if experiment.target.kind != "density":
        evaluation["target"] = experiment.target.kind
    bins = len(held_out.mean_image) if held_out.mean_image.ndim == 3 else 0
    if bins and samples:
        reported = [row["by_depth"] for row in samples if row["split"] == evaluation["split"]]
        evaluation["by_depth"] = depth_metrics.summarise(reported, bins)
    with ranks.local_work():
        if ranks.rank() == 0:
            write_json(run_dir / "evaluation.json", evaluation)
            shown_samples = {sample_id: shown_of[sample_id] for sample_id in chosen}
            _write_shown(run_dir, shown_samples, held_out.mean_image, with_bins=bins > 0)
    return evaluation


def _write_shown(
    run_dir: Path,
    shown_of: Mapping[str, ShownSample],
    mean_image: npt.NDArray[np.floating],
    with_bins: bool,
) -> None:
    """Writes the pictures of samples, and with `with_bins` their densities by depth."""
    images = [pictures.from_json(shown["picture"]) for shown in shown_of.values()]
    pictures.write_predictions(run_dir / "predictions.npz", images, projected(mean_image))
    if with_bins:
        _write_bins(run_dir, {sample_id: shown["bins"] for sample_id, shown in shown_of.items()})


def _score_all(predict: Predict, experiment: Experiment, held_out: HeldOut) -> list[SampleRow]:
    """Returns the scores of this rank's samples; none if another rank reports them."""
    rows = []
    for entry, record, prediction in predictions(
        predict, experiment, held_out.dataset, held_out.entries
    ):
        if held_out.is_reported:
            rows.append(_score(entry, record, prediction, held_out, experiment.training))
    return rows


def _show_chosen(
    predict: Predict,
    experiment: Experiment,
    held_out: HeldOut,
    chosen: Sequence[str],
    rows: Sequence[SampleRow],
) -> dict[str, ShownSample]:
    """Returns what the report shows of those of this rank's samples that are chosen, by id."""
    row_of = {row["id"]: row for row in rows}
    entries = [entry for entry in held_out.entries if entry.id in chosen]
    shown = {}
    for entry, record, prediction in predictions(predict, experiment, held_out.dataset, entries):
        if held_out.is_reported:
            shown[entry.id] = _shown(row_of[entry.id], record, prediction)
    return shown


def _write_bins(run_dir: Path, encoded: Mapping[str, Sequence[pictures.EncodedArray]]) -> None:
    """Writes the true and predicted bins of samples, by id."""
    decoded = {}
    for id, arrays in encoded.items():
        decoded[id] = tuple(map(pictures.decode_array, arrays))
    path = run_dir / depth_section.FILE_NAME
    depth_section.write_bins(path, cast(depth_section.Bins, decoded))


def predictions(
    predict: Predict, experiment: Experiment, dataset: SampleReader, entries: Sequence[Entry]
) -> Iterator[tuple[Entry, Record, Array]]:
    """Yields each entry with its record and its estimated density, (h, w) or (bins, h, w), e/Å²."""
    size = experiment.training.batch_size
    window = experiment.window_shapes()[0][:2]
    for start in range(0, len(entries), size):
        batch = entries[start : start + size]
        records = [windows.middle(dataset.read(entry.id), window) for entry in batch]
        yield from zip(batch, records, predict(records), strict=True)


def _score(
    entry: Entry, record: Record, prediction: Array, held_out: HeldOut, training: Training
) -> SampleRow:
    """Facts and scores of a sample. The split is that of the manifest in use, not that of the
    record.
    """
    frame = density_grid(record.header["provenance"])
    atoms = held_out.atoms_of(entry) if held_out.atoms_of else None
    true_columns = specimen_columns(atoms, frame, record.density.shape) if atoms else None

    def scores(image: npt.NDArray[np.floating]) -> Scores:
        numbers = image_metrics(
            image,
            record.density,
            huber_delta=training.loss.huber_delta,
            density_scale=training.inputs.target_scale,
            limits=training.loss.contrast_limits(),
        )
        if true_columns:
            numbers = numbers | column_metrics(image, frame, true_columns)
        return cast(Scores, numbers)

    row: SampleRow = {
        "id": entry.id,
        "material": entry.material,
        "formula": entry.formula,
        "space_group": entry.space_group,
        "split": entry.split,
        "zone_axis": list(entry.zone_axis),
        "thickness_angstrom": value(record.header["provenance"], "thickness_angstrom"),
        "wanted_thickness_angstrom": entry.thickness_angstrom,
        "conditions": sample_facts(entry),
        **scores(projected(prediction)),
        "mean_predictor": scores(projected(held_out.mean_image)),
    }
    if prediction.ndim == 3 and record.density_by_depth is not None:
        row["by_depth"] = depth_metrics.depth_scores(
            prediction, record.density_by_depth, held_out.mean_image
        )
    return row


def _shown(row: SampleRow, record: Record, prediction: Array) -> ShownSample:
    """Returns what the report shows of a sample, as JSON types."""
    shown: ShownSample = {
        "picture": pictures.to_json(pictures.picture(row, record, projected(prediction)))
    }
    if prediction.ndim == 3 and record.density_by_depth is not None:
        shown["bins"] = [
            pictures.encode_array(record.density_by_depth),
            pictures.encode_array(prediction),
        ]
    return shown


def projected(density: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Returns the projection (h, w) of a density by depth (bins, h, w), and of a projected density
    itself.
    """
    return density.sum(axis=0) if density.ndim == 3 else density
