"""Advisory locks that keep two processes from writing to one place.

The kernel releases a lock when its process ends, however it ends. On NFS (Linux 2.6.12 and later),
GPFS and Lustre that is mounted with `flock`, locks hold between nodes; on Lustre with `localflock`,
they hold on one node. On a file system without locks, the work goes on with a warning. Windows
locks a byte of the file in the same way; it keeps the file.

The library `filelock` does not stand in for this module: it locks another file's second name, does
not name the holder, and has no way on a file system without locks but a marker file, which another
node cannot tell from that of a killed process.
"""

import errno
import os
import platform
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.files import open_in_place, system_errors
from namsa.base.text import shorten

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

WAIT_S = 10.0  # a process that is being ended may hold its lock for a moment
_POLL_S = 0.1
_LOCKED_BYTE = 2**30  # beyond the text: on Windows nobody else can read a locked byte


@contextmanager
def exclusive(path: Path, place: Path, remedy: str, wait_s: float | None = None) -> Iterator[None]:
    """Holds a lock inside the context. No two contexts with one `path` are entered at once, on any
    node.

    Args:
        path: The file that is locked. It is created, and removed at the end.
        place: What the lock protects, for messages.
        wait_s: Time to wait for another process; by default `WAIT_S`.

    Raises:
        InputError: If another process holds the lock for longer than that. The message names the
            process.
        WorkError: If the file cannot be created, or is another file's second name.
    """
    deadline = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
    while (descriptor := _try_lock(path, place)) is None:
        if time.monotonic() >= deadline:
            raise InputError(f"{_holder(path)} is writing to {place}: {remedy}")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        if _is_at(descriptor, path):
            with suppress(OSError):
                path.unlink()
        os.close(descriptor)


def _try_lock(path: Path, place: Path) -> int | None:
    """Returns the descriptor of the locked file. `None` if another process holds the lock."""
    with system_errors(f"cannot write {path}"):
        descriptor = open_in_place(path)
    try:
        _lock(descriptor)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        warnings.warn(
            f"the file system of {place} has no locks ({error.strerror}): start no second job that "
            "writes there",
            stacklevel=4,
        )
    # The last holder removes the file, and a lock on a removed file keeps nobody out.
    if not _is_at(descriptor, path):
        os.close(descriptor)
        return None
    with suppress(OSError):  # the disk may be full
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
    return descriptor


def _lock(descriptor: int) -> None:
    """Locks an open file without waiting. Raises BlockingIOError if another process has it."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt  # Windows

    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(errno.EAGAIN, error.strerror) from None
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def _is_at(descriptor: int, path: Path) -> bool:
    """Returns whether `path` is the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _holder(path: Path) -> str:
    """Returns the process that holds a lock, as it has written it into the file."""
    with suppress(OSError), path.open("rb") as file:
        return shorten(file.read(100).decode(errors="replace")) or "another process"
    return "another process"
