"""Moves pieces of files from the shared file system to the nodes' disks.

The pieces move in rounds. In each round, every rank reads one piece while the pieces of the round
before travel, checks the pieces that it receives against the digests that were sent with them, and
writes them. A node's first rank receives the digests of all pieces that its node writes, and
completes each file as soon as its last piece is on the disk.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash

from namsa.base.errors import WorkError
from namsa.base.files import system_errors

from ..ranks.interface import Bytes, Ranks
from . import copies
from .copies import FileState

_LARGEST_PIECE = 2**25
_SMALLEST_PIECE = 2**16
_ROUND_BYTES = 2**27  # that a rank sends per round, and about as many that it receives
_DIGEST_BYTES = 16

OnProgress = Callable[[int, int], None]  # (done, total), MiB
Nodes = list[list[int]]  # the ranks of each node
# of an item, the bytes of a piece, and the digest of all pieces
Complete = Callable[["Item", int, str], None]


@dataclass(frozen=True)
class Item:
    """A unit that arrives as one file: a file of the dataset, or a record of one."""

    name: str  # name of the file, or the sample's id
    origin: FileState  # the file of the dataset
    first_byte: int  # in it
    size: int  # number of bytes

    @classmethod
    def whole(cls, file: FileState) -> "Item":
        """Returns a file of the dataset."""
        return cls(file.name, file, 0, file.size)


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `start + length` of an item."""

    item: int  # index of the item
    start: int  # first byte
    length: int  # number of bytes
    reader: int  # rank that reads the piece for all nodes
    number: int  # number of the piece among the pieces that the same nodes need
    nodes: tuple[int, ...]  # nodes that need the piece

    def writer(self, members: Sequence[int]) -> int:
        """Returns which of a node's ranks `members` writes the piece: the reader if it is one,
        otherwise in turn.
        """
        if self.reader in members:
            return self.reader
        return members[self.number % len(members)]


@dataclass(frozen=True)
class StagingPlan:
    """The bytes that each rank reads and writes, and when."""

    items: Sequence[Item]  # what moves
    nodes: Nodes  # the ranks of each node
    piece_bytes: int  # size of a piece; the last piece of an item may be smaller
    rounds: list[list[Piece]]  # the pieces of each round, at most one per reader


def plan_staging(
    items: Sequence[Item], needed_by: Sequence[tuple[int, ...]], nodes: Nodes
) -> StagingPlan:
    """Returns the plan for items, each of which some nodes need.

    Pieces are so small that all ranks read nearly as much, and that what a rank sends to all nodes
    fits in memory.
    """
    total = sum(item.size for item, group in zip(items, needed_by, strict=True) if group)
    even = total // (8 * sum(map(len, nodes)))
    fits = _ROUND_BYTES // len(nodes)
    piece_bytes = max(min(even, fits, _LARGEST_PIECE), _SMALLEST_PIECE)
    return StagingPlan(items, nodes, piece_bytes, plan_rounds(items, needed_by, nodes, piece_bytes))


def plan_rounds(
    items: Sequence[Item], needed_by: Sequence[tuple[int, ...]], nodes: Nodes, piece_bytes: int
) -> list[list[Piece]]:
    """Returns rounds of pieces, with at most one piece per reader in each round.

    Ranks of the nodes that need an item read it in turn, so that one copy need not travel.
    """
    rounds: list[list[Piece]] = []
    pieces_of: Counter[tuple[int, ...]] = Counter()  # pieces so far, by the nodes that need them
    rounds_of: Counter[int] = Counter()  # rounds so far, by reader
    for index, (item, group) in enumerate(zip(items, needed_by, strict=True)):
        if not group:
            continue
        readers = []
        for node in group:
            readers += nodes[node]
        for start in range(0, max(item.size, 1), piece_bytes):
            piece_number = pieces_of[group]
            reader = readers[piece_number % len(readers)]
            if rounds_of[reader] == len(rounds):
                rounds.append([])
            length = min(piece_bytes, item.size - start)
            rounds[rounds_of[reader]].append(
                Piece(index, start, length, reader, piece_number, group)
            )
            rounds_of[reader] += 1
            pieces_of[group] += 1
    return rounds


