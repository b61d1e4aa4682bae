"""Models are found by path and by name, with their conditions and calibration."""

import json

import numpy as np
import pytest
from paths import CONFIGS
from small_network import experiment, write_run

from namsa import InputError
from namsa.config.loading import dump_yaml
from train.__main__ import main
from train.apply import models
from train.apply.models import ModelCalibration, load_model
from train.apply.weights import load_network
from train.experiment.conditions import conditions
from train.experiment.continuation import configuration_of
from train.experiment.experiment import load
from train.optimization import checkpoint
from train.optimization.origin import Origin

EXPERIMENT = load(CONFIGS / "quickstart.yaml")


@pytest.fixture
def run(tmp_path):
    """A run directory with two checkpoints. Their content is read when the network is built."""
    checkpoints = tmp_path / "run/checkpoints"
    checkpoints.mkdir(parents=True)
    for step in (7, 12):
        (checkpoints / f"step-{step:09d}.npz").touch()
    (tmp_path / "run/config.yaml").write_text(dump_yaml(EXPERIMENT))
    return tmp_path / "run"


def test_models_are_found_by_path_and_by_name(tmp_path, run, monkeypatch, capsys):
    older, newer = sorted((run / "checkpoints").glob("*.npz"))
    assert load_model(run).weights == load_model(str(run)).weights == newer
    assert load_model(older).weights == older
    assert load_model(str(older)).experiment == EXPERIMENT
    shipped = tmp_path / "models/gold"
    shipped.mkdir(parents=True)
    (shipped / "config.yaml").write_text((run / "config.yaml").read_text())
    (shipped / "weights.npz").touch()
    (shipped / "predictions.npz").touch()
    monkeypatch.setattr(models, "MODELS", tmp_path / "models")
    assert load_model("gold").weights == shipped / "weights.npz"
    assert (
        main(["reconstruct", "a.h5", "--checkpoint", "silver", "--out", str(tmp_path / "o.h5")])
        == 2
    )
    error = capsys.readouterr().err
    assert "silver is neither a run directory, nor a checkpoint, nor a model" in error
    assert "(gold for density)" in error
    assert main(["models"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["name", "task", "command"]
    assert line.split()[:3] == ["gold", "density", "reconstruct"]
    assert (
        main(["reconstruct", "a.h5", "--checkpoint", "gold", "--out", str(tmp_path / "o.h5")]) == 2
    )
    assert capsys.readouterr().err == "error: there is no file a.h5\n"


def test_a_model_carries_its_conditions_and_its_calibration(run):
    assert load_model(run).conditions == conditions(EXPERIMENT)
    assert load_model(run).calibration == ModelCalibration(None, None)
    measured = {"scale": 2.5, "uncertainty_factor": 2.5, "transmitted_fraction": 0.9}
    (run / "calibration.json").write_text(json.dumps(measured))
    assert load_model(run).calibration == ModelCalibration(
        uncertainty_factor=2.5, transmitted_fraction=0.9
    )


@pytest.mark.parametrize(
    "change",
    [
        {"microscope": {"energy_ev": 200.25e3}},
        {"training": {"inputs": {"density_scale_e_per_angstrom2": 1.5}}},
        {"training": {"loss": {"l2": 5e-4}}},
    ],
)
def test_a_configuration_that_did_not_make_the_weights_is_refused(run, change):
    origin = Origin(configuration_of(EXPERIMENT))
    facts = {"origin": origin.to_json(), "network": EXPERIMENT.network.model_dump(mode="json")}
    with (run / "checkpoints/step-000000012.npz").open("wb") as file:
        checkpoint.write(file, facts, [], [])
    assert load_model(run).experiment == EXPERIMENT
    longer = {"training": {"epochs": EXPERIMENT.training.epochs + 3}}
    (run / "config.yaml").write_text(dump_yaml(changed(longer)))
    load_model(run)
    (run / "config.yaml").write_text(dump_yaml(changed(change)))
    with pytest.raises(InputError, match=r"was .*, is .*\n.*not that of its weights"):
        load_model(run)


def changed(change):
    """The experiment with other values of some keys."""
    tree = EXPERIMENT.model_dump(mode="json")
    update(tree, change)
    return type(EXPERIMENT).model_validate(tree)


def update(tree, change):
    for key, value in change.items():
        if isinstance(value, dict):
            update(tree[key], value)
        else:
            tree[key] = value


def test_a_folder_that_is_no_model_is_refused(tmp_path, run):
    (run / "config.yaml").unlink()
    with pytest.raises(InputError, match=r"has no config\.yaml"):
        load_model(run)
    with pytest.raises(InputError, match="neither checkpoints"):
        load_model(tmp_path)


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path, monkeypatch):
    model = load_model(write_run(tmp_path, experiment()))
    header, arrays = checkpoint.read(model.weights)
    index = next(index for index, array in enumerate(arrays) if array.ndim == 4)
    arrays[index] = arrays[index].copy()
    arrays[index].flat[:2] = np.nan, np.inf
    monkeypatch.setattr(checkpoint, "read", lambda path: (header, arrays))
    with pytest.raises(
        InputError, match=f"2 of {arrays[index].size} values of .*kernel are not finite"
    ):
        load_network(model, (24, 24))


def test_a_model_gives_its_network_in_keras_with_its_weights():
    model = load_model("200kv-5mrad-classify")
    network = model.keras()
    header, arrays = checkpoint.read(model.weights)
    stored = dict(zip(header["variables"], arrays, strict=True))
    assert {variable.path for variable in network.variables} <= stored.keys()
    for variable in network.trainable_variables:
        np.testing.assert_array_equal(variable, stored[variable.path].astype("float32"))
