"""The job of the task estimate on small crystals: targets under symmetries, scores, calibration and
a file.
"""

import json
import re
from contextlib import closing
from dataclasses import replace

import ase
import h5py
import numpy as np
import pytest
from packed import pack_run
from tiny import CONFIG, rows

import namsa
from namsa.base.digested_json import with_digest
from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from train.__main__ import main as command
from train.apply.models import load_model
from train.experiment.experiment import load
from train.input import batches
from train.ranks import connection
from train.reports.results import write_json
from train.scaling import forecast
from train.tasks import task_of
from train.tasks.estimate.calibrate import calibrate_estimates, read_estimate_calibration

NAMES = ("thickness_angstrom", "defocus_angstrom", "specimen_tilt_y_mrad", "specimen_tilt_x_mrad")
NETWORK = {
    "kind": "cosmoflow",
    "input_shape": [3, 2, 8, 12],
    "filters": [4],
    "strides": [1],
    "dense": [8],
    "outputs": 8,
}
VARIATION = {
    "rule": "random",
    "configurations": 2,
    "thickness_angstrom": [4, 8],
    "defocus_angstrom": [-40, 40],
}
TRAINING = {
    "task": "estimate",
    "epochs": 4,
    "batch_size": 4,
    "validation": {"every_epochs": 2},
    "loss": {"likelihood": "laplace"},
    "inputs": {
        "layout": "volume",
        "window": [2, 3],
        "channels": "binned",
        "bin_pixels": 4,
        "augment": True,
        "dose_electrons_per_pattern": 1e5,
    },
    "optimizer": {"learning_rate": 1e-2, "lars": "none"},
}


JOB = {
    "split": {"train": 0.5, "dev": 0.25, "test": 0.25},
    "specimen": CONFIG["specimen"] | {"thickness_angstrom": [8.0]},
    "variation": VARIATION | {"specimen_tilt_mrad": [0, 10]},
    "simulation": CONFIG["simulation"] | {"method": "scatter"},
    "scan": {"shape": [3, 5], "step_angstrom": [0.8, 0.6]},
    "target": {"at": "scan"},
    "network": NETWORK,
    "training": TRAINING,
}


def stored(experiment, *splits):
    with Dataset(experiment.data.directory) as dataset:
        entries = manifest.present(experiment.data.directory, dataset.ids)
        chosen = []
        for entry in entries:
            if entry.split in splits:
                chosen.append(entry)
        return chosen, {entry.id: dataset.read(entry.id) for entry in chosen}


@pytest.mark.slow
def test_rows_have_the_squared_error_and_the_likelihood(run_dir):
    steps = rows(run_dir)
    assert len(steps) == 4 * 2  # 8 training samples
    for row in steps:
        assert row["loss"] == pytest.approx(row["mse"] + row["likelihood"] + row["l2"])
    assert steps[-1]["mse"] < steps[0]["mse"]


@pytest.mark.slow
def test_the_target_is_that_of_the_mirrored_sample(run_dir):
    experiment = load(run_dir / "config.yaml")
    task = task_of(experiment)
    limits = np.array([[4, 8], [-40, 40], [-10, 10], [-10, 10]])
    entries, records = stored(experiment, "train")
    mirrored = set()
    with Dataset(experiment.data.directory) as dataset:
        for epoch in range(3):
            read = batches.batches(
                task.readable(dataset), entries[:4], experiment, epoch, target=task.target
            )
            with closing(read):
                ((x, y),) = read
            assert x.shape == (4, 2, 8, 12, 3)
            values = limits.mean(axis=1) + y.numpy() * np.ptp(limits, axis=1) / 2
            for entry, target in zip(entries[:4], values, strict=True):
                symmetry = int(np.random.default_rng([entry.seed, epoch]).integers(4))
                mirrored.add(symmetry)
                tilt = np.array(records[entry.id].provenance["specimen_tilt_mrad"])
                tilt *= [-1 if symmetry & 1 else 1, -1 if symmetry & 2 else 1]
                expected = [entry.thickness_angstrom, entry.varied["defocus_angstrom"], *tilt]
                np.testing.assert_allclose(target, expected, atol=2e-3)
    assert len(mirrored) > 1


