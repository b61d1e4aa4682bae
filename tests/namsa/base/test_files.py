"""Written files are complete or absent, whatever ends the writing and whatever the file system
lacks.
"""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from namsa import InputError, WorkError
from namsa.base import files, folders, locks, missing_files, outputs
from namsa.base.leftovers import hidden_name


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def interrupt_after(_work):
    raise KeyboardInterrupt


def test_what_is_not_written_to_its_end_leaves_what_was_there(tmp_path):
    path = tmp_path / "out.bin"
    path.write_bytes(b"earlier")
    with pytest.raises(KeyboardInterrupt), files.open_atomic(path) as file:
        interrupt_after(file.write(b"half"))
    with pytest.raises(UnicodeEncodeError):
        files.write_text_atomic(path, "\ud800")
    files.write_text_atomic(path, "other", replace=False)
    with pytest.raises(WorkError, match="cannot write .*nowhere.*No such file"):
        files.write_text_atomic(tmp_path / "nowhere" / "file", "text")
    assert (path.read_bytes(), names(tmp_path)) == (b"earlier", ["out.bin"])


def test_files_of_a_folder_appear_together_and_others_stay(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "a.txt").write_text("earlier")
    with pytest.raises(KeyboardInterrupt), folders.open_folder(tmp_path) as new:
        interrupt_after((new / "a.txt").write_text("half"))
    assert (tmp_path / "a.txt").read_text() == "earlier"
    with folders.open_folder(tmp_path) as new:
        (new / "a.txt").write_text("whole")
        (new / "b.txt").write_text("whole")
        assert (tmp_path / "a.txt").read_text() == "earlier"
    assert names(tmp_path) == ["a.txt", "b.txt", "mine.txt"]
    assert (tmp_path / "a.txt").read_text() == "whole"


def test_unfinished_files_of_dead_processes_are_removed_and_others_are_named(tmp_path):
    mine = hidden_name(tmp_path / "out.bin").name
    machine, rest = mine[:-24], mine[-16:]
    dead, alive = (f"{machine}{process:08x}{rest}" for process in (2**22 + 1, os.getppid()))
    foreign = f".out.bin.{'0' * 32}"
    others = [".other.bin." + "0" * 32, ".out.bin.unfinished", mine]
    for name in (dead, alive, foreign, *others):
        (tmp_path / name).touch()
    with pytest.warns(UserWarning, match="is an unfinished out.bin that another process") as issued:
        files.write_text_atomic(tmp_path / "out.bin", "text")
    assert len(issued) == 2
    files.write_text_atomic(tmp_path / "out.bin", "again")  # warned of once
    assert names(tmp_path) == sorted([alive, foreign, *others, "out.bin"])


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(InputError, match="a is no folder"):
        files.make_folder(tmp_path / "a")


def test_a_new_folder_replaces_an_empty_one_only(tmp_path):
    (tmp_path / "empty").mkdir()
    with folders.new_folder(tmp_path / "empty") as new:
        (new / "a.txt").touch()
    assert names(tmp_path / "empty") == ["a.txt"]
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for taken in ("empty", "link", "empty/a.txt"):
        with (
            pytest.raises(InputError, match="is there already"),
            folders.new_folder(tmp_path / taken),
        ):
            raise AssertionError
    assert names(tmp_path) == ["empty", "link"]


def test_outputs_that_would_replace_an_input_are_refused(tmp_path):
    scan = tmp_path / "patterns.h5"
    alias = tmp_path / "alias.h5"
    scan.write_bytes(b"scan")
    os.link(scan, alias)
    for source in (scan, alias):
        with pytest.raises(InputError, match=r"would replace .*which is read: choose another name"):
            outputs.check_outputs(tmp_path, ["patterns.h5"], [source])
    with pytest.raises(InputError, match="is a file: name a folder"):
        outputs.check_outputs(scan, ["a.txt"], [])


