"""Pieces of files from the shared file system to the nodes' disks: who reads, who writes, and the way between.

It goes in rounds. In each, every rank reads a run of pieces while those of the round before travel, checks the pieces
that reach it against the digests they were sent with, and writes them. A node's first rank is sent the digests of all
pieces that its node writes, and makes each file a whole copy as soon as its last piece is on the disk.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from namsa.errors import WorkError
from train.ranks.protocol import Bytes, Ranks
from train.staging import copies
from train.staging.copies import Original

_LARGEST_PIECE, _SMALLEST_PIECE = 2**25, 2**16
_ROUND_BYTES = 2**27  # that a rank sends in a round, and about what it receives
_DIGEST = 16


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `start + length` of a file, which `reader` reads for all of `nodes`."""

    file: int
    start: int
    length: int
    reader: int
    number: int
    nodes: tuple[int, ...]

    def writer(self, members: Sequence[int]) -> int:
        """Who writes it on the node of ranks `members`: the reader where it is one of them, else all in turn."""
        return self.reader if self.reader in members else members[self.number % len(members)]


def piece_size(total: int, nodes: list[list[int]]) -> int:
    """Small enough that all ranks read nearly as much, and that what one sends to all nodes fits in memory."""
    even, fits = total // (8 * sum(map(len, nodes))), _ROUND_BYTES // len(nodes)
    return max(min(even, fits, _LARGEST_PIECE), _SMALLEST_PIECE)


def plan(
    files: Sequence[Original], wanted: Sequence[tuple[int, ...]], nodes: list[list[int]], piece_bytes: int
) -> list[list[Piece]]:
    """Rounds of pieces, in each at most one of every reader.

    wanted: the nodes that want each file; ranks of these read it, in turn, so that one copy need not travel
    """
    rounds: list[list[Piece]] = []
    counted: Counter[tuple[int, ...]] = Counter()  # pieces, of files that the same nodes want
    busy: Counter[int] = Counter()  # rounds, of each reader
    for index, (file, group) in enumerate(zip(files, wanted, strict=True)):
        readers = [rank for node in group for rank in nodes[node]]
        for start in range(0, max(file.size, 1), piece_bytes) if group else ():
            number = counted[group]
            reader = readers[number % len(readers)]
            if busy[reader] == len(rounds):
                rounds.append([])
            length = min(piece_bytes, file.size - start)
            rounds[busy[reader]].append(Piece(index, start, length, reader, number, group))
            busy[reader] += 1
            counted[group] += 1
    return rounds


# ---- From disk to disk ----------------------------------------------------------------------------------------------


def transfer(
    source: Path,
    target: Path,
    ranks: Ranks,
    nodes: list[list[int]],
    files: Sequence[Original],
    rounds: list[list[Piece]],
    piece_bytes: int,
    threads: int,
    on_progress: Callable[[int, int], None],
) -> Counter[str]:
    """Reads, sends, checks and writes, round by round; a file is finished as soon as its last piece is written.

    Returns this rank's bytes: "read" from `source`, "sent", "received", "written".
    """
    rank = ranks.rank()
    node = next(number for number, members in enumerate(nodes) if rank in members)
    last = {piece.file: number for number, pieces in enumerate(rounds) for piece in pieces}
    total = sum(piece.length for pieces in rounds for piece in pieces if piece.reader == rank)
    counts = Counter(read=0, sent=0, received=0, written=0)
    digests: dict[int, dict[int, bytes]] = {}  # by file and start, on the node's first rank

    def read(number: int) -> bytearray | None:
        for piece in rounds[number] if number < len(rounds) else ():
            if piece.reader == rank:
                original = files[piece.file]
                return read_piece(source / original.name, original, piece, pool, threads)
        return None

    def finish(number: int) -> None:
        """All ranks of this node have written what came in round `number`."""
        for index in [index for index in digests if last[index] == number]:
            digest = copies.digest_of(part for _, part in sorted(digests.pop(index).items()))
            copies.finish(target / files[index].name, files[index], piece_bytes, digest)

    with ThreadPoolExecutor(threads) as pool, ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(read, 0)
        for number, pieces in enumerate(rounds):
            with ranks.together():
                finish(number - 1)
                data = coming.result()
                digest = xxhash.xxh3_128_digest(data or b"")
            coming = ahead.submit(read, number + 1)
            counts["read"] += len(data or b"")
            on_progress(counts["read"] // 2**20, total // 2**20)
            outgoing = _messages(pieces, rank, nodes, data, digest)
            arrived = ranks.exchange(outgoing)
            counts.update(sent=sum(map(len, outgoing)), received=sum(map(len, arrived)))
            with ranks.together():
                for piece in (piece for piece in pieces if node in piece.nodes):
                    writes = piece.writer(nodes[node]) == rank
                    if data is not None and piece.reader == rank:
                        came, body = digest, memoryview(data)
                    elif writes or rank == nodes[node][0]:
                        message = memoryview(arrived[piece.reader].data)
                        came, body = bytes(message[:_DIGEST]), message[_DIGEST:]
                    if writes:
                        _check(files[piece.file], piece, came, body)
                        counts["written"] += _write(copies.partial(target / files[piece.file].name), piece, body)
                    if rank == nodes[node][0]:
                        digests.setdefault(piece.file, {})[piece.start] = came
        with ranks.together():
            finish(len(rounds) - 1)
    return counts


def _messages(
    pieces: Sequence[Piece], rank: int, nodes: list[list[int]], data: bytearray | None, digest: bytes
) -> list[Bytes]:
    """What this rank sends to each: its piece with its digest to those who write it, the digest to who finishes."""
    messages = [np.empty(0, np.uint8) for members in nodes for _ in members]
    for piece in pieces:
        if data is not None and piece.reader == rank:
            alone, whole = (np.frombuffer(message, np.uint8) for message in (digest, digest + data))
            for members in (nodes[node] for node in piece.nodes):
                messages[members[0]] = alone
                messages[piece.writer(members)] = whole
    messages[rank] = messages[rank][:0]  # it has its own
    return messages


def read_piece(path: Path, original: Original, piece: Piece, pool: ThreadPoolExecutor, threads: int) -> bytearray:
    """The piece's bytes, by `threads` of `pool`. Raises WorkError where the file is not what `original` says."""
    data = bytearray(piece.length)
    part = max(-(-piece.length // threads), _SMALLEST_PIECE)

    def read(offset: int) -> int:
        return os.preadv(file.fileno(), [memoryview(data)[offset : offset + part]], piece.start + offset)

    try:
        with path.open("rb", buffering=0) as file:
            got = sum(pool.map(read, range(0, piece.length, part)))
            stat = os.fstat(file.fileno())
    except OSError as error:
        raise WorkError(f"cannot read {path}: {error.strerror}") from None
    if got != piece.length or (stat.st_size, stat.st_mtime_ns) != (original.size, original.mtime_ns):
        raise WorkError(f"{path} has changed while it was staged: run again when nothing writes to it")
    return data


def _check(original: Original, piece: Piece, digest: bytes, data: memoryview) -> None:
    if xxhash.xxh3_128_digest(data) != digest:
        raise WorkError(
            f"{original.name} from byte {piece.start:,} on arrived damaged from rank {piece.reader}: run again"
        )


def _write(path: Path, piece: Piece, data: memoryview) -> int:
    try:
        with path.open("r+b") as file:
            file.seek(piece.start)
            return file.write(data)
    except OSError as error:
        free = shutil.disk_usage(path.parent).free
        raise WorkError(f"cannot write {path}: {error.strerror} ({free / 2**30:.2f} GiB free there)") from None
