"""A model of what a disk may hold after a power cut, fed with the events that `record_writes.c`
recorded.
"""

import os
import random
import struct
from collections.abc import Iterator

SECTOR = 512
Event = tuple[str, int, int, str, str, bytes]  # kind, inode, offset, name, other name, data


def events(log: bytes) -> Iterator[Event]:
    """Yields what was done to files and names, in order."""
    header = struct.Struct("=6Q")
    position = 0
    while position < len(log):
        kind, inode, offset, *sizes = header.unpack_from(log, position)
        position += header.size
        parts = []
        for size in (sizes[1], sizes[2], sizes[0]):
            parts.append(log[position : position + size])
            position += size
        yield chr(kind), inode, offset, parts[0].decode(), parts[1].decode(), parts[2]


class Disk:
    """Files and names: what is certainly on the disk, and what may be.

    Of an unsynced write any sectors may be on the disk, and an unsynced name may be, in any order.
    Only what POSIX promises is certain: syncing a file does not sync its name.
    """

    def __init__(self, honest: bool = True) -> None:
        self.honest = honest  # False: a disk that ignores syncs, which the checks must notice
        self.files: dict[int, bytearray] = {}
        self.writes: dict[int, list[list]] = {}
        self.names: dict[str, int] = {}
        self.renames: list[tuple] = []

    def do(self, event: Event) -> None:
        """Applies an event."""
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
            certain = []
            for move in self.renames:
                if name in (os.path.dirname(move[2]), os.path.dirname(move[3])):
                    certain.append(move)
            self.renames = [move for move in self.renames if move not in certain]
            rename(self.names, certain)

    def after_a_cut(self, rng: random.Random) -> dict[str, bytes]:
        """Returns files that may be on the disk after a power cut, by name."""
        likely = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        contents = {inode: bytearray(content) for inode, content in self.files.items()}
        for inode, writes in self.writes.items():
            content = contents.setdefault(inode, bytearray())
            for offset, data, certain in writes:
                if data is None:
                    if certain or rng.random() < likely:
                        put(content, offset, None)
                    continue
                start = offset
                while start < offset + len(data):
                    end = min((start // SECTOR + 1) * SECTOR, offset + len(data))
                    if certain or rng.random() < likely:
                        put(content, start, data[start - offset : end - offset])
                    start = end
        names = dict(self.names)
        rename(names, [move for move in self.renames if rng.random() < likely])
        return {name: bytes(contents.get(inode, b"")) for name, inode in names.items()}


def put(content: bytearray, offset: int, data: bytes | None) -> None:
    """Writes `data` at `offset`, or cuts the content there if `data` is None."""
    if data is None:
        del content[offset:]
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def rename(names: dict[str, int], operations: list[tuple]) -> None:
    """Applies creations (C), removals (U), hard links (L) and renamings (R) to names."""
    for kind, inode, name, other in operations:
        if kind == "C":
            names.setdefault(name, inode)
        elif name in names and kind == "U":
            del names[name]
        elif name in names and kind == "L":
            names.setdefault(other, names[name])
        elif name in names and kind == "R":
            names[other] = names.pop(name)
