"""Bytes by name from one rank to another over TCP, beside Horovod.

Horovod's operations must be in the same order on all ranks and wait for all of them. A rank that
reads ahead asks for what it needs when it needs it, in threads of its own, while the step runs.
Connections are made at the first request.

Anyone on the network can connect. A connection is closed unless it answers a random challenge with
a code that only a rank of this job can make. Every reply has a digest of its bytes.
"""

import hashlib
import hmac
import secrets
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

import xxhash

from namsa.base.arrays import Buffer
from namsa.base.errors import InputError, WorkError

from .datagrams import look_up, outgoing_address
from .interface import Ranks

_KEY_BYTES = 32
_HANDSHAKE_S = 10.0
_LONGEST_NAME = 2**16
_NAME = struct.Struct("!I")  # length of the name
# whether it is what was asked for, and not an error's text; bytes; their xxh3_128 digest
_REPLY = struct.Struct("!?Q16s")


class Peers:
    """Gives bytes to the other ranks, and fetches theirs. Several threads may fetch at once.

    Collective: all ranks make one together. Close it when no rank needs it any more.

    Args:
        serve: Returns the bytes of a name, in threads of its own.
    """

    def __init__(self, ranks: Ranks, serve: Callable[[str], Buffer]) -> None:
        self._serve = serve
        self._listener = socket.create_server(("", 0), backlog=128)
        contact = {
            "host": socket.gethostname(),
            "address": outgoing_address(),
            "port": self._listener.getsockname()[1],
        }
        self._peers = ranks.gather_json(
            contact | {"key": secrets.token_hex(_KEY_BYTES) if ranks.rank() == 0 else ""}
        )
        self._key = bytes.fromhex(self._peers[0]["key"])
        self._host = contact["host"]
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        self._connections: dict[int, socket.socket] = {}
        self._accepted: set[socket.socket] = set()
        self.received_bytes = 0
        threading.Thread(target=self._accept, name="peers", daemon=True).start()

    def close(self) -> None:
        """Ends all connections."""
        for end in (self._listener, *self._connections.values(), *self._accepted):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def fetch(self, rank: int, name: str) -> bytearray:
        """Returns what another rank serves under a name. Raises WorkError if it cannot, or no
        longer answers.
        """
        with self._locks[rank]:
            try:
                if rank not in self._connections:
                    self._connections[rank] = self._connect(rank)
                connection = self._connections[rank]
                encoded = name.encode()
                connection.sendall(_NAME.pack(len(encoded)) + encoded)
                served, size, digest = _REPLY.unpack(_receive(connection, _REPLY.size))
                content = _receive(connection, size)
            except (OSError, EOFError) as error:
                raise WorkError(
                    f"rank {rank} on {self._peers[rank]['host']} does not answer ({error})"
                ) from None
            self.received_bytes += size
        if not served:
            raise WorkError(f"rank {rank}: {content.decode(errors='replace')}")
        if xxhash.xxh3_128_digest(content) != digest:
            raise WorkError(f"what rank {rank} sent of {name} has changed on its way: run again")
        return content

    def _connect(self, rank: int) -> socket.socket:
        peer = self._peers[rank]
        if peer["host"] == self._host:
            addresses = ["127.0.0.1"]
        else:
            addresses = [look_up(peer["host"]), peer["address"]]
        for index, address in enumerate(addresses):
            try:
                connection = socket.create_connection((address, peer["port"]), timeout=_HANDSHAKE_S)
                connection.sendall(self._code(_receive(connection, _KEY_BYTES)))
            except (OSError, EOFError):
                if index == len(addresses) - 1:
                    raise
                continue
            break
        # a slow disk may take long; a rank that ends closes its connections
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(
                    target=self._answer, args=(connection,), name="peer", daemon=True
                ).start()

    def _answer(self, connection: socket.socket) -> None:
        """Serves one connection until its other end closes it."""
        with connection, suppress(OSError, EOFError):
            challenge = secrets.token_bytes(_KEY_BYTES)
            connection.settimeout(_HANDSHAKE_S)
            connection.sendall(challenge)
            if not hmac.compare_digest(_receive(connection, _KEY_BYTES), self._code(challenge)):
                return
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accepted.add(connection)
            while True:
                (length,) = _NAME.unpack(_receive(connection, _NAME.size))
                if length > _LONGEST_NAME:
                    return
                name = _receive(connection, length).decode()
                served = True
                content: Buffer
                try:
                    content = self._serve(name)
                except (InputError, WorkError, MemoryError, OSError) as error:
                    content = str(error).encode()
                    served = False
                connection.sendall(
                    _REPLY.pack(served, len(content), xxhash.xxh3_128_digest(content))
                )
                connection.sendall(content)

    def _code(self, challenge: Buffer) -> bytes:
        return hashlib.blake2b(challenge, key=self._key, digest_size=_KEY_BYTES).digest()


def _receive(connection: socket.socket, size: int) -> bytearray:
    """Returns the next `size` bytes. Raises EOFError if the other end closes the connection
    before.
    """
    content = bytearray(size)
    view = memoryview(content)
    done = 0
    while done < size:
        count = connection.recv_into(view[done:])
        if not count:
            raise EOFError("it has closed the connection")
        done += count
    return content
