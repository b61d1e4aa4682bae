"""A run becomes a folder that answers as the run does, and a card with its numbers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny import CONFIG

from namsa import InputError
from namsa.base import folders
from namsa.base.digested_json import with_digest
from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from train.__main__ import main as command
from train.apply.models import load_model
from train.experiment.experiment import Experiment
from train.main import train
from train.optimization import checkpoint
from train.pack import NetworkVariables, pack, trainings_before, write_config
from train.reports import report
from train.tasks.density.trust import calibration as calibrate
from train.tasks.density.trust.predictions import trained_ensemble


@pytest.fixture(scope="module")
def run(config, no_reports):
    """A finished run of the tiny job, with its dataset."""
    train(config, run_dir=config.parent / "run")
    return config.parent / "run"


@pytest.fixture(scope="module")
def calibrated(run):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "write_report", lambda run_dir, result_part: None)
        assert command(["calibrate", str(run), "--passes", "2"]) == 0
    return run


@pytest.mark.slow
def test_each_window_is_predicted_once_and_an_interrupted_calibration_changes_nothing(
    calibrated, monkeypatch, capsys
):
    predicted = []
    interrupted_at = 0
    load_ensemble = calibrate.trained_ensemble

    def counting_ensemble(*arguments, **settings):
        ensemble = load_ensemble(*arguments, **settings)

        def predict(patterns):
            predicted.extend(patterns)
            if len(predicted) == interrupted_at:
                raise KeyboardInterrupt
            return ensemble.predict(patterns)

        return ensemble._replace(predict=predict)

    monkeypatch.setattr(calibrate, "trained_ensemble", counting_ensemble)
    progress = []
    calibrate.calibrate(calibrated, 2, None, lambda *counts: progress.append(counts))
    directory = load_model(calibrated).experiment.data.directory
    with Dataset(directory) as dataset:
        splits = [entry.split for entry in manifest.present(directory, dataset.ids)]
    held_out = len(splits) - splits.count("train")
    assert len(predicted) == len(splits)  # without noise, a sample has one window
    assert progress == [
        (done, len(splits) + held_out) for done in range(1, len(splits) + held_out + 1)
    ]

    files = []
    for name in ("calibration.json", "familiarity.npz", "transfer.json", "evaluation.json"):
        files.append(calibrated / name)
    before = [path.read_bytes() for path in files]
    predicted = []
    interrupted_at = len(splits)
    assert command(["calibrate", str(calibrated), "--passes", "2"]) == 130
    assert f"{calibrated} is calibrated as before" in capsys.readouterr().err
    assert [path.read_bytes() for path in files] == before


def test_what_is_not_measured_cannot_be_packed(run, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(run, bare, ignore=shutil.ignore_patterns("calibration.json", "transfer.json"))
    with pytest.raises(InputError, match="has no calibration.json: run namsa-train calibrate"):
        pack(bare, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_runs_that_started_from_each_other_are_each_named_once(tmp_path, monkeypatch):
    """As after training back and forth; a card names no folders of the machine."""
    starts = {}
    for name, start in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "evaluation.json").touch()
        starts[tmp_path / name / "config.yaml"] = starting_from(tmp_path / start)
    facts = {"epochs": 2, "steps": 8, "training_samples": 4}
    monkeypatch.setattr("train.pack.read_results", lambda folder: {"run": facts})
    monkeypatch.setattr("train.pack.load", starts.get)
    lines = list(trainings_before(starting_from(tmp_path / "a")))
    assert lines == ["2 epochs, 8 steps, 4 samples"] * 2 + ["a"]
    assert list(trainings_before(starting_from(tmp_path / "gone"))) == ["gone"]
    write_config(starting_from(tmp_path / "a"), tmp_path)
    assert str(tmp_path) not in (tmp_path / "config.yaml").read_text(encoding="utf-8")


def starting_from(folder):
    """An experiment that starts from the weights of a run."""
    training = {**CONFIG["training"], "start_from": str(folder)}
    return Experiment.model_validate({**CONFIG, "training": training})


def test_a_calibration_of_other_weights_is_not_packed_and_said(calibrated, tmp_path):
    earlier = tmp_path / "earlier"
    shutil.copytree(calibrated, earlier)
    path = earlier / "calibration.json"
    calibration = json.loads(path.read_text(encoding="utf-8"))
    changed = with_digest(calibration | {"step": calibration["step"] - 1})
    path.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.warns(
        UserWarning, match=r"calibration.json is of step \d+, and the weights are step-"
    ):
        load_model(earlier)
    with (
        pytest.warns(UserWarning, match="of step"),
        pytest.raises(
            InputError, match=r"calibration.json is of step .* run namsa-train calibrate"
        ),
    ):
        pack(earlier, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_packed_run_answers_as_the_run(calibrated, tmp_path, capsys):
    out = tmp_path / "100kv-15mrad"
    assert command(["pack", str(calibrated), "--out", str(out)]) == 0
    assert f"{out}/CARD.md" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == [
        "CARD.md",
        "calibration.json",
        "config.yaml",
        "digests.json",
        "familiarity.npz",
        "learnt.json",
        "transfer.json",
        "weights.npz",
    ]
    packed = load_model(out)
    unpacked = load_model(calibrated)
    assert str(calibrated.parent) not in (out / "config.yaml").read_text(encoding="utf-8")
    assert packed.experiment == unpacked.experiment.model_copy(
        update={"data": packed.experiment.data}
    )
    assert packed.calibration == unpacked.calibration
    assert (
        packed.weights.stat().st_size < 0.5 * unpacked.weights.stat().st_size
    )  # neither moments nor 32 bits

    patterns = np.random.default_rng(0).exponential(1 / 1536, (1, 2, 3, 32, 48)).astype(np.float32)
    before, after = (
        trained_ensemble(model, passes=0).predict(patterns).density for model in (unpacked, packed)
    )
    assert not np.array_equal(before, after)
    assert np.sqrt(np.mean((before - after) ** 2)) < 5e-3 * before.std()


def test_a_run_that_is_packed_is_not_packed_again_and_another_state_is_named(
    calibrated, tmp_path, capsys, monkeypatch
):
    run = tmp_path / "run"
    shutil.copytree(calibrated, run)
    out = tmp_path / "model"
    assert command(["pack", str(run), "--out", str(out)]) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    capsys.readouterr()

    monkeypatch.setattr("train.pack.pack", lambda *_: pytest.fail("it is packed already"))
    assert command(["pack", str(run), "--out", str(out)]) == 0
    assert "is there already, packed of this run as it is" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before

    path = run / "calibration.json"
    calibration = json.loads(path.read_text(encoding="utf-8"))
    changed = with_digest(calibration | {"uncertainty_factor": 9.0})
    path.write_text(json.dumps(changed), encoding="utf-8")
    assert command(["pack", str(run), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "files.calibration.json: was " in error
    assert "remove it, or name another with --out" in error


def packed_twice(monkeypatch, between=lambda: None):
    """Lets the command pack a run that another process packs before it."""

    def pack_twice(*arguments):
        pack(*arguments)
        between()
        return pack(*arguments)

    monkeypatch.setattr("train.pack.pack", pack_twice)


@pytest.mark.slow
def test_of_two_packs_at_once_the_second_is_a_success_unless_its_run_has_changed(
    calibrated, tmp_path, capsys, monkeypatch
):
    run = tmp_path / "run"
    shutil.copytree(calibrated, run)
    packed_twice(monkeypatch)
    assert command(["pack", str(run), "--out", str(tmp_path / "one")]) == 0
    assert "is there already, packed of this run as it is" in capsys.readouterr().out

    path = run / "calibration.json"
    calibration = json.loads(path.read_text(encoding="utf-8"))
    changed = json.dumps(with_digest(calibration | {"uncertainty_factor": 7.0}))
    packed_twice(monkeypatch, between=lambda: path.write_text(changed, encoding="utf-8"))
    assert command(["pack", str(run), "--out", str(tmp_path / "two")]) == 2
    assert "files.calibration.json: was " in capsys.readouterr().err


@pytest.mark.slow
def test_a_pack_that_is_stopped_after_its_folder_has_its_name_is_there_for_the_next_command(
    calibrated, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "model"

    def stop(folder):
        assert folder == out.parent
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folders, "sync_folder", stop)
        assert command(["pack", str(calibrated), "--out", str(out)]) == 130
    capsys.readouterr()
    assert command(["pack", str(calibrated), "--out", str(out)]) == 0
    assert "is there already, packed of this run as it is" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_calibration_is_that_of_its_weights_samples_and_settings(calibrated, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(calibrated, run)
    assert calibrate.is_calibrated(run, 2, None, 0)
    assert not calibrate.is_calibrated(run, None, None, 0)
    assert not calibrate.is_calibrated(run, 2, 1, 0)
    path = load_model(run).weights
    header, arrays = checkpoint.read(path)
    facts = {key: header[key] for key in ("step", "epoch", "network")}
    with path.open("wb") as file:  # other weights of the same step
        checkpoint.write(file, facts, header["variables"], [array * 2 for array in arrays])
    assert not calibrate.is_calibrated(run, 2, None, 0)


def test_the_card_says_what_was_measured(calibrated, tmp_path):
    facts = pack(calibrated, tmp_path / "small")
    card = (tmp_path / "small/CARD.md").read_text(encoding="utf-8")
    evaluation = json.loads((calibrated / "evaluation.json").read_text(encoding="utf-8"))
    mean = evaluation["mean"]
    rival = evaluation["mean_predictor"]
    assert (
        f"| all | {len([r for r in evaluation['samples'] if r['split'] == evaluation['split']])} |"
        in card
    )
    assert f"{mean['ssim']:.3f} ({rival['ssim']:.3f})" in card
    assert f"{mean['mae']:.2f} ({rival['mae']:.2f})" in card
    for words in (
        "100 keV",
        "15 mrad",
        "thermal vibration",
        r"\[0 0 1\]",
        "Training saw",
        facts.weights["sha256"],
    ):
        assert words in card
    assert checkpoint.read(tmp_path / "small/weights.npz")[0]["digest"] in card
    thickness = facts.measured.doses[0]["thickness_angstrom"]
    noisy = {}
    for row in facts.measured.doses:
        if row["thickness_angstrom"] == thickness:
            noisy[row["electrons"]] = row["mae"]
    assert list(noisy) == [None, 1e5, 1e4, 1e3]
    assert noisy[1e5] != noisy[None] != noisy[1e3]


def test_weights_that_overflow_in_16_bits_stay_in_32(calibrated, tmp_path):
    large = tmp_path / "large"
    shutil.copytree(calibrated, large)
    path = load_model(large).weights
    header, arrays = checkpoint.read(path)
    arrays = [
        array * np.float32(1e5) if name == "last/kernel" else array
        for name, array in zip(header["variables"], arrays, strict=True)
    ]
    assert any(name == "last/kernel" for name in header["variables"])
    with path.open("wb") as file:
        facts = {}
        for key, value in header.items():
            if key not in ("format", "variables", "digest"):
                facts[key] = value
        checkpoint.write(file, facts, header["variables"], arrays)
    assert pack(large, tmp_path / "out").weights["dtype"] == "float32"


def test_nothing_is_written_over_and_no_step_mixed_up(calibrated, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").touch()
    with pytest.raises(InputError, match="is there already"):
        pack(calibrated, full)
    other = tmp_path / "other"
    shutil.copytree(calibrated, other)
    path = other / "evaluation.json"
    evaluation = json.loads(path.read_text(encoding="utf-8"))
    evaluation["run"]["steps"] += 1
    path.write_text(json.dumps(evaluation))
    with pytest.raises(InputError, match="train evaluate"):
        pack(other, tmp_path / "out")
    assert command(["pack", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 2
    assert not Path(tmp_path / "out").exists()


def test_kernels_of_zeros_take_less_of_a_packed_file_and_read_as_they_were(tmp_path):
    kernel = np.random.default_rng(0).normal(0, 0.1, (3, 3, 64, 64)).astype(np.float32)
    kernel[..., 16:] = 0
    bias = np.linspace(0, 1e6, 64, dtype=np.float32)
    variables = NetworkVariables({"network": {}}, ["kernel", "bias"], [kernel, bias])
    assert variables.fit("float16")  # the bias stays float32
    facts = variables.write(tmp_path / "weights.npz", "float16")
    _, (packed, packed_bias) = checkpoint.read(tmp_path / "weights.npz")
    np.testing.assert_array_equal(packed, kernel.astype(np.float16))
    np.testing.assert_array_equal(packed_bias, bias)
    assert facts["bytes"] < 0.3 * kernel.astype(np.float16).nbytes
