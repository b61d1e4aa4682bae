"""`python -m train calibrate RUN_DIR`: how far a trained network's answers can be trusted, measured once and kept.

transfer.json    from density to potential, fitted to the training samples (`namsa.inverse.mott_bethe`)
calibration.json the factor from spread to error, its coverage (`train.reconstruction.uncertainty`), the beam that
patterns hold
evaluation.json  "consistency_r" and "consistency_empty_r" of held-out samples (`namsa.inverse.consistency`); the
                 report shows them
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.dataset import manifest
from namsa.dataset.manifest import Entry
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset
from namsa.dataset.simulate_entry import with_own_microscope
from namsa.errors import InputError
from namsa.inverse import consistency, mott_bethe
from train.experiment.conditions import conditions
from train.experiment.experiment import Experiment
from train.reconstruction import ensemble, uncertainty
from train.reconstruction.models import Model, find
from train.reports.evaluate import write_json

Array = npt.NDArray[Any]
OnSample = Callable[[int, int], None]


def calibrate(
    run_dir: Path,
    passes: int | None = None,
    simulated: int | None = None,
    on_sample: OnSample = lambda done, total: None,
) -> tuple[dict[str, Any], list[float]]:
    """Writes the files above in `run_dir`; returns what calibration.json says and the samples' scores.

    passes: with dropout, of each symmetry; default none, or 8 where there is no symmetry
    simulated: how many held-out samples get a score, each of which takes a simulation; default all

    Raises InputError where the run has no checkpoint, the dataset no dev sample or the network but one answer.
    """
    model = find(str(run_dir))
    answers, method, count = answering(model, passes)
    if count < 2:
        raise InputError(f"{run_dir}: its network has one answer alone, without symmetry and without dropout")
    experiment, trained = model.experiment, conditions(model.experiment)
    scan, detector = trained.scan_shape, trained.detector_shape
    with Dataset(experiment.data.directory) as dataset:
        present = manifest.present(experiment.data.directory, dataset.ids)
        of = {split: [e for e in present if e.split == split] for split in ("train", "dev", "test")}
        if not of["dev"]:
            raise InputError(f"{experiment.data.directory} has no sample of the dev split to calibrate with")
        dev = [dataset.read(entry.id) for entry in of["dev"]]
        found = uncertainty.calibration(answers, dev, (dataset.read(e.id) for e in of["test"]), method, count)
        learned = of["train"] or of["dev"]
        found["transmitted_fraction"] = float(
            np.mean([dataset.read(e.id).patterns().sum(axis=(1, 2)).mean() for e in learned])
        )
        transfer = mott_bethe.fit(dataset.read(entry.id) for entry in learned)
        write_json(run_dir / "calibration.json", found)
        mott_bethe.write(transfer, run_dir / "transfer.json")
        held_out, scores = of["dev"] + of["test"], {}
        if simulated is not None:
            held_out = manifest.spread(held_out, simulated)
        for done, entry in enumerate(held_out, start=1):
            record = dataset.read(entry.id)
            stack = record.patterns().reshape(1, *scan, *detector)
            scores[entry.id] = of_record(answers(stack)[:, 0].mean(axis=0), record, entry, experiment, transfer)
            on_sample(done, len(held_out))
    _add(run_dir / "evaluation.json", scores)
    return found, [score.score for score in scores.values()]


def answering(model: Model, passes: int | None = None) -> tuple[ensemble.Predict, str, int]:
    """`ensemble.members` of windows as they were trained, as `reconstruct` has them; what they are; how many."""
    experiment, trained = model.experiment, conditions(model.experiment)
    chosen, passes = ensemble.guises(model, trained.scan_shape, trained.scan_step_angstrom, passes)
    _, *image = experiment.network.input_shape
    answers = ensemble.members(ensemble.network(model, (image[0], image[1])), model, chosen, passes)
    method = f"{len(chosen)} symmetries" + (f", {passes} passes with dropout each" if passes else "")
    return answers, method, len(chosen) * max(1, passes)


def of_record(
    density: Array, record: Record, entry: Entry, experiment: Experiment, transfer: mott_bethe.Transfer
) -> consistency.Consistency:
    """`consistency.check` of a `density` that was made of a simulated sample, in the sample's own cell."""
    own, p = with_own_microscope(experiment, entry), record.provenance
    thickness, extent = p["thickness_angstrom"], tuple(p["extent_angstrom"])
    where = consistency.scene(own, thickness, density.shape, p["positions_angstrom"], extent)
    return consistency.check(density, record.patterns(), own, thickness, transfer, where)


def _add(path: Path, scores: dict[str, consistency.Consistency]) -> None:
    if not path.is_file():
        return
    evaluation = json.loads(path.read_text(encoding="utf-8"))
    for row in evaluation["samples"]:
        if score := scores.get(row["id"]):
            row |= {"consistency_r": score.score, "consistency_empty_r": score.empty}
    write_json(path, evaluation)
