"""Shards, each one LMDB file that one rank writes, and the dataset that they make up.

A reader takes no lock and may be on another node. What it sees stays as it is while it reads: LMDB writes changed
pages elsewhere, and the writer keeps a read transaction open for as long as it lives, so that LMDB reuses none of
the pages given up since. Killed at any point, a shard holds what was committed.

LMDB trusts its pages, and a damaged one would crash the process. So no shard is used before its structure was walked
(`structure`), which finds truncation and garbage. Reading ahead stays on: without it a 2 MiB sample from a cold disk is
512 page faults, measured as 50 ms instead of 0.4 ms.
"""

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import lmdb

from namsa.dataset import lmdb_structure as structure
from namsa.dataset import records
from namsa.errors import InputError, WorkError
from namsa.files import sync_folder

BATCH_BYTES = 2**26
_LOCK_BYTES = 8192  # of a lock with LMDB's default of 126 readers
_MAP_SIZE = 2**36  # address space, not disk: 64 GiB beyond what is there, doubled where it does not do


def shard_path(directory: Path, rank: int) -> Path:
    """Where `rank` writes."""
    return directory / f"shard-{rank:05d}.lmdb"


def shard_paths(directory: Path) -> list[Path]:
    """The shards in `directory` that hold anything, in the order of their ranks."""
    return [path for path in sorted(directory.glob("shard-*.lmdb")) if path.stat().st_size]


class Writer:
    """Adds records to one shard, and commits every `samples_per_commit` of them and on leaving the context.

    A commit is on the disk when it returns. An id that is there already is left as it is. Raises WorkError where the
    shard is damaged, or cannot be written; what was committed before stays.
    """

    def __init__(self, path: Path, samples_per_commit: int = 1, map_size: int = _MAP_SIZE) -> None:
        """`map_size` is the address space beyond what is there: enough for all that will come, it never has to grow."""
        self._path, self._samples_per_commit = path, samples_per_commit
        self._pending: list[tuple[str, records.Buffer]] = []
        try:
            if not path.exists() or not path.stat().st_size:
                _create(path)
            structure.keys(path)
            _reserve_lock(path)
            self._env = lmdb.open(str(path), subdir=False, map_size=path.stat().st_size + max(map_size, 2**16))
        except (lmdb.Error, OSError) as error:
            raise _cannot_write(path, error) from None
        self._pin = self._env.begin()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *failure: object) -> None:
        """Commits what was put even where an interrupt leaves the context: every record that was put is whole."""
        try:
            self.commit()
        finally:
            self._pin.abort()
            self._env.close()

    def put(self, sample_id: str, record: records.Buffer) -> None:
        """Takes `record`, to be on the disk after the next commit."""
        self._pending.append((sample_id, record))
        if len(self._pending) >= self._samples_per_commit:
            self.commit()

    def put_many(self, samples: Iterable[tuple[str, bytes]]) -> Iterator[str]:
        """Takes many records, committing whenever they come to `BATCH_BYTES`; tells the id of each that was taken."""
        size = 0
        for sample_id, record in samples:
            self._pending.append((sample_id, record))
            size += len(record)
            if size >= BATCH_BYTES:
                self.commit()
                size = 0
            yield sample_id

    def commit(self) -> None:
        """Brings everything that was put onto the disk."""
        pending, self._pending = self._pending, []
        while pending:
            try:
                with self._env.begin(write=True) as transaction:
                    for sample_id, record in pending:
                        transaction.put(sample_id.encode(), record, overwrite=False)
                return
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise _cannot_write(self._path, error) from None

    def _grow(self) -> None:
        """Doubles the map. It cannot be done under the pin: a reader of this moment is not safe from what follows."""
        self._pin.abort()
        try:
            self._env.set_mapsize(2 * self._env.info()["map_size"])
        except lmdb.Error as error:
            raise _cannot_write(self._path, error) from None
        finally:
            self._pin = self._env.begin()


