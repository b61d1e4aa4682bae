"""The paper's job at a tenth of its size in float16, patterns as channels: it learns, and restarts to the bit."""

import json
import sys

import launch
import pytest
from paths import CONFIGS


def check_whole_and_in_parts(tmp_path, start):
    """Trains eight steps, and four and four. `start(words)` runs a job."""

    def train(run, *words):
        folder = tmp_path / run
        given = [f"data.directory={tmp_path / 'data'}", "training.checkpoints.every_steps=4", *words]
        line = ["-m", "train", CONFIGS / "paper_tenth.yaml", "--run-dir", folder, *(f"--set={word}" for word in given)]
        ended = start(line)
        assert ended.returncode == 0, ended.stderr
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [[json.loads(line)[key] for key in ("step", "loss", "grad_norm", "loss_scale")] for line in lines]

    whole = train("whole", "training.steps=8")
    assert whole[-1][1] < whole[0][1]
    train("parts", "training.steps=4")
    assert train("parts", "training.steps=8") == whole


@pytest.mark.slow
def test_two_ranks_with_groups_and_cache(tmp_path):
    check_whole_and_in_parts(tmp_path, lambda line: launch.horovodrun(*line, timeout=600))


@pytest.mark.slow
def test_channels_first_as_in_paper_yaml(tmp_path):
    """By JAX: TensorFlow has no such convolutions of float16 on processors. XLA compiles the step once, in 30 s."""
    pytest.importorskip("jax")
    settings = ["KERAS_BACKEND=jax", f"JAX_COMPILATION_CACHE_DIR={tmp_path / 'cache'}"]
    words = "--set=network.data_format=channels_first"
    check_whole_and_in_parts(
        tmp_path, lambda line: launch.run("env", *settings, sys.executable, *line, words, timeout=900)
    )
