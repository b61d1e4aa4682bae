"""Files that belong together are switched together, wherever a crash ends the switch."""

import json
import os
from pathlib import Path

import pytest

from namsa import InputError
from namsa.base import folders, locks

OLD = {"key.json": "old", "a.npz": "old", "gone.npz": "old"}
NEW = {"key.json": "new", "a.npz": "new", "b.npz": "new"}


class Crash(BaseException):
    """The process is killed."""


def contents(folder):
    return {
        path.name: path.read_text()
        for path in folder.iterdir()
        if not path.name.startswith(".") and path.name != "mine.txt"
    }


def write(folder, files):
    with folders.open_folder(folder, key_file="key.json", obsolete=["gone.npz"]) as new:
        for name, text in files.items():
            (new / name).write_text(text)


def crash_after(monkeypatch, steps):
    """Ends the process before a step of the file system, of which each changes a name."""
    left = iter(range(steps))

    def counted(function):
        def step(path, *args, **kwargs):
            if path.name != folders.LOCK and next(left, None) is None:
                raise Crash
            return function(path, *args, **kwargs)

        return step

    for name in ("replace", "rename", "unlink", "mkdir"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    monkeypatch.setattr(folders.shutil, "rmtree", counted(folders.shutil.rmtree))


def test_a_crash_at_any_step_leaves_no_mixture_and_the_next_command_finishes(tmp_path, monkeypatch):
    outcomes = []
    for steps in range(40):
        folder = tmp_path / str(steps)
        write(folder, OLD)
        (folder / "mine.txt").write_text("mine")
        with monkeypatch.context() as patch:
            crash_after(patch, steps)
            try:
                write(folder, NEW)
                ended = True
            except Crash:
                ended = False
        # A program that starts from the key file alone never sees files of both outputs.
        seen = contents(folder)
        if "key.json" in seen:
            assert seen in (OLD, NEW)
        folders.finish_switch(folder)
        assert contents(folder) in (OLD, NEW)
        assert (folder / "mine.txt").read_text() == "mine"
        outcomes.append(contents(folder) == NEW)
        if ended:
            break
    assert ended
    assert outcomes == sorted(outcomes)  # old as far as a step, and from there on new
    assert {True, False} <= set(outcomes)


def test_the_next_output_finishes_a_switch_and_removes_what_was_never_complete(tmp_path):
    write(tmp_path, OLD)
    left = tmp_path / f".new.{'0' * 8}{0:08x}{'1' * 16}"  # of another machine
    dead = tmp_path / f".new.{folders.hidden_name(tmp_path).name[-32:-24]}{2**22 + 1:08x}{'2' * 16}"
    for folder in (left, dead):
        folder.mkdir()
    with pytest.warns(UserWarning, match="is an unfinished new that another process is writing"):
        write(tmp_path, NEW)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*NEW, left.name])


def test_a_plan_that_somebody_has_planted_removes_nothing_elsewhere(tmp_path):
    (tmp_path / "precious.txt").touch()
    folder = tmp_path / "out"
    (folder / ".switch").mkdir(parents=True)
    plan = {"key_file": None, "remove": ["../precious.txt"]}
    (folder / ".switch" / ".plan.json").write_text(json.dumps(plan))
    with pytest.raises(InputError, match="a file's name has no folder"):
        folders.finish_switch(folder)
    (folder / ".switch" / ".plan.json").unlink()
    (folder / ".switch").rmdir()
    (folder / ".switch").symlink_to(tmp_path)
    with pytest.raises(InputError, match="is a link, which is not followed"):
        folders.finish_switch(folder)
    assert (tmp_path / "precious.txt").exists()


def test_a_second_process_is_told_at_once_that_another_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_S", 0.0)
    with folders.new_folder(tmp_path / "out") as new:
        (new / "a.txt").touch()
        with (
            pytest.raises(InputError, match=f"process {os.getpid()} on .* is writing to"),
            folders.new_folder(tmp_path / "out"),
        ):
            raise AssertionError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("text", ["same", "other"])
def test_of_two_folders_of_one_name_the_same_contents_are_success(tmp_path, text):
    def write_both():
        with folders.new_folder(tmp_path / "out") as new:
            (new / "a.txt").write_text("same")
            (tmp_path / "out").mkdir()  # on a file system without locks
            (tmp_path / "out" / "a.txt").write_text(text)

    if text == "same":
        write_both()
    else:
        with pytest.raises(InputError, match="out is there already"):
            write_both()
    assert (tmp_path / "out" / "a.txt").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
