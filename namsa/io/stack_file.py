"""A sample's HDF5 file whose patterns are written while they are simulated, so that they need not fit into memory.

The patterns of `cell.h5` are collected in `cell.h5.unfinished`, an HDF5 file whose group `unfinished` says how far it
is. It takes the place of `cell.h5` when it is complete. An interrupted simulation leaves it behind, if it holds a
batch, and the same simulation continues it. A crash may cut a batch off, or put the patterns on the disk and not the
line that says so: each batch has a checksum, and a batch that does not match it is simulated again.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import lcm
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import h5py
import numpy as np
import numpy.typing as npt

from namsa.errors import InputError
from namsa.files import make_folder, open_in_place, sync_folder, system_errors
from namsa.io import seal
from namsa.io.compression import Compression, storage
from namsa.io.hdf5 import FILE_ATTRIBUTES, create_group, write_sample
from namsa.io.safe_hdf5 import DamagedFileError, Hdf5Dataset, Hdf5Group, open_hdf5
from namsa.io.unfailing_file import UnfailingFile
from namsa.locks import exclusive
from namsa.names import check_name
from namsa.pixels import SampleArrays

BATCH_BYTES = 2**28  # of patterns in memory: large enough that what is done once per batch takes no time
JOURNAL = "unfinished"


class _Layout(NamedTuple):
    """The patterns of a simulation: (n, dy, dx), the shape in the file, their type, and patterns per batch."""

    patterns: tuple[int, int, int]
    stored: tuple[int, ...]
    dtype: np.dtype[Any]
    batch: int

    def rows(self, number: int) -> slice:
        """Returns the patterns of a batch."""
        return slice(number * self.batch, min((number + 1) * self.batch, self.patterns[0]))

    @property
    def batches(self) -> int:
        """Their number."""
        return -(-self.patterns[0] // self.batch)


class StackFile:
    """Writes the patterns of one simulation to an HDF5 file, batch by batch.

    Example:
        ::

            with namsa.StackFile("cell.h5") as stack:
                stack.complete(namsa.simulate(atoms, ..., sink=stack))

    Args:
        path: The file to write; its folder is created if it is missing.
        name: The sample's name in the file.
        compression: "none", "gzip", "lzf" or "bitshuffle"; see `namsa.io.compression`.
        batch_bytes: Patterns in memory, bytes. A batch holds at least as many patterns as an engine computes together.

    Attributes:
        unfinished: The file that holds the patterns until it is complete.
        continued: Patterns that an interrupted simulation has left in it.
    """

    def __init__(
        self,
        path: Path | str,
        name: str = "sample",
        *,
        compression: Compression = "none",
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._path, self._name = Path(path), check_name(name, "the sample")
        self._compression, self._batch_bytes = compression, batch_bytes
        self.unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        self.continued = 0
        self._configurations: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._file: BinaryIO | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Locks the file.

        Raises:
            InputError: If another process writes it.
        """
        make_folder(self._path.parent)
        lock = self._path.with_name(f".{self._path.name}.lock")
        self._open.enter_context(exclusive(lock, self._path, "wait until it ends, or name another file"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the file, and removes it if it holds no batch."""
        try:
            self._close()
            if self._file and not self._configurations.any():
                self.unfinished.unlink(missing_ok=True)
        finally:
            self._open.close()

    # ---- What a simulation calls (`namsa.engines.interface.PatternSink`) -----------------------------------------

    def begin(
        self,
        shape: tuple[int, int, int],
        dtype: np.dtype[Any],
        scan_shape: tuple[int, int] | None,
        multiple: int,
        fingerprint: str,
    ) -> int:
        """Creates the file, or opens that of an interrupted simulation; arguments as `PatternSink.begin`.

        Raises:
            InputError: If the unfinished file is that of another simulation.
            WorkError: If the file cannot be written.
        """
        stored = (*(scan_shape or shape[:1]), *shape[1:])
        self._layout = _Layout(shape, stored, dtype, self._patterns_per_batch(shape, dtype, scan_shape, multiple))
        found = self._find(fingerprint) if self.unfinished.exists() else None
        with system_errors(f"cannot write {self.unfinished}"):
            file = os.fdopen(open_in_place(self.unfinished), "r+b", buffering=0)
            if found is None:
                file.truncate()
            self._target = UnfailingFile(file)
            self._hdf5 = h5py.File(self._target, "w" if found is None else "r+")
            self._file = file
            self._configurations = np.zeros(self._layout.batches, np.int64) if found is None else found
            if found is None:
                self._create(fingerprint)
        self._data = self._hdf5[f"{self._name}/cbed/data"]
        rows = [self._layout.rows(int(number)) for number in np.flatnonzero(self._configurations)]
        self.continued = sum(part.stop - part.start for part in rows)
        return min(self._layout.batch, shape[0])

    def pending(self, configuration: int) -> Sequence[slice]:
        """Returns the batches without the patterns of a configuration."""
        return [self._layout.rows(int(number)) for number in np.flatnonzero(self._configurations == configuration)]

    def read(self, rows: slice) -> npt.NDArray[Any]:
        """Returns the patterns of a batch, (rows, dy, dx)."""
        patterns = np.zeros((rows.stop - rows.start, *self._layout.patterns[1:]), self._layout.dtype)
        if self._configurations[rows.start // self._layout.batch]:
            for place, part, _ in _places(rows, self._layout.stored):
                patterns[part] = self._data[place].reshape(-1, *patterns.shape[1:])
        return patterns

    def write(self, rows: slice, patterns: npt.NDArray[Any], configurations: int) -> None:
        """Writes a batch, then the line that says so.

        Raises:
            WorkError: If the file cannot be written.
        """
        for place, part, shape in _places(rows, self._layout.stored):
            self._data[place] = patterns[part].reshape(shape)
        self._flush()
        number = rows.start // self._layout.batch
        self._hdf5[JOURNAL]["crc32"][number] = zlib.crc32(np.ascontiguousarray(patterns).data)
        self._hdf5[JOURNAL]["configurations"][number] = configurations
        self._flush()
        self._configurations[number] = configurations

    def patterns(self) -> npt.NDArray[Any]:
        """Returns no patterns, (0, dy, dx): they are in the file."""
        return np.zeros((0, *self._layout.patterns[1:]), self._layout.dtype)

    # ---- The end ----------------------------------------------------------------------------------------------------

    def complete(self, sample: SampleArrays) -> None:
        """Writes the rest of the sample, and gives the file its name.

        Args:
            sample: What `namsa.simulate` has returned, whose density and provenance may have been changed.

        Raises:
            InputError: If the provenance does not describe the patterns.
            WorkError: If the file cannot be written.
        """
        group = self._hdf5[self._name]
        for name in [name for name in group if name != "cbed"]:  # of a run that was interrupted here
            del group[name]
        for name in [name for name in group["cbed"] if name != "data"]:
            del group["cbed"][name]
        create_group(self._hdf5, self._name, "root", "Root")
        write_sample(group, sample)
        del self._hdf5[JOURNAL]
        self._flush()
        spans = seal.data_spans(self._hdf5)
        self._hdf5.close()
        with system_errors(f"cannot write {self._path}"):
            self._target.check()
            with self.unfinished.open("r+b") as file:
                seal.append(file, spans)
                file.flush()
                os.fsync(file.fileno())
        self._close()
        self._take_place()

    def _take_place(self) -> None:
        """Gives the complete file its name."""
        with system_errors(f"cannot write {self._path}"):
            os.replace(self.unfinished, self._path)
            sync_folder(self._path.parent)

    def _close(self) -> None:
        """Closes the file, if it is open."""
        if self._file:
            self._hdf5.close()
            self._file.close()

    def _flush(self) -> None:
        """Brings to the disk what was written."""
        with system_errors(f"cannot write {self.unfinished}"):
            self._hdf5.flush()
            self._target.check()
            os.fsync(self._target.fileno())

    # ---- The beginning ----------------------------------------------------------------------------------------------

    def _patterns_per_batch(
        self, shape: tuple[int, int, int], dtype: np.dtype[Any], scan_shape: tuple[int, int] | None, multiple: int
    ) -> int:
        """Returns the patterns per batch: of whole rows of the scan, if a batch can hold one."""
        wanted = self._batch_bytes // (shape[1] * shape[2] * dtype.itemsize)
        row = lcm(multiple, scan_shape[1] if scan_shape else 1)
        unit = row if row <= wanted else multiple
        return max(unit, wanted - wanted % unit)

    def _create(self, fingerprint: str) -> None:
        """Creates the patterns and the journal."""
        layout, hdf5 = self._layout, self._hdf5
        hdf5.attrs.update(FILE_ATTRIBUTES)
        array = hdf5.create_group(self._name).create_group("cbed")
        compressed = storage(layout.stored, layout.dtype.itemsize, self._compression)
        array.create_dataset("data", layout.stored, layout.dtype, **compressed)
        journal = hdf5.create_group(JOURNAL)
        journal.attrs.update({"fingerprint": fingerprint, "batch": layout.batch, "compression": self._compression})
        journal.attrs["explanation"] = "simulate again with the same arguments and file name to continue"
        for name in ("configurations", "crc32"):
            journal.create_dataset(name, (layout.batches,), np.int64)
        self._flush()

    def _find(self, fingerprint: str) -> npt.NDArray[np.int64] | None:
        """Returns how many configurations each batch of the unfinished file holds, and takes the file's batches.

        Returns:
            0 for a batch that does not match its checksum. `None` if nothing of the file can be read.

        Raises:
            InputError: If the file is that of another simulation.
        """
        described = [fingerprint, self._compression]
        try:
            with open_hdf5(self.unfinished) as file:
                sample = Hdf5Group(file, f"/{self._name}")
                journal, data = file.find(f"/{JOURNAL}"), file.find(f"{sample.name}/cbed/data")
                if not isinstance(journal, Hdf5Group) or not isinstance(data, Hdf5Dataset):
                    if data is not None and sample.attribute("provenance"):
                        self._take_place()  # of a simulation that was stopped between its last two steps
                    return None
                if [journal.attribute(key) for key in ("fingerprint", "compression")] != described:
                    raise InputError(
                        f"{self.unfinished} is what another simulation has left: finish that with its own arguments, "
                        "remove the file, or name another one"
                    )
                done, crc32, batch = journal.get("configurations"), journal.get("crc32"), journal.attribute("batch")
                if not (isinstance(done, Hdf5Dataset) and isinstance(crc32, Hdf5Dataset) and isinstance(batch, int)):
                    return None
                self._layout = self._layout._replace(batch=batch)
                return _verified(data, done, crc32, self._layout)
        except DamagedFileError:
            return None


def _verified(data: Hdf5Dataset, done: Hdf5Dataset, crc32: Hdf5Dataset, layout: _Layout) -> npt.NDArray[np.int64]:
    """Returns the configurations in each batch, 0 where the patterns do not match their checksum."""
    configurations, checksums = done[:].astype(np.int64), crc32[:]
    for number in np.flatnonzero(configurations):
        try:
            parts = [data[place] for place, _, _ in _places(layout.rows(int(number)), layout.stored)]
        except DamagedFileError:
            configurations[number] = 0
            continue
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part.data, checksum)
        if checksum != checksums[number]:
            configurations[number] = 0
    return configurations


def _places(rows: slice, stored: tuple[int, ...]) -> Iterator[tuple[tuple[slice, ...], slice, tuple[int, ...]]]:
    """Splits a run of patterns, stored as (sy, sx, dy, dx) or (n, dy, dx), into rectangles of the scan.

    Yields:
        The place in the file, the part of the run, and the shape of the part.
    """
    if len(stored) == 3:
        yield (rows,), slice(0, rows.stop - rows.start), (rows.stop - rows.start, *stored[1:])
        return
    columns, start = stored[1], rows.start
    while start < rows.stop:
        y, x = divmod(start, columns)
        lines = (rows.stop - start) // columns if x == 0 else 0
        height, width = (lines, columns) if lines else (1, min(columns - x, rows.stop - start))
        part = slice(start - rows.start, start - rows.start + height * width)
        yield (slice(y, y + height), slice(x, x + width)), part, (height, width, *stored[2:])
        start += height * width
