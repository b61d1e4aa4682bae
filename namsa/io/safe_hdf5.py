"""Reads HDF5 files that may be damaged or malicious: the HDF5 library runs in a process of its own.

A file with this user's seal (`namsa.io.seal`) is as namsa wrote it, and the library reads it in place.

`namsa.io.hdf5_process` says what that process does and refuses. Its crash, its endless loop or its lack of memory is
here one `InputError`. Objects are named by their path in the file. Soft links inside the file are followed, and
external links to files beside it; other external links, external storage and virtual datasets are refused by name, so
that nothing outside of the file's folder is read.
"""

import json
import math
import mmap
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError
from namsa.files import open_regular
from namsa.io import hdf5_process
from namsa.io.seal import is_sealed
from namsa.text import shorten

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SHARED_BYTES = 2**26  # read at once
REPLY_BYTES = 2**28
SECONDS = 60.0  # of a request, and more for many bytes; a busy machine or a slow file system takes its time

Value = str | float | list[Any]


class DamagedFileError(InputError):
    """The HDF5 library cannot read the file, or does not survive it.

    Attributes:
        path: The file.
        reason: What the library says, or how it ended.
    """

    def __init__(self, path: Path, reason: str, kind: str = "HDF5") -> None:
        super().__init__(f"cannot read {path} as {kind}: {reason}")
        self.path, self.reason = path, reason


@dataclass(frozen=True)
class _Hdf5Item:
    """A group or a dataset of an open file."""

    file: "Hdf5File" = field(repr=False)  # the file
    name: str  # its path, from the root

    def attribute(self, name: str) -> Value | None:
        """Returns an attribute; `None` if it is missing, empty, or no number or text."""
        return self.file.value("attribute", path=self.name, name=name)


class Hdf5Group(_Hdf5Item):
    """A group of an open file."""

    def children(self) -> list[str]:
        """Returns the names in the group."""
        return [str(name) for name in self.file.request("children", path=self.name)]

    def leads_nowhere(self, name: str) -> bool:
        """Returns whether a name in the group is a link to a file that does not exist in the folder."""
        return bool(self.file.request("leads_nowhere", path=self.name, name=name))

    def groups_with(self, attribute: str) -> list[str]:
        """Returns the names of the groups in the group that have an attribute."""
        return [str(name) for name in self.file.request("groups_with", path=self.name, attribute=attribute)]

    def get(self, name: str) -> "Hdf5Group | Hdf5Dataset | None":
        """Returns a group or a dataset by its path from here; `None` if there is none."""
        return self.file.find(f"{self.name.rstrip('/')}/{name}")


@dataclass(frozen=True)
class Hdf5Dataset(_Hdf5Item):
    """A dataset of an open file, as far as NumPy arrays are like it."""

    shape: tuple[int, ...]  # its shape
    dtype: np.dtype[Any]  # type of its numbers; that of nothing (kind "V") if it holds no plain numbers
    chunks: tuple[int, ...] | None  # shape of the pieces that it is stored in; `None` if it is stored as a whole

    @property
    def is_numeric(self) -> bool:
        """Whether it holds integers or real numbers."""
        return self.dtype.kind in "uif"

    @property
    def parent(self) -> Hdf5Group:
        """The group that holds the dataset."""
        return Hdf5Group(self.file, self.name.rpartition("/")[0] or "/")

    def value(self) -> Value | None:
        """Returns the whole of a small dataset; `None` if it is large, empty, or no number or text."""
        return self.file.value("value", path=self.name)

    def __getitem__(self, index: tuple[slice, ...] | slice) -> npt.NDArray[Any]:
        """Reads a part, a slice for each of the first axes. Raises DamagedFileError if HDF5 cannot read it."""
        slices = index if isinstance(index, tuple) else (index,)
        slices += (slice(None),) * (len(self.shape) - len(slices))
        ranges = [part.indices(size)[:2] for part, size in zip(slices, self.shape, strict=True)]
        array = np.empty([max(0, stop - start) for start, stop in ranges], self.dtype)
        if array.size:
            self.file.read_into(array, self, ranges)
        steps = tuple(part.step or 1 for part in slices)
        return array if set(steps) <= {1} else array[tuple(slice(None, None, step) for step in steps)]


