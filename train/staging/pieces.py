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
    first: int  # first byte in it
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
    items = plan.items
    nodes = plan.nodes
    rounds = plan.rounds
    rank = ranks.rank()
    members: list[int] = []  # the ranks of this rank's node
    node = -1
    for index, ranks_of_node in enumerate(nodes):
        if rank in ranks_of_node:
            node = index
            members = list(ranks_of_node)
    last_round: dict[int, int] = {}  # of the pieces of each item
    total = 0  # bytes that this rank reads
    for round_index, pieces in enumerate(rounds):
        for piece in pieces:
            last_round[piece.item] = round_index
            if piece.reader == rank:
                total += piece.length
    counts = Counter(read=0, sent=0, received=0, written=0)
    digests: dict[int, dict[int, bytes]] = {}  # by item and start, on the node's first rank

    def read(round_index: int) -> bytearray | None:
        """Returns this rank's piece of a round."""
        if round_index >= len(rounds):
            return None
        for piece in rounds[round_index]:
            if piece.reader == rank:
                item = items[piece.item]
                moved = replace(piece, start=item.first + piece.start)
                return read_piece(source / item.origin.name, item.origin, moved, pool, threads)
        return None

    def finish(round_index: int) -> None:
        """Completes the items whose last pieces all ranks of this node have written in a round."""
        complete_items = [index for index in digests if last_round[index] == round_index]
        for index in complete_items:
            of_pieces = digests.pop(index)
            digest = copies.digest_of(of_pieces[start] for start in sorted(of_pieces))
            complete(items[index], plan.piece_bytes, digest)

    with ThreadPoolExecutor(threads) as pool, ThreadPoolExecutor(1) as ahead:
        next_piece = ahead.submit(read, 0)
        for round_index, pieces in enumerate(rounds):
            with ranks.local_work():
                finish(round_index - 1)
                data = next_piece.result()
                digest = xxhash.xxh3_128_digest(data or b"")
            next_piece = ahead.submit(read, round_index + 1)
            counts["read"] += len(data or b"")
            on_progress(counts["read"] // 2**20, total // 2**20)
            outgoing = _messages(pieces, rank, nodes, data, digest)
            arrived = ranks.exchange_bytes(outgoing)
            counts.update(sent=sum(map(len, outgoing)), received=sum(map(len, arrived)))
            with ranks.local_work():
                for piece in pieces:
                    if node not in piece.nodes:
                        continue
                    writes = piece.writer(members) == rank
                    finishes = rank == members[0]
                    if not (writes or finishes):
                        continue
                    if data is not None and piece.reader == rank:
                        sent_digest = digest
                        body = memoryview(data)
                    else:
                        message = memoryview(arrived[piece.reader].data)
                        sent_digest = bytes(message[:_DIGEST_BYTES])
                        body = message[_DIGEST_BYTES:]
                    if writes:
                        name = items[piece.item].name
                        _check_arrived(name, piece, body, sent_digest)
                        path = copies.partial_path(target / name)
                        counts["written"] += _write(path, piece, body)
                    if finishes:
                        digests.setdefault(piece.item, {})[piece.start] = sent_digest
        with ranks.local_work():
            finish(len(rounds) - 1)
    return counts


def _check_arrived(name: str, piece: Piece, body: memoryview, sent_digest: bytes) -> None:
    """Raises WorkError if a piece has another digest than its reader sent."""
    if xxhash.xxh3_128_digest(body) != sent_digest:
        raise WorkError(
            f"{name} from byte {piece.start:,} on arrived damaged from rank {piece.reader}: run "
            "again"
        )


def _messages(
    pieces: Sequence[Piece], rank: int, nodes: Nodes, data: bytearray | None, digest: bytes
) -> list[Bytes]:
    """This rank's message to each rank: digest and piece to those that write it, the digest to
    those that finish.
    """
    messages = [np.empty(0, np.uint8) for members in nodes for _ in members]
    for piece in pieces:
        if data is not None and piece.reader == rank:
            digest_alone = np.frombuffer(digest, np.uint8)
            with_piece = np.frombuffer(digest + data, np.uint8)
            for node in piece.nodes:
                members = nodes[node]
                messages[members[0]] = digest_alone
                messages[piece.writer(members)] = with_piece
    messages[rank] = messages[rank][:0]  # nothing to itself
    return messages


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
