"""Hidden names of unfinished outputs, and the removal of those that a killed process has left.

An unfinished output of `cell.h5` is `.cell.h5.HEX` beside it, of 32 hexadecimal digits: eight say
on which machine (and in which container) its process runs, eight are the number of the process, and
16 are random, so that nobody can have made or linked the file before. The next process that writes
the same output removes what no living process of its own machine can be writing, and names the
rest.
"""

import hashlib
import os
import platform
import re
import secrets
import shutil
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

from namsa.base.text import shorten

_HEX = re.compile(r"[0-9a-f]{32}")
_swept: set[Path] = set()


def hidden_name(path: Path) -> Path:
    """Returns a new hidden name beside `path` for its unfinished output."""
    return path.with_name(f".{path.name}.{_machine()}{os.getpid():08x}{secrets.token_hex(8)}")


def remove_leftovers(path: Path, *, again: bool = True) -> None:
    """Removes unfinished outputs of `path` that ended processes of this machine have left.

    Args:
        path: The output.
        again: If false, nothing is done when this process has looked there before.

    Warns:
        UserWarning: Of those that another machine or a living process may be writing.
    """
    if not again and path in _swept:
        return
    _swept.add(path)
    for leftover in _unfinished(path):
        digits = leftover.name[-32:]
        process = int(digits[8:16], 16)
        if digits[:8] == _machine() and process == os.getpid():
            continue
        if digits[:8] == _machine() and not _is_running(process):
            _remove(leftover)
            continue
        warnings.warn(
            f"{shorten(str(leftover), 300)} is an unfinished {path.name} that another process is "
            "writing, or has left: remove it if none is",
            stacklevel=3,
        )


def _unfinished(path: Path) -> list[Path]:
    """Returns the unfinished outputs of a path."""
    beginning = f".{path.name}."
    names = []
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name.startswith(beginning) and _HEX.fullmatch(entry.name[len(beginning) :]):
                names.append(entry.name)
    return [path.with_name(name) for name in sorted(names)]


def _remove(leftover: Path) -> None:
    """Removes a file, or a folder with all that it has; a link's target stays."""
    if leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
        return
    with suppress(OSError):  # another process has removed it, or nobody may
        leftover.unlink()


@cache
def _machine() -> str:
    """Returns eight digits of this machine and of the container in which its processes count."""
    namespace = ""
    with suppress(OSError):  # Linux alone has it
        namespace = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:8]


def _is_running(process: int) -> bool:
    """Returns whether a process of this machine runs; true where that cannot be found out."""
    if os.name == "nt":  # there, `os.kill` would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
