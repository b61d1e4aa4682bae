"""Starts Python as it is on Windows: without the modules and calls that only Linux, or no Windows, has.

`run(code, folder)` runs code in such a process. The processes that it starts have none of the modules either. `msvcrt`
is there, as far as locks need it.
"""

import os
import subprocess
import sys
from pathlib import Path

from paths import ROOT

MODULES = ("fcntl", "resource", "grp", "pwd", "termios")
CALLS = {
    "os": "memfd_create posix_fallocate posix_fadvise pread pwrite preadv pwritev sched_getaffinity sched_setaffinity "
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
"""


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
    line, environment = [sys.executable, "-c", start + code], {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(line, capture_output=True, text=True, cwd=folder, env=os.environ | environment, check=False)