def test_an_output_in_a_folder_that_is_missing_or_cannot_be_written_to_is_refused(
    tmp_path, monkeypatch
):
    missing = tmp_path / "new" / "scan.json"
    with pytest.raises(InputError, match=r"there is no folder .*new: make it, or name another one"):
        outputs.check_output(missing)
    outputs.check_output(missing, makes_folders=True)
    outputs.check_output(tmp_path / "scan.json")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    for path in (missing, tmp_path / "scan.json"):
        with pytest.raises(InputError, match=r"is no folder that can be written to: name another"):
            outputs.check_output(path, makes_folders=True)


def test_a_missing_file_is_looked_for_in_the_folders_here_and_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first-hour").mkdir()
    (tmp_path / "first-hour" / "SrTiO3.cif").touch()
    (tmp_path / "scan_01.h5").touch()
    ending = missing_files.likely_file(Path("SrTiO3.cif"))
    assert ending.startswith(
        f"; did you mean {Path('first-hour/SrTiO3.cif')}? Names of files begin"
    )
    assert missing_files.likely_file(Path("scan_1.h5")) == "; did you mean scan_01.h5?"
    assert missing_files.likely_file(Path("scan_1.cif")) == ""
    assert missing_files.likely_file(Path("nowhere/scan.h5")) == ""


@pytest.mark.parametrize(
    "write", [files.open_in_place, files.open_append, lambda path: files.append_line(path, "line")]
)
@pytest.mark.parametrize("plant", ["link", "dangling", "second name", "pipe"])
def test_a_file_that_is_written_in_place_is_no_link(tmp_path, plant, write):
    other = tmp_path / "other"
    path = tmp_path / "own"
    other.write_text("of somebody else")
    if plant == "second name":
        path.hardlink_to(other)
    elif plant == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(other if plant == "link" else tmp_path / "absent")
    with pytest.raises(WorkError, match="is a link or no regular file: remove it"):
        write(path)
    assert other.read_text() == "of somebody else"
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("error_number", [errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL])
def test_file_systems_without_hard_links_flushed_folders_and_locks_will_do(
    tmp_path, monkeypatch, error_number
):
    def refuse(*_):
        raise OSError(error_number, os.strerror(error_number))

    real = os.fsync
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: (
            refuse() if os.path.isdir(f"/proc/self/fd/{descriptor}") else real(descriptor)
        ),
    )
    files.make_folder(tmp_path / "new")
    files.write_text_atomic(tmp_path / "new" / "a.txt", "first", replace=False)
    files.write_text_atomic(tmp_path / "new" / "a.txt", "second", replace=False)
    with (
        pytest.warns(UserWarning, match="has no locks .*start no second job"),
        locks.exclusive(tmp_path / ".lock", tmp_path, "wait"),
    ):
        files.append_line(tmp_path / "new" / "a.txt", "third")
    assert (tmp_path / "new" / "a.txt").read_text() == "first\nthird\n"
    assert (names(tmp_path), names(tmp_path / "new")) == (["new"], ["a.txt"])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_command_with_130_and_one_line_and_leaves_no_half_file(tmp_path, name):
    code = (
        # this suite may run under nohup
        f"import signal, sys, time; signal.signal(signal.{name}, signal.SIG_DFL)\n"
        "from namsa.cli import start; from namsa.cli.command_line import exit_code; "
        "start.prepare()\n"
        "from namsa.base.files import open_atomic; from pathlib import Path\n"
        "def work():\n"
        " with open_atomic(Path('out')) as file:\n"
        "  file.write(b'half'); print('writing', flush=True)\n"
        # A signal that comes just before a long sleep does not end it.
        "  while True: time.sleep(0.01)\n"
        "sys.exit(exit_code(work))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.Signals[name])
        assert process.wait(10) == 130
        assert process.stderr.read() == "interrupted\n"
    assert names(tmp_path) == []


def test_a_command_whose_standard_streams_are_closed_does_its_work(tmp_path):
    code = (
        "import sys; from namsa.cli import start; from namsa.cli.command_line import exit_code; "
        "start.prepare()\n"
        "from pathlib import Path\n"
        "def work():\n print('result'); Path('out').write_text('whole')\n"
        "sys.exit(exit_code(work))"
    )
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" >&- 2>&- <&-', sys.executable, code], cwd=tmp_path, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "out").read_text() == "whole"
