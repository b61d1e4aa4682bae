"""Without what only Linux has: every module is imported, a crystal is simulated, written, locked and read."""

import os

import elsewhere
import pytest
from paths import DATA

PROGRAM = f"""
TINY = {str(DATA / "tiny.yaml")!r}
import pkgutil, sys
import msvcrt

from pathlib import Path

import namsa, namsa.cli.parser, train.commands.models, train.ranks.signals
for found in pkgutil.walk_packages(namsa.__path__, "namsa."):
    if not found.name.endswith("__main__") and found.name != "namsa.io.formats.hdf5plugin":
        importlib.import_module(found.name)

from namsa.cli.parser import main
from namsa.errors import InputError
from namsa.launcher import bind_to_share
from namsa.locks import exclusive
from namsa.memory import available_memory_bytes
from namsa.physics.backend import available_cores

assert not {{"fcntl", "resource"}} & {{name for name, module in sys.modules.items() if hasattr(module, "flock")}}
assert 10**8 < available_memory_bytes() < 10**14
print("cores", available_cores())
bind_to_share(0, 1)

assert main(["simulate", TINY, "--out", "cell.h5"]) == 0
assert main(["dataset", TINY, "--out", "data", "--limit", "1"]) == 0
with namsa.read("cell.h5") as recording:
    print("shape", *recording.data.shape)
    pattern = recording.read(slice(0, 1), slice(0, 2))
    assert pattern.shape[:2] == (1, 2) and pattern.sum() > 0

lock = Path("lock")
with exclusive(lock, Path("."), "wait"):
    print("inside:", lock.read_text()[:7])
lock.touch()
msvcrt.HELD.add((lock.stat().st_dev, lock.stat().st_ino))
try:
    with exclusive(lock, Path("."), "wait for it", wait_s=0):
        raise AssertionError
except InputError as error:
    print("refused:", error)
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return elsewhere.run(PROGRAM, tmp_path_factory.mktemp("elsewhere"))


def test_a_crystal_is_simulated_written_and_read(done):
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert f"cores {len(os.sched_getaffinity(0))}" in lines
    assert any(line.startswith("shape ") and len(line.split()) == 5 for line in lines)


def test_locks_are_those_of_windows(done):
    assert "inside: process" in done.stdout
    assert "refused: another process is writing to .: wait for it" in done.stdout
