"""Packs networks of the tasks other than the density: `python -m train pack RUN_DIR --out DIR`.

config.yaml         The run's configuration, with the names of classes, without the place of its samples.
weights.npz         The weights of best.npz, if validation has kept them and the newest checkpoint has a larger error on
                    the dev split, otherwise those of the checkpoint; kernels in float16 if that does no harm.
calibration.json    The fraction of the beam in the mean training pattern, for files that do not say their intensity.
CARD.md             What the model is for, what it was trained on, how good it is and its limits (`train.tasks.cards`).

The packed weights are evaluated as a job evaluates its own, since those of best.npz are not those of evaluation.json.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from namsa.dataset import manifest, strata
from namsa.dataset.entries import spread_over_thicknesses
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.errors import InputError
from namsa.files import write_text_atomic

from ..input.selection import limit
from ..measure import validation_rows
from ..measure.results import RunFacts
from ..optimization import checkpoint
from ..program import PROGRAM
from ..ranks.alone import Alone
from ..reports.results import WeightsFile, check_facts, write_json
from ..reports.runs import read_steps
from ..tasks import task_of
from ..tasks.cards import card_of
from ..tasks.reporting import read_results
from ..tasks.task import Answers
from ..tasks.task_card import Rounding, TaskCard, TaskFacts, write_card
from ..tasks.validation import BEST
from .models import Model, load_model
from .packing import DTYPES, HARM, SAMPLES, NetworkVariables, model_folder, write_config
from .weights import build_loaded

BEAM_SAMPLES = 200  # training samples whose mean pattern is measured


def pack_task(newest: Model, out: Path) -> TaskFacts:
    """Writes the model folder of a run of a task other than the density.

    Args:
        newest: The run, with the weights of its newest checkpoint and its dataset at hand.
        out: The folder to be written. Its last part is the name of the model.

    Returns:
        The facts that the card states.

    Raises:
        InputError: If the run is not evaluated, if its dataset is not at hand, or if `out` is not empty.
    """
    run_dir, task_card = newest.folder, card_of(newest.experiment.training.task)
    if not (run_dir / "evaluation.json").is_file():
        raise InputError(f"{run_dir} has no evaluation.json: run {PROGRAM} evaluate {run_dir} first")
    evaluation = read_results(run_dir)
    run, step = check_facts(run_dir / "evaluation.json", evaluation), _header(newest.weights)["step"]
    if run["steps"] != step:
        raise InputError(
            f"{run_dir}: evaluation.json is of step {run['steps']}, the newest checkpoint of step {step}: run "
            f"{PROGRAM} evaluate {run_dir} first"
        )
    model, chosen = _chosen(newest, task_card.dev_error(evaluation))
    header = _header(model.weights)
    run = {**run, "epochs": header["epoch"], "steps": header["step"]}
    times = read_steps(run_dir / "metrics.jsonl", ("step", "step_s"))
    training_s = float(np.nansum(times["step_s"][times["step"] <= header["step"]]))
    directory = model.experiment.data.directory
    with model_folder(out) as partial, Dataset(directory) as dataset:
        samples = _Samples.of(model, dataset)
        write_config(model.experiment, partial)
        # Read by `train.apply.models` like that of a density.
        write_json(partial / "calibration.json", {"transmitted_fraction": samples.transmitted_fraction(dataset)})
        packed = replace(model, folder=partial, weights=partial / "weights.npz")
        weights, rounding, evaluation = _write_weights(model, packed, task_card, dataset, samples, run)
        facts = TaskFacts(evaluation, training_s, strata.count_strata(samples.entries), weights, rounding, chosen)
        name = out.resolve().name
        write_text_atomic(partial / "CARD.md", write_card(name, model.experiment, task_card, facts))
    return facts


@dataclass(frozen=True)
class _Samples:
    """The samples of a run.

    Attributes:
        entries: Those that the task can use.
        training: Those that were trained on.
        held_out: Those that networks are evaluated on.
    """

    entries: Sequence[Entry]
    training: Sequence[Entry]
    held_out: Sequence[Entry]

    @classmethod
    def of(cls, model: Model, dataset: Dataset) -> "_Samples":
        """Returns the samples that a job with the model's configuration takes."""
        experiment = model.experiment
        task = task_of(experiment)
        usable = task.usable(manifest.present(experiment.data.directory, dataset.ids))
        training = limit([entry for entry in usable if entry.split == "train"], experiment.training.samples)
        held_out = task.held_out(training, [entry for entry in usable if entry.split != "train"])
        if not training or all(entry.split == "train" for entry in held_out):
            raise InputError(f"{experiment.data.directory} lacks samples of the training split, or held-out ones")
        return cls(usable, training, held_out)

    def compared(self) -> list[Entry]:
        """Returns some samples of the test split, or of dev, on which rounding is measured."""
        for split in ("test", "dev"):
            if entries := [entry for entry in self.held_out if entry.split == split]:
                return spread_over_thicknesses(entries, SAMPLES)
        return []

    def transmitted_fraction(self, dataset: Dataset) -> float:
        """Returns the mean fraction of the beam that training patterns hold."""
        chosen = limit(self.training, BEAM_SAMPLES)
        return float(np.mean([dataset.read(entry.id).patterns().sum(axis=(1, 2)).mean() for entry in chosen]))


def _chosen(newest: Model, newest_error: float | None) -> tuple[Model, str]:
    """Returns the model with the weights to ship, and which they are, if not those of the last step.

    Args:
        newest: The model with the weights of the newest checkpoint.
        newest_error: Its error on the dev split. `None` without samples.
    """
    best, rows = newest.folder / BEST, newest.folder / validation_rows.FILE_NAME
    if newest_error is None or not best.is_file() or not rows.is_file():
        return newest, ""
    error, step = task_of(newest.experiment).error, _header(best)["step"]
    validated = {row["step"]: row.get(error) for row in validation_rows.read(rows)}.get(step)
    if validated is None or validated >= newest_error:
        return newest, ""
    return load_model(
        best
    ), f": the lowest error on the dev split in a run of {_header(newest.weights)['epoch']} epochs"


def _header(weights: Path) -> dict[str, Any]:
    """Returns the header of a checkpoint."""
    try:
        header: dict[str, Any] = checkpoint.read(weights)[0]
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {weights}: {error}") from None
    return header


def _write_weights(
    model: Model, packed: Model, card: TaskCard, dataset: Dataset, samples: _Samples, run: RunFacts
) -> tuple[WeightsFile, Rounding, Mapping[str, Any]]:
    """Writes weights.npz, in float16 if this changes the answers by less than `HARM` of their error, and scores it."""
    experiment, entries = model.experiment, samples.compared()
    task = task_of(experiment)
    baseline = task.statistic(dataset, samples.training)
    network = build_loaded(model, experiment.network)
    variables, before = NetworkVariables.of(model, network), card.answers(experiment, network, dataset, entries)
    for dtype in DTYPES:
        if dtype != DTYPES[-1] and not variables.fit(dtype):
            continue
        weights = variables.write(packed.weights, dtype)
        network = build_loaded(packed, experiment.network)
        answers = Answers(network, dataset, samples.held_out, baseline, False, lambda line: None)
        with tempfile.TemporaryDirectory() as scratch:
            evaluation = task.evaluate(answers, Path(scratch), ranks=Alone(), run=run)
        rounding = card.rounding(before, card.answers(experiment, network, dataset, entries), evaluation)
        if rounding.change <= HARM * rounding.error:
            break
    return weights, rounding, evaluation
