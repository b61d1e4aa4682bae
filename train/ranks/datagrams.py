"""Datagrams of the watchdog, and the tree in which ranks pass them on. They are small, numbered,
and signed with a key.

Anyone on the network can send to the watchdog's port. A datagram counts only if its code shows that
a rank of this job has made it for this rank, and if its number shows that it is none that was
received before. All others are dropped after one comparison.
"""

import hashlib
import hmac
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from .stalls import IDLE

# up to which all ranks may be children of rank 0: it reads that many datagrams at any time
STAR_RANKS = 256
# of a tree of more ranks: 27,600 are three messages from the root, and a rank has few children
RADIX = 32


@dataclass(frozen=True)
class Tree:
    """The tree of radix r in which ranks pass messages on (Kurth et al. 2018, section V-A3).

    Rank 0 is the root. In a round every rank but the root sends its parent one message, and every
    parent sends each child one. So no rank sends or receives more than r + 1, and what a rank says
    reaches the root in at most log_r(number of ranks) + 1 rounds.
    """

    ranks: int  # number of ranks
    radix: int  # largest number of children of a rank, at least 1

    def parent(self, rank: int) -> int | None:
        """Returns the parent of `rank`; `None` for rank 0."""
        return (rank - 1) // self.radix if rank else None

    def children(self, rank: int) -> range:
        """Returns the children of rank k: the ranks r·k + 1 to r·k + r."""
        first_child = self.radix * rank + 1
        return range(min(first_child, self.ranks), min(first_child + self.radix, self.ranks))

    def ancestors(self, rank: int) -> list[int]:
        """Returns the ranks between `rank` and the root, its parent first and the root last."""
        above = []
        while (parent := self.parent(rank)) is not None:
            above.append(parent)
            rank = parent
        return above

    def depth(self) -> int:
        """Returns the largest number of messages between a rank and the root."""
        return len(self.ancestors(self.ranks - 1))


def watch_tree(ranks: int, radix: int) -> Tree:
    """Returns the tree of training.ranks.watchdog_radix; with 0, up to `STAR_RANKS` ranks are
    children of rank 0.
    """
    return Tree(ranks, radix or (max(1, ranks - 1) if ranks <= STAR_RANKS else RADIX))


def outgoing_address() -> str:
    """Returns this host's address for outgoing packets, for hosts that cannot look up its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def look_up(host: str) -> str:
    """Returns the address of `host`, or this host's own if the name is unknown."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "127.0.0.1"


# contents beside the phases of a step
LEFT = IDLE + 1
FAILED = IDLE + 2
KEY_BYTES = 32
_FIELDS = struct.Struct("!IIQqB")  # as `Datagram`
_RELAYED = struct.Struct("!IqBff")  # as `Relayed`
_CODE_BYTES = 16
SIZE = _FIELDS.size + _CODE_BYTES  # without what is relayed
MOST_RELAYED = 60  # so that a datagram fits into one packet of a network
LARGEST_SIZE = SIZE + MOST_RELAYED * _RELAYED.size


class Relayed(NamedTuple):
    """The state of another rank that a rank passes on."""

    rank: int  # the other rank
    step: int  # number of its step in the job
    phase: int  # phase of its step
    since_s: float  # time that it has been in the phase, s
    heard_s: float  # time since it was heard, s


class Datagram(NamedTuple):
    """A message of one rank to another."""

    sender: int  # the rank that sends it
    receiver: int  # the rank that it is for
    number: int  # number among the datagrams of its sender, from 1
    step: int  # number of the step in the job
    content: int  # phase of the step (see `train.ranks.stalls`), `LEFT` or `FAILED`
    # what the sender knows of other ranks, at most `MOST_RELAYED`
    relayed: tuple[Relayed, ...] = ()


class Codec:
    """Makes and checks the datagrams of one rank, by the job's key of at least `KEY_BYTES` random
    bytes.
    """

    def __init__(self, key: bytes, rank: int, ranks: int) -> None:
        self._key = key
        self._rank = rank
        self._ranks = ranks
        self._sent = 0
        self._received: dict[int, int] = {}  # number of the newest datagram of each rank

    def encode(
        self, receiver: int, step: int, content: int, relayed: Iterable[Relayed] = ()
    ) -> bytes:
        """Returns a new datagram for the rank `receiver`."""
        self._sent += 1
        fields = _FIELDS.pack(self._rank, receiver, self._sent, step, content)
        fields += b"".join(_RELAYED.pack(*other) for other in relayed)
        return fields + self._code(fields)

    def decode(self, data: bytes) -> Datagram | None:
        """Returns a received datagram; `None` if it is forged, damaged, old or for another rank."""
        if not SIZE <= len(data) <= LARGEST_SIZE or (len(data) - SIZE) % _RELAYED.size:
            return None
        fields = data[:-_CODE_BYTES]
        code = data[-_CODE_BYTES:]
        if not hmac.compare_digest(self._code(fields), code):
            return None
        relayed = tuple(Relayed(*other) for other in _RELAYED.iter_unpack(fields[_FIELDS.size :]))
        datagram = Datagram(*_FIELDS.unpack_from(fields))._replace(relayed=relayed)
        if datagram.receiver != self._rank or datagram.content > FAILED:
            return None
        if datagram.sender == self._rank or datagram.sender >= self._ranks:
            return None
        for other in relayed:
            if other.rank >= self._ranks or other.phase > IDLE:
                return None
        if datagram.number <= self._received.get(datagram.sender, 0):
            return None
        self._received[datagram.sender] = datagram.number
        return datagram

    def _code(self, fields: bytes) -> bytes:
        """Returns the authentication code of `fields` (BLAKE2 with a key, RFC 7693)."""
        return hashlib.blake2b(fields, key=self._key, digest_size=_CODE_BYTES).digest()
