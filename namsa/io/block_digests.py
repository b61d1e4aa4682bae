"""Digests of the blocks of an HDF5 file that namsa has written, so that no changed bit goes unseen.

They stand behind the last byte that HDF5 uses, where other programs do not look, before the seal
(`namsa.io.seal`) if there is one:

    digests   uint64 per block of the file, xxh3_64
    kinds     uint8 per block: 1 for one of raw data alone, which is compared when it is read; 0 for
              one that HDF5 interprets, or that holds small arrays, which is compared at opening
    tail      uint64 bytes of the file that are covered, uint32 bytes of a block, uint64 xxh3_64 of
              both tables and these two numbers, 8 bytes magic; all little-endian

A program that changes the file by HDF5 cuts them off with what lies behind its last byte. Files
without digests are read unchecked.
"""

import os
import struct
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Self

import h5py
import numpy as np
import numpy.typing as npt
import xxhash

from namsa.base.files import Closing, open_regular
from namsa.io import seal

MAGIC = b"NAMSABD1"
BLOCK_BYTES = 2**16
RUN_BYTES = 2**22  # read at once
_TAIL = struct.Struct("<QIQ8s")
_NUMBERS = struct.Struct("<QI")
_RAW = 1
_LARGEST_BLOCK_BYTES = 2**24
_REMEDY = "copy the file again from where it is intact, or make it again"


class ChangedBytesError(Exception):
    """Bytes of a file are not those that namsa wrote. The message says which, and the remedy."""