class Shard:
    """One shard, opened for reading: safe with threads and after a fork. A process can open it only once at a time.

    Raises WorkError where it is damaged or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids = structure.keys(path)
        try:
            # The map has room for what a live writer adds before the first transaction begins.
            room = 2 * path.stat().st_size + 2**30
            self._env = lmdb.open(str(path), subdir=False, readonly=True, lock=False, create=False, map_size=room)
        except (lmdb.Error, OSError) as error:
            raise WorkError(f"cannot read {path}: {error}") from None
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            self._check_size()
            on_failure.pop_all()

    def __enter__(self) -> "Shard":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the file back; views of it must not be used any more."""
        self._env.close()

    @contextmanager
    def view(self, sample_id: str, check: bool = True) -> Iterator[records.Record]:
        """The record of `sample_id` as views of the file; `check` compares its digest.

        The views are good until the shard is closed, also after the context is left: no record is ever removed or
        changed, and one of more than 2 kB lies on pages of its own, which LMDB gives up only with the record.
        Checking 2 MiB takes 0.2 ms; converting them from float16 takes 1.5 ms.
        """
        with self._transaction() as transaction:
            try:
                record = records.decode(transaction.get(sample_id.encode(), b""), check)
            except WorkError as error:
                raise type(error)(f"{sample_id} in {self.path}: {error}") from None
            yield record

    def read_bytes(self, sample_id: str) -> bytes:
        """The record of `sample_id` as it is stored, its digest compared."""
        with self.view(sample_id), self._transaction() as transaction:
            return bytes(transaction.get(sample_id.encode(), b""))

    @contextmanager
    def _transaction(self) -> Iterator["lmdb.Transaction[memoryview]"]:
        try:
            with self._env.begin(buffers=True) as transaction:
                yield transaction
        except lmdb.MapResizedError:
            raise WorkError(f"{self.path} has grown a lot since it was opened: open it again") from None
        except lmdb.Error as error:
            raise WorkError(f"cannot read {self.path}: {error}") from None

    def _check_size(self) -> None:
        size, needed = self.path.stat().st_size, (self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"]
        if size < needed:
            raise structure.damaged(self.path, f"it is cut short, {size} bytes of {needed}")


class Dataset:
    """All shards in a directory, opened for reading: safe with threads and after a fork.

    ids: the samples, sorted
    config_hash: of what decided their bits, `SimulationConfig.samples_hash()`; None where there is no sample

    Raises InputError where there is no directory, or its samples are of different configurations, and WorkError where
    a shard is damaged, cannot be read, or is already open in this process.
    """

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise InputError(
                f"there is no dataset at {directory}: make one with namsa dataset CONFIG --out {directory}"
            )
        with ExitStack() as stack:
            shards = [stack.enter_context(Shard(path)) for path in shard_paths(directory)]
            self.config_hash = _common_hash(shards)
            self._stack = stack.pop_all()
        self._shards = {sample_id: shard for shard in reversed(shards) for sample_id in shard.ids}
        self.ids = tuple(sorted(self._shards))

    def __enter__(self) -> "Dataset":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, sample_id: str) -> bool:
        return sample_id in self._shards

    def close(self) -> None:
        """Gives the files back; views of them must not be used any more."""
        self._stack.close()

    @contextmanager
    def view(self, sample_id: str, check: bool = True) -> Iterator[records.Record]:
        """The record of `sample_id` as views of a file, good until it is closed; `check` compares its digest."""
        if sample_id not in self:
            raise InputError(f"there is no sample {sample_id!r} among the {len(self)}")
        with self._shards[sample_id].view(sample_id, check) as record:
            yield record

    def read_bytes(self, sample_id: str) -> bytes:
        """The record of `sample_id` as it is stored, its digest compared."""
        return self._shards[sample_id].read_bytes(sample_id)

    def read(self, sample_id: str, check: bool = True) -> records.Record:
        """The record of `sample_id`, copied."""
        with self.view(sample_id, check) as record:
            return record.copy()


def _common_hash(shards: list[Shard]) -> str | None:
    """A writer adds to a shard only what has its configuration: its first sample speaks for all."""

    def hashes(check: bool) -> dict[str, str]:
        found = {}
        for shard in shards:
            if shard.ids:
                with shard.view(shard.ids[0], check) as record:
                    found[record.header["provenance"]["config_hash"]] = shard.path.name
        return found

    found = hashes(check=False)  # a checksum reads all of a record, which may be a gigabyte
    if len(found) > 1:
        listed = ", ".join(f"{config_hash} in {name}" for config_hash, name in hashes(check=True).items())
        raise InputError(f"samples of different configurations lie together, {listed}: give each its own directory")
    return next(iter(found), None)


def _create(path: Path) -> None:
    """An empty shard, on the disk under its name only once it is whole: LMDB's first pages are not written at once."""
    partial = path.with_name(f".{path.name}.new")
    partial.unlink(missing_ok=True)
    lmdb.open(str(partial), subdir=False, lock=False, map_size=2**20).close()
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)


def _reserve_lock(path: Path) -> None:
    """Room for LMDB's lock: it writes there through memory, which on a full disk would end the process by SIGBUS."""
    lock = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.posix_fallocate(lock, 0, _LOCK_BYTES)
    finally:
        os.close(lock)


def _cannot_write(path: Path, error: lmdb.Error | OSError) -> WorkError:
    free = f"{shutil.disk_usage(path.parent).free / 2**30:.2f} GiB free there" if path.parent.is_dir() else "no folder"
    what = str(error.strerror if isinstance(error, OSError) else error)
    if what.endswith(os.strerror(errno.EIO)):  # LMDB's answer to a write of which the disk took a part
        what += ", as also where the disk is full"
    return WorkError(
        f"cannot write {path}: {what} ({free}). Make room, or take another directory; what was committed is kept, and "
        "the next run goes on from it"
    )