class Hdf5File:
    """An HDF5 file that is open in a process of its own. Threads may share it; one reads at a time."""

    SCRIPT, KIND, LIBRARY = hdf5_process.__file__, "HDF5", "the HDF5 library"

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
                | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
                | {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
            )
        finally:
            os.close(memory)
        self._receiver = threading.Thread(target=self._receive_all, daemon=True)
        self._receiver.start()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._receiver.join()
        with suppress(BrokenPipeError), self._process:
            pass
        self._shared.close()
        if self._memory:
            os.unlink(self._memory)

    def find(self, name: str) -> Hdf5Group | Hdf5Dataset | None:
        """Returns a group or a dataset by its path; `None` if there is none.

        Raises:
            InputError: If its data are outside of the file, or more than the file can hold.
        """
        described = self.request("find", name=name)
        if described is None or described["kind"] == "other":
            return None
        if described["kind"] == "group":
            return Hdf5Group(self, described["path"])
        if described["refused"]:
            raise InputError(f"{self.path}: {shorten(described['path'])} {described['refused']}")
        chunks = described["chunks"]
        return Hdf5Dataset(
            file=self,
            name=described["path"],
            shape=tuple(described["shape"]),
            dtype=np.dtype(described["dtype"] or "V"),
            chunks=None if chunks is None else tuple(chunks),
        )

    def scans(self, axes: int = 4) -> tuple[list[str], list[str]]:
        """Returns the names of the numeric datasets of so many axes, and lines about the datasets that are not read."""
        found = self.request("scans", axes=axes)
        return found["scans"], found["refused"]

    def value(self, kind: str, **arguments: str) -> Value | None:
        """Returns an attribute or the value of a small dataset."""
        value: Value | None = self.request(kind, **arguments)
        return value

    def read_into(self, array: npt.NDArray[Any], dataset: Hdf5Dataset, ranges: Sequence[tuple[int, int]]) -> None:
        """Reads a part of a dataset into an array, in pieces that fit into the shared memory."""
        if array.nbytes > SHARED_BYTES:
            axis = next(axis for axis, size in enumerate(array.shape) if size > 1)
            middle = array.shape[axis] // 2
            start, stop = ranges[axis]
            before, after = list(ranges), list(ranges)
            before[axis], after[axis] = (start, start + middle), (start + middle, stop)
            first, second = np.split(array, [middle], axis)
            self.read_into(first, dataset, before)
            self.read_into(second, dataset, after)
            return
        unpacked = max(array.nbytes, math.prod(dataset.chunks or ()) * array.itemsize)
        with self._lock:
            self._request("read", unpacked, path=dataset.name, selection=[list(each) for each in ranges])
            array[...] = np.ndarray(array.shape, array.dtype, self._shared)

    def request(self, what: str, **arguments: Any) -> Any:
        """Returns the process' answer.

        Raises:
            InputError: If the request is refused.
            DamagedFileError: If HDF5 cannot do it, or crashes.
        """
        with self._lock:
            return self._request(what, 0, **arguments)

    def _request(self, what: str, unpacked: int, **arguments: Any) -> Any:
        """Sends a request and returns the answer; the caller holds the lock."""
        seconds = SECONDS + 10 * unpacked / hdf5_process.BYTES_PER_SECOND
        line = json.dumps({"do": what, "unpacked": unpacked, **arguments}) + "\n"
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process has ended, as the missing answer says
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        reply = json.loads(self._receive(seconds) or "{}")
        if "refused" in reply:
            raise InputError(f"{self.path}: {shorten(reply['refused'], 300)}")
        if "damaged" in reply:
            raise DamagedFileError(self.path, shorten(reply["damaged"], 300), self.KIND)
        if "reply" not in reply:
            raise DamagedFileError(self.path, f"{self._end()}: the file is damaged or malicious", self.KIND)
        return reply["reply"]

    def _receive(self, seconds: float) -> bytes:
        """Returns a line of the process; nothing if it ended, was silent too long or says too much."""
        try:
            line = self._replies.get(timeout=seconds)
        except queue.Empty:
            return b""
        return line if line.endswith(b"\n") else b""

    def _receive_all(self) -> None:
        """Takes the lines of the process until its end, in a thread: Windows cannot wait for a pipe for a time."""
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
        name = signal.Signals(-code).name if code < 0 else ""
        if name == "SIGXCPU":
            return f"{self.LIBRARY} ran longer than {hdf5_process.CPU_SECONDS} s"
        if name == "SIGKILL":
            return f"{self.LIBRARY} did not answer within {SECONDS:g} s"
        return f"{self.LIBRARY} crashed ({name})" if name else f"{self.LIBRARY} ended"


class SealedHdf5File(Hdf5File):
    """A file with this user's seal, which is open in this process.

    Raises:
        DamagedFileError: If HDF5 cannot open it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._faults():
            self._reader = hdf5_process.Reader(os.fspath(path))

    def close(self) -> None:
        """Closes the file."""
        self._reader.close()

    def request(self, what: str, **arguments: Any) -> Any:
        with self._faults():
            return getattr(self._reader, what)(**arguments)

    def read_into(self, array: npt.NDArray[Any], dataset: Hdf5Dataset, ranges: Sequence[tuple[int, int]]) -> None:
        """Reads a part of a dataset into an array."""
        with self._faults():
            self._reader.read_into(array, dataset.name, ranges)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raises the errors of `Hdf5File.request` in place of the reader's."""
        try:
            yield
        except hdf5_process.Refused as fault:
            raise InputError(f"{self.path}: {shorten(str(fault), 300)}") from None
        except Exception as error:  # what h5py raises for a file that it cannot read
            raise DamagedFileError(self.path, shorten(hdf5_process.reason(error), 300)) from None


def _create_memory() -> tuple[str, int]:
    """Returns the name and the descriptor of memory to share; it has no name on Linux and is a file elsewhere."""
    if hasattr(os, "memfd_create"):
        return "", os.memfd_create("namsa-hdf5")
    descriptor, name = tempfile.mkstemp(prefix="namsa-hdf5-")
    return name, descriptor


@contextmanager
def open_hdf5(path: Path) -> Iterator[Hdf5File]:
    """Opens an HDF5 file for reading. Raises InputError if there is no such file, or if it is no HDF5 file."""
    if not os.path.isfile(path):
        raise InputError(f"there is no file {shorten(str(path), 300)}")
    if not has_signature(path):  # no process is needed to say so
        raise DamagedFileError(path, "file signature not found")
    file = SealedHdf5File(path) if is_sealed(path) else Hdf5File(path)
    try:
        file.find("/")
        yield file
    finally:
        file.close()


def has_signature(path: Path) -> bool:
    """Returns whether HDF5's first bytes are at the beginning, or behind a user block of 512, 1024, ... bytes."""
    with open_regular(path) as file:
        size, offset = os.fstat(file.fileno()).st_size, 0
        while offset < size:
            file.seek(offset)
            if file.read(len(SIGNATURE)) == SIGNATURE:
                return True
            offset = max(512, 2 * offset)
    return False
