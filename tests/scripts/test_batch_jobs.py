"""Whole jobs of the batch scripts, in which nothing is replaced but the launchers."""

import json
import os
import shutil
import sys

import launch
import pytest
from batch_scripts import job_environment, started
from local_ranks import NODE_DISK
from paths import ROOT

from namsa.dataset.shards import shard_paths
from namsa.dataset.verify import verify

pytestmark = pytest.mark.slow


def test_a_second_job_of_fewer_ranks_goes_on_where_the_first_ended(tmp_path):
    """Nothing is replaced but the launchers: ranks simulate onto two nodes' disks, train on them,
    take all home.
    """
    home = tmp_path / "run"
    nodes = [tmp_path / "disks" / name for name in ("node0", "node1")]
    job = job_environment(tmp_path, nodes=2, ranks_per_node=2) | {
        "NODE_DISKS": str(tmp_path / "disks")
    }
    job |= {
        "CONFIG": "tests/data/tiny.yaml",
        "KEEP": str(tmp_path / "keep"),
        "BB": f"{NODE_DISK}/bb",
    }
    python = launch.forked_python()
    job |= {
        "PYTHON": python,
        "FORKED_PYTHON": python,
        "FORK_SERVER": os.environ["FORK_SERVER"],
        "PREFLIGHT": "",
    }
    small = ["--set", "network.layers=[1]"]
    first = started(["bash", "scripts/summit.lsf", *small], job)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "preflight: 4 ranks on 2 nodes with the same list of 6 training samples" in first.stdout
    assert sum(summary["written"] for summary in _summaries(first)) == 10
    shards = []
    for node in nodes:
        shards.append([path.name for path in shard_paths(node / "bb")])
    assert shards == [
        ["shard-00000.lmdb", "shard-00001.lmdb"],
        ["shard-00002.lmdb", "shard-00003.lmdb"],
    ]
    assert verify(tmp_path / "keep")["samples"] == 10
    steps = len((home / "metrics.jsonl").read_text().splitlines())
    assert steps >= 2

    shutil.rmtree(tmp_path / "disks")
    second = started(
        ["bash", "scripts/slurm.sh", *small, "--set", "training.epochs=3"],
        job | {"RANKS_PER_NODE": "1"},
    )
    assert second.returncode == 0, second.stdout + second.stderr
    assert sum(summary["present"] for summary in _summaries(second)) == 10
    rows = [json.loads(line) for line in (home / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [step + 1 for step in range(len(rows))]
    assert [row["epoch"] for row in rows[:steps]] == sorted(row["epoch"] for row in rows[:steps])
    assert {row["epoch"] for row in rows[steps:]} == {2}
    evaluation = json.loads((home / "evaluation.json").read_text())
    assert evaluation["run"]["ranks"] == 2
    assert {sample["formula"] for sample in evaluation["samples"]} == {"NaCl", "Cu"}
    assert len(evaluation["samples"]) == 4
    assert "</html>" in (home / "report.html").read_text()
    assert list((home / "checkpoints").glob("step-*.npz"))


# Python of ranks of JAX, which may not import what the stand-in for srun does: Horovod and
# TensorFlow.
ON_JAX = """#!/bin/sh
PYTHONPATH={paths} exec {python} "$@"
"""


def test_slurm_simulates_and_trains_by_processes_of_jax(tmp_path):
    """On two nodes of one rank with a disk each, from nothing to the report."""
    nodes = [tmp_path / "disks" / name for name in ("node0", "node1")]
    python = tmp_path / "python"
    paths = f"{ROOT / 'tests/support/without_tensorflow'}{os.pathsep}{ROOT}"
    python.write_text(ON_JAX.format(paths=paths, python=sys.executable))
    python.chmod(0o755)
    job = job_environment(tmp_path, nodes=2, ranks_per_node=1) | {
        "NODE_DISKS": str(tmp_path / "disks"),
        "BB": f"{NODE_DISK}/bb",
        "PYTHON": str(python),
        "CONFIG": "tests/data/tiny.yaml",
        "ENGINE": "jax",
        "JAX_PLATFORMS": "cpu",
        "PREFLIGHT": "",
        "SLURM_JOB_ID": str(os.getpid()),  # the port at which processes meet follows from it
    }
    done = started(["bash", "scripts/slurm.sh", "--set", "network.layers=[1]"], job)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "preflight: 2 ranks on 2 nodes with the same list of 6 training samples" in done.stdout
    assert sum(summary["written"] for summary in _summaries(done)) == 10
    shards = []
    for node in nodes:
        shards.append([path.name for path in shard_paths(node / "bb")])
    assert shards == [["shard-00000.lmdb"], ["shard-00001.lmdb"]]
    run = json.loads((tmp_path / "run" / "evaluation.json").read_text())["run"]
    assert run["ranks"] == 2
    assert "jax" in run["versions"]
    assert not {"tensorflow", "horovod"} & set(run["versions"])
    assert "</html>" in (tmp_path / "run" / "report.html").read_text()
    assert list((tmp_path / "run" / "checkpoints").glob("step-*.npz"))


def _summaries(job):
    """The last line of `namsa dataset`, on each rank."""
    return [
        json.loads(line)
        for line in job.stdout.splitlines()
        if line.startswith('{"rank"') and "written" in line
    ]