class BlockDigests(Closing):
    """The digests of an open file.

    Args:
        file: The file, which is closed with the digests.
        size: Bytes that are covered.
        block_bytes: Bytes of a block.
        digests: Digest of each block.
        is_raw: Which blocks are of raw data alone.
    """

    def __init__(
        self,
        file: BinaryIO,
        size: int,
        block_bytes: int,
        digests: npt.NDArray[np.uint64],
        is_raw: npt.NDArray[np.bool_],
    ) -> None:
        self._file = file
        self._size = size
        self._block_bytes = block_bytes
        self._digests = digests
        self._is_raw = is_raw
        self._is_checked = np.zeros(len(digests), bool)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Returns the digests of a file; `None` if it has none.

        Raises:
            InputError: If the file cannot be read.
            ChangedBytesError: If the digests themselves are damaged.
        """
        file = open_regular(path)
        try:
            tables = _read_tables(file)
        except BaseException:
            file.close()
            raise
        if tables is None:
            file.close()
            return None
        return cls(file, *tables)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def check_structure(self) -> None:
        """Compares all blocks but those of raw data alone. Raises ChangedBytesError."""
        self._check_blocks(np.flatnonzero(~self._is_raw))

    def check(self, extents: Iterable[Sequence[int]]) -> None:
        """Compares the blocks of parts of the file, each once.

        Args:
            extents: First byte and bytes of each part.

        Raises:
            ChangedBytesError: If a block is not as namsa wrote it.
        """
        is_touched = np.zeros(len(self._digests), bool)
        for offset, length in extents:
            is_touched[offset // self._block_bytes : -(-(offset + length) // self._block_bytes)] = (
                True
            )
        self._check_blocks(np.flatnonzero(is_touched))

    def _check_blocks(self, numbers: npt.NDArray[np.intp]) -> None:
        """Compares blocks that have not been compared, neighbours together."""
        with self._lock:
            pending = numbers[~self._is_checked[numbers]]
            per_run = RUN_BYTES // self._block_bytes or 1
            breaks = np.flatnonzero(np.diff(pending) != 1) + 1
            for neighbours in np.split(pending, breaks):
                for start in range(0, len(neighbours), per_run):
                    self._check_run(neighbours[start : start + per_run])

    def _check_run(self, numbers: npt.NDArray[np.intp]) -> None:
        """Compares consecutive blocks."""
        first_block = int(numbers[0])
        last = int(numbers[-1])
        self._file.seek(first_block * self._block_bytes)
        end = min((last + 1) * self._block_bytes, self._size)
        data = self._file.read(end - first_block * self._block_bytes)
        if len(data) < end - first_block * self._block_bytes:
            raise ChangedBytesError("it has become shorter since it was opened")
        actual = block_digests(data, self._block_bytes, last - first_block + 1)
        wrong = np.flatnonzero(actual != self._digests[first_block : last + 1])
        if wrong.size:
            at = (first_block + int(wrong[0])) * self._block_bytes
            raise ChangedBytesError(
                f"bytes {at} to {min(at + self._block_bytes, self._size)} are not those that namsa "
                f"wrote: {_REMEDY}"
            )
        self._is_checked[first_block : last + 1] = True


def block_digests(data: bytes, block_bytes: int, count: int) -> npt.NDArray[np.uint64]:
    """Returns the digests of the blocks of some bytes, of which the last may be shorter."""
    view = memoryview(data)
    digests = np.zeros(count, np.uint64)
    for index in range(count):
        block = view[index * block_bytes : (index + 1) * block_bytes]
        digests[index] = xxhash.xxh3_64_intdigest(block)
    return digests


def raw_extents(file: h5py.File) -> list[tuple[int, int]]:
    """Returns first byte and length of all large raw data of an open file: pieces and chunks."""
    extents = list(seal.data_spans(file))

    def visit(_name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.chunks is not None:
            item.id.chunk_iter(lambda chunk: extents.append((chunk.byte_offset, chunk.size)))

    file.visititems(visit)
    return sorted(extents)


def append(file: BinaryIO, raw: Sequence[tuple[int, int]]) -> None:
    """Writes the digests behind a file that HDF5 has closed.

    Args:
        raw: As `raw_extents` returns them.
    """
    size = file.seek(0, os.SEEK_END)
    count = -(-size // BLOCK_BYTES)
    digests = np.zeros(count, np.uint64)
    per_run = RUN_BYTES // BLOCK_BYTES
    file.seek(0)
    for block in range(0, count, per_run):
        run = min(per_run, count - block)
        data = file.read(min(run * BLOCK_BYTES, size - block * BLOCK_BYTES))
        digests[block : block + run] = block_digests(data, BLOCK_BYTES, run)
    kinds = _raw_blocks(raw, size).astype(np.uint8)
    tables = digests.astype("<u8").tobytes() + kinds.tobytes()
    file.seek(size)
    file.write(
        tables + _TAIL.pack(size, BLOCK_BYTES, _tables_digest(size, BLOCK_BYTES, tables), MAGIC)
    )


def _raw_blocks(raw: Sequence[tuple[int, int]], size: int) -> npt.NDArray[np.bool_]:
    """Returns which blocks have no byte outside of raw data."""
    count = -(-size // BLOCK_BYTES)
    is_raw = np.zeros(count, bool)
    start = 0
    end = 0
    for offset, length in [*raw, (size + 1, 0)]:
        if offset == end:
            end += length
            continue
        is_raw[-(-start // BLOCK_BYTES) : end // BLOCK_BYTES] = True
        start = offset
        end = offset + length
    return is_raw


def _read_tables(
    file: BinaryIO,
) -> tuple[int, int, npt.NDArray[np.uint64], npt.NDArray[np.bool_]] | None:
    """Returns covered bytes, bytes of a block, digests and which blocks are raw; `None` without
    digests.
    """
    end = seal.first_byte(file) - _TAIL.size
    if end < 0:
        return None
    file.seek(end)
    size, block_bytes, tables_digest, magic = _TAIL.unpack(file.read(_TAIL.size))
    if magic != MAGIC:
        return None
    damaged = ChangedBytesError(f"its digests are damaged: {_REMEDY}")
    if not 0 < block_bytes <= _LARGEST_BLOCK_BYTES:
        raise damaged
    count = -(-size // block_bytes)
    if size + 9 * count != end:
        raise damaged
    file.seek(size)
    tables = file.read(9 * count)
    if _tables_digest(size, block_bytes, tables) != tables_digest:
        raise damaged
    digests = np.frombuffer(tables, "<u8", count)
    kinds = np.frombuffer(tables, np.uint8, count, 8 * count)
    return size, block_bytes, digests.astype(np.uint64), kinds == _RAW


def _tables_digest(size: int, block_bytes: int, tables: bytes) -> int:
    """Returns the digest of the tables and of the numbers that describe them."""
    return xxhash.xxh3_64_intdigest(_NUMBERS.pack(size, block_bytes) + tables)
