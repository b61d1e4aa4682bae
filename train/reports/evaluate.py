"""The held-out materials: numbers for every sample, beside those of the mean-image predictor, and a few pictures.

The mean-image predictor answers every sample with the mean of the training targets; a network that does no better has
learned nothing from the patterns. `evaluation.json` and `predictions.npz` are all that the report needs.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol

import ase
import numpy as np
import numpy.typing as npt

from namsa.dataset.manifest import Entry
from namsa.dataset.records import Record
from namsa.files import write_whole, writing
from namsa.view.panels import density_frame, example_probes, pattern_frame
from train.experiment.channels import Channels
from train.experiment.experiment import Experiment
from train.experiment.sections import Inputs, Training
from train.measure.atomic_columns import column_metrics, columns, mean_column_metrics
from train.measure.metrics import mean_metrics, metrics

Array = npt.NDArray[np.float32]
Row = dict[str, Any]
Predict = Callable[[Sequence[Record]], Array]
AtomsOf = Callable[[Entry], ase.Atoms | None]
DataFormat = Literal["channels_last", "channels_first"]

PICTURES = 8
ARRAYS = ("truth", "prediction", "position_averaged", "patterns")


class Readable(Protocol):
    """What is needed of `namsa.dataset.shards.Dataset`."""

    def read(self, sample_id: str, /) -> Record: ...


class Ranks(Protocol):
    """What is needed of the module `train.ranks.reduction`."""

    def rank(self) -> int: ...
    def gather_json(self, value: Any) -> list[Any]: ...
    def together(self) -> AbstractContextManager[None]: ...


def predictor(
    model: Any, inputs: Inputs, data_format: DataFormat = "channels_last", made: Channels | None = None
) -> Predict:
    """The Keras `model` without dropout, from records to densities in e/Å²; `made`: see `train.experiment.channels`."""
    import tensorflow as tf

    from train.input.batches import load_sample

    forward = tf.function(lambda x: model(x, training=False), reduce_retracing=True)

    def predict(records: Sequence[Record]) -> Array:
        x = np.stack([load_sample(record, inputs, data_format, made=made)[0] for record in records])
        y = forward(x).numpy().astype(np.float32)
        density = y[:, 0] if data_format == "channels_first" else y[..., 0]
        return density * np.float32(inputs.density_scale_e_per_angstrom2)

    return predict


def evaluate(
    predict: Predict,
    experiment: Experiment,
    dataset: Readable,
    entries: Sequence[Entry],
    mean_image: npt.NDArray[Any],
    run_dir: Path,
    *,
    ranks: Ranks,
    run: Mapping[str, Any],
    atoms_of: AtomsOf | None = None,
) -> Row:
    """Measure this rank's `entries` and, on rank 0, write `run_dir`/evaluation.json and predictions.npz.

    predict: at most a batch of n records -> densities (n, H, W), e/Å²; see `predictor`
    entries: this rank's share of the held-out entries; each belongs to exactly one rank, and some may have none
    mean_image: (H, W), e/Å², the mean of the training targets
    ranks: `train.ranks.reduction`
    run: facts for the report (ranks, parameters, versions, ...), JSON-able
    atoms_of: an entry's specimen or None; where it is known, rows have the numbers of `train.measure.atomic_columns`
    too

    Returns what evaluation.json holds, the same on every rank. "mean" is over the test split, or over dev where no
    test sample is there; "split" says which.
    """
    with ranks.together():
        measured = [
            _row(entry, record, prediction, mean_image, experiment.training, atoms_of)
            for entry, record, prediction in _predictions(predict, experiment, dataset, entries)
        ]
    samples = sorted((row for share in ranks.gather_json(measured) for row in share), key=lambda row: row["id"])
    chosen = choose(samples)
    with ranks.together():
        mine = [entry for entry in entries if entry.id in chosen]
        rows = {row["id"]: row for row in measured}
        drawn = {
            entry.id: _picture(rows[entry.id], record, prediction)
            for entry, record, prediction in _predictions(predict, experiment, dataset, mine)
        }
    pictures = {id: picture for share in ranks.gather_json(drawn) for id, picture in share.items()}
    result = tables(samples) | {"run": dict(run), "samples": samples}
    with ranks.together():
        if ranks.rank() == 0:
            write_json(run_dir / "evaluation.json", result)
            received = [pictures[id] | {name: _decode(pictures[id][name]) for name in ARRAYS} for id in chosen]
            write_predictions(run_dir / "predictions.npz", received, mean_image)
    return result


def tables(samples: Sequence[Row]) -> Row:
    """Means over the split that is reported, and by split, by material and by thickness."""
    split = reported_split(samples)
    reported = [row for row in samples if row["split"] == split]
    return {
        "split": split,
        **_means(reported),
        "by_split": _grouped(samples, ("split",)),
        "by_material": _grouped(samples, ("material", "formula", "space_group", "split")),
        "by_thickness": _grouped(reported, ("wanted_thickness_angstrom",)),
    }


def reported_split(samples: Iterable[Row]) -> str | None:
    """The test split where it has a sample, else dev; None where there is neither."""
    there = {row["split"] for row in samples}
    return next((split for split in ("test", "dev") if split in there), None)


def choose(samples: Sequence[Row]) -> list[str]:
    """At most `PICTURES` ids of the reported split, best SSIM first: the best, the median and the worst sample, then
    one of each further material as long as there is room, then samples evenly spaced in quality.
    """
    split = reported_split(samples)
    ranked = sorted((row for row in samples if row["split"] == split), key=_quality)
    if not ranked:
        return []
    picked = [ranked[0], ranked[len(ranked) // 2], ranked[-1]]
    seen = {row["material"] for row in picked}
    others = [row for row in ranked if row["material"] not in seen]
    firsts = list({row["material"]: row for row in reversed(others)}.values())
    wanted = [*picked, *_spaced(sorted(firsts, key=_quality), PICTURES - 3), *_spaced(ranked, PICTURES)]
    ids = list(dict.fromkeys(row["id"] for row in wanted))[:PICTURES]
    return [row["id"] for row in ranked if row["id"] in ids]


def write_json(path: Path, value: Any) -> None:
    """`value` as JSON; what JSON cannot hold, as NaN, is a ValueError."""
    write_whole(path, json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False))


def write_predictions(path: Path, pictures: Sequence[Row], mean_image: npt.NDArray[Any]) -> None:
    """predictions.npz: "mean_image" (H, W), "{id}/{name}" for each of `ARRAYS`, all float32, and "metadata", a JSON
    list in the order of display with each sample's facts, numbers and frames.
    """
    arrays = {f"{picture['id']}/{name}": picture[name].astype(np.float32) for picture in pictures for name in ARRAYS}
    metadata = [{key: value for key, value in picture.items() if key not in ARRAYS} for picture in pictures]
    text = np.array(json.dumps(metadata, allow_nan=False))
    with writing(path) as file:
        np.savez_compressed(file, metadata=text, mean_image=mean_image.astype(np.float32), **arrays)


def read_predictions(path: Path) -> tuple[list[Row], npt.NDArray[np.float32]]:
    """The pictures (facts and arrays, one dictionary a sample) and the mean image that `write_predictions` wrote."""
    with np.load(path, allow_pickle=False) as file:
        metadata = json.loads(str(file["metadata"]))
        return [row | {name: file[f"{row['id']}/{name}"] for name in ARRAYS} for row in metadata], file["mean_image"]


def _predictions(
    predict: Predict, experiment: Experiment, dataset: Readable, entries: Sequence[Entry]
) -> Iterator[tuple[Entry, Record, Array]]:
    """Each entry with its record and the prediction (H, W), e/Å²."""
    size = experiment.training.batch_size
    for start in range(0, len(entries), size):
        batch = entries[start : start + size]
        records = [dataset.read(entry.id) for entry in batch]
        yield from zip(batch, records, predict(records), strict=True)


def _row(
    entry: Entry,
    record: Record,
    prediction: Array,
    mean_image: npt.NDArray[Any],
    training: Training,
    atoms_of: AtomsOf | None,
) -> Row:
    """A sample's facts and numbers; its split is today's manifest's."""
    frame = density_frame(record.provenance)
    atoms = atoms_of(entry) if atoms_of else None
    truth = columns(atoms, frame, record.density.shape) if atoms else None

    def measure(image: npt.NDArray[Any]) -> Row:
        numbers = metrics(
            image,
            record.density,
            huber_delta=training.loss.huber_delta,
            density_scale=training.inputs.density_scale_e_per_angstrom2,
            relative=training.loss.relative,
        )
        return numbers | (column_metrics(image, frame, truth) if truth else {})

    facts = {
        "id": entry.id,
        "material": entry.material,
        "formula": entry.formula,
        "space_group": entry.space_group,
        "split": entry.split,
        "zone_axis": list(entry.zone_axis),
        "thickness_angstrom": record.provenance["thickness_angstrom"],
        "wanted_thickness_angstrom": entry.thickness_angstrom,
    }
    return facts | measure(prediction) | {"mean_predictor": measure(mean_image)}


