"""What every test needs: quiet TensorFlow, temporary files that go with the tests, and a worker for each core.

The tests of one file run on one worker, since they share fixtures, unless they are marked otherwise. Those that start
the ranks of a job run on one worker, too: two jobs at once would have more ranks than the machine has cores, and share
no fork server.
"""

import os
import tempfile
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

MOST_WORKERS = 4
STARTS_JOBS = (
    "scripts/test_batch.py",
    "train/optimization/test_kills.py",
    "train/optimization/test_restarts.py",
    "train/ranks/test_faults.py",
    "train/ranks/test_mpi.py",
    "train/ranks/test_ranks.py",
    "train/ranks/test_reduction.py",
    "train/ranks/test_watchdog.py",
    "train/staging/test_stage.py",
    "train/test_main.py",
)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Workers for `-n auto`: none for single files, whose tests start sooner without."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    return min(len(os.sched_getaffinity(0)), MOST_WORKERS) if whole else 0


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        file = item.path.relative_to(here).as_posix()
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("jobs" if file in STARTS_JOBS else file))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group").args != ("jobs",))  # the longest group first


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is left by a process that a test kills goes with pytest's own folders."""
    os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("tmp"))
    tempfile.tempdir = None
