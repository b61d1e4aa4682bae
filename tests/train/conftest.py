"""A small job, which each module of tests runs once."""

import json

import launch
import pytest
import yaml
from tiny import CONFIG

from train.main import train


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    directory = tmp_path_factory.mktemp("job")
    path = directory / "tiny.yaml"
    path.write_text(yaml.safe_dump(CONFIG | {"data": {"directory": str(directory / "data")}}))
    return path


@pytest.fixture(scope="module")
def undisturbed(config):
    run_dir = config.parent / "undisturbed"
    train(config, run_dir=run_dir)
    return run_dir


@pytest.fixture
def no_report(monkeypatch):
    """Pictures take longer than all the rest of this job."""
    monkeypatch.setattr("train.main.write_report", lambda run_dir: None)


@pytest.fixture(scope="session")
def together(tmp_path_factory):
    """(folder, what each of four ranks has found); see `four_ranks`. The tests that take it run on one worker."""
    import four_ranks  # which imports Horovod, absent where JAX computes

    out = tmp_path_factory.mktemp("four_ranks")
    ended = launch.horovodrun("tests/support/four_ranks.py", out, ranks=four_ranks.RANKS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return out, [json.loads((out / f"{rank}.json").read_text()) for rank in range(four_ranks.RANKS)]
