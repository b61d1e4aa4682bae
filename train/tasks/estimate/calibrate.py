"""`namsa-train calibrate RUN_DIR` of the task estimate: from the errors that a network says to
those that it makes.

Windows of the dev split, as they are stored and as training would see them
(`train.apply.known_windows`), give one factor for each quantity, which `calibration.json` holds
with the coverage on both splits.
"""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NotRequired

import numpy as np
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.digested_json import read_digested, with_digest
from namsa.base.errors import InputError
from namsa.base.folders import open_folder
from namsa.dataset import manifest
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset

from ...apply.digests import read_digests, renew_digests
from ...apply.identity import calibration_identity
from ...apply.known_windows import known_windows
from ...apply.learnt import unseen_held_out
from ...apply.models import CALIBRATION, LARGEST_FACTOR, Model, load_model
from ...apply.weights import build_loaded
from ...measure.coverage import Coverage
from ...measure.rows import Row
from ...optimization import checkpoint
from ...reports.calibration_results import CALIBRATE_AGAIN
from ...reports.results import write_json
from ..card import OnSample
from .quantities import QUANTITIES, sample_value
from .scores import QuantityCalibration, calibrate, coverage
from .task import Predict, predictor


class EstimateCalibration(TypedDict):
    """Contents of `calibration.json`, beside its digest (`namsa.base.digested_json`)."""

    step: int  # step of the weights
    # What it follows from (`train.apply.identity`). Absent in files of earlier versions.
    made_of: NotRequired[dict[str, object]]
    # from the deviation that the network says to the error, by quantity
    quantities: dict[str, QuantityCalibration]
    split: str  # split that the factors were chosen on
    windows: int  # number of its windows
    dev: dict[str, Coverage]  # coverage on it
    # coverage on the test split; absent without test samples
    test: NotRequired[dict[str, Coverage]]
    transmitted_fraction: float  # mean fraction of the beam that the patterns of dev samples hold


def calibrate_estimates(model: Model, dataset: Dataset, on_sample: OnSample) -> EstimateCalibration:
    """Measures the errors of a network of the task estimate, and writes `calibration.json` into its
    folder.

    Args:
        on_sample: Called with the number of samples that are done and their total.

    Raises:
        InputError: If the dataset has no dev sample of a material that was not learnt.
    """
    names = model.experiment.training.estimate.quantities
    directory = model.experiment.data.directory
    predict = predictor(model.experiment, build_loaded(model, model.experiment.network))
    dev, test = unseen_held_out(model, manifest.present(directory, dataset.ids), directory)
    split_rows: dict[str, list[Row]] = {"dev": [], "test": []}
    for done, entry in enumerate(dev + test, start=1):
        split_rows[entry.split] += _rows(dataset, entry, model, predict)
        on_sample(done, len(dev) + len(test))
    transmitted = []
    for entry in dev:
        transmitted.append(dataset.read(entry.id).patterns().sum(axis=(1, 2)).mean())
    rows = split_rows["dev"]
    test_rows = split_rows["test"]
    factors = calibrate(rows, names)
    calibration: EstimateCalibration = {
        "step": checkpoint.read_header(model.weights)["step"],
        "made_of": calibration_identity(model, dataset.ids),
        "quantities": factors,
        "split": "dev",
        "windows": len(rows),
        "dev": {name: coverage(rows, name, factors[name]) for name in names},
        "transmitted_fraction": float(np.mean(transmitted)),
    }
    if test_rows:
        calibration["test"] = {name: coverage(test_rows, name, factors[name]) for name in names}
    stated = with_digest(calibration)
    if read_digests(model.folder) is None:
        write_json(model.folder / CALIBRATION, stated)
    else:  # a packed network
        with open_folder(model.folder, key_file=CALIBRATION) as new:
            write_json(new / CALIBRATION, stated)
            renew_digests(model.folder, new)
    return calibration


def ensure_calibrated(run_dir: Path, simulated: int, outside: int, on_sample: OnSample) -> None:
    """Calibrates a run, unless it has the calibration of its weights and samples."""
    model = load_model(run_dir)
    calibration = read_estimate_calibration(model)
    with Dataset(model.experiment.data.directory) as dataset:
        identity = calibration_identity(model, dataset.ids)
        if calibration is None or calibration.get("made_of") != identity:
            calibrate_estimates(model, dataset, on_sample)


def calibrate_run(run_dir: Path, options: Namespace, on_sample: OnSample) -> Callable[[], str]:
    """Measures a run for `namsa-train calibrate`, and returns what says the result."""
    if options.data:
        raise InputError("--data is for networks of the density: leave it out")
    model = load_model(run_dir)
    with Dataset(model.experiment.data.directory) as dataset:
        calibration = calibrate_estimates(model, dataset, on_sample)
    return lambda: "\n".join(described(calibration))


def described(calibration: EstimateCalibration) -> list[str]:
    """Returns a line about each quantity."""
    lines = []
    splits = {"dev": calibration["dev"], "test": calibration.get("test", {})}
    for name, factors in calibration["quantities"].items():
        covered = [
            f"{of[name]['coverage_68']:.1%} of the {split} windows"
            for split, of in splits.items()
            if of
        ]
        factor = f"{factors['uncertainty_factor']:.3g}"
        lines.append(
            f"{QUANTITIES[name].title}: {factor} times the error that is predicted covers "
            f"{' and '.join(covered)}"
        )
    return lines


def read_estimate_calibration(model: Model) -> EstimateCalibration | None:
    """Returns the contents of `calibration.json` in a model's folder. `None` if there is no such
    file.
    """
    path = model.folder / CALIBRATION
    if not path.is_file():
        return None
    calibration = read_digested(EstimateCalibration, path, CALIBRATE_AGAIN)
    factors = [
        quantity[key]
        for quantity in calibration["quantities"].values()
        for key in ("uncertainty_factor", "two_sigma_factor")
    ]
    same = set(calibration["quantities"]) == set(model.experiment.training.estimate.quantities)
    if not (same and all(0 < factor <= LARGEST_FACTOR for factor in factors)):
        raise InputError(
            f"{path} holds other quantities than the network, or factors that are not positive: "
            f"{CALIBRATE_AGAIN}"
        )
    return calibration


def _rows(dataset: Dataset, entry: Entry, model: Model, predict: Predict) -> list[Row]:
    """Returns true values, estimates and deviations of the windows of a sample."""
    names = model.experiment.training.estimate.quantities
    rows: list[Row] = []
    true = {name: sample_value(entry, name) for name in names}
    for window in known_windows(dataset, [entry], model.experiment):
        estimates, deviations = (
            dict(zip(names, prediction[0].tolist(), strict=True))
            for prediction in predict(window.patterns)
        )
        rows.append({"true": true, "estimate": estimates, "deviation": deviations})
    return rows
