"""The process in which the HDF5 library reads a file: a script that `namsa.io.safe_hdf5` starts.

Damaged bytes make the HDF5 library crash, loop without end or ask for all memory, and the file
format can name other files: external links, external storage and virtual datasets. Here all of that
harms only this process. It has the limits of `namsa.io.confined_process`, follows links itself
(`namsa.io.hdf5_objects`), and HDF5 can open no file on its own account.
"""

import importlib.util
import itertools
import math
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NotRequired, TypedDict

import h5py
import numpy as np

from namsa.io.confined_process import Refused, limit, serve
from namsa.io.hdf5_objects import NAME_PARTS, Hdf5Objects
from namsa.io.hdf5_values import encoded, is_small, json_value

OBJECTS = 100_000  # that are visited in search of scans
CHILDREN = 100_000  # in one group
RANK = 8
NUMBERS = "uifb"  # kinds of NumPy types: integers, real numbers and truth values
CHUNK_BYTES = 2**30
UNWRITTEN_BYTES = 2**28  # of a dataset that may have no data in the file
COMPRESSION = 4096  # largest ratio of declared to stored bytes; gzip reaches 1032

Selection = Sequence[Sequence[int]]  # [start, stop] per axis


class ItemDescription(TypedDict):
    """A group, a dataset, or what else is in a file."""

    kind: Literal["group", "dataset", "other"]
    path: str
    # of a dataset alone
    shape: NotRequired[list[int]]
    dtype: NotRequired[str]  # empty for what is not numbers
    chunks: NotRequired[list[int] | None]
    refused: NotRequired[str]  # why it is not read; empty for one that is