def _picture(row: Row, record: Record, prediction: Array) -> Row:
    """All that the report shows of one sample; arrays as text, so that ranks can send them as JSON."""
    provenance, patterns = record.provenance, record.patterns()
    angles, positions = pattern_frame(provenance), provenance["positions_angstrom"]
    probes = example_probes(patterns, angles, provenance["semiangle_mrad"], positions)
    images = (record.density, prediction, patterns.mean(axis=0), patterns[list(probes)])
    return row | {
        **{key: provenance[key] for key in ("energy_ev", "semiangle_mrad", "extent_angstrom")},
        "density_frame": density_frame(provenance),
        "pattern_frame": angles,
        "probes_angstrom": [positions[probe] for probe in probes],
        **{name: _encode(image) for name, image in zip(ARRAYS, images, strict=True)},
    }


def _means(rows: Sequence[Row]) -> Row:
    by_mean_image = [row["mean_predictor"] for row in rows]
    return {
        "mean": mean_metrics(rows) | mean_column_metrics(rows),
        "mean_predictor": mean_metrics(by_mean_image) | mean_column_metrics(by_mean_image),
    }


def _grouped(rows: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """One row for each combination of `keys`, in order, with the number of samples and the means of their numbers."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    table = []
    for values in sorted(groups):
        means = _means(groups[values])
        facts = dict(zip(keys, values, strict=True)) | {"samples": len(groups[values])}
        table.append(facts | means["mean"] | {"mean_predictor": means["mean_predictor"]})
    return table


def _quality(row: Row) -> tuple[float, str]:
    return -row["ssim"] if row["ssim"] is not None else np.inf, row["id"]


def _spaced(rows: Sequence[Row], count: int) -> list[Row]:
    return [rows[round(at)] for at in np.linspace(0, len(rows) - 1, min(count, len(rows)))]


def _encode(image: npt.NDArray[Any]) -> Row:
    raw = np.ascontiguousarray(image, "<f4")
    return {"shape": raw.shape, "float32": base64.b64encode(raw.tobytes()).decode()}


def _decode(text: Row) -> npt.NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(text["float32"]), "<f4").reshape(text["shape"])