@pytest.mark.slow
def test_a_mirrored_specimen_with_a_mirrored_tilt_gives_mirrored_patterns():
    """A tilt is a vector in the plane: this is why the target is mirrored as a gradient is."""
    # x, y, z
    cell = np.array([9.0, 6.0, 8.0])
    z = np.array([1.0, 5.0, 7.0])
    x = np.array([1.0, 3.5, 6.0])
    y = np.array([0.7, 2.9, 3.6])
    grid = {
        "grid_shape": (24, 36),
        "slice_thickness_angstrom": 1.0,
        "energy_ev": 200e3,
        "semiangle_mrad": 20.0,
    }
    at = np.array([[2.0, 4.0]])
    patterns = []
    for sign in (1, -1):
        patterns.append(
            namsa.simulate(
                ase.Atoms(
                    "CuAuC", np.stack([x, sign * y % cell[1], z], axis=1), cell=cell, pbc=True
                ),
                positions_angstrom=at * [sign, 1] % [cell[1], cell[0]],
                specimen_tilt_mrad=(sign * 30.0, 10.0),
                **grid,
            ).cbed[0]
        )
    flipped = np.roll(
        patterns[1][::-1], 1, axis=0
    )  # about the zero frequency, in the middle of an even grid
    inner = np.s_[1:]  # the first row has no mirror image
    np.testing.assert_allclose(flipped[inner], patterns[0][inner], atol=1e-5 * patterns[0].max())
    assert np.abs(patterns[1] - patterns[0]).max() > 1e-2 * patterns[0].max()


