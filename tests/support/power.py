"""What a disk may hold when the power has been cut: a model of it, fed with what `record_writes.c` has seen."""

import os
import random
import struct
from collections.abc import Iterator

SECTOR = 512
Event = tuple[str, int, int, str, str, bytes]  # kind, inode, offset, name, other name, data


def events(log: bytes) -> Iterator[Event]:
    """What was done to files and names, in order."""
    header, place = struct.Struct("=6Q"), 0
    while place < len(log):
        kind, inode, offset, *sizes = header.unpack_from(log, place)
        place += header.size
        parts = []
        for size in (sizes[1], sizes[2], sizes[0]):
            parts.append(log[place : place + size])
            place += size
        yield chr(kind), inode, offset, parts[0].decode(), parts[1].decode(), parts[2]


class Disk:
    """Files and names, what of them is certainly on the disk, and what may be.

    An unsynced write may have got there in any of its sectors, an unsynced name or not, whatever the order. Only what
    POSIX promises is taken for certain: a file's sync is not one of its name.
    """

    def __init__(self, honest: bool = True) -> None:
        self.honest = honest  # False: a disk that syncs nothing, to see that this is noticed
        self.files: dict[int, bytearray] = {}
        self.writes: dict[int, list[list]] = {}
        self.names: dict[str, int] = {}
        self.renames: list[tuple] = []

    def do(self, event: Event) -> None:
        kind, inode, offset, name, other, data = event
        if kind in "CRLU":
            self.renames.append((kind, inode, name, other))
        elif kind == "W":
            self.writes.setdefault(inode, []).append([offset, data, False])
        elif kind == "T":
            self.writes.setdefault(inode, []).append([offset, None, False])
        elif not self.honest:
            return
        elif kind == "D":
            for write in self.writes[inode][-offset:]:
                write[2] = True
        elif kind == "S":
            content = self.files.setdefault(inode, bytearray())
            for write_offset, written, _ in self.writes.pop(inode, []):
                put(content, write_offset, written)
        elif kind == "F":
            certain = [each for each in self.renames if name in (os.path.dirname(each[2]), os.path.dirname(each[3]))]
            self.renames = [each for each in self.renames if each not in certain]
            rename(self.names, certain)

    def after_a_cut(self, rng: random.Random) -> dict[str, bytes]:
        """What may be found when the power is back."""
        likely = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        found = {inode: bytearray(content) for inode, content in self.files.items()}
        for inode, writes in self.writes.items():
            content = found.setdefault(inode, bytearray())
            for offset, data, certain in writes:
                if data is None:
                    if certain or rng.random() < likely:
                        put(content, offset, None)
                    continue
                first = offset
                while first < offset + len(data):
                    last = min((first // SECTOR + 1) * SECTOR, offset + len(data))
                    if certain or rng.random() < likely:
                        put(content, first, data[first - offset : last - offset])
                    first = last
        names = dict(self.names)
        rename(names, [each for each in self.renames if rng.random() < likely])
        return {name: bytes(found.get(inode, b"")) for name, inode in names.items()}


def put(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def rename(names: dict[str, int], operations: list[tuple]) -> None:
    for kind, inode, name, other in operations:
        if kind == "C":
            names.setdefault(name, inode)
        elif name in names and kind == "U":
            del names[name]
        elif name in names and kind == "L":
            names.setdefault(other, names[name])
        elif name in names and kind == "R":
            names[other] = names.pop(name)
