"""Reads HDF5 files that may be damaged or malicious: the HDF5 library runs in a process of its own.

A file with this user's seal (`namsa.io.seal`) is as namsa wrote it, and the library reads it in
place. A file with namsa's digests (`namsa.io.block_digests`) is compared with them: all that HDF5
interprets when it is opened, patterns as they are read.

`namsa.io.hdf5_process` says what that process does and refuses. Objects are named by their path in
the file. Soft links inside the file are followed, and external links to files beside it; other
external links, external storage and virtual datasets are refused by name, so that nothing outside
of the file's folder is read.
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.files import open_regular
from namsa.base.missing_files import no_file
from namsa.base.text import shorten
from namsa.io import confined_library, confined_process, hdf5_process
from namsa.io.block_digests import BlockDigests, ChangedBytesError
from namsa.io.confined_library import ChangedFileError, ConfinedLibrary, DamagedFileError
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.seal import is_sealed

SIGNATURE = b"\x89HDF\r\n\x1a\n"

Ranges = Sequence[tuple[int, int]]  # first index and end along each axis


class Hdf5File(ConfinedLibrary):
    """An HDF5 file that is open in a process of its own. Threads may share it; one reads at a
    time.

    Args:
        path: The file.
        digests: What its bytes are compared with, if namsa wrote it.
    """

    SCRIPT = hdf5_process.__file__
    KIND = "HDF5"
    LIBRARY = "the HDF5 library"

    def __init__(self, path: Path, digests: BlockDigests | None = None) -> None:
        super().__init__(path)
        self._digests = digests

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
        """Returns the names of the numeric datasets of so many axes, and lines about the datasets
        that are not read.
        """
        listed = self.request("scans", axes=axes)
        return listed["scans"], listed["refused"]

    def read_into(self, array: Array, dataset: Hdf5Dataset, ranges: Ranges) -> None:
        """Reads a part of a dataset into an array.

        Raises:
            ChangedFileError: If it is not as namsa wrote it.
            DamagedFileError: If HDF5 cannot read it.
        """
        self._check_digests(dataset, ranges)
        self._read_pieces(array, dataset, ranges)

    def _read_pieces(self, array: Array, dataset: Hdf5Dataset, ranges: Ranges) -> None:
        """Reads a part of a dataset, in pieces that fit into the shared memory."""
        if array.nbytes > confined_library.SHARED_BYTES:
            axis = next(axis for axis, size in enumerate(array.shape) if size > 1)
            middle = array.shape[axis] // 2
            start, stop = ranges[axis]
            first_half, second_half = np.split(array, [middle], axis)
            first_ranges = list(ranges)
            first_ranges[axis] = (start, start + middle)
            second_ranges = list(ranges)
            second_ranges[axis] = (start + middle, stop)
            self._read_pieces(first_half, dataset, first_ranges)
            self._read_pieces(second_half, dataset, second_ranges)
            return
        unpacked = max(array.nbytes, math.prod(dataset.chunks or ()) * array.itemsize)
        self.request_array(array, unpacked, path=dataset.name, selection=ranges)

    def _check_digests(self, dataset: Hdf5Dataset, ranges: Ranges) -> None:
        """Compares the bytes of a part of a dataset with the file's digests, if it has some."""
        if self._digests is None:
            return
        extents = self.request("extents", path=dataset.name, selection=ranges)
        with _changes(self.path):
            self._digests.check(extents)


class SealedHdf5File(Hdf5File):
    """A file with this user's seal, which is open in this process.

    Raises:
        DamagedFileError: If HDF5 cannot open it.
    """

    def __init__(self, path: Path, digests: BlockDigests | None = None) -> None:
        self.path = path
        self._digests = digests
        with self._library_errors():
            self._reader = hdf5_process.Hdf5Reader(os.fspath(path))

    def close(self) -> None:
        """Closes the file."""
        self._reader.close()

    def request(self, what: str, **arguments: object) -> Any:
        with self._library_errors():
            return getattr(self._reader, what)(**arguments)

    def _read_pieces(self, array: Array, dataset: Hdf5Dataset, ranges: Ranges) -> None:
        """Reads a part of a dataset at once."""
        with self._library_errors():
            self._reader.read_into(array, dataset.name, ranges)

    @contextmanager
    def _library_errors(self) -> Iterator[None]:
        """Raises the errors of `Hdf5File.request` in place of the reader's."""
        try:
            yield
        except confined_process.Refused as error:
            raise InputError(f"{self.path}: {shorten(str(error), 300)}") from None
        except confined_process.Changed as error:
            raise ChangedFileError(self.path, shorten(str(error), 300)) from None
        except Exception as error:  # what h5py raises for a file that it cannot read
            reason = shorten(confined_process.reason(error), 300)
            raise DamagedFileError(self.path, reason) from None


@contextmanager
def open_hdf5(path: Path) -> Iterator[Hdf5File]:
    """Opens an HDF5 file for reading.

    Raises:
        InputError: If there is no such file, if it is no HDF5 file, or if it is not as namsa wrote
            it.
    """
    if not os.path.isfile(path):
        raise no_file(path)
    if not has_signature(path):  # no process is needed to say so
        raise DamagedFileError(path, "file signature not found")
    with _changes(path):
        digests = BlockDigests.of(path)
    try:
        if digests is not None:
            with _changes(path):
                digests.check_structure()
        file = SealedHdf5File(path, digests) if is_sealed(path) else Hdf5File(path, digests)
        try:
            file.find("/")
            yield file
        finally:
            file.close()
    finally:
        if digests is not None:
            digests.close()


@contextmanager
def _changes(path: Path) -> Iterator[None]:
    """Raises ChangedFileError where bytes do not match their digests."""
    try:
        yield
    except ChangedBytesError as error:
        raise ChangedFileError(path, str(error)) from None


def has_signature(path: Path) -> bool:
    """Returns whether HDF5's first bytes are at the beginning, or behind a user block of 512, 1024,
    ... bytes.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        offset = 0
        while offset < size:
            file.seek(offset)
            if file.read(len(SIGNATURE)) == SIGNATURE:
                return True
            offset = max(512, 2 * offset)
    return False
