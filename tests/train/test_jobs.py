"""Jobs as users start them: a second one on a run directory, killed ones, and the paper's at a
tenth of its size.
"""

import json
import os
import shutil

import launch
import pytest
from paths import CONFIGS
from tiny import write_config

from namsa.base import locks
from train.__main__ import main as command
from train.ranks import connection


@pytest.mark.parametrize("shared", ["run", "home"])
def test_a_second_job_is_refused_in_one_line(shared, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_S", 0.1)
    # Horovod cannot start twice in one process
    monkeypatch.setattr(connection, "stop", lambda code=0: None)
    config = write_config(tmp_path)
    folder = tmp_path / shared
    folder.mkdir()
    with locks.exclusive(folder / ".lock", folder, ""):
        code = command(
            [str(config), "--run-dir", str(tmp_path / "run"), "--home", str(tmp_path / "home")]
        )
        assert (tmp_path / shared / ".lock").exists()
    assert code == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(f"error: process {os.getpid()} on ")
    assert message.endswith(
        f" is writing to {folder}: wait for that job to end, or give this one another --run-dir"
    )
    assert not (tmp_path / "data").exists()
    assert not list(tmp_path.glob("*/*"))  # neither results nor locks are left


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "kills"), [(1, 2), (2, 2)])
def test_killed_jobs_end_as_if_left_alone_and_leave_no_temporary_file(
    ranks, kills, tmp_path, monkeypatch
):
    launch.forked_python()  # its socket is in the folder of before
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    out = launch.script("kills.py", "--ranks", ranks, "--kills", kills, "--seed", 1)
    result = json.loads(out.splitlines()[-1])
    assert result["kills"] == kills
    assert result["equal"] == result["jobs"] >= 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_ranks_learn_in_float16_with_channels_first_groups_and_cache(tmp_path):
    """Eight steps, and the last four of them again. XLA compiles each convolution of another shape,
    so that the network is cut to one level.
    """
    out = []

    def train(run, *words):
        folder = tmp_path / run
        given = [
            f"data.directory={tmp_path / 'data'}",
            "training.checkpoints.every_steps=4",
            "network.layers=[1, 1, 1]",
            "network.growth=8",
            *words,
        ]
        sets = (f"--set={word}" for word in given)
        ended = launch.job(CONFIGS / "paper_tenth.yaml", "--run-dir", folder, *sets, timeout=600)
        out.append(ended.stdout)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [
            [json.loads(line)[key] for key in ("step", "loss", "grad_norm", "loss_scale")]
            for line in lines
        ]

    uninterrupted = train("whole", "training.steps=8")
    assert uninterrupted[-1][1] < uninterrupted[0][1]
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    for later in (tmp_path / "killed" / "checkpoints").glob("step-*8.npz"):
        later.unlink()
    assert train("killed", "training.steps=8") == uninterrupted
    assert "resumed after step 4" in out[-1]
