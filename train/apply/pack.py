"""`python -m train pack RUN_DIR --out DIR`: writes a finished run as a model folder to be shipped.

Networks of other tasks than the density are packed by `train.apply.pack_tasks`. Of a density the folder has

config.yaml         The run's configuration, without the place of its samples and the limit of their simulation time.
weights.npz         The network's variables, in the format of a checkpoint; kernels in float16 if that does no harm.
calibration.json    As `train.apply.calibrate` wrote it, like transfer.json and familiarity.npz.
CARD.md             What the model is for, what it was trained on, how good it is and its limits (`train.reports.card`).

A folder of this kind in train/models/ comes with the package and is found by its name.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from namsa.dataset import manifest, strata
from namsa.dataset.entries import spread_over_thicknesses
from namsa.dataset.entry import Entry
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset
from namsa.errors import InputError
from namsa.files import write_text_atomic
from namsa.pixels import raster_shape

from ..input import noise
from ..input.windows import middle
from ..measure.groups import group_labels
from ..measure.metrics import image_metrics, mean_metrics
from ..optimization import checkpoint
from ..program import PROGRAM
from ..reports.calibration_results import Calibration, read_calibration
from ..reports.card import card
from ..reports.results import (
    CardFacts,
    DoseRow,
    Evaluation,
    WeightsFacts,
    check_facts,
    read_evaluation,
)
from ..reports.runs import read_steps
from ..tasks.task_card import TaskFacts
from . import familiarity
from .calibrate import trained_ensemble
from .ensemble import Predict
from .models import Model, load_model
from .pack_tasks import pack_task
from .packing import DTYPES, HARM, SAMPLES, NetworkVariables, model_folder, write_config
from .weights import load_network

Array = npt.NDArray[Any]
OnSample = Callable[[int, int], None]

COPIED = ("calibration.json", "transfer.json", familiarity.FILE)
DOSES = (None, 1e5, 1e4, 1e3)  # electrons per pattern


def pack(run_dir: Path, out: Path, on_sample: OnSample = lambda done, total: None) -> CardFacts | TaskFacts:
    """Writes the model folder of a run of any task.

    Args:
        run_dir: A finished and evaluated run, of a density a calibrated one, with its dataset at hand.
        out: The folder to be written. Its last part is the name of the model.
        on_sample: Called with the number of measured doses and thicknesses and their total.

    Returns:
        The facts that the card states.

    Raises:
        InputError: If the run is not finished, evaluated and, of a density, calibrated, if its dataset is not at hand,
            or if `out` is not empty.
    """
    model = load_model(run_dir)
    if model.experiment.training.task != "density":
        return pack_task(model, out)
    return _pack_density(model, run_dir, out, on_sample)


def _pack_density(model: Model, run_dir: Path, out: Path, on_sample: OnSample) -> CardFacts:
    """Writes the model folder of a density."""
    evaluation, calibration, training_s = _read_run(run_dir, model)
    directory = model.experiment.data.directory
    with model_folder(out) as partial, Dataset(directory) as dataset:
        entries = manifest.present(directory, dataset.ids)
        held_out = [entry for entry in entries if entry.split == evaluation["split"]]
        chosen = [
            (entry, middle(dataset.read(entry.id), model.conditions.scan_shape))
            for entry in spread_over_thicknesses(held_out, SAMPLES)
        ]
        if not chosen:
            raise InputError(f"{directory} holds none of the samples that {run_dir} was evaluated on")
        write_config(model.experiment, partial)
        for name in COPIED:
            shutil.copyfile(run_dir / name, partial / name)
        facts = CardFacts(
            evaluation,
            calibration,
            training_s,
            strata.count_strata(entries),
            _write_weights(model, partial, [record for _, record in chosen]),
            list(_scores_by_dose(load_model(partial), chosen, on_sample)),
        )
        write_text_atomic(partial / "CARD.md", card(out.resolve().name, model.experiment, facts))
    return facts


def _read_run(run_dir: Path, model: Model) -> tuple[Evaluation, Calibration, float]:
    """Returns the evaluation and the calibration of a run, and the time of its training steps, s."""
    for name, command in (("evaluation.json", "evaluate"), *((name, "calibrate") for name in COPIED)):
        if not (run_dir / name).is_file():
            raise InputError(f"{run_dir} has no {name}: run {PROGRAM} {command} {run_dir} first")
    evaluation = read_evaluation(run_dir / "evaluation.json")
    calibration = read_calibration(run_dir / "calibration.json")
    try:
        step = checkpoint.read(model.weights)[0]["step"]
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {model.weights}: {error}") from None
    evaluated = check_facts(run_dir / "evaluation.json", evaluation)["steps"]
    if step != evaluated:
        raise InputError(
            f"{run_dir}: evaluation.json is of step {evaluated}, the newest checkpoint of step {step}: run "
            f"{PROGRAM} evaluate {run_dir} and calibrate first"
        )
    if not evaluation["samples"]:
        raise InputError(f"{run_dir} was evaluated on no sample: a card has nothing to say of it")
    times = read_steps(run_dir / "metrics.jsonl", ("step", "step_s"))
    return evaluation, calibration, float(np.nansum(times["step_s"]))


# ---- Weights --------------------------------------------------------------------------------------------------------


def _write_weights(model: Model, out: Path, records: Sequence[Record]) -> WeightsFacts:
    """Writes weights.npz, in float16 if this changes the predictions by less than `HARM` of their error."""
    *_, height, width = model.network.input_shape
    variables = NetworkVariables.of(model, load_network(model, (height, width)))
    truth = np.stack([record.density for record in records]).astype(np.float64)
    original = mean_predictions(trained_ensemble(model).predict, records)
    error = float(np.sqrt(np.mean((original - truth) ** 2)))
    packed = replace(model, folder=out, weights=out / "weights.npz")
    for dtype in DTYPES:
        weights = variables.write(packed.weights, dtype)
        change = mean_predictions(trained_ensemble(packed).predict, records) - original
        if np.sqrt(np.mean(change**2)) <= HARM * error:  # false if a weight overflowed, which makes the change NaN
            break
    return {
        **weights,
        "rms_change": float(np.sqrt(np.mean(change**2))),
        "largest_change": float(np.abs(change).max()),
        "rms_error": error,
    }


def mean_predictions(predict: Predict, records: Sequence[Record], dose: float | None = None) -> Array:
    """Returns the mean prediction for each sample.

    Args:
        predict: Predicts densities from windows.
        records: The samples.
        dose: Electrons per pattern, whose noise is added. `None` adds none.

    Returns:
        Densities, `(n, h, w)`, e/Å².
    """
    densities = []
    for number, record in enumerate(records):
        scale = record.header["arrays"]["cbed"]["scale"]
        patterns = noise.count_electrons(record.cbed, scale, dose, number, 0) if dose else record.patterns()
        scan = raster_shape(record.header["provenance"], len(record.cbed))
        window = patterns.reshape(1, *scan, *record.cbed.shape[1:])
        densities.append(predict(window).density[:, 0].mean(axis=0, dtype=np.float64))
    return np.stack(densities)


# ---- Scores ---------------------------------------------------------------------------------------------------------


def _scores_by_dose(model: Model, chosen: Sequence[tuple[Entry, Record]], on_sample: OnSample) -> Iterator[DoseRow]:
    """Yields the mean scores of the predictions, one row per dose and thickness, or range of thicknesses."""
    predict, huber_delta = trained_ensemble(model).predict, model.experiment.training.loss.huber_delta
    noisy = noise.describe_dose(chosen[0][1].header["provenance"])
    doses = DOSES[:1] if noisy else DOSES
    labels = group_labels([entry.thickness_angstrom for entry, _ in chosen])
    for done, (dose, label) in enumerate(product(doses, dict.fromkeys(labels)), start=1):
        records = [record for (_, record), other in zip(chosen, labels, strict=True) if other == label]
        rows = [
            image_metrics(density, record.density, huber_delta=huber_delta)
            for density, record in zip(mean_predictions(predict, records, dose), records, strict=True)
        ]
        row = {"electrons": dose, "thickness_angstrom": label, "samples": len(rows)} | mean_metrics(rows)
        yield cast(DoseRow, row)
        on_sample(done, len(doses) * len(set(labels)))
