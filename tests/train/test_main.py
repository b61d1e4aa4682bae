"""The whole job on five small crystals, simulated for the purpose."""

import io
import json
import shutil
import sys

import launch
import numpy as np
import pytest
import yaml
from needs_kind import needs
from rich.console import Console
from tiny import differences, newest, rows

from fcdensenet.count import count
from namsa.base.errors import InputError, WorkError
from namsa.inverse import mott_bethe
from train.__main__ import main as command
from train.commands.job import as_rank
from train.experiment.experiment import load
from train.main import train
from train.measure.profile_results import read_profile
from train.optimization import checkpoint
from train.profiling.profile import profile
from train.profiling.tables import show
from train.ranks import connection
from train.scaling import forecast, forecast_table


@pytest.mark.slow
def test_leaves_all_that_was_promised(undisturbed, config):
    files = {"config.yaml", "evaluation.json", "metrics.jsonl", "predictions.npz", "report.html"}
    files |= {"finished.json"}
    assert {path.name for path in undisturbed.iterdir()} == files | {"checkpoints", "tensorboard"}
    steps = rows(undisturbed)
    for index, row in enumerate(steps):
        assert row["step"] == index + 1
        assert row["epoch"] == 3 * index // len(steps)
    evaluation = json.loads((undisturbed / "evaluation.json").read_text())
    training = set()
    held_out = set()
    for line in (config.parent / "data" / "manifest.jsonl").read_text().splitlines()[1:]:
        entry = json.loads(line)
        if not entry["skipped"]:
            of_split = training if entry["split"] == "train" else held_out
            of_split.add(entry["id"])
    assert {sample["id"] for sample in evaluation["samples"]} == held_out
    assert len(steps) == 3 * len(training)
    assert evaluation["run"]["epochs"] == 3


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_a_resumed_job_gives_the_same_bits(undisturbed, config):
    run_dir = config.parent / "resumed"
    train(config, ["training.epochs=1"], run_dir)
    assert len(rows(run_dir)) == len(rows(undisturbed)) // 3
    train(config, run_dir=run_dir)
    assert differences(run_dir, undisturbed) == []


@pytest.mark.slow
@pytest.mark.usefixtures("no_report", "undisturbed")
def test_a_job_that_ends_after_some_steps_goes_on_within_the_epoch(config):
    pairs = "training.accumulate=2"
    at_once = config.parent / "pairs"
    resumed = config.parent / "pairs_resumed"
    train(config, [pairs], at_once)
    assert len(rows(at_once)) == 3 * 4  # of 8 samples
    # A warm-up to the rate of two ranks.
    assert rows(at_once)[-1]["lr"] > rows(at_once)[0]["lr"] == 1e-3
    train(config, [pairs, "training.steps=6"], resumed)
    assert (newest(resumed)[0], len(rows(resumed))) == ("step-000000006.npz", 6)
    facts = json.loads((resumed / "evaluation.json").read_text())["run"]
    assert (facts["steps"], facts["epochs"]) == (6, 1)
    train(config, [pairs, "training.steps=99"], resumed)  # the epochs are over before
    assert differences(resumed, at_once) == []
    train(config, [pairs, "training.steps=6"], resumed)  # done: nothing is trained, nor taken back
    assert len(rows(resumed)) == 12


@pytest.mark.slow
@pytest.mark.usefixtures("undisturbed")  # which has simulated the samples
def test_a_finished_job_says_so_and_ends(config, monkeypatch, capsys):
    run_dir = config.parent / "finished"
    monkeypatch.setattr(
        "train.main.write_report", lambda run_dir: (run_dir / "report.html").write_text("")
    )
    train(config, ["training.epochs=1"], run_dir)
    assert "finished before" not in capsys.readouterr().out

    def evaluate(*_):
        raise RuntimeError("evaluated")

    monkeypatch.setattr("train.main.evaluate", evaluate)
    train(config, ["training.epochs=1"], run_dir)
    assert "finished before" in capsys.readouterr().out
    for overrides, evaluate_only in ((["training.epochs=2"], False), (["training.epochs=2"], True)):
        with pytest.raises(RuntimeError, match="evaluated"):  # trained on, and as asked for
            train(config, overrides, run_dir, evaluate_only=evaluate_only)
    (run_dir / "report.html").unlink()
    with pytest.raises(RuntimeError, match="evaluated"):
        train(config, ["training.epochs=2"], run_dir)


