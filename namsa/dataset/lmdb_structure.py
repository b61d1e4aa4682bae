"""Whether a shard's pages are consistent, so that LMDB, which trusts them, can open it.

`lmdb.verify` walks a file as bytes and counts every page one by one: half a microsecond per page,
26 s for 200 GB. Here a record's pages count as one run and are not read. LMDB finds a record by the
run's first page and its size, which are both in the tree, and the record's own digest guards the
rest. Only the pages of keys are read.
"""

import struct
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import lmdb.verify
import numpy as np

from namsa.base.errors import WorkError

_NUMBER = struct.Struct("=Q")
_METAS = 2  # pages that belong to no tree


class StructureError(WorkError):
    """An LMDB file is damaged.

    Attributes:
        problem: What is wrong, without the remedy for a shard.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path} is damaged ({problem}): namsa repair {path.parent} moves it aside and keeps "
            "its intact samples, and the next run simulates the others again"
        )
        self.problem = problem


class _ThoroughWalk(lmdb.verify._Verifier):
    """The walk of lmdb.verify, which also collects the keys."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__(file, size)
        self.keys: list[bytes] = []

    def _leaf_value(self, ctx: Any, *where: Any) -> None:
        super()._leaf_value(ctx, *where)
        if not ctx["is_free"]:
            self.keys.append(where[-1])


class _Walk(_ThoroughWalk):
    """The same walk with runs of pages. If a later lmdb.verify no longer calls these methods, it is
    only slower.
    """

    def _bigdata(
        self, ctx: Any, pgno: int, i: int, buf: bytes, doff: int, dsize: int, want_bytes: bool
    ) -> bytes | None:
        if want_bytes:  # the list of free pages, which LMDB trusts
            return super()._bigdata(ctx, pgno, i, buf, doff, dsize, want_bytes)
        page = _NUMBER.unpack_from(buf, doff)[0] if doff + 8 <= self.psize else 0
        end = page + (self.hdrsz - 1 + dsize) // self.psize + 1
        if page < _METAS or end > self.next_pgno or end * self.psize > self.filesize:
            self.err(
                f"page {pgno}: the value of node {i}, pages {page} to {end - 1}, lies outside of "
                "the file"
            )
        elif self.live.find(1, page, end) >= 0:
            self.err(
                f"page {pgno}: the value of node {i}, pages {page} to {end - 1}, lies on another's"
            )
        else:
            self.live[page:end] = b"\1" * (end - page)
            ctx["overflow"] += end - page
        return None

    def _check_cover(self) -> None:
        live, free = (np.frombuffer(pages, np.uint8)[_METAS:] for pages in (self.live, self.free))
        for wrong, state in (
            (live & free, "in use and free"),
            (1 - (live | free), "neither in use nor free"),
        ):
            if wrong.any():
                self.err(
                    f"{np.count_nonzero(wrong)} pages are {state}, the first is "
                    f"{_METAS + int(wrong.argmax())}"
                )


class _LocatingWalk(_Walk):
    """The same walk, which also finds where the values lie."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__(file, size)
        self.ranges: list[tuple[int, int]] = []

    def _leaf_value(self, ctx: Any, *where: Any) -> None:
        super()._leaf_value(ctx, *where)
        if ctx["is_free"]:
            return
        page, _, buffer, node, flags, key_size, size, _ = where
        start = node + 8 + key_size + (key_size % 2 if self.eng["has_txnid"] else 0)
        if not flags & lmdb.verify.F_BIGDATA:
            self.ranges.append((page * self.psize + start, size))
        elif start + 8 <= self.psize:  # otherwise the walk has found the fault
            self.ranges.append(
                (_NUMBER.unpack_from(buffer, start)[0] * self.psize + self.hdrsz, size)
            )


def keys(path: Path, thorough: bool = False) -> tuple[str, ...]:
    """Checks the structure of a shard, of the records' pages too if `thorough`, and returns its
    keys, sorted.

    The keys come from the walk, because LMDB's own listing reads a page of every record.

    Raises:
        WorkError: If the shard is damaged or cannot be read.
    """
    return _keys(_walked(path, _ThoroughWalk if thorough else _Walk), path)


def locations(path: Path) -> dict[str, tuple[int, int]]:
    """Checks the structure of a shard and finds its records in the file, without reading them.

    They stay where they are until a writer changes the file.

    Returns:
        By key the first byte of the record and the number of its bytes.

    Raises:
        WorkError: If the shard is damaged or cannot be read.
    """
    walk = _walked(path, _LocatingWalk)
    return dict(zip(_keys(walk, path), walk.ranges, strict=True))


_AnyWalk = TypeVar("_AnyWalk", bound=_ThoroughWalk)


def _walked(path: Path, kind: type[_AnyWalk]) -> _AnyWalk:
    """Returns the walk of a whole shard. Raises WorkError if the shard is damaged or cannot be
    read.
    """
    length = -1
    walk = None
    problems = [""]
    try:
        # A live writer may extend the file between two looks at its length. A file that grew is
        # walked again.
        if path.is_fifo():  # opening it would wait for its other end
            raise damaged(path, "it is not a file")
        while problems and length != path.stat().st_size:
            length = path.stat().st_size
            with path.open("rb") as file:
                walk = kind(file, length)
                problems = walk.verify()
        if not problems and walk:
            return walk
    except OSError as error:
        raise WorkError(f"cannot read {path}: {error.strerror}") from None
    except lmdb.verify.VerifyError as error:
        problems = [str(error)]
    raise damaged(path, problems[0])


def _keys(walk: _ThoroughWalk, path: Path) -> tuple[str, ...]:
    try:
        return tuple(str(key, "utf-8") for key in walk.keys)
    except UnicodeDecodeError as error:
        raise damaged(path, str(error)) from None


def damaged(path: Path, problem: str) -> StructureError:
    """Returns the error of a damaged shard, with the remedy."""
    return StructureError(path, problem)
