"""A job killed at random steps ends as one that was left alone; `kills.py` has the long form."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "kills"), [(1, 2), (2, 2)])
def test_killed_jobs_end_as_if_left_alone(ranks, kills):
    line = [sys.executable, "tests/train/kills.py", "--ranks", str(ranks), "--kills", str(kills), "--seed", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=400, env=environment, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["kills"] == kills
    assert found["equal"] == found["jobs"] >= 1