# ---- From disk to disk
# ----------------------------------------------------------------------------------------------


def transfer(
    plan: StagingPlan,  # what moves where
    source: Path,  # folder on the shared file system
    # folder of this node, which holds an empty partial file for each item that the node needs
    target: Path,
    ranks: Ranks,
    threads: int,  # number of threads that read, per rank
    on_progress: OnProgress,  # called with what this rank has read and has to read, MiB
    complete: Complete,  # called on a node's first rank when an item's partial file is whole
) -> Counter[str]:
    """Reads, sends, checks and writes the pieces, round by round. All ranks must call this
    function.

    Returns:
        This rank's bytes: "read" from `source`, "sent", "received" and "written".

    Raises:
        WorkError: If a file cannot be read or written, has changed, or a piece arrives damaged.
    """
    rank_part = _RankPart(plan, ranks.rank(), source, target, complete)
    total = rank_part.bytes_to_read()
    counts = Counter(read=0, sent=0, received=0, written=0)
    with ThreadPoolExecutor(threads) as pool, ThreadPoolExecutor(1) as ahead:
        next_piece = ahead.submit(rank_part.read, 0, pool, threads)
        for round_index, pieces in enumerate(plan.rounds):
            with ranks.local_work():
                rank_part.complete_items(round_index - 1)
                own_piece = next_piece.result()
            next_piece = ahead.submit(rank_part.read, round_index + 1, pool, threads)
            counts["read"] += len(own_piece.body)
            on_progress(counts["read"] // 2**20, total // 2**20)
            outgoing = rank_part.messages(pieces, own_piece)
            arrived = ranks.exchange_bytes(outgoing)
            counts.update(sent=sum(map(len, outgoing)), received=sum(map(len, arrived)))
            with ranks.local_work():
                for piece in pieces:
                    counts["written"] += rank_part.receive(piece, own_piece, arrived)
        with ranks.local_work():
            rank_part.complete_items(len(plan.rounds) - 1)
    return counts


class _Message(NamedTuple):
    """A piece as its reader sends it."""

    digest: bytes
    body: memoryview


class _RankPart:
    """The part of one rank in a transfer: the pieces that it reads, sends, writes and completes."""

    def __init__(
        self, plan: StagingPlan, rank: int, source: Path, target: Path, complete: Complete
    ) -> None:
        self._plan = plan
        self._rank = rank
        self._source = source
        self._target = target
        self._complete = complete
        self._node = -1
        self._members: list[int] = []  # the ranks of this rank's node
        for index, ranks_of_node in enumerate(plan.nodes):
            if rank in ranks_of_node:
                self._node = index
                self._members = list(ranks_of_node)
        self._last_round: dict[int, int] = {}  # of the pieces of each item
        for round_index, pieces in enumerate(plan.rounds):
            for piece in pieces:
                self._last_round[piece.item] = round_index
        # by item and start, on the node's first rank
        self._digests: dict[int, dict[int, bytes]] = {}

    def bytes_to_read(self) -> int:
        """Returns the bytes that this rank reads in all rounds."""
        total = 0
        for pieces in self._plan.rounds:
            total += sum(piece.length for piece in pieces if piece.reader == self._rank)
        return total

    def read(self, round_index: int, pool: ThreadPoolExecutor, threads: int) -> _Message:
        """Returns this rank's piece of a round, empty if it has none."""
        data = bytearray()
        if round_index < len(self._plan.rounds):
            for piece in self._plan.rounds[round_index]:
                if piece.reader == self._rank:
                    item = self._plan.items[piece.item]
                    moved = replace(piece, start=item.first_byte + piece.start)
                    path = self._source / item.origin.name
                    data = read_piece(path, item.origin, moved, pool, threads)
        return _Message(xxhash.xxh3_128_digest(data), memoryview(data))

    def messages(self, pieces: Sequence[Piece], own_piece: _Message) -> list[Bytes]:
        """Returns this rank's message to each rank: digest and piece to those that write it, the
        digest to those that complete the item.
        """
        nodes = self._plan.nodes
        messages = [np.empty(0, np.uint8) for _ in range(sum(map(len, nodes)))]
        for piece in pieces:
            if piece.reader != self._rank:
                continue
            digest_alone = np.frombuffer(own_piece.digest, np.uint8)
            with_piece = np.frombuffer(own_piece.digest + own_piece.body, np.uint8)
            for node in piece.nodes:
                members = nodes[node]
                messages[members[0]] = digest_alone
                messages[piece.writer(members)] = with_piece
        messages[self._rank] = messages[self._rank][:0]  # nothing to itself
        return messages

    def receive(self, piece: Piece, own_piece: _Message, arrived: Sequence[Bytes]) -> int:
        """Writes a piece that its reader has sent, and keeps its digest, where this rank has to.

        Returns:
            Number of bytes that are written.
        """
        if self._node not in piece.nodes:
            return 0
        writes = piece.writer(self._members) == self._rank
        completes = self._rank == self._members[0]
        if not (writes or completes):
            return 0
        message = own_piece
        if piece.reader != self._rank:
            received = memoryview(arrived[piece.reader].data)
            message = _Message(bytes(received[:_DIGEST_BYTES]), received[_DIGEST_BYTES:])
        written = 0
        if writes:
            name = self._plan.items[piece.item].name
            _check_arrived(name, piece, message)
            written = _write(copies.partial_path(self._target / name), piece, message.body)
        if completes:
            self._digests.setdefault(piece.item, {})[piece.start] = message.digest
        return written

    def complete_items(self, round_index: int) -> None:
        """Completes the items whose last pieces all ranks of this node have written in a round."""
        indices = [index for index in self._digests if self._last_round[index] == round_index]
        for index in indices:
            of_pieces = self._digests.pop(index)
            digest = copies.digest_of(of_pieces[start] for start in sorted(of_pieces))
            self._complete(self._plan.items[index], self._plan.piece_bytes, digest)


def _check_arrived(name: str, piece: Piece, message: _Message) -> None:
    """Raises WorkError if a piece has another digest than its reader sent."""
    if xxhash.xxh3_128_digest(message.body) != message.digest:
        raise WorkError(
            f"{name} from byte {piece.start:,} on arrived damaged from rank {piece.reader}: run "
            "again"
        )


def read_piece(
    path: Path, original: FileState, piece: Piece, pool: ThreadPoolExecutor, threads: int
) -> bytearray:
    """Reads a piece of a file.

    Args:
        original: State of the file when it was listed.

    Raises:
        WorkError: If the file cannot be read, or its state differs from `original`.
    """
    data = bytearray(piece.length)
    share = max(-(-piece.length // threads), _SMALLEST_PIECE)

    def read(offset: int) -> int:
        return os.preadv(
            file.fileno(), [memoryview(data)[offset : offset + share]], piece.start + offset
        )

    with system_errors(f"cannot read {path}"), path.open("rb", buffering=0) as file:
        length = sum(pool.map(read, range(0, piece.length, share)))
        stat = os.fstat(file.fileno())
    is_changed = (stat.st_size, stat.st_mtime_ns) != (original.size, original.mtime_ns)
    if length != piece.length or is_changed:
        raise WorkError(
            f"{path} has changed while it was staged: run again when nothing writes to it"
        )
    return data


def _write(path: Path, piece: Piece, data: memoryview) -> int:
    try:
        with path.open("r+b") as file:
            file.seek(piece.start)
            return file.write(data)
    except OSError as error:
        free = shutil.disk_usage(path.parent).free
        raise WorkError(
            f"cannot write {path}: {error.strerror} ({free / 2**30:.2f} GiB free there)"
        ) from None
