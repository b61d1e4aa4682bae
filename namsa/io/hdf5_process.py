"""The process in which the HDF5 library reads a file: a script that `namsa.io.safe_hdf5` starts.

Damaged bytes make the HDF5 library crash, loop without end or ask for all memory, and the file format can name other
files: external links, external storage and virtual datasets. Here all of that harms only this process. It has limits
on memory (on Linux) and processor time (not on Windows), and it follows links itself: soft ones in the file, external
ones to files beside it, as detectors write them, and to no other. HDF5 can open no file on its own account. Requests
and replies are lines of JSON; arrays pass through shared memory. It imports nothing of the package, so that it starts
fast.
"""

import importlib.util
import json
import math
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import h5py
import numpy as np

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

LINKS_FOLLOWED = 16  # in one name; more are a circle
FILES = 10_000  # that external links lead to
NAME_PARTS = 64
OBJECTS = 100_000  # that are visited in search of scans
CHILDREN = 100_000  # in one group
RANK = 8
NUMBERS = "uifb"  # kinds of NumPy types: integers, real numbers and truth values
TEXT_BYTES = 64 * 2**20  # of an attribute: the provenance of a scan holds all its positions
VALUES = 64  # in a small array
CHUNK_BYTES = 2**30
UNWRITTEN_BYTES = 2**28  # of a dataset that may have no data in the file
COMPRESSION = 4096  # largest ratio of declared to stored bytes; gzip reaches 1032

MEMORY_BYTES = 2**29  # beyond what the process has at its start, and beyond the chunks that it unpacks
CPU_SECONDS = 4  # of a request, and more for many bytes
BYTES_PER_SECOND = 5e6  # that the slowest filter unpacks


class Refused(Exception):
    """The file asks for what is not done; the message is for the user."""


