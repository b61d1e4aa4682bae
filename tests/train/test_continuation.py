"""A run is continued as what it was, and says what its network has learnt."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import yaml
from tiny import rows, write_config

from namsa.base.errors import InputError
from train.__main__ import main as command
from train.main import train
from train.optimization import checkpoint
from train.optimization.origin import ORIGIN, LearntMaterials, origin_of
from train.ranks import connection

pytestmark = pytest.mark.usefixtures("no_report")


@pytest.fixture
def run(undisturbed, tmp_path, monkeypatch):
    """A copy of a finished run of three epochs."""
    monkeypatch.setattr(
        connection, "stop", lambda code=0: None
    )  # Horovod cannot start twice in a process
    return shutil.copytree(undisturbed, tmp_path / "run")


def newest_checkpoint(run):
    return max((run / "checkpoints").glob("step-*.npz"))


def header_of(run):
    return checkpoint.read_header(newest_checkpoint(run))


def rewrite_header(path, change):
    """Writes a checkpoint again with another header."""
    header, arrays = checkpoint.read(path)
    names = header["variables"]
    facts = {}
    for key, value in header.items():
        if key not in ("format", "variables"):
            facts[key] = value
    change(facts)
    del facts["digest"]
    with path.open("wb") as file:
        checkpoint.write(file, facts, names, arrays)


def without_origin(run):
    """Makes the checkpoints of a run those of an earlier version."""
    for path in (run / "checkpoints").glob("*.npz"):
        rewrite_header(path, lambda facts: facts.pop(ORIGIN))


@pytest.mark.parametrize("old", [False, True])
def test_other_inputs_are_refused_before_anything_is_written(old, run, config, capsys):
    if old:
        without_origin(run)
    before = {}
    for path in run.rglob("*"):
        if path.is_file():
            before[path] = path.read_bytes()
    changes = ["training.epochs=5", "training.inputs.normalisation=log", "training.loss.l2=0"]
    words = []
    for change in changes:
        for word in ("--set", change):
            words.append(word)
    assert command([str(config), "--run-dir", str(run), *words]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: the run in {run} was made differently:",
        '  training.inputs.normalisation: was "power", is "log"',
        "  training.loss.l2: was 0.0001, is 0.0",
        "continue with the former values, or give this training another --run-dir; "
        "training.start_from begins it with the weights of this one",
    ]
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_what_may_change_is_one_line_each_and_the_run_goes_on(run, config, capsys):
    changes = ["training.epochs=4", "training.batch_size=2", "training.checkpoints.keep=2"]
    train(config, changes, run)
    printed = capsys.readouterr().out.splitlines()
    assert "changed since step 24: training.epochs: was 3, is 4" in printed
    assert "changed since step 24: training.batch_size: was 1, is 2" in printed
    assert "changed without effect on what is learnt: training.checkpoints.keep" in printed
    assert len(rows(run)) == 24 + 4
    assert yaml.safe_load((run / "config.yaml").read_text())["training"]["batch_size"] == 2
    train(config, changes, run)
    assert "changed" not in capsys.readouterr().out


def test_another_list_of_samples_is_refused(run, config, tmp_path):
    other = write_config(
        tmp_path, materials=yaml.safe_load(config.read_text())["materials"], seed=3
    )
    tree = yaml.safe_load(other.read_text())
    header = json.loads((config.parent / "data/manifest.jsonl").read_text().splitlines()[0])
    for path in (run / "checkpoints").glob("*.npz"):
        rewrite_header(
            path, lambda facts: facts[ORIGIN]["identity"]["samples"].update(list="0" * 16)
        )
    tree["data"]["directory"] = str(config.parent / "data")
    other.write_text(yaml.safe_dump(tree))
    with pytest.raises(InputError) as refusal:
        train(other, [], run)
    assert f'samples.list: was "{"0" * 16}", is "{header["config_hash"]}"' in str(refusal.value)


def test_the_same_samples_in_another_folder_change_nothing(run, config, tmp_path, capsys):
    moved = shutil.copytree(config.parent / "data", tmp_path / "moved")
    train(config, [f"data.directory={moved}"], run)
    assert "changed" not in capsys.readouterr().out


# ---- What a network has learnt
# ----------------------------------------------------------------------


def test_a_checkpoint_names_what_it_has_learnt(undisturbed, config):
    entries = []
    for line in (config.parent / "data/manifest.jsonl").read_text().splitlines()[1:]:
        entries.append(json.loads(line))
    learnt = origin_of(header_of(undisturbed)).learnt
    training = []
    for entry in entries:
        if entry["split"] == "train" and not entry["skipped"]:
            training.append(entry)
    assert learnt.names == {entry["material"] for entry in training}
    assert learnt.formulas == {entry["formula"] for entry in training}
    assert learnt.complete
    held_out = json.loads((undisturbed / "evaluation.json").read_text())["run"]["held_out"]
    assert held_out == {"learnt_known": True, "left_out": []}


def held_out_of(evaluation):
    return {row["formula"] for row in evaluation["samples"]}


def test_what_was_learnt_before_is_not_held_out(undisturbed, config, tmp_path, capsys):
    """The second training starts from the first, and holds out what that has learnt."""
    folder = tmp_path / "second"
    folder.mkdir()
    second = write_config(
        folder,
        seed=3,
        split={"train": 0.3, "dev": 0.3, "test": 0.4},
        data={"directory": str(folder / "data")},
    )
    train(second, [f"training.start_from={undisturbed}", "training.epochs=1"], folder / "run")
    printed = capsys.readouterr().out
    learnt = origin_of(header_of(undisturbed)).learnt
    both = origin_of(header_of(folder / "run")).learnt
    assert learnt.names <= both.names
    assert both.complete
    evaluation = json.loads((folder / "run/evaluation.json").read_text())
    facts = evaluation["run"]["held_out"]
    assert facts["learnt_known"]
    assert facts["left_out"]
    assert set(facts["left_out"]) <= learnt.names
    assert not held_out_of(evaluation) & both.formulas
    names = ", ".join(facts["left_out"])
    assert f"learnt in a training before, and left out of the evaluation: {names}" in printed
    start = origin_of(header_of(folder / "run")).start
    assert start == header_of(undisturbed)["digest"]


def test_an_earlier_checkpoint_does_not_say_what_it_has_learnt(run, config):
    without_origin(run)
    train(config, ["training.epochs=4"], run)
    assert not origin_of(header_of(run)).learnt.complete
    facts = json.loads((run / "evaluation.json").read_text())["run"]
    assert facts["held_out"] == {"learnt_known": False, "left_out": []}


@pytest.mark.parametrize(
    "origin",
    [3, {"identity": 3}, {"identity": {}, "start": 3}, {"identity": {}, "learnt": {"names": 3}}],
)
def test_a_malformed_origin_is_a_broken_checkpoint(origin, run):
    path = newest_checkpoint(run)
    rewrite_header(path, lambda facts: facts.update({ORIGIN: origin}))
    with pytest.raises(ValueError, match="its header has the "):
        checkpoint.read_header(path)


def test_a_sample_is_learnt_by_its_formula_or_where_there_is_none_by_its_material(undisturbed):
    from namsa.dataset.entry import UNKNOWN, Entry

    learnt = LearntMaterials(frozenset({"Cu"}), frozenset({"Cu-fcc", "sample-7"}))
    entry = Entry("id", "Cu-hcp", "Cu", "P6_3/mmc", (0, 0, 1), 50.0, 1, "test")
    assert learnt.include(entry)
    assert not learnt.include(replace(entry, formula="Au", material="Cu-fcc"))
    assert learnt.include(replace(entry, formula=UNKNOWN, material="sample-7"))
    assert not learnt.include(replace(entry, formula=UNKNOWN, material=UNKNOWN))
    assert learnt.include(replace(entry, formula="Au", material="Au-fcc", partner="Cu-fcc"))


# ---- Weights to start from
# --------------------------------------------------------------------------


def test_weights_that_do_not_fit_are_refused_before_samples_are_simulated(
    undisturbed, config, tmp_path
):
    with pytest.raises(InputError, match="no convolution of .* fits this network: set network"):
        train(
            config,
            [
                f"training.start_from={undisturbed}",
                f"data.directory={tmp_path / 'data'}",
                "network.growth=5",
                "network.first_filters=7",
                "network.kernel=5",
                "network.first_kernel=5",
            ],
            tmp_path / "run",
        )
    assert not (tmp_path / "data").exists()


def test_broken_weights_are_refused_before_samples_are_simulated(run, config, tmp_path):
    path = newest_checkpoint(run)
    raw = bytearray(path.read_bytes())
    array = checkpoint.read(path)[1][0]
    raw[raw.index(np.ascontiguousarray(array).tobytes()) + 3] ^= 4
    path.write_bytes(raw)
    with pytest.raises(InputError, match="training.start_from: .*"):
        train(
            config,
            [f"training.start_from={run}", f"data.directory={tmp_path / 'data'}"],
            tmp_path / "other",
        )
    assert not (tmp_path / "data").exists()


# ---- Folders
# ----------------------------------------------------------------------------------------


def test_a_folder_of_checkpoints_that_is_a_link_is_refused(config, tmp_path):
    """The job would remove old checkpoints where it leads."""
    run_dir = tmp_path / "run"
    elsewhere = tmp_path / "elsewhere"
    run_dir.mkdir()
    elsewhere.mkdir()
    (run_dir / "checkpoints").symlink_to(elsewhere)
    with pytest.raises(InputError, match="checkpoints is a link, .*: remove it"):
        train(config, [], run_dir)
    assert not any(elsewhere.iterdir())


@pytest.mark.parametrize("name", ["..", ".", "..."])
def test_a_name_is_no_folder_above(name, config, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command([str(config), "--set", f"name='{name}'"]) == 2
    assert "not dots alone" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
