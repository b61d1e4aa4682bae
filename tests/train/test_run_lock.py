"""Two jobs on one run directory: the second is refused before it does anything."""

import subprocess
import sys

import pytest
from paths import ROOT
from tiny import write_config

from namsa import locks
from train.__main__ import main as command
from train.ranks import reduction

HOLDER = """
import sys
from pathlib import Path
from namsa.locks import exclusive
with exclusive(Path(sys.argv[1]), Path(), ""):
    print("entered", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("shared", ["run", "home"])
def test_a_second_job_is_refused_in_one_line(shared, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_S", 0.1)
    monkeypatch.setattr(reduction, "stop", lambda: None)  # Horovod cannot start twice in one process
    config, folder = write_config(tmp_path), tmp_path / shared
    folder.mkdir()
    line, pipe = [sys.executable, "-c", HOLDER, folder / ".lock"], subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as other:
        assert other.stdout.readline() == "entered\n"
        code = command([str(config), "--run-dir", str(tmp_path / "run"), "--home", str(tmp_path / "home")])
        assert (tmp_path / shared / ".lock").exists()
        other.stdin.close()
    assert code == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(f"error: process {other.pid} on ")
    assert message.endswith(f" is writing to {folder}: wait for that job to end, or give this one another --run-dir")
    assert not (tmp_path / "data").exists()
    assert not list(tmp_path.glob("*/*"))  # neither results nor locks are left