class Reader:
    """Answers requests about one open file.

    The path of an object in a file beside it begins with that file's name and a colon: "data_1.h5:/entry/data".
    """

    def __init__(self, path: str, shared: mmap.mmap | None = None) -> None:
        self._folder = os.path.dirname(os.path.realpath(path))
        try:
            self._file = h5py.File(path, "r")
        except OSError:  # another program may be writing it, so that it can be read while it grows (SWMR)
            if not h5py.is_hdf5(path) or _is_closed(path):
                raise
            self._file = h5py.File(path, "r", swmr=True)
        self._others: dict[str, h5py.File] = {}
        self._shared = shared

    def find(self, name: str) -> dict[str, Any] | None:
        """Describes a group or a dataset; soft links on the way are followed. None if there is none."""
        path = self._resolve(name)
        return None if path is None else self._describe(path)

    def children(self, path: str) -> list[str]:
        """Returns the names in a group."""
        group = self._group(path)
        if len(group) > CHILDREN:
            raise Refused(f"{path} holds {len(group)} objects, at most {CHILDREN} are read")
        return list(group)

    def leads_nowhere(self, path: str, name: str) -> bool:
        """Returns whether a name in a group is an external link to a file beside the first one that does not exist."""
        group = self._group(path)
        links = group.id.links
        if not links.exists(_encoded(name)) or links.get_info(_encoded(name)).type != h5py.h5l.TYPE_EXTERNAL:
            return False
        other = links.get_val(_encoded(name))[0].decode(errors="replace")
        return other == os.path.basename(other) and not os.path.lexists(os.path.join(self._folder, other))

    def groups_with(self, path: str, attribute: str) -> list[str]:
        """Returns the names of the groups in a group, links apart, that have an attribute."""
        group, found = self._group(path), []
        for name in self.children(path):
            if group.id.links.get_info(_encoded(name)).type == h5py.h5l.TYPE_HARD:
                item = self._open(f"{path.rstrip('/')}/{name}")
                if isinstance(item, h5py.h5g.GroupID) and h5py.h5a.exists(item, _encoded(attribute)):
                    found.append(name)
        return found

    def attribute(self, path: str, name: str) -> Any:
        """Returns an attribute as a JSON value; None if it is missing, empty or no number or text."""
        owner = self._open(path)
        if not h5py.h5a.exists(owner, _encoded(name)):
            return None
        stored = h5py.h5a.open(owner, _encoded(name))
        return _json_value(self._object(path).attrs[name]) if _is_small(stored) else None

    def value(self, path: str) -> Any:
        """Returns a small dataset as a JSON value; None if it is empty, large or no number or text."""
        if self._describe(path).get("refused", "is no dataset") or not _is_small(self._open(path)):
            return None
        return _json_value(self._object(path)[()])

    def read(self, path: str, selection: list[list[int]]) -> None:
        """Reads a part of a dataset, [start, stop] per axis, into the shared memory."""
        shape = tuple(stop - start for start, stop in selection)
        self.read_into(np.ndarray(shape, self._object(path).dtype, self._shared), path, selection)

    def read_into(self, array: np.ndarray[Any, Any], path: str, selection: Sequence[Sequence[int]]) -> None:
        """Reads a part of a dataset, [start, stop] per axis, into an array of its type."""
        dataset = self._object(path)
        if dataset.dtype.kind not in NUMBERS:
            raise Refused(f"{path} holds no plain numbers")
        if array.ndim:
            dataset.read_direct(array, tuple(slice(start, stop) for start, stop in selection))
        else:
            array[()] = dataset[()]

    def scans(self, axes: int) -> dict[str, list[str]]:
        """Returns the names of the numeric datasets of so many axes, and what is not read, with the reasons."""
        found, refused = [], []
        for path in self._datasets():
            described = self._describe(path)
            if described["refused"]:
                refused.append(f"{path} {described['refused']}")
            elif len(described["shape"]) == axes:
                kind = self._open(path).dtype
                if described["dtype"]:
                    found.append(path)
                else:
                    said = "complex numbers: store the intensity, |ψ|²" if kind.kind == "c" else f"{kind}, not numbers"
                    refused.append(f"{path} holds {said}"[:200])
        return {"scans": found, "refused": refused}

    def _datasets(self) -> Iterator[str]:
        """Yields the paths of all datasets, each once, without following soft and external links."""
        pending, visited = ["/"], {h5py.h5o.get_info(self._file.id).addr}
        while pending:
            path = pending.pop()
            item = self._open(path)
            if isinstance(item, h5py.h5d.DatasetID):
                yield path
            if not isinstance(item, h5py.h5g.GroupID):
                continue
            if path.count("/") > NAME_PARTS:
                raise Refused(f"groups are nested more than {NAME_PARTS} deep: name the data with --dataset")
            for name in reversed(self.children(path)):
                if item.links.get_info(_encoded(name)).type != h5py.h5l.TYPE_HARD:
                    continue
                address = h5py.h5o.get_info(item, _encoded(name)).addr
                if address not in visited:
                    visited.add(address)
                    pending.append(f"{path.rstrip('/')}/{name}")
            if len(visited) > OBJECTS:
                raise Refused(f"it holds more than {OBJECTS} objects: name the data with --dataset")

    def _resolve(self, name: str) -> str | None:
        """Returns the path of an object without soft links; None if there is no such object."""
        file, inner = self._split(name)
        pending, path, links = list(reversed(_parts(inner))), file and f"{file}:", 0
        while pending:
            part = pending.pop()
            group = self._open(path or "/")
            if not isinstance(group, h5py.h5g.GroupID) or not group.links.exists(_encoded(part)):
                return None
            kind = group.links.get_info(_encoded(part)).type
            if kind == h5py.h5l.TYPE_HARD:
                path = f"{path}/{part}"
            elif kind == h5py.h5l.TYPE_SOFT:
                links += 1
                target = group.links.get_val(_encoded(part)).decode(errors="replace")
                file = self._split(path)[0]
                path = (file and f"{file}:") if target.startswith("/") else path
                pending += reversed(_parts(target))
            elif kind == h5py.h5l.TYPE_EXTERNAL:
                links += 1
                other, target = (each.decode(errors="replace") for each in group.links.get_val(_encoded(part)))
                self._open_beside(other, f"{path}/{part}")
                path = f"{other}:"
                pending += reversed(_parts(target))
            else:
                raise Refused(f"{path}/{part} is a link of an unknown kind, which is not followed")
            if links > LINKS_FOLLOWED or path.count("/") + len(pending) > NAME_PARTS:
                raise Refused(f"{name} leads through more than {LINKS_FOLLOWED} links, perhaps in a circle")
        return path or "/"

    def _open_beside(self, name: str, link: str) -> None:
        """Opens the file that an external link leads to; it lies beside the first one, and is a regular file."""
        path = os.path.realpath(os.path.join(self._folder, name))
        if name != os.path.basename(name) or os.path.dirname(path) != self._folder or not os.path.isfile(path):
            raise Refused(
                f"{link} is an external link to {name}, which is no file beside it: copy that file there, or name it"
            )
        if name not in self._others:
            if len(self._others) >= FILES:
                raise Refused(f"its external links lead to more than {FILES} files")
            with self._may_open():
                self._others[name] = h5py.File(path, "r")

    def _describe(self, path: str) -> dict[str, Any]:
        """Describes a group, a dataset, or what else there is."""
        item = self._open(path)
        if isinstance(item, h5py.h5g.GroupID):
            return {"kind": "group", "path": path}
        if not isinstance(item, h5py.h5d.DatasetID):
            return {"kind": "other", "path": path}
        created = item.get_create_plist()
        empty: dict[str, Any] = {"kind": "dataset", "path": path, "shape": [], "dtype": "", "chunks": None}
        if created.get_layout() == h5py.h5d.VIRTUAL:
            return {**empty, "refused": "is a virtual dataset, whose data are elsewhere (h5repack copies them)"}
        if created.get_external_count():
            return {**empty, "refused": "has its data in other files (h5repack copies them)"}
        if item.get_space().get_simple_extent_type() == h5py.h5s.NULL:
            return {**empty, "refused": "is empty: it has no shape and no values"}
        self._load_filters(created)
        shape, dtype = item.shape, item.dtype
        described = {
            **empty,
            "shape": list(shape),
            "dtype": dtype.str if dtype.kind in NUMBERS else "",
            "chunks": list(created.get_chunk()) if created.get_layout() == h5py.h5d.CHUNKED else None,
        }
        return {**described, "refused": self._fault(item, described, dtype.itemsize)}

    def _fault(self, item: h5py.h5d.DatasetID, described: dict[str, Any], itemsize: int) -> str:
        """Returns why a dataset is not read, or an empty text."""
        shape, chunks = described["shape"], described["chunks"]
        if len(shape) > RANK:
            return f"has {len(shape)} axes, at most {RANK} are read"
        if chunks and math.prod(chunks) * itemsize > CHUNK_BYTES:
            return f"has chunks of {math.prod(chunks) * itemsize} bytes, at most {CHUNK_BYTES} are read (h5repack)"
        declared = math.prod(shape) * itemsize
        stored = min(item.get_storage_size(), h5py.h5i.get_file_id(item).get_filesize())
        if declared > UNWRITTEN_BYTES + (COMPRESSION if chunks else 1) * stored:
            return f"declares {declared} bytes, of which the file holds {stored}"
        return ""

    def _load_filters(self, created: h5py.h5p.PropDCID) -> None:
        """Loads the filters of a dataset that are plugins of HDF5 or of the package hdf5plugin, if it is installed."""
        filters = [created.get_filter(number)[0] for number in range(created.get_nfilters())]
        with self._may_open():
            if not all(map(h5py.h5z.filter_avail, filters)) and importlib.util.find_spec("hdf5plugin"):
                importlib.import_module("hdf5plugin")

    @contextmanager
    def _may_open(self) -> Iterator[None]:
        """Lets the process open files, if something keeps it from that. No data are read meanwhile."""
        yield

    def close(self) -> None:
        """Closes the file and those beside it."""
        for file in (self._file, *self._others.values()):
            file.close()

    def _open(self, path: str) -> Any:
        """Opens the object at a path without links."""
        file, inner = self._split(path)
        return h5py.h5o.open((self._others[file] if file else self._file).id, _encoded(inner))

    def _split(self, path: str) -> tuple[str, str]:
        """Returns the name of the file beside the first one, empty for the first one itself, and the path in it."""
        file, _, inner = f"{path}/".partition(":/")
        inner = inner.rstrip("/")
        return (file, f"/{inner}") if file in self._others else ("", path)

    def _object(self, path: str) -> Any:
        """Returns the group or the dataset at a path without links."""
        file, inner = self._split(path)
        return (self._others[file] if file else self._file)[inner]

    def _group(self, path: str) -> h5py.Group:
        """Returns a group by its path without links."""
        group = self._object(path)
        if not isinstance(group, h5py.Group):
            raise Refused(f"{path} is no group")
        return group


