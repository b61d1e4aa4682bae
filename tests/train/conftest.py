"""A small job, which each module of tests runs once."""

import launch
import pytest
from tiny import write_config

from train.main import train


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def undisturbed(config):
    run_dir = config.parent / "undisturbed"
    train(config, run_dir=run_dir)
    return run_dir


@pytest.fixture
def no_report(monkeypatch):
    """Pictures take longer than all the rest of this job."""
    monkeypatch.setattr("train.main.write_report", lambda run_dir: None)


@pytest.fixture(scope="module")
def no_reports():
    """As `no_report`, for a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.main.write_report", lambda run_dir: None)
        yield


@pytest.fixture(scope="session")
def together(tmp_path_factory):
    """(folder, what each of four ranks has found); see `exchange_ranks`. The tests that take it run
    on one worker.
    """
    import exchange_training  # which imports Horovod, absent where JAX computes

    out = tmp_path_factory.mktemp("exchange_ranks")
    return out, launch.on_ranks("exchange_ranks.py", out, ranks=exchange_training.RANKS)[0]
