"""Settings that every test needs: quiet TensorFlow, temporary files that go with the tests, and a
worker for each core.

The tests of one file run on one worker, since they share fixtures; the pages of the documentation
share none. Those that start the ranks of a job run on one worker, too: two jobs at once would have
more ranks than the machine has cores, and share no fork server.
"""

import gc
import os
import tempfile
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # channels first, on older processors, too
os.environ.pop("COLUMNS", None)  # the caller's terminal would set the width of printed tables

MOST_WORKERS = 4
GUIDES = "test_guides.py"
STARTS_JOBS = (
    "scripts/test_batch.py",
    "scripts/test_batch_jobs.py",
    "train/ranks/test_faults.py",
    "train/ranks/test_jax_processes.py",
    "train/ranks/test_mpi.py",
    "train/ranks/test_connection.py",
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
    """Workers for `-n auto`: none for single files, whose tests start sooner without.

    Slow tests wait for ranks and time limits: one more has the cores meanwhile.
    """
    all_files = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not all_files or config.option.keyword:
        return 0
    cores = len(os.sched_getaffinity(0))
    return min(cores + 1 if states_marks(config) else cores, MOST_WORKERS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Gives each worker one core: threads of several workers would wait for each other, at full
    load. Workers have the variables of this process, and load NumPy before any conftest.

    Slow tests, which compare TensorFlow's steps with JAX's, have the threads of a job: on one
    thread TensorFlow's gradient of their network has a norm that differs by 2 % from the second
    step on.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not states_marks(config):
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")


class FileScheduling(LoadFileScheduling):
    """Sends the tests of a file, or all tests that start jobs, to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid).removeprefix("tests/")
        if file == GUIDES:
            return nodeid
        return "jobs" if file in STARTS_JOBS else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    return FileScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what has the mark `slow`, unless -m states which tests run; -m '' is all.

    The longest files come first, that no worker waits for another at the end.
    """
    if not states_marks(config):
        left_out = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=left_out)
    here = Path(__file__).parent
    files = {item: item.path.relative_to(here).as_posix() for item in items}
    items.sort(key=lambda item: rank_by_time(files[item]))


def rank_by_time(file: str) -> int:
    """Which files come first: the jobs, which one worker runs, then the guides and trainings."""
    if file in STARTS_JOBS:
        return 0
    if file == GUIDES:
        return 1
    return 2 if file.startswith("train/") else 3


def pytest_collection_finish() -> None:
    """Garbage is looked for only in what tests make.

    Keras collects it whenever a network is built, which takes half a second in all that the tests
    import.
    """
    gc.collect()
    gc.freeze()


def states_marks(config: pytest.Config) -> bool:
    """Whether the command has -m, with an empty expression, too; workers are given the answer."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        return bool(worker["states_marks"])
    return any(str(word).startswith("-m") for word in config.invocation_params.args)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Passes on to a worker whether the command states marks."""
    node.workerinput["states_marks"] = states_marks(node.config)


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Files that a killed process leaves go with pytest's own folders."""
    os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("tmp"))
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))  # the key of seals
    tempfile.tempdir = None
