"""Writes shards: records go into an LMDB file in commits, each of which is on the disk when it
returns.

The writer keeps a read transaction open as long as it lives, so that LMDB reuses none of the pages
freed since and readers without a lock see a file that does not change under them. A shard whose
writer is killed at any point holds what was committed. Two processes cannot write to one shard: the
second would simulate the same samples again.
"""

import errno
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import lmdb

from namsa.base.errors import DiskFullError, WorkError
from namsa.base.files import open_in_place, sync_folder
from namsa.base.locks import exclusive
from namsa.dataset import lmdb_structure, records

BATCH_BYTES = 2**26  # records per commit of `ShardWriter.put_many`
_LOCK_BYTES = 8192  # size of a lock with LMDB's default of 126 readers
_ONE_WRITER = "wait for it, or give each process its own rank (--rank, or a launcher)"
_LITTLE_BYTES = 2**30  # free on a disk on which a write that ended early says that it is full
# address space, not disk: 64 GiB beyond the file's size, doubled if it is not enough
_MAP_SIZE = 2**36


class ShardWriter:
    """Adds records to one shard. Commits every `samples_per_commit` records and on leaving the
    context.

    A commit is on the disk when it returns. A record whose id is in the shard already is ignored.

    Args:
        path: The shard; created if it does not exist.
        map_size: Address space beyond the file's size, in bytes. If it is enough for all records,
            it never has to grow.

    Attributes:
        ids: The records that were in the shard when it was opened.

    Raises:
        InputError: If another process writes to the shard.
        WorkError: If the shard is damaged or cannot be written. Committed records are kept.
    """

    def __init__(self, path: Path, samples_per_commit: int = 1, map_size: int = _MAP_SIZE) -> None:
        self._path = path
        self._samples_per_commit = samples_per_commit
        self._pending: list[tuple[str, records.Buffer]] = []
        with ExitStack() as on_failure:
            on_failure.enter_context(only_writer(path))
            try:
                if not path.exists() or not path.stat().st_size:
                    _create(path)
                self.ids = frozenset(lmdb_structure.keys(path))
                _reserve_lock(path)
                self._env = lmdb.open(
                    str(path), subdir=False, map_size=path.stat().st_size + max(map_size, 2**16)
                )
            except (lmdb.Error, OSError) as error:
                raise _cannot_write(path, error) from None
            self._lock = on_failure.pop_all()
        self._pin = self._env.begin()

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *failure: object) -> None:
        """Commits the pending records, also after an interrupt: every record that was put is
        whole.
        """
        with self._lock:
            try:
                self.commit()
            finally:
                self._pin.abort()
                self._env.close()

    def put(self, sample_id: str, record: records.Buffer) -> None:
        """Takes a record. It is on the disk after the next commit."""
        self._pending.append((sample_id, record))
        if len(self._pending) >= self._samples_per_commit:
            self.commit()

    def put_many(self, samples: Iterable[tuple[str, bytes]]) -> Iterator[str]:
        """Takes many records, commits after every `BATCH_BYTES` of them, and yields the id of
        each.
        """
        size = 0
        for sample_id, record in samples:
            self._pending.append((sample_id, record))
            size += len(record)
            if size >= BATCH_BYTES:
                self.commit()
                size = 0
            yield sample_id

    def commit(self) -> None:
        """Writes all pending records to the disk."""
        pending = self._pending
        self._pending = []
        while pending:
            try:
                with self._env.begin(write=True) as transaction:
                    for sample_id, record in pending:
                        transaction.put(sample_id.encode(), record, overwrite=False)
                return
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise _cannot_write(self._path, error, len(pending)) from None

    def _grow(self) -> None:
        """Doubles the map. The pin must be released for that; readers that start meanwhile are not
        protected.
        """
        self._pin.abort()
        try:
            self._env.set_mapsize(2 * self._env.info()["map_size"])
        except lmdb.Error as error:
            raise _cannot_write(self._path, error) from None
        finally:
            self._pin = self._env.begin()


def only_writer(path: Path) -> AbstractContextManager[None]:
    """Returns a context in which no other process writes to a shard. Entering it raises InputError
    if one does.
    """
    return exclusive(path.with_name(f".{path.name}.writer-lock"), path, _ONE_WRITER)


def _create(path: Path) -> None:
    """Creates an empty shard. It gets its name when it is complete: LMDB does not write its first
    pages at once.
    """
    partial = path.with_name(f".{path.name}.new")
    partial.unlink(missing_ok=True)
    lmdb.open(str(partial), subdir=False, lock=False, map_size=2**20).close()
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)


def _reserve_lock(path: Path) -> None:
    """Reserves the lock's space. LMDB writes to it through memory; on a full disk that would end in
    SIGBUS.
    """
    lock = open_in_place(path.with_name(f"{path.name}-lock"))
    try:
        if hasattr(
            os, "posix_fallocate"
        ):  # macOS and Windows have none: a full disk is not guarded against there
            os.posix_fallocate(lock, 0, _LOCK_BYTES)
    finally:
        os.close(lock)


def _cannot_write(path: Path, error: lmdb.Error | OSError, lost: int = 0) -> WorkError:
    """Returns the error with the free space and the remedy."""
    free = math.inf
    where = "no folder"
    if path.parent.is_dir():
        free = shutil.disk_usage(path.parent).free
        where = f"{free / 2**30:.2f} GiB free there"
    reason = str(error)
    if isinstance(error, OSError):
        reason = str(error.strerror)
    partial_write = reason.endswith(os.strerror(errno.EIO))  # what LMDB reports for it
    is_full = reason.endswith((os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT)))
    if partial_write:
        reason += ", which may mean that the disk is full"
        is_full = free < _LITTLE_BYTES
    text = (
        f"cannot write {path}: {reason} ({where}). Make room, "
        "or take another directory; what was committed is kept, and the next run continues from it"
    )
    if is_full:
        return DiskFullError(text, lost)
    return WorkError(text)
