"""`namsa-train pack RUN_DIR --out DIR`: writes a finished run of any task as a model folder to
be shipped.

config.yaml         The run's configuration, with the names of classes, without the place of its
                    samples and the limit of their simulation time.
weights.npz         The network's variables, in the format of a checkpoint: those of best.npz, if
                    validation has kept them and the newest checkpoint has a larger error on the dev
                    split, otherwise those of the checkpoint. Kernels are in float16 if that does no
                    harm. The arrays are compressed.
calibration.json    Measurements of the network, at least the fraction of the beam in the mean
                    training pattern.
CARD.md             The network's purpose, training, scores and limits (`train.tasks.card`).
learnt.json         The crystals of all trainings that led to the weights (`train.apply.learnt`).
digests.json        Digests of these files, and what they follow from (`train.apply.digests`).

A task may add files that `namsa-train calibrate` has written (`TaskCard.copied`). A folder of
this kind in train/models/ comes with the package and is found by its name.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.files import open_atomic, write_text_atomic
from namsa.base.folders import new_folder
from namsa.base.identity import check_same, digest_of_file
from namsa.base.json_files import read_typed
from namsa.base.text import shorten, without_folders
from namsa.base.version import __version__
from namsa.config.loading import dump_yaml
from namsa.dataset import manifest, strata
from namsa.dataset.entries import spread_over_thicknesses
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset

from .apply.digests import check_digests, read_digests, write_digests
from .apply.learnt import write_learnt
from .apply.models import CALIBRATION, Model, load_model
from .apply.weights import build_loaded, weights_digest
from .experiment.data import TrainingData
from .experiment.experiment import Experiment, load
from .input.selection import limit
from .measure import rows
from .measure.results import Evaluation, RunFacts
from .optimization import checkpoint
from .optimization.checkpoint_fit import Header
from .optimization.origin import ORIGIN, LearntMaterials, learnt_of
from .program import PROGRAM
from .reports.results import WeightsFile, check_facts
from .reports.runs import read_steps
from .tasks import task_of
from .tasks.card import CardFacts, OnSample, Packed, Rounding, TaskCard, card_of, write_card
from .tasks.reporting import read_results
from .tasks.validation import BEST

if TYPE_CHECKING:
    import keras

HARM = 0.01  # of the network's error: accepted change of its answers by rounding the weights
SAMPLES = 48  # held-out samples on which this is measured
# Key of the packed weights' header: digest of the newest checkpoint of the run.
PACKED_FROM = "packed_from"
KEPT_FACTS = ("step", "epoch", "network", ORIGIN)  # of a checkpoint's header
DTYPES = ("float16", "float32")  # of kernels, in the order in which they are tried


def pack(run_dir: Path, out: Path, on_sample: OnSample = lambda done, total: None) -> CardFacts:
    """Writes the model folder of a run; returns the facts that the card states.

    Args:
        run_dir: A finished and evaluated run, of a density a calibrated one, with its dataset at
            hand.
        out: The folder to be written. Its last part is the name of the model.
        on_sample: Called with the number of further measurements that are done and their total.

    Raises:
        InputError: If the run is not finished, evaluated and, of a density, calibrated, if its
            dataset is not at hand, or if `out` is not empty.
    """
    newest = load_model(run_dir)
    experiment = newest.experiment
    card = card_of(experiment.training.task)
    evaluation, facts, newest_header = _read_run(newest, card)
    model, header, chosen = _chosen_weights(newest, newest_header, card.dev_error(evaluation))
    facts = {**facts, "epochs": header["epoch"], "steps": header["step"]}
    made_of = _identity(newest, card, out)
    directory = experiment.data.directory
    with new_folder(out) as partial, Dataset(directory) as dataset:
        write_config(experiment, partial)
        for name in card.copied:
            shutil.copyfile(run_dir / name, partial / name)
        entries = task_of(experiment).usable(manifest.present(directory, dataset.ids))
        packed = replace(model, folder=partial, weights=partial / "weights.npz")
        training, held_out, compared = _samples(experiment, entries, learnt_of(header))
        samples = Packed(packed, run_dir, evaluation, facts, dataset, training, held_out, compared)
        weights, rounding, evaluation = _write_weights(model, newest_header, samples, card)
        write_learnt(partial, training, experiment.training.start_from)
        card_facts = CardFacts(
            experiment,
            evaluation,
            _training_seconds(run_dir, header["step"]),
            list(trainings_before(experiment)),
            strata.count_strata(entries),
            weights,
            rounding,
            chosen,
            card.measure(samples, on_sample),
        )
        write_text_atomic(partial / "CARD.md", write_card(out.resolve().name, card, card_facts))
        write_digests(partial, made_of)
    return card_facts


def is_packed(run_dir: Path, out: Path) -> bool:
    """Returns whether a folder holds what `pack` would write of a run.

    Raises:
        InputError: If it holds the model of another run, or of another state of this one; names
            each difference.
    """
    stated = read_digests(out)
    if stated is None or "made_of" not in stated:
        return False
    model = load_model(run_dir)
    check_same(
        str(out),
        stated["made_of"],
        _identity(model, card_of(model.experiment.training.task), out),
        changes_nothing=lambda key: False,
        remedy="remove it, or name another with --out",
    )
    check_digests(out)
    return True


def _identity(newest: Model, card: TaskCard, out: Path) -> dict[str, object]:
    """Returns what the packed model of a run follows from, in JSON types.

    Args:
        newest: The run.
        card: What the task says on the card.
        out: The folder, whose name is on the card.
    """
    folder = newest.folder
    names = ("config.yaml", "evaluation.json", BEST, rows.VALIDATIONS, *card.copied)
    files = {}
    for name in names:
        if (folder / name).is_file():
            files[name] = digest_of_file(folder / name)
    weights = weights_digest(newest)
    return {"program": __version__, "name": out.resolve().name, "weights": weights, "files": files}


def _samples(
    experiment: Experiment, entries: Sequence[Entry], learnt: LearntMaterials
) -> tuple[list[Entry], Sequence[Entry], list[Entry]]:
    """Returns the samples of training, the held-out ones, and those on which rounding is measured.

    Raises:
        InputError: If there are none.
    """
    task = task_of(experiment)
    in_split: dict[str, list[Entry]] = {"train": [], "dev": [], "test": []}
    for entry in entries:
        in_split[entry.split].append(entry)
    training = limit(in_split["train"], experiment.training.samples)
    others = [entry for entry in entries if entry.split != "train"]
    held_out = learnt.unseen(task.held_out(training, others))
    test = [entry for entry in held_out if entry.split == "test"]
    dev = [entry for entry in held_out if entry.split == "dev"]
    compared = spread_over_thicknesses(test or dev, SAMPLES)
    if not training or not compared:
        raise InputError(
            f"{experiment.data.directory} lacks samples of the training split, or held-out ones"
        )
    return training, held_out, compared


def _training_seconds(run_dir: Path, step: int) -> float:
    """Returns the time that a run's steps took up to one of them, s."""
    times = read_steps(run_dir / "metrics.jsonl", ("step", "step_s"))
    return float(np.nansum(times["step_s"][times["step"] <= step]))


