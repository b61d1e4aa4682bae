"""A configuration with stages trains one after the other, then calibrates and packs; nothing is done twice."""

import shutil
from pathlib import Path

import pytest
import yaml
from paths import CONFIGS
from tiny import write_config

from namsa.config.loading import read_yaml
from namsa.errors import InputError
from train import recipe
from train.__main__ import main
from train.apply.models import load_model
from train.experiment.experiment import load
from train.optimization import checkpoint
from train.tasks.reporting import read_results

STAGES = [{"training.epochs": 2, "training.optimizer": {"learning_rate": 1e-4}}, {"training.inputs.augment": False}]


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path, stages=STAGES)


def test_a_stage_keeps_what_those_before_it_have_set_and_the_command_line_goes_before(config):
    first, second, third = (load(config, [f"stage={number}"]).training for number in (1, 2, 3))
    assert load(config).training == first
    assert (first.epochs, second.epochs, third.epochs) == (3, 2, 2)
    assert [each.inputs.augment for each in (first, second, third)] == [True, True, False]
    assert third.optimizer.learning_rate == 1e-4
    assert load(config, ["training.epochs=7", "stage=3"]).training.epochs == 7
    for wrong in ("0", "4", "true", "last"):
        with pytest.raises(InputError, match=r"stage is .*, and it has stages 1 to 3"):
            read_yaml(config, [f"stage={wrong}"])
    config.write_text("stages: [training.epochs]\n")
    with pytest.raises(InputError, match="stages must be a list, for each stage a mapping"):
        read_yaml(config, ["stage=2"])


def test_stages_start_from_the_one_before_each_in_a_folder_of_its_own():
    path, run = CONFIGS / "reality.yaml", Path("runs/200kv-20mrad-reality")
    *earlier, last = stages = stages_of(path, ["training.batch_size=8"])
    assert [stage.run_dir for stage in earlier] == [run / "stages" / str(n + 1) for n in range(len(earlier))]
    assert last.run_dir == run
    starts = [stage.experiment.training.start_from for stage in stages]
    assert starts == [None, *(str(stage.run_dir) for stage in earlier)]
    assert {stage.experiment.training.batch_size for stage in stages} == {8}
    (alone,) = stages_of(path, ["stage=3"])
    assert (alone.run_dir, alone.experiment) == (earlier[2].run_dir, stages_of(path, [])[2].experiment)
    (alone,) = stages_of(path, ["stage=3", "training.start_from=200kv-20mrad-reality"], Path("own"))
    assert (alone.run_dir, alone.experiment.training.start_from) == (Path("own"), "200kv-20mrad-reality")


def stages_of(path, overrides, run_dir=None):
    return recipe.stages_of(path, overrides, load(path, overrides), run_dir)


def test_weights_to_start_from_that_are_missing_are_said_before_samples_are_simulated(config, capsys, tmp_path):
    assert main([str(config), "--set", "stage=2", "--run-dir", str(tmp_path / "run")]) == 2
    assert "training.start_from: runs/tiny/stages/1 is neither a run directory" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_report")
@pytest.mark.slow
def test_what_is_done_is_not_done_again(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("train.scaling.forecast.MIN_SECONDS", 0.01)
    monkeypatch.setattr("train.reports.report.write_report", lambda run_dir, part: None)
    tree = yaml.safe_load(config.read_text()) | {"finish": {"simulated": 2}, "stages": STAGES[:1]}
    config.write_text(yaml.safe_dump(tree))
    run, trained, counted = tmp_path / "run", [], []
    job, count = recipe.train, recipe.count_samples
    monkeypatch.setattr(recipe, "count_samples", lambda *args: counted.append(args) or count(*args))
    monkeypatch.setattr(recipe, "train", lambda *args: trained.append(args[2]) or job(*args))
    recipe.run(config, run_dir=run)
    said = capsys.readouterr().out
    assert trained == [run / "stages/1", run]
    assert len(counted) == 1  # the stages share a folder of samples
    assert "what is left:" in said
    assert f"variables start from {run}/stages/1/checkpoints" in said
    model = run / "model/tiny"
    assert load_model(model).calibration.uncertainty_factor
    before = read_results(run / "stages/1")["run"]
    card = (model / "CARD.md").read_text(encoding="utf-8")
    start = f"3 epochs, {before['steps']} steps, {before['training_samples']} samples, from random weights"
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
