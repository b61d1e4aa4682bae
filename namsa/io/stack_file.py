"""A sample's HDF5 file whose patterns are written while they are simulated, so that they need not
fit into memory.

The patterns of `cell.h5` are collected in `cell.h5.unfinished`, an HDF5 file whose group
`unfinished` says how far it is. It takes the place of `cell.h5` when it is complete. An interrupted
simulation leaves it behind, if it holds a batch, and the same simulation continues it. A crash may
cut a batch off, or put the patterns on the disk and not the line that says so: each batch has a
checksum, and a batch that does not match it is simulated again.
"""

import os
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import h5py
import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.files import make_folder, open_in_place, sync_folder, system_errors
from namsa.base.locks import exclusive
from namsa.base.names import check_name
from namsa.base.pixels import SampleArrays
from namsa.io import block_digests, seal
from namsa.io.compression import Compression, storage
from namsa.io.confined_library import DamagedFileError
from namsa.io.hdf5 import FILE_ATTRIBUTES, create_group, write_sample
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.safe_hdf5 import open_hdf5
from namsa.io.stack_layout import StackLayout, places, verified_configurations, whole_multiple
from namsa.io.unfailing_file import UnfailingFile

BATCH_BYTES = 2**28  # of patterns in memory, at most
# between two batches, if that many patterns fit: an interruption loses what was not written
BATCH_SECONDS = 3.0
_UNIT_BYTES = 2**20  # of the patterns that have a line of the journal
JOURNAL = "unfinished"


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
        batch_bytes: Patterns in memory, bytes. A batch has as many patterns as are computed in
            `BATCH_SECONDS`, at most this, and at least what an engine computes together.

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
        self._path = Path(path)
        self._name = check_name(name, "the sample")
        self._compression = compression
        self._batch_bytes = batch_bytes
        self.unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        self.continued = 0
        self._configurations: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # of each unit
        self._patterns_per_second = 0.0  # of the last batch; 0 before it
        self._batch_begun_at: float | None = None
        self._file: BinaryIO | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Locks the file.

        Raises:
            InputError: If another process writes it.
        """
        make_folder(self._path.parent)
        lock = self._path.with_name(f".{self._path.name}.lock")
        self._open.enter_context(
            exclusive(lock, self._path, "wait until it ends, or name another file")
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the file, and removes it if it holds no batch."""
        try:
            self._close()
            if self._file and not self._configurations.any():
                self.unfinished.unlink(missing_ok=True)
        finally:
            self._open.close()

    # ---- What a simulation calls (`namsa.engines.interface.PatternSink`)

    def begin(
        self,
        shape: tuple[int, int, int],
        dtype: np.dtype[np.generic],
        scan_shape: tuple[int, int] | None,
        multiple: int,
        fingerprint: str,
    ) -> int:
        """Creates the file, or opens that of an interrupted simulation; arguments as
        `PatternSink.begin`.

        Raises:
            InputError: If the unfinished file is that of another simulation.
            WorkError: If the file cannot be written.
        """
        stored = (*(scan_shape or shape[:1]), *shape[1:])
        pattern_bytes = shape[1] * shape[2] * dtype.itemsize
        unit_bytes = min(_UNIT_BYTES, self._batch_bytes)
        row = scan_shape[1] if scan_shape else 1
        unit = whole_multiple(unit_bytes // pattern_bytes, multiple, row)
        self._layout = StackLayout(shape, stored, dtype, unit)
        self._smallest_batch = (os.cpu_count() or 1) * multiple
        state = self._find(fingerprint) if self.unfinished.exists() else None
        with system_errors(f"cannot write {self.unfinished}"):
            file = os.fdopen(open_in_place(self.unfinished), "r+b", buffering=0)
            if state is None:
                file.truncate()
            self._target = UnfailingFile(file)
            self._hdf5 = h5py.File(self._target, "w" if state is None else "r+")
            self._file = file
            if state is None:
                self._configurations = np.zeros(self._layout.unit_count, np.int64)
                self._create(fingerprint)
            else:
                self._configurations = state
        self._data = self._hdf5[f"{self._name}/cbed/data"]
        self.continued = self.written
        self._largest_batch = max(self._layout.unit, self._batch_bytes // pattern_bytes)
        return min(self._largest_batch, shape[0])

    @property
    def written(self) -> int:
        """The number of patterns in the file, of all or some thermal configurations."""
        count = 0
        for unit in np.flatnonzero(self._configurations):
            rows = self._layout.rows(int(unit))
            count += rows.stop - rows.start
        return count

    def pending(self, configuration: int) -> Iterator[slice]:
        """Yields the batches without the patterns of a configuration, each of as many patterns as
        take `BATCH_SECONDS`.
        """
        lacking = self._configurations == configuration
        unit = 0
        while unit < len(lacking):
            if not lacking[unit]:
                unit += 1
                continue
            wanted = max(self._smallest_batch, self._patterns_per_second * BATCH_SECONDS)
            most = max(1, int(min(wanted, self._largest_batch)) // self._layout.unit)
            stop = unit + 1
            while stop < min(unit + most, len(lacking)) and lacking[stop]:
                stop += 1
            yield self._layout.rows(unit, stop)
            unit = stop

    def read(self, rows: slice) -> Array:
        """Returns the patterns of a batch, (rows, dy, dx)."""
        self._batch_begun_at = time.monotonic()
        patterns = np.zeros(
            (rows.stop - rows.start, *self._layout.patterns[1:]), self._layout.dtype
        )
        if self._configurations[self._layout.units(rows).start]:
            for place, of_run, _ in places(rows, self._layout.stored):
                patterns[of_run] = self._data[place].reshape(-1, *patterns.shape[1:])
        return patterns

    def write(self, rows: slice, patterns: Array, configurations: int) -> None:
        """Writes a batch, then the lines that say so.

        Raises:
            WorkError: If the file cannot be written.
        """
        for place, of_run, shape in places(rows, self._layout.stored):
            self._data[place] = patterns[of_run].reshape(shape)
        self._flush()
        units = self._layout.units(rows)
        for unit in units:
            rows_of_unit = self._layout.rows(unit)
            of_unit = patterns[rows_of_unit.start - rows.start : rows_of_unit.stop - rows.start]
            self._hdf5[JOURNAL]["crc32"][unit] = zlib.crc32(np.ascontiguousarray(of_unit).data)
            self._hdf5[JOURNAL]["configurations"][unit] = configurations
        self._flush()
        self._configurations[units.start : units.stop] = configurations
        if self._batch_begun_at is not None:
            seconds = time.monotonic() - self._batch_begun_at
            self._patterns_per_second = len(patterns) / max(seconds, 1e-3)

    def patterns(self) -> Array:
        """Returns no patterns, (0, dy, dx): they are in the file."""
        return np.zeros((0, *self._layout.patterns[1:]), self._layout.dtype)

    # ---- The end

    def complete(self, sample: SampleArrays) -> None:
        """Writes the rest of the sample, and gives the file its name.

        Args:
            sample: What `namsa.simulate` has returned, whose density and provenance may have been
                changed.

        Raises:
            InputError: If the provenance does not describe the patterns.
            WorkError: If the file cannot be written.
        """
        group = self._hdf5[self._name]
        for name in [
            name for name in group if name != "cbed"
        ]:  # of a run that was interrupted here
            del group[name]
        for name in [name for name in group["cbed"] if name != "data"]:
            del group["cbed"][name]
        create_group(self._hdf5, self._name, "root", "Root")
        write_sample(group, sample)
        self._flush()  # a full disk ends the simulation here, where the journal is still there
        del self._hdf5[JOURNAL]
        self._flush()
        spans = seal.data_spans(self._hdf5)
        raw = block_digests.raw_extents(self._hdf5)
        self._hdf5.close()
        with system_errors(f"cannot write {self._path}"):
            self._target.check()
            with self.unfinished.open("r+b") as file:
                block_digests.append(file, raw)
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

    # ---- The beginning

    def _create(self, fingerprint: str) -> None:
        """Creates the patterns and the journal."""
        layout = self._layout
        hdf5 = self._hdf5
        hdf5.attrs.update(FILE_ATTRIBUTES)
        array = hdf5.create_group(self._name).create_group("cbed")
        compressed = storage(layout.stored, layout.dtype.itemsize, self._compression)
        array.create_dataset("data", layout.stored, layout.dtype, **compressed)
        journal = hdf5.create_group(JOURNAL)
        journal.attrs.update(
            {"fingerprint": fingerprint, "batch": layout.unit, "compression": self._compression}
        )
        journal.attrs["explanation"] = (
            "simulate again with the same arguments and file name to continue"
        )
        for name in ("configurations", "crc32"):
            journal.create_dataset(name, (layout.unit_count,), np.int64)
        self._flush()

    def _find(self, fingerprint: str) -> npt.NDArray[np.int64] | None:
        """Returns how many configurations each unit of the unfinished file holds, and takes the
        file's units.

        Returns:
            0 for a unit that does not match its checksum. `None` if nothing of the file can be
            read.

        Raises:
            InputError: If the file is that of another simulation.
        """
        described = [fingerprint, self._compression]
        try:
            with open_hdf5(self.unfinished) as file:
                sample = Hdf5Group(file, f"/{self._name}")
                journal = file.find(f"/{JOURNAL}")
                data = file.find(f"{sample.name}/cbed/data")
                if not isinstance(journal, Hdf5Group) or not isinstance(data, Hdf5Dataset):
                    if _has_digests(self.unfinished):
                        # of a simulation that was stopped between its last two steps
                        self._take_place()
                    return None
                if [journal.attribute(key) for key in ("fingerprint", "compression")] != described:
                    raise InputError(
                        f"{self.unfinished} is what another simulation has left: finish that with "
                        "its own arguments, remove the file, or name another one"
                    )
                done = journal.get("configurations")
                crc32 = journal.get("crc32")
                batch = journal.attribute("batch")
                if not (
                    isinstance(done, Hdf5Dataset)
                    and isinstance(crc32, Hdf5Dataset)
                    and isinstance(batch, int)
                ):
                    return None
                self._layout = self._layout._replace(unit=batch)
                return verified_configurations(data, done, crc32, self._layout)
        except DamagedFileError:
            return None


def _has_digests(path: Path) -> bool:
    """Returns whether a file has its digests, which are written last."""
    try:
        digests = block_digests.BlockDigests.of(path)
    except block_digests.ChangedBytesError:
        return False
    if digests is None:
        return False
    digests.close()
    return True
