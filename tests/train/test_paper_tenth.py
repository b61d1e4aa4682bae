"""The paper's job at a tenth of its size: float16, patterns as channels, groups and cache, on two ranks."""

import json

import launch
import pytest
from paths import CONFIGS


@pytest.mark.slow
def test_the_loss_falls_and_a_restart_continues_to_the_bit(tmp_path):
    def train(run, *words):
        folder = tmp_path / run
        given = [f"data.directory={tmp_path / 'data'}", "training.checkpoints.every_steps=4", *words]
        ended = launch.horovodrun(
            "-m", "train", CONFIGS / "paper_tenth.yaml", "--run-dir", folder, *(f"--set={word}" for word in given),
            timeout=600,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [[json.loads(line)[key] for key in ("step", "loss", "grad_norm", "loss_scale")] for line in lines]

    whole = train("whole", "training.steps=8")
    assert whole[-1][1] < whole[0][1]
    train("parts", "training.steps=4")
    assert train("parts", "training.steps=8") == whole
