"""What every test needs: quiet TensorFlow, temporary files that go with the tests, and a worker for each core.

The tests of one file run on one worker, since they share fixtures. Those that start the ranks of a job run on one
worker, too: two jobs at once would have more ranks than the machine has cores, and share no fork server.
"""

import os
import tempfile
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # channels first, on older processors, too

MOST_WORKERS = 4
STARTS_JOBS = (
    "scripts/test_batch.py",
    "train/ranks/test_faults.py",
    "train/ranks/test_mpi.py",
    "train/ranks/test_reduction.py",
    "train/ranks/test_watchdog.py",
    "train/staging/test_stage.py",
    "train/strategies/division/parts/test_split.py",
    "train/strategies/exchange/hybrid/test_hybrid.py",
    "train/strategies/exchange/lag/test_lag.py",
    "train/strategies/exchange/local_sgd/test_local_sgd.py",
    "train/strategies/exchange/sharded/test_sharded.py",
    "train/strategies/exchange/test_restarts.py",
    "train/strategies/source/test_jobs.py",
    "train/test_jobs.py",
    "train/test_main.py",
)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Workers for `-n auto`: none for single files, whose tests start sooner without."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    return min(len(os.sched_getaffinity(0)), MOST_WORKERS) if whole else 0


class FileScheduling(LoadFileScheduling):
    """Sends the tests of a file, or all tests that start jobs, to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid).removeprefix("tests/")
        return "jobs" if file in STARTS_JOBS else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    return FileScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what has the mark `slow`, unless -m says what to take, and begins with the two longest groups."""
    if not config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=left_out)
    here = Path(__file__).parent
    files = {item: item.path.relative_to(here).as_posix() for item in items}
    items.sort(key=lambda item: (files[item] not in STARTS_JOBS, files[item] != "test_guides.py"))


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is left by a process that a test kills goes with pytest's own folders."""
    os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("tmp"))
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))  # the key of seals
    tempfile.tempdir = None
