"""The paper's job at a tenth of its size: it learns, and restarts to the bit."""

import json

import launch
import pytest
from paths import CONFIGS


@pytest.mark.slow
def test_two_ranks_learn_in_float16_with_channels_first_groups_and_cache(tmp_path):
    """Eight steps, and four and four. On processors XLA compiles the convolutions, in 15 s of the processor."""

    def train(run, *words):
        folder = tmp_path / run
        given = [f"data.directory={tmp_path / 'data'}", "training.checkpoints.every_steps=4", *words]
        line = ["-m", "train", CONFIGS / "paper_tenth.yaml", "--run-dir", folder, *(f"--set={word}" for word in given)]
        ended = launch.horovodrun(*line, timeout=600)
        assert ended.returncode == 0, ended.stderr
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [[json.loads(line)[key] for key in ("step", "loss", "grad_norm", "loss_scale")] for line in lines]

    whole = train("whole", "training.steps=8")
    assert whole[-1][1] < whole[0][1]
    train("parts", "training.steps=4")
    assert train("parts", "training.steps=8") == whole
