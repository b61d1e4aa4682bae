"""A configuration with stages trains one after the other, then calibrates and packs; nothing is
done twice.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from paths import CONFIGS
from tiny import write_config

from namsa.base.errors import InputError
from namsa.config.loading import read_yaml
from train import recipe
from train.__main__ import main
from train.apply.models import load_model
from train.experiment.experiment import load
from train.optimization import checkpoint
from train.tasks.reporting import read_results

STAGES = [
    {"training.epochs": 2, "training.optimizer": {"learning_rate": 1e-4}},
    {"training.inputs.augment": False},
]


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path, stages=STAGES)


@pytest.mark.slow
def test_a_stage_keeps_what_those_before_it_have_set_and_the_command_line_goes_before(config):
    first, second, third = (load(config, [f"stage={stage}"]).training for stage in (1, 2, 3))
    assert load(config).training == first
    assert (first.epochs, second.epochs, third.epochs) == (3, 2, 2)
    assert [training.inputs.augment for training in (first, second, third)] == [True, True, False]
    assert third.optimizer.learning_rate == 1e-4
    assert load(config, ["training.epochs=7", "stage=3"]).training.epochs == 7
    for wrong in ("0", "4", "true", "last"):
        with pytest.raises(InputError, match=r"stage is .*, and it has stages 1 to 3"):
            read_yaml(config, [f"stage={wrong}"])
    config.write_text("stages: [training.epochs]\n")
    with pytest.raises(InputError, match="stages must be a list, for each stage a mapping"):
        read_yaml(config, ["stage=2"])


@pytest.mark.slow
def test_stages_start_from_the_one_before_each_in_a_folder_of_its_own():
    path = CONFIGS / "reality.yaml"
    run = Path("runs/200kv-20mrad-reality")
    *earlier, last = stages = stages_of(path, ["training.batch_size=8"])
    assert [stage.run_dir for stage in earlier] == [
        run / "stages" / str(n + 1) for n in range(len(earlier))
    ]
    assert last.run_dir == run
    starts = [stage.experiment.training.start_from for stage in stages]
    assert starts == [None, *(str(stage.run_dir) for stage in earlier)]
    assert {stage.experiment.training.batch_size for stage in stages} == {8}
    (alone,) = stages_of(path, ["stage=3"])
    assert (alone.run_dir, alone.experiment) == (
        earlier[2].run_dir,
        stages_of(path, [])[2].experiment,
    )
    (alone,) = stages_of(path, ["stage=3", "training.start_from=200kv-20mrad-reality"], Path("own"))
    assert (alone.run_dir, alone.experiment.training.start_from) == (
        Path("own"),
        "200kv-20mrad-reality",
    )


def stages_of(path, overrides, run_dir=None):
    return recipe.stages_of(path, overrides, load(path, overrides), run_dir)


@pytest.mark.slow
def test_weights_to_start_from_that_are_missing_are_said_before_samples_are_simulated(
    config, capsys, tmp_path
):
    assert main([str(config), "--set", "stage=2", "--run-dir", str(tmp_path / "run")]) == 2
    assert (
        "training.start_from: runs/tiny/stages/1 is neither a run directory"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_report")
@pytest.mark.slow
def test_what_is_done_is_not_done_again(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("train.scaling.forecast.MIN_SECONDS", 0.01)
    monkeypatch.setattr("train.reports.report.write_report", lambda run_dir, part: None)
    tree = yaml.safe_load(config.read_text()) | {"finish": {"simulated": 2}, "stages": STAGES[:1]}
    config.write_text(yaml.safe_dump(tree))
    run = tmp_path / "run"
    trained = []
    counted = []
    job = recipe.train
    count = recipe.count_samples
    monkeypatch.setattr(recipe, "count_samples", lambda *args: counted.append(args) or count(*args))
    monkeypatch.setattr(recipe, "train", lambda *args: trained.append(args[2]) or job(*args))
    recipe.run(config, run_dir=run)
    printed = capsys.readouterr().out
    assert trained == [run / "stages/1", run]
    assert len(counted) == 1  # the stages share a folder of samples
    assert "what is left:" in printed
    assert f"variables start from {run}/stages/1/checkpoints" in printed
    model = run / "model/tiny"
    assert load_model(model).calibration.uncertainty_factor
    earlier = read_results(run / "stages/1")["run"]
    card = (model / "CARD.md").read_text(encoding="utf-8")
    start = (
        f"3 epochs, {earlier['steps']} steps, {earlier['training_samples']} samples, from random "
        "weights"
    )
    assert f"| started from | {start} |" in card

    packed = (model / "weights.npz").stat().st_mtime_ns
    recipe.run(config, run_dir=run)
    assert len(trained) == 2
    assert (model / "weights.npz").stat().st_mtime_ns == packed

    shutil.rmtree(run / "checkpoints")
    (run / "evaluation.json").unlink()
    recipe.run(config, ["training.epochs=3"], run)
    assert trained[2:] == [run]
    assert checkpoint.read_header(model / "weights.npz")["epoch"] == 3


# ---- What has changed, and what is missing
# ---------------------------------------------------------


@pytest.fixture
def trained(config, tmp_path, monkeypatch, recipe_once):
    """A recipe of two stages that is done, as (configuration, its folder, stages that are trained
    again).
    """
    source, done = recipe_once
    folder = shutil.copytree(done, tmp_path / "run")
    again = []
    job = recipe.train
    monkeypatch.setattr(recipe, "train", lambda *args: again.append(args[2]) or job(*args))
    monkeypatch.setattr("train.scaling.forecast.MIN_SECONDS", 0.01)
    monkeypatch.setattr("train.main.write_report", lambda run_dir: None)
    return source, folder, again


@pytest.fixture(scope="module")
def recipe_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe")
    source = write_config(folder, stages=STAGES[:1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.scaling.forecast.MIN_SECONDS", 0.01)
        patch.setattr("train.main.write_report", lambda run_dir: None)
        patch.chdir(folder)
        recipe.run(source, ["training.epochs=1"], Path("run"))
    return source, folder / "run"


def run_again(trained, tmp_path, *overrides):
    """Runs the recipe in the folder that its stages are relative to."""
    config, _, again = trained
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        recipe.run(config, ["training.epochs=1", *overrides], Path("run"))
    return again


@pytest.mark.slow
def test_a_recipe_that_is_done_is_not_trained_again(trained, tmp_path):
    assert run_again(trained, tmp_path) == []


@pytest.mark.slow
def test_a_stage_whose_earlier_one_is_trained_further_is_not_kept(trained, tmp_path):
    """Stage 1 has more epochs now: the old model would be the result."""
    _, run, again = trained
    before = {}
    for path in run.rglob("*"):
        if path.is_file():
            before[path] = path.read_bytes()
    with pytest.raises(InputError) as refusal:
        run_again(trained, tmp_path, "training.epochs=2")
    assert str(refusal.value) == (
        "stage 1 in run/stages/1 is to be trained further, and stage 2 in run has started from "
        "it: remove run/checkpoints to train that again, restore the former values of stage 1, or "
        "give the recipe another --run-dir"
    )
    assert again == []
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_stage_that_started_from_other_weights_is_refused(trained, tmp_path):
    _, run, _ = trained
    path = max((run / "stages/1/checkpoints").glob("*.npz"))
    header, arrays = checkpoint.read(path)
    facts = {}
    for key, value in header.items():
        if key not in ("variables", "digest"):
            facts[key] = value
    with path.open("wb") as file:
        checkpoint.write(file, facts, header["variables"], [array + 1 for array in arrays])
    with pytest.raises(InputError, match=r'training.start_from: was "weights \w+", is "weights'):
        run_again(trained, tmp_path)


@pytest.mark.slow
def test_a_stage_of_another_configuration_is_refused(trained, tmp_path):
    with pytest.raises(InputError, match=r"the run in run/stages/1 was made differently:\n.*l2"):
        run_again(trained, tmp_path, "training.loss.l2=0")


@pytest.mark.slow
def test_an_earlier_stage_that_is_lost_is_not_trained_again(trained, tmp_path, capsys):
    _, run, _ = trained
    shutil.rmtree(run / "stages")
    assert run_again(trained, tmp_path) == []
    assert "stage 1, run/stages/1: no weights there, and none needed" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["null", "cut", "gone"])
def test_a_damaged_evaluation_is_made_again(damage, trained, tmp_path):
    _, run, _ = trained
    path = run / "evaluation.json"
    text = path.read_text()
    if damage == "null":
        path.write_text(text.replace('"epochs": 1', '"epochs": null'))
    elif damage == "cut":
        path.write_text(text[:100])
    else:
        path.unlink()
    assert run_again(trained, tmp_path) == [Path("run")]
    assert read_results(run)["run"]["epochs"] == 1


@pytest.mark.slow
def test_a_last_stage_without_checkpoints_is_trained_again(trained, tmp_path):
    """Other arrays of the run are not taken for its weights."""
    _, run, _ = trained
    shutil.rmtree(run / "checkpoints")
    with (run / "familiarity.npz").open("wb") as file:
        np.savez(file, features=np.zeros(3))
    with pytest.raises(InputError, match="has neither checkpoints"):
        load_model(run)
    assert run_again(trained, tmp_path) == [Path("run")]
    assert load_model(run).weights.parent.name == "checkpoints"


@pytest.fixture
def packs(monkeypatch):
    """Stands in for the packing of a model: what it was asked to write."""
    packed = []

    def pack(run_dir, out, count):
        header, arrays = checkpoint.read(load_model(run_dir).weights)
        facts = {key: header[key] for key in ("step", "epoch", "network")}
        out.mkdir(parents=True)
        with (out / "weights.npz").open("wb") as file:
            facts[recipe.PACKED_FROM] = header["digest"]
            checkpoint.write(file, facts, header["variables"], arrays)
        packed.append(out)

    monkeypatch.setattr(recipe, "pack", pack)
    monkeypatch.setattr(recipe, "_calibrate", lambda *args: None)
    return packed


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["empty folder", "cut", "other weights"])
def test_a_model_without_usable_weights_is_packed_again(damage, trained, tmp_path, packs):
    _, run, again = trained
    model = run / "model" / "tiny"
    run_again(trained, tmp_path, "finish={}")
    run_again(trained, tmp_path, "finish={}")
    assert len(packs) == 1
    weights = model / "weights.npz"
    if damage == "empty folder":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:100])
    else:  # of a run with as many steps
        header, arrays = checkpoint.read(weights)
        facts = {key: header[key] for key in ("step", "epoch", "network")}
        with weights.open("wb") as file:
            facts[recipe.PACKED_FROM] = "0" * 32
            checkpoint.write(file, facts, header["variables"], arrays)
    run_again(trained, tmp_path, "finish={}")
    assert len(packs) == 2
    shutil.rmtree(run / "checkpoints")  # the model is the result
    run_again(trained, tmp_path, "finish={}")
    assert (len(packs), again) == (2, [])


@pytest.mark.slow
def test_a_stage_that_a_validation_ended_is_done(trained, tmp_path):
    _, run, _ = trained
    row = {"step": 8, "epoch": 1, "samples": 1, "huber": 0.1}
    for folder in (run, run / "stages/1"):
        (folder / "validation.jsonl").write_text(json.dumps(row) + "\n")
    stopping = ("training.validation={every_epochs: 1, stop_at: 0.5}", "training.epochs=9")
    assert run_again(trained, tmp_path, *stopping) == []
