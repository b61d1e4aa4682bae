"""The packages without the folder of the strategies: a job trains, kinds are unknown, and the
core's tests pass.
"""

import os
import shutil
import subprocess
import sys

import pytest
from paths import ROOT
from tiny import lines

CORE = (
    "input/test_batches.py",
    "optimization/test_accumulation.py",
    "optimization/test_loop.py",
    "ranks/test_grouping.py",
    "ranks/test_connection.py",
    "scaling/test_division.py",
    "scaling/test_model.py",
    "staging/test_stage.py",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs Python in a copy of the tree, whose `train` is found before the installed one."""
    tree = tmp_path_factory.mktemp("core")
    without = shutil.ignore_patterns("strategies", "__pycache__")
    for folder in ("train", "tests"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=without)
    for name in ("namsa", "fcdensenet", "configs", "pyproject.toml"):
        (tree / name).symlink_to(ROOT / name)

    def python(*words):
        line = [sys.executable, *map(str, words)]
        settings = os.environ | {"PYTHONPATH": str(tree)}
        return subprocess.run(
            line, cwd=tree, env=settings, capture_output=True, text=True, timeout=400, check=False
        )

    return python


@pytest.mark.slow
@pytest.mark.usefixtures("undisturbed")
def test_a_job_trains_and_other_kinds_are_unknown(config, tmp_path, run):
    words = ("-m", "train", config, "--run-dir", tmp_path, "--set", "training.steps=1")
    ended = run(*words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(lines(tmp_path)) == 1
    for setting, fault in (
        ("training.exchange.kind=lag", "training.exchange: kind 'lag' is none of allreduce"),
        ("data.source.kind=memory", "data.source: kind 'memory' is none of simulated"),
        (
            "training.split.ways=2",
            "training.split.ways: must be at most 1 (given 2)",
        ),
    ):
        ended = run(*words, "--set", setting)
        assert ended.returncode == 2
        assert fault in ended.stderr


@pytest.mark.slow
def test_the_tests_of_the_core_pass(run):
    ended = run(
        "-m",
        "pytest",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *(f"tests/train/{n}" for n in CORE),
    )
    assert ended.returncode == 0, ended.stdout
