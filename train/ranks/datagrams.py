"""Datagrams of the watchdog: small, numbered, and authenticated with a key of the job.

Anyone on the network can send to the watchdog's port. A datagram counts only if its code shows that a rank of this job
has made it for this rank, and if its number shows that it is none that was received before. All others are dropped
after one comparison.
"""

import hashlib
import hmac
import struct
from collections.abc import Iterable
from typing import NamedTuple

from .stalls import IDLE

LEFT, FAILED = IDLE + 1, IDLE + 2  # contents beside the phases of a step
KEY_BYTES = 32
_FIELDS = struct.Struct("!IIQqB")  # as `Datagram`
_RELAYED = struct.Struct("!IqBff")  # as `Relayed`
_CODE_BYTES = 16
SIZE = _FIELDS.size + _CODE_BYTES  # without what is relayed
MOST_RELAYED = 60  # so that a datagram fits into one packet of a network
LARGEST_SIZE = SIZE + MOST_RELAYED * _RELAYED.size


class Relayed(NamedTuple):
    """What a rank passes on about another one."""

    rank: int  # the other rank
    step: int  # number of its step in the job
    phase: int  # phase of its step
    since_s: float  # time that it has been in the phase, s
    heard_s: float  # time since it was heard, s


class Datagram(NamedTuple):
    """What one rank tells another."""

    sender: int  # the rank that sends it
    receiver: int  # the rank that it is for
    number: int  # number among the datagrams of its sender, from 1
    step: int  # number of the step in the job
    content: int  # phase of the step (see `train.ranks.stalls`), `LEFT` or `FAILED`
    relayed: tuple[Relayed, ...] = ()  # what the sender knows of other ranks, at most `MOST_RELAYED`


class Codec:
    """Makes and checks the datagrams of one rank.

    Args:
        key: Of the job, at least `KEY_BYTES` of random bytes.
    """

    def __init__(self, key: bytes, rank: int, ranks: int) -> None:
        self._key, self._rank, self._ranks = key, rank, ranks
        self._sent = 0
        self._received: dict[int, int] = {}  # number of the newest datagram of each rank

    def encode(self, receiver: int, step: int, content: int, relayed: Iterable[Relayed] = ()) -> bytes:
        """Returns a new datagram for the rank `receiver`."""
        self._sent += 1
        fields = _FIELDS.pack(self._rank, receiver, self._sent, step, content)
        fields += b"".join(_RELAYED.pack(*other) for other in relayed)
        return fields + self._code(fields)

    def decode(self, data: bytes) -> Datagram | None:
        """Returns a received datagram; `None` if it is forged, damaged, old or for another rank."""
        if not SIZE <= len(data) <= LARGEST_SIZE or (len(data) - SIZE) % _RELAYED.size:
            return None
        fields, code = data[:-_CODE_BYTES], data[-_CODE_BYTES:]
        if not hmac.compare_digest(self._code(fields), code):
            return None
        relayed = tuple(Relayed(*other) for other in _RELAYED.iter_unpack(fields[_FIELDS.size :]))
        datagram = Datagram(*_FIELDS.unpack_from(fields))._replace(relayed=relayed)
        expected = datagram.receiver == self._rank != datagram.sender < self._ranks and datagram.content <= FAILED
        expected = expected and all(other.rank < self._ranks and other.phase <= IDLE for other in relayed)
        if not expected or datagram.number <= self._received.get(datagram.sender, 0):
            return None
        self._received[datagram.sender] = datagram.number
        return datagram

    def _code(self, fields: bytes) -> bytes:
        """Returns the authentication code of `fields` (BLAKE2 with a key, RFC 7693)."""
        return hashlib.blake2b(fields, key=self._key, digest_size=_CODE_BYTES).digest()