@pytest.mark.slow
def test_evaluating_again_trains_nothing_and_finds_the_same(undisturbed, monkeypatch):
    monkeypatch.setattr(
        connection, "stop", lambda code=0: None
    )  # Horovod cannot start twice in a process
    before = (undisturbed / "evaluation.json").read_text()
    lines = rows(undisturbed)
    assert command(["evaluate", str(undisturbed)]) == 0
    again = json.loads((undisturbed / "evaluation.json").read_text())
    assert again == json.loads(before)  # with the performance of the steps
    assert again["run"]["performance"]["steps"] == len(lines)
    assert rows(undisturbed) == lines


@pytest.mark.slow
def test_evaluating_without_a_checkpoint_is_an_input_error(config, tmp_path):
    with pytest.raises(InputError, match="no checkpoint to evaluate"):
        train(config, run_dir=tmp_path, evaluate_only=True)


# ---- The command


@pytest.mark.slow
def test_input_errors_are_one_line_and_exit_2(capsys, tmp_path):
    assert command([str(tmp_path / "none.yaml")]) == 2
    assert command(["report", str(tmp_path / "nowhere")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("error: cannot read the configuration")


@pytest.mark.slow
def test_a_rank_says_why_it_fails_before_it_leaves_the_others(capsys, monkeypatch):
    """Who leaves MPI waits there for the others, whose end is the job's."""
    monkeypatch.setattr(connection, "stop", lambda code=0: print("left", file=sys.stderr))

    def fails():
        raise WorkError("the disk is on fire")

    assert as_rank(fails) == 1
    assert capsys.readouterr().err.splitlines() == ["error: the disk is on fire", "left"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_a_run_directory_cannot_run_a_generator(undisturbed, tmp_path, capsys):
    run_dir = tmp_path / "run"
    script = tmp_path / "crystals.py"
    ran = tmp_path / "ran"
    shutil.copytree(undisturbed, run_dir)
    script.write_text(f"open({str(ran)!r}, 'w')\ndef crystals():\n    return []\n")
    tree = yaml.safe_load((run_dir / "config.yaml").read_text()) | {
        "materials": {"generator": {"function": f"{script}:crystals"}}
    }
    (run_dir / "config.yaml").write_text(yaml.safe_dump(tree))
    train(run_dir / "config.yaml", run_dir=run_dir, evaluate_only=True)
    assert not ran.exists()
    assert (
        "is Python code, which runs only from a configuration that is given on the"
        in capsys.readouterr().out
    )


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_evaluating_copies_no_samples_to_where_a_run_of_others_names(undisturbed, tmp_path):
    run_dir = tmp_path / "run"
    shutil.copytree(undisturbed, run_dir)
    tree = yaml.safe_load((run_dir / "config.yaml").read_text())
    kept = tree["data"]["directory"]
    elsewhere = tmp_path / "elsewhere"
    tree["data"] |= {"directory": str(elsewhere), "source": {"kind": "staged", "folder": kept}}
    (run_dir / "config.yaml").write_text(yaml.safe_dump(tree))
    before = (run_dir / "config.yaml").read_bytes()
    train(run_dir / "config.yaml", run_dir=run_dir, evaluate_only=True)
    assert not elsewhere.exists()
    assert (run_dir / "config.yaml").read_bytes() == before
    evaluation, expected = (
        json.loads((run / "evaluation.json").read_text()) for run in (run_dir, undisturbed)
    )
    assert evaluation["mean"] == expected["mean"]


@pytest.mark.slow
@pytest.mark.usefixtures(
    "no_report", "undisturbed"
)  # which has simulated the samples, and warned of them
def test_two_ranks_do_the_whole_job_and_one_rank_goes_on_with_it(config, monkeypatch):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")  # the job itself keeps TensorFlow quiet
    run_dir = config.parent / "two_ranks"
    ended = launch.horovodrun("-m", "train", config, "--run-dir", run_dir, python=sys.executable)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("Held-out materials") == 1
    written = ended.stderr.splitlines()
    warnings = [line for line in written if "<stderr>:warning: " in line]  # of the samples
    assert [line for line in written if "<stderr>" in line and line not in warnings] == []
    assert (run_dir / "report.html").exists()
    steps = rows(run_dir)
    assert len(steps) == 12
    assert [row["lr"] for row in steps[::4]] == pytest.approx([1e-3, 1.2e-3, 1.4e-3])
    train(config, ["training.epochs=4"], run_dir)
    assert [row["step"] for row in rows(run_dir)] == list(range(1, 21))


@pytest.mark.slow
def test_a_run_is_calibrated_with_some_samples_or_all_that_are_simulated(undisturbed, capsys):
    assert command(["calibrate", str(undisturbed), "--simulated", "2"]) == 0
    rows = json.loads((undisturbed / "evaluation.json").read_text(encoding="utf-8"))["samples"]
    assert sum("consistency_r" in row for row in rows) == 2 < len(rows)  # one of each thickness
    assert command(["calibrate", str(undisturbed)]) == 0
    assert "times the spread of 1 symmetries, 8 passes" in capsys.readouterr().out
    calibration = json.loads((undisturbed / "calibration.json").read_text(encoding="utf-8"))
    assert calibration["coverage_68"] == pytest.approx(0.683, abs=0.01)
    assert 0.5 < calibration["transmitted_fraction"] <= 1
    fitted = mott_bethe.read(undisturbed / "transfer.json")
    assert fitted.ratio[0] > fitted.ratio[-1] > 0
    rows = json.loads((undisturbed / "evaluation.json").read_text(encoding="utf-8"))["samples"]
    for row in rows:
        assert 0 < row["consistency_r"] < 1
        assert row["consistency_empty_r"] > 0
    report = (undisturbed / "report.html").read_text(encoding="utf-8")
    assert "R of the patterns (without specimen)" in report


@pytest.mark.slow
def test_a_run_is_told_before_it_begins(config, undisturbed):
    ended = launch.run(
        launch.forked_python(), "-m", "train", config, "--dry-run", "--json", timeout=120
    )
    facts = json.loads(ended.stdout.splitlines()[-1])
    done = json.loads((undisturbed / "evaluation.json").read_text(encoding="utf-8"))["run"]
    assert facts["simulation"] is None
    forecasted = (facts["steps"], facts["train_samples"], facts["parameters"])
    assert forecasted == (done["steps"], done["training_samples"], done["parameters"])
    written = next((undisturbed / "checkpoints").glob("*.npz")).stat().st_size
    # Names are most of so small a file.
    assert facts["checkpoint_bytes"] == pytest.approx(written, rel=0.5)
    assert facts["seconds"] > facts["steps"] * facts["step_s"] > 0


@pytest.mark.slow
def test_missing_samples_are_part_of_what_is_told(config, undisturbed, tmp_path):
    shorter = ["training.accumulate=2", "training.steps=5"]
    elsewhere = load(config, [f"data.directory={tmp_path / 'elsewhere'}", *shorter])
    connection.start(elsewhere.training)
    facts = forecast.forecast(elsewhere, ranks=2)
    assert facts["simulation"]["samples"] == facts["train_samples"] + facts["held_out_samples"]
    an_epoch = facts["train_samples"] // 2 // 2
    assert (facts["steps_per_epoch"], facts["steps"], facts["epochs"]) == (an_epoch, 5, 3)
    forecasted = dict(forecast_table.table_rows(facts))
    assert forecasted["to simulate"].startswith(f"{facts['simulation']['samples']} samples of ")
    assert "on 2 ranks" in forecasted["steps"]
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(InputError, match="samples of another configuration"):
        forecast.forecast(load(config, ["specimen.lateral_angstrom=[7.0, 9.0]"]))
    with pytest.raises(InputError, match="too few for 99 ranks"):
        forecast.forecast(load(config), ranks=99)


@pytest.mark.slow
def test_fewer_samples_are_the_first_of_more(config, tmp_path, no_report):
    train(config, ["training.samples=5", "training.epochs=1"], tmp_path / "few")
    assert (
        json.loads((tmp_path / "few/evaluation.json").read_text(encoding="utf-8"))["run"][
            "training_samples"
        ]
        == 5
    )
    with pytest.raises(
        InputError, match="5 training samples are too few for 1 rank with batches of 6: add"
    ):
        train(config, ["training.samples=5", "training.batch_size=6"], tmp_path / "none")


@pytest.mark.slow
def test_too_few_samples_for_a_step_are_refused_before_any_is_simulated(config, tmp_path):
    data = tmp_path / "data"
    overrides = [f"data.directory={data}", "training.batch_size=600"]
    with pytest.raises(InputError, match="training samples are too few for 1 rank with batches of"):
        train(config, overrides, tmp_path / "none")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_simulation_beyond_the_machine_is_refused_unless_it_is_forced(
    config, tmp_path, monkeypatch
):
    monkeypatch.setattr("namsa.dataset.factory.available_memory_bytes", lambda: 1000)
    overrides = [f"data.directory={tmp_path / 'data'}"]
    run_dir = tmp_path / "run"
    with pytest.raises(InputError, match="GB are available: .*--force tries it nevertheless"):
        train(config, overrides, run_dir)
    assert not list(tmp_path.rglob("*.lmdb"))

    def produce(experiment, directory, layout, limits, **_):
        raise WorkError(f"the memory is {limits.memory_bytes}")

    monkeypatch.setattr("namsa.dataset.factory.produce", produce)
    with pytest.raises(WorkError, match="the memory is None"):
        train(config, overrides, run_dir, force=True)


# ---- From other weights, and profiled


@pytest.mark.usefixtures("no_report")
@pytest.mark.slow
def test_a_job_starts_from_the_weights_of_another_as_far_as_they_fit(
    config, undisturbed, tmp_path, capsys
):
    short = [
        f"training.start_from={undisturbed}",
        "training.epochs=1",
        "training.optimizer.learning_rate=1e-12",
    ]
    train(config, short, tmp_path / "same")
    assert "variables start from" in (printed := capsys.readouterr().out)
    assert "at random" not in printed
    last = (
        max((run / "checkpoints").glob("step-*.npz")) for run in (undisturbed, tmp_path / "same")
    )
    given, started = (
        dict(zip(header["variables"], arrays, strict=True))
        for header, arrays in map(checkpoint.read, last)
    )
    kernels = [name for name in given if name.endswith("kernel")]
    assert kernels
    for name in kernels:
        np.testing.assert_allclose(started[name], given[name], rtol=1e-4, atol=1e-8)

    train(config, [*short, "network.growth=3"], tmp_path / "other")
    assert "at random" in capsys.readouterr().out
    with pytest.raises(
        InputError, match="no convolution of .* fits this network: set network.layers"
    ):
        train(config, [*short, "network.growth=3", "network.first_filters=9"], tmp_path / "none")
    with pytest.raises(InputError, match="neither a run directory"):
        train(config, ["training.start_from=nowhere"], tmp_path / "nowhere")


@pytest.mark.slow
def test_a_profile_tells_where_a_step_goes(config, undisturbed, tmp_path):
    run_dir = tmp_path / "run"
    shutil.copytree(undisturbed, run_dir)
    options = ("--steps", "2", "--out", run_dir, "--json")
    ended = launch.run(
        launch.forked_python(), "-m", "train", "profile", config, *options, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    profiled = json.loads(ended.stdout.splitlines()[-1])
    assert (profiled["data"], profiled["device"], profiled["steps"], profiled["ranks"]) == (
        "samples",
        "CPU",
        2,
        1,
    )
    assert profiled == {
        key: value
        for key, value in read_profile(run_dir / "profile.json").items()
        if key != "timeline"
    }
    calls = {row["kind"]: row["calls"] for row in profiled["kinds"]}
    convolutions = count(load(config).network).convolutions
    assert calls["convolution forward"] == calls["convolution by weights"] == convolutions
    assert calls["convolution by input"] == convolutions - 1  # patterns have no gradient
    assert 0 < profiled["convolutions_s"] < profiled["profiled_step_s"]
    phases = {row["phase"]: row["seconds"] for row in profiled["phases"]}
    assert {"input", "forward", "backward", "update"} <= phases.keys()
    assert phases["backward"] + phases["forward"] > 0.9 * profiled["convolutions_s"]
    assert "synchronisation" not in profiled
    assert sum(row["share"] for row in profiled["kinds"]) >= 0.999
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    assert "2 steps on samples" in page
    assert "of convolutions × efficiency" in page
    assert (run_dir / "timeline.png").stat().st_size > 5000


@needs("local_sgd")
@pytest.mark.slow
def test_without_samples_steps_on_random_data_are_profiled(config, tmp_path):
    local = "training.exchange={kind: local_sgd, synchronise: epoch}"
    elsewhere = load(config, [f"data.directory={tmp_path / 'none'}", local])
    connection.start(elsewhere.training)
    profiled = profile(elsewhere, 1, "this machine")
    console = Console(file=io.StringIO(), width=100)
    show(profiled, console)
    text = console.file.getvalue()
    assert text.startswith("tiny: 1 step on random data of the samples' shape")
    assert "convolution by weights" in text
    assert "local SGD averages 0 MB once an epoch" in text  # one rank sends nothing
    assert profiled["synchronisation"]["every"] == 1
    assert "does not tell the convolutions' algorithms" in text
    assert not (tmp_path / "none").exists()
