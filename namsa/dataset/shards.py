"""Shards, each one LMDB file that one rank writes (`shard_writer`), and the dataset that they make
up.

A reader takes no lock and may be on another node. Its view of the file does not change while it
reads: LMDB writes changed pages elsewhere, and the writer makes sure that it reuses none of the
pages freed since.

LMDB trusts its pages, and a damaged one would crash the process. No shard is therefore used before
its structure was checked (`lmdb_structure`), which finds truncation and garbage. Read-ahead stays
on: without it a 2 MiB sample from a cold disk takes 512 page faults, measured as 50 ms instead of
0.4 ms.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import lmdb

from namsa.base import provenance_values
from namsa.base.errors import InputError, WorkError
from namsa.base.files import Closing
from namsa.base.names import is_name
from namsa.base.text import shorten
from namsa.dataset import lmdb_structure, records
from namsa.samples.sample import Sample


def shard_path(directory: Path, rank: int) -> Path:
    """Returns the shard that `rank` writes."""
    return directory / f"shard-{rank:05d}.lmdb"


def shard_paths(directory: Path) -> list[Path]:
    """Returns the shards in `directory` that are not empty, in the order of their ranks."""
    # What is no file is listed, too, so that it is found to be damaged.
    return [
        path
        for path in sorted(directory.glob("shard-*.lmdb"))
        if not path.is_file() or path.stat().st_size
    ]


def second_names(paths: Iterable[Path]) -> dict[Path, Path]:
    """Returns the paths that are links to the file of an earlier one, with that one. A process
    opens a file once.
    """
    path_of_file: dict[tuple[int, int], Path] = {}
    seconds = {}
    for path in paths:
        if path.is_file():
            stat = path.stat()
            earlier = path_of_file.setdefault((stat.st_dev, stat.st_ino), path)
            if earlier is not path:
                seconds[path] = earlier
    return seconds


class Shard(Closing):
    """One shard, opened for reading: safe with threads and after a fork. A process can open it only
    once at a time.

    Args:
        any_ids: Whether to accept records whose id may not name a sample, as `verify` and `repair`
            do.

    Attributes:
        path: The shard.
        ids: The ids of its records, sorted.

    Raises:
        WorkError: If it is damaged or cannot be read.
    """

    def __init__(self, path: Path, any_ids: bool = False) -> None:
        self.path = path
        self.ids = lmdb_structure.keys(path)
        wrong = [] if any_ids else [sample_id for sample_id in self.ids if not is_name(sample_id)]
        if wrong:
            raise lmdb_structure.damaged(
                path, f"a record's id is {shorten(repr(wrong[0]))}, which names no sample"
            )
        try:
            # The map has room for what a live writer adds until the first transaction begins.
            room = 2 * path.stat().st_size + 2**30
            self._env = lmdb.open(
                str(path), subdir=False, readonly=True, lock=False, create=False, map_size=room
            )
        except (lmdb.Error, OSError) as error:
            raise WorkError(f"cannot read {path}: {error}") from None
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            self._check_size()
            on_failure.pop_all()

    def close(self) -> None:
        """Closes the file. Views of it must not be used afterwards."""
        self._env.close()

    @contextmanager
    def view(self, sample_id: str, check: bool = True) -> Iterator[records.Record]:
        """Yields a record whose arrays are views of the file, after comparing its digest if
        `check`.

        The views are valid until the shard is closed, also after the context is left: no record is
        ever removed or changed, and one of more than 2 kB lies on pages of its own, which LMDB
        frees only with the record. Checking 2 MiB takes 0.2 ms; converting them from float16 takes
        1.5 ms.

        Raises:
            WorkError: If the record is damaged, or not in the shard.
        """
        with self._transaction() as transaction:
            try:
                record = records.decode(transaction.get(sample_id.encode(), b""), check)
            except WorkError as error:
                raise type(error)(f"{shorten(sample_id)} in {self.path}: {error}") from None
            yield record

    def read_bytes(self, sample_id: str) -> bytes:
        """Returns the stored bytes of a record, after its digest was compared."""
        with self.view(sample_id), self._transaction() as transaction:
            return bytes(transaction.get(sample_id.encode(), b""))

    @contextmanager
    def _transaction(self) -> Iterator["lmdb.Transaction[memoryview]"]:
        try:
            with self._env.begin(buffers=True) as transaction:
                yield transaction
        except lmdb.MapResizedError:
            raise WorkError(
                f"{self.path} has grown a lot since it was opened: open it again"
            ) from None
        except lmdb.Error as error:
            raise WorkError(f"cannot read {self.path}: {error}") from None

    def _check_size(self) -> None:
        needed = (self._env.info()["last_pgno"] + 1) * self._env.stat()["psize"]
        # after the pages were counted: a live writer adds to both, to the file first
        size = self.path.stat().st_size
        if size < needed:
            raise lmdb_structure.damaged(self.path, f"it is cut short, {size} bytes of {needed}")


class Dataset(Closing):
    """All shards in a directory, opened for reading: safe with threads and after a fork.

    Args:
        directory: The dataset's folder.

    Attributes:
        ids: The ids of the samples, sorted.
        config_hash: The hash of what decided their bits, `SimulationConfig.samples_hash`. `None`
            without samples.

    Raises:
        InputError: If there is no directory, or its samples are of different configurations.
        WorkError: If a shard is damaged, cannot be read, or is already open in this process.
    """

    def __init__(self, directory: Path | str) -> None:
        directory = Path(directory)
        if not directory.is_dir():
            raise InputError(
                f"there is no dataset at {directory}: make one with namsa dataset CONFIG --out "
                f"{directory}"
            )
        paths = shard_paths(directory)
        for path, earlier in second_names(paths).items():
            raise lmdb_structure.damaged(path, f"it is a link to {earlier.name}")
        with ExitStack() as stack:
            shards = [stack.enter_context(Shard(path)) for path in paths]
            self.config_hash = _common_hash(shards)
            self._stack = stack.pop_all()
        self._shards = {sample_id: shard for shard in reversed(shards) for sample_id in shard.ids}
        self.ids = tuple(sorted(self._shards))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, sample_id: str) -> bool:
        return sample_id in self._shards

    def close(self) -> None:
        """Closes the files. Views of them must not be used afterwards."""
        self._stack.close()

    @contextmanager
    def view(self, sample_id: str, check: bool = True) -> Iterator[records.Record]:
        """Yields a record whose arrays are views of a file, valid until it is closed; see
        `Shard.view`.
        """
        if sample_id not in self:
            raise InputError(f"there is no sample {shorten(repr(sample_id))} among the {len(self)}")
        with self._shards[sample_id].view(sample_id, check) as record:
            yield record

    def path_of(self, sample_id: str) -> Path:
        """Returns the shard that holds a sample."""
        return self._shards[sample_id].path

    def read_bytes(self, sample_id: str) -> bytes:
        """Returns the stored bytes of a record, after its digest was compared."""
        return self._shards[sample_id].read_bytes(sample_id)

    def read(self, sample_id: str, check: bool = True) -> records.Record:
        """Returns a record with copied arrays; `check` compares its digest."""
        with self.view(sample_id, check) as record:
            return record.copy()

    def read_sample(self, sample_id: str) -> Sample:
        """Returns a sample, after its digest was compared and its provenance was checked.

        Raises:
            InputError: If there is no such sample, or its provenance is not what namsa writes.
            WorkError: If its record is damaged.
        """
        record = self.read(sample_id)
        # so that messages name the sample
        provenance_values.check(record.header["provenance"] | {"id": sample_id})
        return record.sample()


def _common_hash(shards: list[Shard]) -> str | None:
    """Returns the hash of all shards' samples.

    A writer adds to a shard only samples of its configuration. The first sample therefore stands
    for all.
    """

    def shards_by_hash(check: bool) -> dict[str, str]:
        names = {}
        for shard in shards:
            if shard.ids:
                with shard.view(shard.ids[0], check) as record:
                    names[provenance_values.value(record.header["provenance"], "config_hash")] = (
                        shard.path.name
                    )
        return names

    # a checksum reads all of a record, which may be a gigabyte
    hashes = shards_by_hash(check=False)
    if len(hashes) > 1:
        listed = ", ".join(
            f"{shorten(config_hash)} in {name}"
            for config_hash, name in shards_by_hash(check=True).items()
        )
        raise InputError(
            f"samples of different configurations lie together, {listed}: give each its own "
            "directory"
        )
    return next(iter(hashes), None)