class Hdf5Reader(Hdf5Objects):
    """Answers requests about one open file.

    Args:
        path: The file.
        shared: Memory that `read` writes to.
    """

    def __init__(self, path: str, shared: mmap.mmap | None = None) -> None:
        super().__init__(path)
        self._shared = shared

    def find(self, name: str) -> ItemDescription | None:
        """Describes a group or a dataset; links on the way are followed. `None` if there is
        none.
        """
        path = self._resolve(name)
        return None if path is None else self._describe(path)

    def children(self, path: str) -> list[str]:
        """Returns the names in a group."""
        group = self._group(path)
        if len(group) > CHILDREN:
            raise Refused(f"{path} holds {len(group)} objects, at most {CHILDREN} are read")
        return list(group)

    def groups_with(self, path: str, attribute: str) -> list[str]:
        """Returns the names of the groups in a group, links apart, that have an attribute."""
        group = self._group(path)
        names = []
        for name in self.children(path):
            if group.id.links.get_info(encoded(name)).type != h5py.h5l.TYPE_HARD:
                continue
            item = self._open(f"{path.rstrip('/')}/{name}")
            is_group = isinstance(item, h5py.h5g.GroupID)
            if is_group and h5py.h5a.exists(item, encoded(attribute)):
                names.append(name)
        return names

    def attribute(self, path: str, name: str) -> object:
        """Returns an attribute as a JSON value; `None` if it is missing, empty or no number or
        text.
        """
        return self.attributes(path, [name]).get(name)

    def attributes(self, path: str, names: Sequence[str]) -> dict[str, object]:
        """Returns those of some attributes of which `attribute` is not `None`."""
        owner = self._open(path)
        values = {}
        for name in names:
            if not h5py.h5a.exists(owner, encoded(name)):
                continue
            if not is_small(h5py.h5a.open(owner, encoded(name))):
                continue
            value = json_value(self._object(path).attrs[name])
            if value is not None:
                values[name] = value
        return values

    def value(self, path: str) -> object:
        """Returns a small dataset as a JSON value; `None` if it is empty, large or no number or
        text.
        """
        if self._describe(path).get("refused", "is no dataset") or not is_small(self._open(path)):
            return None
        return json_value(self._object(path)[()])

    def scales(self, path: str) -> list[str]:
        """Returns the path of the dimension scale that is attached to each axis of a dataset;
        empty for none.
        """
        item = self._open(path)
        if not isinstance(item, h5py.h5d.DatasetID):
            raise Refused(f"{path} is no dataset")
        paths = []
        for axis in range(item.rank):
            scales: list[h5py.h5d.DatasetID] = []
            if h5py.h5ds.get_num_scales(item, axis):
                h5py.h5ds.iterate(item, axis, scales.append)
            name = h5py.h5i.get_name(scales[0]) if scales else None
            paths.append((name or b"").decode(errors="replace"))
        return paths

    def reference(self, path: str, name: str) -> str | None:
        """Returns the path of what an attribute refers to; `None` if it refers to nothing."""
        owner = self._object(path)
        value = owner.attrs.get(name)
        if not isinstance(value, h5py.Reference) or not value:
            return None
        target = owner.file[value].name
        return None if target is None else str(target)

    def read(self, path: str, selection: Selection) -> None:
        """Reads a part of a dataset into the shared memory."""
        shape = tuple(stop - start for start, stop in selection)
        self.read_into(np.ndarray(shape, self._object(path).dtype, self._shared), path, selection)

    def read_into(self, array: np.ndarray, path: str, selection: Selection) -> None:
        """Reads a part of a dataset into an array of its type.

        Raises:
            Refused: If the dataset holds no plain numbers.
            Changed: If a file has become shorter.
        """
        dataset = self._object(path)
        if dataset.dtype.kind not in NUMBERS:
            raise Refused(f"{path} holds no plain numbers")
        try:
            if array.ndim:
                dataset.read_direct(array, tuple(slice(start, stop) for start, stop in selection))
            else:
                array[()] = dataset[()]
        finally:
            self.check_sizes()

    def extents(self, path: str, selection: Selection) -> list[list[int]]:
        """Returns where a part of a dataset is stored, [first byte, bytes] each.

        It is empty for a dataset of a file beside the first one.
        """
        if self._split(path)[0]:
            return []
        item = self._open(path)
        if item.get_create_plist().get_layout() == h5py.h5d.CHUNKED:
            return _chunk_extents(item, selection)
        offset = item.get_offset()
        if offset is None:
            return []
        strides = np.cumprod((item.dtype.itemsize, *item.shape[:0:-1]), dtype=np.int64)[::-1]
        first_byte = 0
        last_byte = 0
        for stride, (start, stop) in zip(strides.tolist(), selection, strict=True):
            first_byte += stride * start
            last_byte += stride * (stop - 1)
        return [[offset + first_byte, last_byte - first_byte + item.dtype.itemsize]]

    def scans(self, axes: int) -> dict[str, list[str]]:
        """Returns the names of the numeric datasets of so many axes, and what is not read, with the
        reasons.
        """
        scans = []
        refused = []
        for path in self._datasets():
            described = self._describe(path)
            if described["refused"]:
                refused.append(f"{path} {described['refused']}")
            elif len(described["shape"]) != axes:
                continue
            elif described["dtype"]:
                scans.append(path)
            else:
                refused.append(f"{path} holds {_unread_type(self._open(path).dtype)}"[:200])
        return {"scans": scans, "refused": refused}

    def _datasets(self) -> Iterator[str]:
        """Yields the paths of all datasets, each once, without following soft and external
        links.
        """
        pending = ["/"]
        visited = {h5py.h5o.get_info(self._file.id).addr}
        while pending:
            path = pending.pop()
            item = self._open(path)
            if isinstance(item, h5py.h5d.DatasetID):
                yield path
            if not isinstance(item, h5py.h5g.GroupID):
                continue
            if path.count("/") > NAME_PARTS:
                raise Refused(
                    f"groups are nested more than {NAME_PARTS} deep: name the data with --dataset"
                )
            for name in reversed(self.children(path)):
                if item.links.get_info(encoded(name)).type != h5py.h5l.TYPE_HARD:
                    continue
                address = h5py.h5o.get_info(item, encoded(name)).addr
                if address not in visited:
                    visited.add(address)
                    pending.append(f"{path.rstrip('/')}/{name}")
            if len(visited) > OBJECTS:
                raise Refused(f"it holds more than {OBJECTS} objects: name the data with --dataset")

    def _describe(self, path: str) -> ItemDescription:
        """Describes a group, a dataset, or what else there is."""
        item = self._open(path)
        if isinstance(item, h5py.h5g.GroupID):
            return {"kind": "group", "path": path}
        if not isinstance(item, h5py.h5d.DatasetID):
            return {"kind": "other", "path": path}
        created = item.get_create_plist()
        layout = created.get_layout()
        described: ItemDescription = {
            "kind": "dataset",
            "path": path,
            "shape": [],
            "dtype": "",
            "chunks": None,
        }
        if layout == h5py.h5d.VIRTUAL:
            refused = "is a virtual dataset, whose data are elsewhere (h5repack copies them)"
            return {**described, "refused": refused}
        if created.get_external_count():
            return {**described, "refused": "has its data in other files (h5repack copies them)"}
        if item.get_space().get_simple_extent_type() == h5py.h5s.NULL:
            return {**described, "refused": "is empty: it has no shape and no values"}
        self._load_filters(created)
        described["shape"] = list(item.shape)
        if item.dtype.kind in NUMBERS:
            described["dtype"] = item.dtype.str
        if layout == h5py.h5d.CHUNKED:
            described["chunks"] = list(created.get_chunk())
        return {**described, "refused": _refusal(item, described)}

    def _load_filters(self, created: h5py.h5p.PropDCID) -> None:
        """Loads the filters of a dataset that are plugins of HDF5 or of the package hdf5plugin, if
        it is installed.
        """
        filters = [created.get_filter(index)[0] for index in range(created.get_nfilters())]
        with self._may_open():
            if all(map(h5py.h5z.filter_avail, filters)):
                return
            if importlib.util.find_spec("hdf5plugin"):
                importlib.import_module("hdf5plugin")