@pytest.mark.slow
def test_held_out_samples_are_scored_beside_the_median(run_dir, evaluation, validations, page):
    experiment = load(run_dir / "config.yaml")
    training, _ = stored(experiment, "train")
    _, records = stored(experiment, "dev", "test")
    assert (evaluation["task"], evaluation["calibrated_on"], list(evaluation["by_split"])) == (
        "estimate",
        "dev",
        ["dev", "test"],
    )
    assert [row["id"] for row in evaluation["samples"]] == sorted(records)
    assert evaluation["ranges"] == dict(
        zip(NAMES, ([4, 8], [-40, 40], [-10, 10], [-10, 10]), strict=True)
    )
    tilts = [entry.varied["specimen_tilt_mrad"][1] for entry in training]
    low, high = np.sort(tilts)[[(len(tilts) - 1) // 2, len(tilts) // 2]]
    assert low - 0.01 <= evaluation["medians"]["specimen_tilt_x_mrad"] <= high + 0.01
    for split, scores in evaluation["by_split"].items():
        of_split = []
        for row in evaluation["samples"]:
            if row["split"] == split:
                of_split.append(row)
        for name, score in scores.items():
            true = np.array([row["true"][name] for row in of_split])
            error = np.abs([row["estimate"][name] for row in of_split] - true)
            sigma = evaluation["calibration"][name]["uncertainty_factor"] * np.array(
                [r["deviation"][name] for r in of_split]
            )
            assert score["mae"] == pytest.approx(error.mean())
            assert score["baseline_mae"] == pytest.approx(
                np.abs(true - evaluation["medians"][name]).mean()
            )
            spread = np.sum((true - true.mean()) ** 2)  # samples of one specimen have one tilt
            assert score["r2"] == (pytest.approx(1 - np.sum(error**2) / spread) if spread else None)
            assert score["coverage_68"] == pytest.approx(np.mean(error <= sigma))
            assert score["coverage_95"] == pytest.approx(np.mean(error <= 2 * sigma))
            assert split != "dev" or score["coverage_68"] >= 0.6827
    assert (
        f"defocus <strong>{evaluation['by_split']['test']['defocus_angstrom']['mae']:.3g}</strong>"
        in page
    )
    assert "Validation, dev split" in page
    dev = evaluation["by_split"]["dev"]
    assert validations[-1]["mae_defocus_angstrom"] == pytest.approx(dev["defocus_angstrom"]["mae"])
    halves = dict(zip(NAMES, (2, 40, 10, 10), strict=True))
    assert validations[-1]["error"] == pytest.approx(
        np.mean([dev[name]["mae"] / halves[name] for name in NAMES])
    )


@pytest.mark.slow
def test_an_evaluation_whose_quantities_do_not_fit_together_is_refused(
    evaluation, tmp_path, capsys
):
    write_json(tmp_path / "evaluation.json", evaluation | {"medians": {"dose": 1.0}})
    (tmp_path / "config.yaml").write_text("training: {task: estimate}")
    assert command(["report", str(tmp_path)]) == 2
    assert "its quantities do not fit together" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("run_dir")
def test_a_job_of_estimates_is_told_before_it_begins(config):
    connection.start(load(config).training)
    assert forecast.forecast(load(config))["train_samples"] > 0


@pytest.mark.slow
def test_a_packed_run_has_errors_that_are_calibrated_for_its_weights(run_dir, evaluation, tmp_path):
    model, card, _ = pack_run(run_dir, tmp_path / "net", "error")
    assert (
        "From a 4D-STEM scan to its thickness, defocus, specimen tilt y and specimen tilt x" in card
    )
    assert "    namsa-train estimate DATA.h5 --checkpoint net --out ESTIMATES.h5" in card
    for split, scores in evaluation[
        "by_split"
    ].items():  # the baseline does not depend on the weights
        assert (
            f"| {split} | {sum(row['split'] == split for row in evaluation['samples'])} | defocus, "
            "Å |" in card
        )
        assert f"| {scores['defocus_angstrom']['baseline_mae']:.3g} |" in card
    assert "| 2×3 positions | any scan, in windows side by side |" in card
    calibration = read_estimate_calibration(model)
    assert list(calibration["quantities"]) == list(NAMES)
    with Dataset(load(run_dir / "config.yaml").data.directory) as dataset:
        of_run = replace(load_model(run_dir), folder=tmp_path, weights=model.weights)
        assert calibrate_estimates(of_run, dataset, lambda done, total: None) == calibration
    for factors in calibration["quantities"].values():
        assert (
            f"| {factors['uncertainty_factor']:.3g} | {factors['two_sigma_factor']:.3g} |" in card
        )
    for covered in calibration["dev"].values():
        assert covered["coverage_68"] >= 0.6827


@pytest.mark.slow
def test_a_file_is_estimated_as_its_sample_is_with_calibrated_errors(
    run_dir, evaluation, applied, capsys
):
    assert command(["calibrate", str(run_dir)]) == 0
    assert "defocus: " in capsys.readouterr().out
    calibration = json.loads((run_dir / "calibration.json").read_text(encoding="utf-8"))
    assert calibration["windows"] == 2 * sum(
        row["split"] == "dev" for row in evaluation["samples"]
    )  # with the dose, too
    row = evaluation["samples"][0]
    code, out = applied("estimate", row["id"])
    assert code == 0
    printed = capsys.readouterr().out
    for title in ("thickness", "defocus", "specimen tilt y", "specimen tilt x"):
        assert re.search(rf"^{title} .* ± ", printed, re.MULTILINE)
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    with h5py.File(out) as file:
        facts = json.loads(file["estimates"].attrs["provenance"])
        for name in NAMES:
            value = file[f"estimates/{name}/data"][()]
            error = file[f"estimates/{name}_error/data"][()]
            assert value.shape == error.shape == (1, 1)
            assert value[0, 0] == pytest.approx(row["estimate"][name], rel=1e-3, abs=1e-3)
            factor = calibration["quantities"][name]["uncertainty_factor"]
            assert error[0, 0] == pytest.approx(factor * row["deviation"][name], rel=1e-2)
            assert facts["quantities"][name]["value"] == pytest.approx(value[0, 0])
        assert file["estimates/defocus_angstrom/dim1"][0] == pytest.approx(
            0.6 * 2
        )  # the middle of positions 1 to 3
    assert facts["calibrated"]
    changed = with_digest(calibration | {"quantities": {}})
    (run_dir / "calibration.json").write_text(json.dumps(changed))
    assert applied("estimate", row["id"])[0] == 2
    assert "holds other quantities than the network" in capsys.readouterr().err
    (run_dir / "calibration.json").write_text(json.dumps(changed | {"windows": 1}))
    assert applied("estimate", row["id"])[0] == 2
    assert "calibration.json is not as it was written: remove it" in capsys.readouterr().err
