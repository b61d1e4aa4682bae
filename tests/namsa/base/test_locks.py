"""Locks between processes, and two of them on one shard: the second is refused, what the first
wrote is whole.
"""

import multiprocessing
import os
import signal
import threading
import time

import fake_samples
import pytest
import yaml

from namsa.base import locks
from namsa.base.errors import WorkError
from namsa.base.locks import exclusive
from namsa.cli.parser import main
from namsa.dataset.shards import Dataset, shard_path

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def paths(tmp_path):
    return tmp_path / ".lock", tmp_path


def hold(paths, entered):
    signal.signal(
        signal.SIGTERM, signal.SIG_DFL
    )  # which a command in another test may have changed
    with exclusive(*paths, "wait for it"):
        entered.set()
        time.sleep(60)


@pytest.fixture
def holder(paths):
    entered = FORK.Event()
    process = FORK.Process(target=hold, args=(paths, entered))
    process.start()
    assert entered.wait(10)
    yield process
    process.kill()
    process.join()


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_of_a_process_that_died_is_free(paths, holder, signal_number):
    os.kill(holder.pid, signal_number)
    holder.join()
    assert paths[0].exists()
    with exclusive(*paths, "", wait_s=0):
        pass
    assert not paths[0].exists()


def count_alone(paths, counter, failures):
    for _ in range(20):
        with exclusive(*paths, "", wait_s=30):
            before = counter.value
            time.sleep(0.001)
            counter.value = before + 1
    failures.value -= 1


def test_processes_that_lock_and_remove_the_file_in_turns_never_hold_it_together(paths):
    counter = FORK.Value("i", 0)
    failures = FORK.Value("i", 4)
    processes = []
    for _ in range(4):
        processes.append(FORK.Process(target=count_alone, args=(paths, counter, failures)))
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert (failures.value, counter.value) == (0, 80)


def test_a_lock_that_its_holder_removes_while_it_is_opened_is_taken_again(paths, monkeypatch):
    openings = []

    def open_and_remove(*arguments, real=os.open):
        descriptor = real(*arguments)
        if not openings:
            paths[0].unlink()
        openings.append(descriptor)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_remove)
    with exclusive(*paths, "", wait_s=10):
        assert paths[0].exists()
        assert len(openings) == 2


def test_a_folder_that_cannot_be_written_and_a_link_are_errors(tmp_path):
    with (
        pytest.raises(WorkError, match="cannot write .*No such file"),
        exclusive(tmp_path / "no" / "x", tmp_path, ""),
    ):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkError, match="cannot write"), exclusive(tmp_path / "link", tmp_path, ""):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_an_error_inside_frees_the_lock(paths):
    with pytest.raises(ZeroDivisionError), exclusive(*paths, ""):
        raise ZeroDivisionError
    with exclusive(*paths, "", wait_s=0):
        pass


def test_a_file_that_is_linked_to_the_lock_is_kept_and_a_pipe_in_its_place_refused(paths):
    other = paths[1] / "results.txt"
    other.write_text("numbers")
    for plant in (lambda: paths[0].hardlink_to(other), lambda: os.mkfifo(paths[0])):
        plant()
        with (
            pytest.raises(WorkError, match="is a link or no regular file"),
            exclusive(*paths, "wait for it"),
        ):
            pass
        paths[0].unlink()
    assert other.read_text() == "numbers"


# ---- Two processes on one shard
# -------------------------------------------------------------------------------------

SETTINGS = {
    "materials": {"builtin": ["Al-225-cF4"]},
    "simulation": {"grid_shape": [16, 16]},
    "scan": {"shape": [2, 2]},
    "specimen": {"thickness_angstrom": [4, 8], "lateral_angstrom": [5, 5]},
}


def produce_slowly(directory, settings, started, go_on):
    def simulate(*arguments):
        started.set()
        assert go_on.wait(60)
        return fake_samples.simulate(*arguments)

    fake_samples.produce(directory, settings=fake_samples.config(**settings), simulate=simulate)


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """A dataset that another process writes, and the event that lets it end."""
    monkeypatch.setattr(locks, "WAIT_S", 0.1)
    started = FORK.Event()
    go_on = FORK.Event()
    process = FORK.Process(target=produce_slowly, args=(tmp_path / "d", SETTINGS, started, go_on))
    process.start()
    assert started.wait(60)
    yield tmp_path / "d", go_on, process
    process.kill()
    process.join()


def test_a_second_command_on_a_shard_is_refused_in_one_line(dataset, tmp_path, capsys):
    directory, go_on, process = dataset
    (tmp_path / "c.yaml").write_text(
        yaml.safe_dump(fake_samples.config(**SETTINGS).model_dump(mode="json"))
    )
    capsys.readouterr()
    assert main(["dataset", str(tmp_path / "c.yaml"), "--out", str(directory)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: process {process.pid} on ")
    assert (
        f" is writing to {shard_path(directory, 0)}: wait for it, or give each process its own rank"
        in line
    )
    go_on.set()
    process.join(60)
    assert process.exitcode == 0
    with Dataset(directory) as written:
        assert len(written.ids) == 2
        for sample_id in written.ids:
            assert written.read(sample_id)
    assert not list(directory.glob(".*"))


def test_a_second_command_that_waits_simulates_nothing_again(dataset, monkeypatch):
    directory, go_on, process = dataset
    monkeypatch.setattr(locks, "WAIT_S", 60.0)
    threading.Timer(0.5, go_on.set).start()
    simulated = []
    summary = fake_samples.produce(
        directory, settings=fake_samples.config(**SETTINGS), simulate=simulated.append
    )
    process.join(60)
    assert (summary["written"], summary["present"], summary["remaining"], simulated) == (
        0,
        2,
        0,
        [],
    )
