"""Seals: how namsa knows an HDF5 file that it has written for the same user, and that nobody has
changed since.

The HDF5 library crashes, or worse, on files that are made for it. Files of others are therefore
read in a process of its own (`namsa.io.safe_hdf5`), which takes a third of a second to start. A
file with an intact seal is opened in place.

A seal stands behind the last byte that HDF5 uses:

    spans     pairs of uint64, first byte and length of the raw data that the seal does not cover
    tail      uint32 number of spans, 32 bytes BLAKE2b with the user's key, 8 bytes magic;
              little-endian

The digest is of the file's size, the spans, and every byte outside of them: of all that the library
interprets. Spans are data that are stored as a whole and without filters, whose bytes are numbers
whatever they are. Without the key nobody can make a seal; with another user's, or after a change, a
file is one of others. The key is made at the first file in `$XDG_DATA_HOME/namsa`
(`~/.local/share/namsa`), readable by the user alone.
"""

import hmac
import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import h5py

from namsa.base.errors import InputError
from namsa.base.files import name_if_new, open_regular
from namsa.base.leftovers import hidden_name, remove_leftovers

MAGIC = b"NAMSASL1"
_TAIL = struct.Struct("<I32s8s")
_SPAN = struct.Struct("<QQ")
KEY_BYTES = 32
SPANS = 1024
COVERED_BYTES = 2**25  # that a seal covers: a digest of them takes 0.03 s
SPAN_BYTES = 4096  # smaller data are covered

Spans = Sequence[tuple[int, int]]


def data_spans(file: h5py.File) -> Spans:
    """Returns where the large raw data of an open file are, first byte and length, in the file's
    order.
    """
    spans: list[tuple[int, int]] = []

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.chunks is None:
            offset = item.id.get_offset()
            length = item.id.get_storage_size()
            if offset is not None and length >= SPAN_BYTES:
                spans.append((offset, length))

    file.flush()
    file.visititems(visit)
    return sorted(spans)


def append(file: BinaryIO, spans: Spans) -> None:
    """Seals a file that HDF5 has closed. It stays without a seal if there is no key, or too much to
    cover.
    """
    key = _key(create=True)
    size = file.seek(0, os.SEEK_END)
    gaps = list(_covered(size, spans))
    if key is None or len(spans) > SPANS or sum(end - start for start, end in gaps) > COVERED_BYTES:
        return
    table = b"".join(_SPAN.pack(*span) for span in spans)
    digest = _digest(key, file, size, table, gaps)
    file.seek(size)
    file.write(table + _TAIL.pack(len(spans), digest, MAGIC))


def first_byte(file: BinaryIO) -> int:
    """Returns where the seal of an open file begins, intact or not; its end if there is none."""
    end = file.seek(0, os.SEEK_END)
    if end < _TAIL.size:
        return end
    file.seek(end - _TAIL.size)
    count, _, magic = _TAIL.unpack(file.read(_TAIL.size))
    if magic != MAGIC or count > SPANS:
        return end
    return max(0, end - _TAIL.size - count * _SPAN.size)


def is_sealed(path: Path) -> bool:
    """Returns whether a file has an intact seal of this user."""
    with suppress(OSError, InputError), open_regular(path) as file:
        end = file.seek(0, os.SEEK_END) - _TAIL.size
        if end < 0:
            return False
        file.seek(end)
        count, digest, magic = _TAIL.unpack(file.read(_TAIL.size))
        size = end - count * _SPAN.size
        key = _key(create=False) if magic == MAGIC and count <= SPANS and size >= 0 else None
        if key is None:
            return False
        file.seek(size)
        table = file.read(count * _SPAN.size)
        gaps = list(_covered(size, list(_SPAN.iter_unpack(table))))
        if (
            any(end < start for start, end in gaps)
            or sum(end - start for start, end in gaps) > COVERED_BYTES
        ):
            return False
        return hmac.compare_digest(_digest(key, file, size, table, gaps), digest)
    return False


def _digest(key: bytes, file: BinaryIO, size: int, table: bytes, covered: Spans) -> bytes:
    """Returns the keyed digest of a file's size, of the table of its spans, and of the bytes that
    are covered.
    """
    digest = blake2b(struct.pack("<Q", size) + table, key=key, digest_size=32)
    for start, end in covered:
        file.seek(start)
        digest.update(file.read(end - start))
    return digest.digest()


def _covered(size: int, spans: Spans) -> Iterator[tuple[int, int]]:
    """Yields the first byte and the end of what lies before, between and behind the spans."""
    end = 0
    for start, length in spans:
        yield end, start
        end = start + length
    yield end, size


def _key(create: bool) -> bytes | None:
    """Returns the user's key; `None` if there is none, or another user could know it."""
    with suppress(OSError, RuntimeError, InputError):  # no home, or one that cannot be written
        folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "namsa"
        path = folder / "seal.key"
        if create and not path.exists():
            _make_key(path)
        with open_regular(path) as file:
            key = file.read(KEY_BYTES + 1)
            if _is_private(os.fstat(file.fileno())) and len(key) == KEY_BYTES:
                return key
    return None


def _make_key(path: Path) -> None:
    """Writes a new key, which the user alone can read, unless another process is faster."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    remove_leftovers(path)
    partial = hidden_name(path)
    try:
        partial.touch(mode=0o600, exist_ok=False)
        partial.write_bytes(secrets.token_bytes(KEY_BYTES))
        name_if_new(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _is_private(status: os.stat_result) -> bool:
    """Returns whether a file is this user's and no other user can read it."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & 0o077
