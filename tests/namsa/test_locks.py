"""Locks between processes."""

import multiprocessing
import os
import signal
import time

import pytest

from namsa.errors import WorkError
from namsa.locks import exclusive

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def paths(tmp_path):
    return tmp_path / ".lock", tmp_path


def hold(paths, entered):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which a command in another test may have changed
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_of_a_process_that_died_is_free(paths, holder, number):
    os.kill(holder.pid, number)
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
    counter, failures = FORK.Value("i", 0), FORK.Value("i", 4)
    processes = [FORK.Process(target=count_alone, args=(paths, counter, failures)) for _ in range(4)]
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
    with pytest.raises(WorkError, match="cannot write .*No such file"), exclusive(tmp_path / "no" / "x", tmp_path, ""):
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
        with pytest.raises(WorkError, match="is a link or no regular file"), exclusive(*paths, "wait for it"):
            pass
        paths[0].unlink()
    assert other.read_text() == "numbers"