def _is_closed(path: str) -> bool:
    """Returns whether the file's first bytes say that its writer has closed it, so that it does not grow."""
    with open(path, "rb") as file:
        start = file.read(12)  # signature, version of the superblock, two sizes, flags (version 3: of the writer)
    return start[:8] == b"\x89HDF\r\n\x1a\n" and (start[8] < 3 or not start[11])


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _encoded(name: str) -> bytes:
    """Returns a name as HDF5 stores it; h5py decodes bytes that are not UTF-8 as surrogates."""
    return name.encode(errors="surrogateescape")


def _is_small(stored: Any) -> bool:
    """Returns whether an attribute or a dataset is not empty and has few values of bounded size."""
    space = stored.get_space()
    empty = space.get_simple_extent_type() == h5py.h5s.NULL
    return not empty and 0 < space.get_simple_extent_npoints() <= VALUES and stored.get_type().get_size() <= TEXT_BYTES


def _json_value(value: Any) -> Any:
    """Returns numbers, text, or a list of them; None for all else."""
    if isinstance(value, np.ndarray):
        values = [_json_value(each) for each in value.ravel()]
        return (values[0] if value.ndim == 0 else values) if values and None not in values else None
    if isinstance(value, str | bytes):
        data = value.encode(errors="surrogateescape") if isinstance(value, str) else bytes(value)
        return data.decode(errors="replace") if len(data) <= TEXT_BYTES else None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    return float(value) if isinstance(value, float | np.floating) else None