def trainings_before(experiment: Experiment) -> Iterator[str]:
    """Yields the trainings whose weights a run has started from, newest first, and what is known of
    the first's start.

    They are known as far as `training.start_from` is a run directory that is still there, and has
    not been trained again since from one of those after it.
    """
    seen: set[str] = set()
    while (start := experiment.training.start_from) and (Path(start) / "evaluation.json").is_file():
        place = os.path.realpath(start)
        if place in seen:
            break
        seen.add(place)
        run = read_results(Path(start))["run"]
        yield f"{run['epochs']} epochs, {run['steps']:,} steps, {run['training_samples']:,} samples"
        experiment = load(Path(start) / "config.yaml")
    yield without_folders(start) if start else "random weights"


def _read_run(newest: Model, card: TaskCard) -> tuple[Evaluation, RunFacts, Header]:
    """Returns a run's evaluation and facts, and the header of its newest checkpoint, of which both
    are.

    Raises InputError if it is not evaluated, or not calibrated where that is needed.
    """
    folder = newest.folder
    commands = {"evaluation.json": "evaluate"} | dict.fromkeys(card.copied, "calibrate")
    for name, command in commands.items():
        if not (folder / name).is_file():
            raise InputError(f"{folder} has no {name}: run {PROGRAM} {command} {folder} first")
    evaluation = read_results(folder)
    header = _header(newest.weights)
    facts = check_facts(folder / "evaluation.json", evaluation)
    steps: dict[str, object] = {"evaluation.json": facts["steps"]}
    if CALIBRATION in card.copied:
        remedy = f"run {PROGRAM} calibrate {folder} again"
        calibration = read_typed(dict[str, object], folder / CALIBRATION, remedy)
        steps[CALIBRATION] = calibration.get("step", "unknown")
    for name, step in steps.items():
        if step != header["step"]:
            raise InputError(
                f"{folder}: {name} is of step {shorten(step)}, the newest checkpoint of step "
                f"{header['step']}: run {PROGRAM} {commands[name]} {folder} first"
            )
    return evaluation, facts, header


