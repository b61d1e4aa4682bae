"""A small job, which each module of tests runs once."""

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
