"""Profiles of the small job."""

import io
import json
import shutil

import launch
import pytest
from needs_kind import needs
from rich.console import Console

from fcdensenet.count import count
from train.experiment.experiment import load
from train.measure.profile_results import read_profile
from train.profiling.profile import profile
from train.profiling.tables import show
from train.ranks import reduction


@pytest.mark.slow
def test_a_profile_tells_where_a_step_goes(config, undisturbed, tmp_path):
    run_dir = tmp_path / "run"
    shutil.copytree(undisturbed, run_dir)
    options = ("--steps", "2", "--out", run_dir, "--json")
    ended = launch.run(launch.forked_python(), "-m", "train", "profile", config, *options, timeout=120)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert (found["data"], found["device"], found["steps"], found["ranks"]) == ("samples", "CPU", 2, 1)
    assert found == {key: value for key, value in read_profile(run_dir / "profile.json").items() if key != "timeline"}
    calls = {row["kind"]: row["calls"] for row in found["kinds"]}
    convolutions = count(load(config).network).convolutions
    assert calls["convolution forward"] == calls["convolution by weights"] == convolutions
    assert calls["convolution by input"] == convolutions - 1  # patterns have no gradient
    assert 0 < found["convolutions_s"] < found["profiled_step_s"]
    phases = {row["phase"]: row["seconds"] for row in found["phases"]}
    assert {"input", "forward", "backward", "update"} <= phases.keys()
    assert phases["backward"] + phases["forward"] > 0.9 * found["convolutions_s"]
    assert "synchronisation" not in found
    assert sum(row["share"] for row in found["kinds"]) >= 0.999
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    assert "2 steps on samples" in page
    assert "of convolutions × efficiency" in page
    assert (run_dir / "timeline.png").stat().st_size > 5000


@needs("local_sgd")
@pytest.mark.slow
def test_without_samples_steps_on_random_data_are_profiled(config, tmp_path):
    local = "training.exchange={kind: local_sgd, synchronise: epoch}"
    elsewhere = load(config, [f"data.directory={tmp_path / 'none'}", local])
    reduction.start(elsewhere.training)
    found = profile(elsewhere, 1, "this machine")
    console = Console(file=io.StringIO(), width=100)
    show(found, console)
    text = console.file.getvalue()
    assert text.startswith("tiny: 1 step on random data of the samples' shape")
    assert "convolution by weights" in text
    assert "local SGD averages 0 MB once an epoch" in text  # one rank sends nothing
    assert found["synchronisation"]["every"] == 1
    assert "does not tell the convolutions' algorithms" in text
    assert not (tmp_path / "none").exists()