def _chosen_weights(
    newest: Model, header: Header, newest_error: float | None
) -> tuple[Model, Header, str]:
    """Returns the model with the weights to ship, their header, and which they are, if not those of
    the last step.

    Without an error on the dev split, those of the newest checkpoint are taken.
    """
    best = newest.folder / BEST
    validations = newest.folder / rows.VALIDATIONS
    if newest_error is None or not best.is_file() or not validations.is_file():
        return newest, header, ""
    error = task_of(newest.experiment).error
    best_header = _header(best)
    validated = {row["step"]: row.get(error) for row in rows.read(validations)}.get(
        best_header["step"]
    )
    if validated is None or validated >= newest_error:
        return newest, header, ""
    words = f": the lowest error on the dev split in a run of {header['epoch']} epochs"
    return load_model(best), best_header, words


def _header(weights: Path) -> Header:
    """Returns the header of a checkpoint."""
    try:
        return checkpoint.read_header(weights)
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {weights}: {error}") from None


def _write_weights(
    model: Model, newest: Header, packed: Packed, card: TaskCard
) -> tuple[WeightsFile, Rounding, Evaluation]:
    """Writes weights.npz, in float16 if this changes the answers by less than `HARM` of their
    error, and scores it.
    """
    variables = NetworkVariables.of(model, build_loaded(model, model.experiment.network), newest)
    before = card.answers(model, packed.dataset, packed.compared)
    for dtype in DTYPES:
        if dtype != DTYPES[-1] and not variables.fit(dtype):
            continue
        weights = variables.write(packed.model.weights, dtype)
        evaluation = card.evaluate(packed)
        after = card.answers(packed.model, packed.dataset, packed.compared)
        rounding = card.rounding(before, after, evaluation)
        # false if a weight overflowed, which makes the change NaN
        if rounding.change <= HARM * rounding.error:
            break
    return weights, rounding, evaluation


def write_config(experiment: Experiment, folder: Path) -> None:
    """Writes config.yaml, without the place of the samples, the folders of the weights that the
    training started from, and the limit of the simulation time.
    """
    start = experiment.training.start_from
    changes = {"simulate_seconds": None, "start_from": without_folders(start) if start else None}
    training = experiment.training.model_copy(update=changes)
    shipped = experiment.model_copy(update={"data": TrainingData(), "training": training})
    write_text_atomic(folder / "config.yaml", dump_yaml(shipped))


@dataclass(frozen=True)
class NetworkVariables:
    """The variables of a network without those of its optimizer."""

    facts: Header  # of the checkpoint's header: `KEPT_FACTS`
    names: Sequence[str]  # names of the variables
    arrays: Sequence[Array]  # their values, float32

    @classmethod
    def of(cls, model: Model, network: "keras.Model", newest: Header) -> "NetworkVariables":
        """Returns the variables in a model's weights that its Keras network has.

        Args:
            newest: Header of the newest checkpoint of the run.
        """
        header, arrays = checkpoint.read(model.weights)
        paths = {variable.path for variable in network.variables}
        names = []
        values = []
        for name, array in zip(header["variables"], arrays, strict=True):
            if name in paths:
                names.append(name)
                values.append(array)
        facts = {key: header[key] for key in KEPT_FACTS if key in header}
        facts[PACKED_FROM] = newest["digest"]
        return cls(facts, names, values)

    def fit(self, dtype: str) -> bool:
        """Whether no kernel overflows when it is rounded."""
        with np.errstate(over="ignore"):
            return all(
                np.isfinite(array.astype(dtype)).all() for array in self.arrays if array.ndim > 1
            )

    def write(self, path: Path, dtype: str) -> WeightsFile:
        """Writes the variables, kernels in another type, and returns facts about the file."""
        with open_atomic(path) as file, np.errstate(over="ignore"):
            rounded = [array.astype(dtype) if array.ndim > 1 else array for array in self.arrays]
            checkpoint.write(file, self.facts, self.names, rounded, compress=True)
        return {
            "dtype": dtype,
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "digest": checkpoint.read_header(path)["digest"],
        }