def reason(error: BaseException) -> str:
    """Returns what the HDF5 library says, in one line."""
    return " ".join(str(error.args[-1] if error.args else type(error).__name__).split())


@contextmanager
def _limits(start_bytes: int | None, unpacked: int) -> Iterator[None]:
    """Limits memory and processor time; a process that takes more is ended or gets an error."""
    _limit("CPU", math.ceil(time.process_time() + CPU_SECONDS + unpacked / BYTES_PER_SECOND))
    if start_bytes is not None:
        _limit("AS", start_bytes + MEMORY_BYTES + 4 * unpacked)
    yield
    _limit("CPU", None)


def _limit(kind: str, value: int | None) -> None:
    """Sets a soft limit to `value`, or to the hard one if that is lower or `value` is None."""
    if resource is None:
        return
    number = getattr(resource, f"RLIMIT_{kind}")
    hard = resource.getrlimit(number)[1]
    soft = hard if value is None else value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(number, (soft, hard))


class ConfinedReader(Reader):
    """A reader in the process with limits, which can open no file while it reads data."""

    @contextmanager
    def _may_open(self) -> Iterator[None]:
        _limit("NOFILE", None)
        try:
            yield
        finally:
            _limit("NOFILE", 0)


def main(open_reader: Callable[[str, mmap.mmap], Any] = ConfinedReader, open_files: int | None = 0) -> None:
    """Opens the file that the arguments name and answers requests until stdin ends.

    Args:
        open_reader: Returns an object whose methods answer the requests, from the file and the shared memory.
        open_files: How many files it may have open once it is made; `None` for as many as the system allows.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says what an interrupt means
    _limit("CORE", 0)
    path, memory, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
    shared = mmap.mmap(int(memory) if memory.isdigit() else os.open(memory, os.O_RDWR), length)
    start_bytes: int | None = None
    with suppress(FileNotFoundError), open("/proc/self/statm", encoding="ascii") as file:
        start_bytes = int(file.read().split()[0]) * mmap.PAGESIZE
    reader: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            with _limits(start_bytes, request.pop("unpacked")):
                if reader is None:
                    reader = open_reader(path, shared)
                _limit("NOFILE", open_files)
                reply = {"reply": getattr(reader, request.pop("do"))(**request)}
        except Refused as fault:
            reply = {"refused": str(fault)}
        except Exception as error:  # what libraries raise for a file that they cannot read
            reply = {"damaged": reason(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
