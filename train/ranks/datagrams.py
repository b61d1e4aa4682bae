"""Datagrams of the watchdog: of one size, numbered, and authenticated with a key of the job.

Anyone on the network can send to the watchdog's port. A datagram counts only if its code shows that a rank of this job
has made it for this rank, and if its number shows that it is none that was received before. All others are dropped
after one comparison.
"""

import hashlib
import hmac
import struct
from typing import NamedTuple

from train.ranks.stalls import IDLE

LEFT, FAILED = IDLE + 1, IDLE + 2  # contents beside the phases of a step
KEY_BYTES = 32
_FIELDS = struct.Struct("!IIQqB")  # as `Datagram`
_CODE_BYTES = 16
SIZE = _FIELDS.size + _CODE_BYTES


class Datagram(NamedTuple):
    """What one rank tells another.

    Attributes:
        sender: The rank that sends it.
        receiver: The rank that it is for.
        number: Number among the datagrams of its sender, from 1.
        step: Number of the step in the job.
        content: Phase of the step (see `train.ranks.stalls`), `LEFT` or `FAILED`.
    """

    sender: int
    receiver: int
    number: int
    step: int
    content: int


class Codec:
    """Makes and checks the datagrams of one rank.

    Args:
        key: Of the job, at least `KEY_BYTES` of random bytes.
        rank: Number of this rank.
        ranks: Number of ranks.
    """

    def __init__(self, key: bytes, rank: int, ranks: int) -> None:
        self._key, self._rank, self._ranks = key, rank, ranks
        self._sent = 0
        self._received: dict[int, int] = {}  # number of the newest datagram of each rank

    def encode(self, receiver: int, step: int, content: int) -> bytes:
        """Returns a new datagram for the rank `receiver`."""
        self._sent += 1
        fields = _FIELDS.pack(self._rank, receiver, self._sent, step, content)
        return fields + self._code(fields)

    def decode(self, data: bytes) -> Datagram | None:
        """Returns a received datagram; `None` if it is forged, damaged, old or for another rank."""
        if len(data) != SIZE:
            return None
        fields = data[: _FIELDS.size]
        if not hmac.compare_digest(self._code(fields), data[_FIELDS.size :]):
            return None
        datagram = Datagram(*_FIELDS.unpack(fields))
        expected = datagram.receiver == self._rank != datagram.sender < self._ranks and datagram.content <= FAILED
        if not expected or datagram.number <= self._received.get(datagram.sender, 0):
            return None
        self._received[datagram.sender] = datagram.number
        return datagram

    def _code(self, fields: bytes) -> bytes:
        """Returns the authentication code of `fields` (BLAKE2 with a key, RFC 7693)."""
        return hashlib.blake2b(fields, key=self._key, digest_size=_CODE_BYTES).digest()
