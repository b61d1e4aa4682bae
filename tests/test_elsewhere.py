"""Without what only Linux has, or Windows lacks: all is imported, a crystal is simulated, written,
locked and read.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import DATA, ROOT

MODULES = ("fcntl", "resource", "grp", "pwd", "termios")
CALLS = {
    "os": "memfd_create posix_fallocate posix_fadvise pread pwrite preadv pwritev "
    "sched_getaffinity sched_setaffinity "
    "sysconf uname getuid geteuid mkfifo O_NOFOLLOW O_NONBLOCK O_NOCTTY O_DIRECTORY O_CLOEXEC fork",
    "select": "poll epoll",
    "signal": "SIGUSR1 SIGUSR2 SIGXCPU SIGALRM SIGHUP SIGPIPE setitimer",
}

_MSVCRT = """
LK_NBLCK = 2
HELD = set()  # what another process has locked: (device, inode)


def locking(descriptor, mode, length):
    import os

    assert mode == LK_NBLCK and os.lseek(descriptor, 0, os.SEEK_CUR) > 2**20
    status = os.fstat(descriptor)
    if (status.st_dev, status.st_ino) in HELD:
        raise PermissionError(13, "Permission denied")
"""

_START = """
import importlib, subprocess, sys
import h5py, matplotlib.pyplot, multiprocessing.connection, numpy, psutil, tempfile  # which know the system
for module, names in {calls!r}.items():
    for name in names.split():
        vars(importlib.import_module(module)).pop(name, None)
sys.modules |= dict.fromkeys({modules!r})
sys.path.insert(0, {shadows!r})  # this is what processes of HDF5 get
sys.modules["msvcrt"] = importlib.import_module("fake_msvcrt")
"""  # noqa: E501


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs `code` and returns what it printed.

    Args:
        code: The program.
        folder: Where it runs, and where the missing modules are replaced.
    """
    shadows = folder / "shadows"
    shadows.mkdir()
    for name in MODULES:
        (shadows / f"{name}.py").write_text("raise ImportError(f'there is no {__name__} here')\n")
    (shadows / "fake_msvcrt.py").write_text(_MSVCRT)
    start = _START.format(calls=CALLS, modules=MODULES, shadows=str(shadows))
    line = [sys.executable, "-c", start + code]
    environment = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        line, capture_output=True, text=True, cwd=folder, env=os.environ | environment, check=False
    )


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
from namsa.base.errors import InputError
from namsa.base.launcher import bind_to_share
from namsa.base.locks import exclusive
from namsa.base.memory import available_memory_bytes
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
"""  # noqa: E501

TRAIN = """
import pkgutil

import numpy as np

import fcdensenet, train

for package in (fcdensenet, train):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)

calibration = train.CalibrationOverrides(
    energy_ev=200e3, semiangle_mrad=20.0, scan_step_angstrom=0.4, pixel_mrad=3.0, centre_pixels=(16, 16)
)
patterns = np.random.default_rng(1).random((26, 24, 33, 33), np.float32)
result = train.reconstruct(patterns, "200kv-20mrad-fast", calibration, beam_intensity=500.0)
assert train.measure.performance.peak_memory_mib() > 10
print("density", result.density.shape)
"""  # noqa: E501


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return run(PROGRAM, tmp_path_factory.mktemp("elsewhere"))


@pytest.mark.slow
def test_a_crystal_is_simulated_written_and_read(done):
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert f"cores {len(os.sched_getaffinity(0))}" in lines
    assert any(line.startswith("shape ") and len(line.split()) == 5 for line in lines)


@pytest.mark.slow  # TensorFlow is imported
def test_every_module_of_train_is_imported_and_scans_are_reconstructed(tmp_path):
    done = run(TRAIN, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "density (26, 24)"


def test_locks_are_those_of_windows(done):
    assert "inside: process" in done.stdout
    assert "refused: another process is writing to .: wait for it" in done.stdout
