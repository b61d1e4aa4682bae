"""The tree of tags of Gatan's DM3 and DM4 files.

Sizes and counts are big-endian, 4 bytes in DM3 and 8 in DM4; values are in the byte order that the
header states. Long arrays are not read: only where they are is noted. Everything is bounded, for a
damaged count may be any number.

Source: C. B. Boothroyd, "DM3 file format" (er-c.org/cbb/info/dmformat), which covers DM4, too.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError

DEPTH = 32
TAGS = 200_000
SHORT_BYTES = 4096  # of an array that is read as text
NAME_BYTES = 1024

GROUP = 20
DATA = 21
STRUCT = 15
TEXT = 18
ARRAY = 20
CHARACTER = 4  # of text, and a 16-bit number
TYPES = {
    2: "i2",
    3: "i4",
    4: "u2",
    5: "u4",
    6: "f4",
    7: "f8",
    8: "u1",
    9: "i1",
    10: "u1",
    11: "i8",
    12: "u8",
}


class TaggedArray(NamedTuple):
    """An array whose numbers are not read."""

    offset: int  # its first byte
    dtype: np.dtype[np.generic]  # type of its numbers
    length: int  # their number
    text: str = ""  # a short array of 16-bit numbers as text, which is stored so


Tags = dict[str, Any]  # groups are dicts; tags without a name are "0", "1", ...


def read_tags(path: Path, file: BinaryIO) -> Tags:
    """Returns the tags of a file. Raises InputError if it is no DM3 or DM4 file, is damaged, or cut
    short.
    """
    head = file.read(4)
    version = struct.unpack(">I", head)[0] if len(head) == 4 else 0
    if version not in (3, 4):
        raise InputError(f"{path} is no DM3 or DM4 file: its version is {version}")
    walker = _Walker(path, file, os.fstat(file.fileno()).st_size, "I" if version == 3 else "Q")
    walker.count()  # the length of the file, which may be wrong
    (order,) = walker.unpack(">I")
    walker.order = "<" if order == 1 else ">"
    return walker.group(0)


@dataclass
class _Walker:
    """Walks through the tags."""

    path: Path  # the file, for messages
    file: BinaryIO  # the open file
    length: int  # its bytes
    size: str  # format of counts
    order: Literal["<", ">"] = "<"  # byte order of values
    tags: int = 0  # tags so far

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Reads numbers."""
        return struct.unpack(layout, self.read(struct.calcsize(layout)))

    def count(self) -> int:
        """Reads a count."""
        (value,) = self.unpack(f">{self.size}")
        return int(value)

    def damaged(self, reason: str) -> InputError:
        """Returns the error for a damaged file."""
        return InputError(f"{self.path} is damaged or cut short: {reason}")

    def group(self, depth: int) -> Tags:
        """Reads a group of tags."""
        if depth > DEPTH:
            raise self.damaged(f"its tags are nested more than {DEPTH} deep")
        self.unpack(">2B")  # whether it is sorted, and open
        group: Tags = {}
        for index in range(min(self.count(), TAGS + 1)):
            self.tags += 1
            if self.tags > TAGS:
                raise self.damaged(f"it has more than {TAGS} tags")
            kind, length = self.unpack(">BH")
            if kind not in (GROUP, DATA) or length > NAME_BYTES:
                raise self.damaged(f"byte {self.file.tell()} begins no tag")
            name = self.file.read(length).decode("latin-1") or str(index)
            if self.size == "Q":
                self.unpack(">Q")  # bytes of the tag
            group[name] = self.group(depth + 1) if kind == GROUP else self.value()
        return group

    def value(self) -> Any:
        """Reads the value of a tag; `None` for a kind that nothing here needs."""
        mark = self.file.read(4)
        layout = self.count()
        if mark != b"%%%%" or not 0 < layout < SHORT_BYTES:
            raise self.damaged(f"byte {self.file.tell()} begins no value")
        kind, *rest = self.unpack(f">{layout}{self.size}")
        if kind in TYPES and not rest:
            return self.numbers(TYPES[kind], 1)[0].item()
        if kind == TEXT and len(rest) == 1:
            if rest[0] <= SHORT_BYTES:
                return self.read(rest[0]).decode("utf-16", "replace")
            return self.skip(rest[0])
        if kind == STRUCT:
            return [self.numbers(name, 1)[0].item() for name in self.fields(rest)]
        if kind == ARRAY and len(rest) >= 2:
            return self.array(rest)
        raise self.damaged(f"byte {self.file.tell()} begins a value of the unknown kind {kind}")

    def array(self, layout: list[int]) -> Any:
        """Notes where an array is; reads one that may be text."""
        kind, *inner, length = layout
        if kind == STRUCT:
            size = sum(np.dtype(name).itemsize for name in self.fields(inner))
            return self.skip(size * length)
        if kind not in TYPES or inner:
            raise self.damaged(
                f"byte {self.file.tell()} begins an array of the unknown kind {kind}"
            )
        dtype = np.dtype(TYPES[kind]).newbyteorder(self.order)
        offset = self.file.tell()
        text = ""
        if kind == CHARACTER and length * dtype.itemsize <= SHORT_BYTES:
            text = (
                self.numbers("u2", length)
                .astype("<u2")
                .tobytes()
                .decode("utf-16-le", "replace")
                .rstrip("\0")
            )
        else:
            self.skip(length * dtype.itemsize)
        return TaggedArray(offset, dtype, length, text)

    def fields(self, layout: list[int]) -> list[str]:
        """Returns the types of a struct's fields."""
        count = layout[1] if len(layout) > 1 else -1
        kinds = layout[3::2]
        if count != len(kinds) or not all(kind in TYPES for kind in kinds):
            raise self.damaged(f"byte {self.file.tell()} begins an unknown structure")
        return [TYPES[kind] for kind in kinds]

    def numbers(self, name: str, count: int) -> Array:
        """Reads numbers of a type."""
        dtype = np.dtype(name).newbyteorder(self.order)
        return np.frombuffer(self.read(count * dtype.itemsize), dtype)

    def read(self, size: int) -> bytes:
        """Reads bytes."""
        data = self.file.read(size)
        if len(data) < size:
            raise self.damaged(f"it ends at byte {self.length}, within its tags")
        return data

    def skip(self, size: int) -> None:
        """Passes over bytes."""
        at = self.file.tell() + size
        if at > self.length:
            raise self.damaged(f"it declares values to byte {at}, and has {self.length}")
        self.file.seek(at)
