"""A file that a library reads in a process of its own, which damaged bytes may crash or fill.

`namsa.io.confined_process` is what runs there. Its crash, its endless loop or its lack of memory is
here one `DamagedFileError`.
"""

import atexit
import json
import mmap
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.io import confined_process

PACKAGE_FOLDER = str(Path(__file__).parents[2])  # from which the script imports
SHARED_BYTES = 2**26  # read at once
REPLY_BYTES = 2**28
# of a request, and more for many bytes; a busy machine or a slow file system takes its time
SECONDS = 60.0

Value = str | float | list[Any]


class DamagedFileError(InputError):
    """A library cannot read the file, or does not survive it.

    Attributes:
        path: The file.
        reason: What the library says, or how it ended.
        hint: What else may be the reason while patterns are read.
    """

    hint = (
        ", it is damaged or packed by a filter that is not installed (pip install namsa[formats] "
        "brings the usual ones)"
    )

    def __init__(self, path: Path, reason: str, kind: str = "HDF5") -> None:
        super().__init__(f"cannot read {path} as {kind}: {reason}")
        self.path = path
        self.reason = reason


class ChangedFileError(DamagedFileError):
    """The file's bytes are not those that were written, or were there when it was opened."""

    hint = ""


_OPEN: "weakref.WeakSet[ConfinedLibrary]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends the processes of files that are open when Python ends, while threads can be joined."""
    for library in list(_OPEN):
        library.close()


class ConfinedLibrary:
    """A file that is open in a process of its own. Threads may share it; one reads at a time.

    Args:
        path: The file.

    Attributes:
        SCRIPT: The script that answers the requests.
        KIND: The file's format, for messages.
        LIBRARY: The library, for messages.
    """

    SCRIPT = ""
    KIND = ""
    LIBRARY = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._memory, memory = _create_memory()
        try:
            os.ftruncate(memory, SHARED_BYTES)
            self._shared = mmap.mmap(memory, SHARED_BYTES)
            shared = self._memory or str(memory), str(SHARED_BYTES)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-S", self.SCRIPT, os.fspath(path), *shared],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=() if self._memory else (memory,),
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, PACKAGE_FOLDER]))}
                | {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
            )
        finally:
            os.close(memory)
        self._receiver = threading.Thread(target=self._receive_all, daemon=True)
        self._receiver.start()
        self._owner = os.getpid()
        self._closed = False
        _OPEN.add(self)

    def close(self) -> None:
        """Ends the process, unless it has been ended."""
        if self._closed or os.getpid() != self._owner:  # a fork's copy is its parent's to close
            return
        self._closed = True
        _OPEN.discard(self)
        self._process.kill()
        self._receiver.join()
        with suppress(BrokenPipeError), self._process:
            pass
        self._shared.close()
        if self._memory:
            os.unlink(self._memory)

    def request(self, what: str, **arguments: object) -> Any:
        """Returns the process' answer.

        Raises:
            InputError: If the request is refused.
            DamagedFileError: If the library cannot do it, or crashes.
        """
        with self._lock:
            return self._request(what, 0, **arguments)

    def request_array(self, array: Array, unpacked: int, **arguments: object) -> None:
        """Lets the process read numbers into an array that the shared memory can hold; arguments of
        its method `read`.

        Args:
            unpacked: Bytes that the process unpacks, by which its time and memory are limited.
        """
        with self._lock:
            self._request("read", unpacked, **arguments)
            array[...] = np.ndarray(array.shape, array.dtype, self._shared)

    def _request(self, what: str, unpacked: int, **arguments: object) -> Any:
        """Sends a request and returns the answer; the caller holds the lock."""
        seconds = SECONDS + 10 * unpacked / confined_process.BYTES_PER_SECOND
        line = json.dumps({"do": what, "unpacked": unpacked, **arguments}) + "\n"
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process has ended, as the missing answer says
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        reply = json.loads(self._receive(seconds) or "{}")
        if "refused" in reply:
            raise InputError(f"{self.path}: {shorten(reply['refused'], 300)}")
        if "changed" in reply:
            raise ChangedFileError(self.path, shorten(reply["changed"], 300), self.KIND)
        if "damaged" in reply:
            raise DamagedFileError(self.path, shorten(reply["damaged"], 300), self.KIND)
        if "reply" not in reply:
            raise DamagedFileError(
                self.path, f"{self._end()}: the file is damaged or malicious", self.KIND
            )
        return reply["reply"]

    def _receive(self, seconds: float) -> bytes:
        """Returns a line of the process; nothing if it ended, was silent too long or says too
        much.
        """
        try:
            line = self._replies.get(timeout=seconds)
        except queue.Empty:
            return b""
        return line if line.endswith(b"\n") else b""

    def _receive_all(self) -> None:
        """Takes the lines of the process until its end, in a thread: Windows cannot wait for a pipe
        for a time.
        """
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(REPLY_BYTES):
            self._replies.put(line)
        self._replies.put(b"")

    def _end(self) -> str:
        """Returns how the process ended, after ending it if it runs."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        self._process.kill()
        code = self._process.wait()
        if code >= 0:
            return f"{self.LIBRARY} ended"
        name = signal.Signals(-code).name
        if name == "SIGXCPU":
            return f"{self.LIBRARY} ran longer than {confined_process.CPU_SECONDS} s"
        if name == "SIGKILL":
            return f"{self.LIBRARY} did not answer within {SECONDS:g} s"
        return f"{self.LIBRARY} crashed ({name})"


def _create_memory() -> tuple[str, int]:
    """Returns the name and the descriptor of memory to share; it has no name on Linux and is a file
    elsewhere.
    """
    if hasattr(os, "memfd_create"):
        return "", os.memfd_create("namsa-hdf5")
    descriptor, name = tempfile.mkstemp(prefix="namsa-hdf5-")
    return name, descriptor
