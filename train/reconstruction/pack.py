"""`python -m train pack RUN_DIR --out DIR`: a finished run as a folder that can be shipped, and its card.

config.yaml         the run's, but for where its samples were and how long they might take
weights.npz         the network's variables alone, in a checkpoint's format; kernels in float16 where that does no harm
calibration.json, transfer.json   as `train.reconstruction.calibrate` wrote them
CARD.md             what it is for, what it was trained on, how good it is and where not (`train.reports.card`)

A folder of this kind in train/models/ comes with the package and is found by its name.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.config.loading import dump_yaml
from namsa.config.simulation import Data
from namsa.dataset import manifest, strata
from namsa.dataset.manifest import Entry
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset
from namsa.errors import InputError
from namsa.files import open_atomic, write_text_atomic
from train.input import noise
from train.measure.metrics import mean_metrics, metrics
from train.optimization import checkpoint
from train.reconstruction import ensemble
from train.reconstruction.calibrate import answering
from train.reconstruction.models import Model, find
from train.reports.card import card
from train.reports.runs import read_steps

Array = npt.NDArray[Any]
OnSample = Callable[[int, int], None]

COPIED = ("calibration.json", "transfer.json")
HARM = 0.01  # of the network's own error: what rounding its weights may change
SAMPLES = 48  # held-out ones, on which rounding and doses are measured
DOSES = (None, 1e5, 1e4, 1e3)  # electrons a pattern


def pack(run_dir: Path, out: Path, on_sample: OnSample = lambda done, total: None) -> dict[str, Any]:
    """Writes the folder `out` from `run_dir`, and returns the facts that its card is made of.

    Raises InputError where the run is not finished, evaluated and calibrated, its dataset is not at hand, or `out`
    holds something.
    """
    model = find(str(run_dir))
    facts = _facts(run_dir, model)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there already: remove it, or choose another --out")
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of one that was interrupted
    partial.mkdir(parents=True)
    directory = model.experiment.data.directory
    with Dataset(directory) as dataset:
        entries = manifest.present(directory, dataset.ids)
        facts["strata"] = strata.strata(entries)
        held_out = [entry for entry in entries if entry.split == facts["evaluation"]["split"]]
        chosen = [(entry, dataset.read(entry.id)) for entry in manifest.spread(held_out, SAMPLES)]
        if not chosen:
            raise InputError(f"{directory} holds none of the samples that {run_dir} was evaluated on")
        whole = model.experiment.training.model_copy(update={"simulate_seconds": None})
        shipped = model.experiment.model_copy(update={"data": Data(), "training": whole})
        write_text_atomic(partial / "config.yaml", dump_yaml(shipped))
        for name in COPIED:
            write_text_atomic(partial / name, (run_dir / name).read_text(encoding="utf-8"))
        facts["weights"] = _write_weights(model, partial, [record for _, record in chosen])
        facts["doses"] = list(_by_dose(find(str(partial)), chosen, on_sample))
    write_text_atomic(partial / "CARD.md", card(out.resolve().name, model.experiment, facts))
    if out.exists():
        out.rmdir()
    partial.rename(out)
    return facts


def _facts(run_dir: Path, model: Model) -> dict[str, Any]:
    """What the run itself has written down."""
    found: dict[str, Any] = {}
    for name, command in (("evaluation.json", "evaluate"), *((name, "calibrate") for name in COPIED)):
        if not (run_dir / name).is_file():
            raise InputError(f"{run_dir} has no {name}: run python -m train {command} {run_dir} first")
        found[name.removesuffix(".json")] = json.loads((run_dir / name).read_text(encoding="utf-8"))
    try:
        step = checkpoint.read(model.weights)[0]["step"]
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {model.weights}: {error}") from None
    if step != found["evaluation"]["run"]["steps"]:
        raise InputError(
            f"{run_dir}: evaluation.json is of step {found['evaluation']['run']['steps']}, the newest checkpoint of "
            f"step {step}: run python -m train evaluate {run_dir} and calibrate first"
        )
    if not found["evaluation"]["samples"]:
        raise InputError(f"{run_dir} was evaluated on no sample: a card has nothing to say of it")
    times = read_steps(run_dir / "metrics.jsonl", ("step", "step_s"))
    found["training_s"] = float(np.nansum(times["step_s"]))
    return found


# ---- Weights --------------------------------------------------------------------------------------------------------


def _write_weights(model: Model, out: Path, records: Sequence[Record]) -> dict[str, Any]:
    """weights.npz in `out`, in float16 where answers to `records` then change by less than `HARM` of their error."""
    header, arrays = checkpoint.read(model.weights)
    facts = {key: header[key] for key in ("step", "epoch", "network")}
    _, *image = model.experiment.network.input_shape
    own = {variable.path for variable in ensemble.network(model, (image[0], image[1])).variables}
    kept = [(name, array) for name, array in zip(header["variables"], arrays, strict=True) if name in own]
    truth = np.stack([record.density for record in records]).astype(np.float64)
    whole = answers_to(answering(model)[0], records)
    error = float(np.sqrt(np.mean((whole - truth) ** 2)))
    there = replace(model, folder=out, weights=out / "weights.npz")
    for dtype in ("float16", "float32"):
        with open_atomic(there.weights) as file, np.errstate(over="ignore"):
            chosen = [array.astype(dtype) if array.ndim > 1 else array for _, array in kept]
            checkpoint.write(file, facts, [name for name, _ in kept], chosen)
        changed = answers_to(answering(there)[0], records) - whole
        if np.sqrt(np.mean(changed**2)) <= HARM * error:  # not where a weight overflowed: that is not a number
            break
    return {
        "dtype": dtype,
        "bytes": there.weights.stat().st_size,
        "sha256": hashlib.sha256(there.weights.read_bytes()).hexdigest(),
        "digest": checkpoint.read(there.weights)[0]["digest"],
        "rms_change": float(np.sqrt(np.mean(changed**2))),
        "largest_change": float(np.abs(changed).max()),
        "rms_error": error,
    }


def answers_to(answers: ensemble.Predict, records: Sequence[Record], dose: float | None = None) -> Array:
    """The mean answer to each record's patterns, under the noise of `dose` electrons a pattern: (n, h, w), e/Å²."""
    found = []
    for number, record in enumerate(records):
        scale = record.header["arrays"]["cbed"]["scale"]
        patterns = noise.counted(record.cbed, scale, dose, number, 0) if dose else record.patterns()
        window = patterns.reshape(1, *record.header["provenance"]["scan_shape"], *record.cbed.shape[1:])
        found.append(answers(window)[:, 0].mean(axis=0, dtype=np.float64))
    return np.stack(found)


# ---- Numbers --------------------------------------------------------------------------------------------------------


def _by_dose(model: Model, chosen: Sequence[tuple[Entry, Record]], on_sample: OnSample) -> Iterator[dict[str, Any]]:
    """Numbers of what `reconstruct` makes of `chosen`, a row for each dose and thickness."""
    answers, loss = answering(model)[0], model.experiment.training.loss
    noisy = noise.dose_of(chosen[0][1].header["provenance"])
    doses = DOSES[:1] if noisy else DOSES
    thicknesses = sorted({entry.thickness_angstrom for entry, _ in chosen})
    for done, (dose, thickness) in enumerate(product(doses, thicknesses), start=1):
        records = [record for entry, record in chosen if entry.thickness_angstrom == thickness]
        rows = [
            metrics(answer, record.density, huber_delta=loss.huber_delta)
            for answer, record in zip(answers_to(answers, records, dose), records, strict=True)
        ]
        yield {"electrons": dose, "thickness_angstrom": thickness, "samples": len(rows)} | mean_metrics(rows)
        on_sample(done, len(doses) * len(thicknesses))