class ConfinedHdf5Reader(Hdf5Reader):
    """A reader in the process with limits, which can open no file while it reads data."""

    @contextmanager
    def _may_open(self) -> Iterator[None]:
        limit("NOFILE", None)
        try:
            yield
        finally:
            limit("NOFILE", 0)


def _refusal(item: h5py.h5d.DatasetID, described: ItemDescription) -> str:
    """Returns why a dataset is not read, or an empty text."""
    shape = described["shape"]
    chunks = described["chunks"]
    itemsize = item.dtype.itemsize
    if len(shape) > RANK:
        return f"has {len(shape)} axes, at most {RANK} are read"
    if chunks and math.prod(chunks) * itemsize > CHUNK_BYTES:
        chunk_bytes = math.prod(chunks) * itemsize
        return f"has chunks of {chunk_bytes} bytes, at most {CHUNK_BYTES} are read (h5repack)"
    declared = math.prod(shape) * itemsize
    stored = min(item.get_storage_size(), h5py.h5i.get_file_id(item).get_filesize())
    ratio = COMPRESSION if chunks else 1
    if declared > UNWRITTEN_BYTES + ratio * stored:
        return f"declares {declared} bytes, of which the file holds {stored}"
    return ""


def _unread_type(dtype: np.dtype[np.generic]) -> str:
    """Returns what a dataset holds whose type is not read, with the remedy."""
    if dtype.kind == "c":
        return "complex numbers: store the intensity, |ψ|²"
    return f"{dtype}, not numbers"


def _chunk_extents(item: h5py.h5d.DatasetID, selection: Selection) -> list[list[int]]:
    """Returns where the chunks of a part of a dataset are stored, [first byte, bytes] each."""
    sides = item.get_create_plist().get_chunk()
    along = []
    for side, (start, stop) in zip(sides, selection, strict=True):
        along.append(range(start - start % side, stop, side))
    extents = []
    for corner in itertools.product(*along):
        stored = item.get_chunk_info_by_coord(corner)
        if stored.byte_offset is not None:
            extents.append([stored.byte_offset, stored.size])
    return extents


if __name__ == "__main__":
    serve(ConfinedHdf5Reader)
