"""Watchdogs on a network and in a time that are simulated, so that tests of them depend on no
machine's speed.
"""

import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from train.ranks.watchdog import Watchdog

Address = tuple[str, int]
READ_S = 1e-4  # that it takes to read a datagram of a flood


class Node:
    """Clock and UDP socket of one process. Its time goes on while it waits."""

    def __init__(self, network: "Network", number: int) -> None:
        self.network = network
        self.address = (f"node {number}", 1)
        self.now = network.now
        self.timeout_s = 0.0
        self.received: deque[tuple[bytes, Address]] = deque()  # (datagram, sender's address)
        self.flood: Callable[[], bytes] | None = (
            None  # a function of no arguments that makes datagrams without end
        )
        self.watchdog: Any = None

    # ---- The clock, as the module `time`

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.network.advance(seconds)

    # ---- The socket

    def settimeout(self, seconds: float) -> None:
        self.timeout_s = seconds

    def sendto(self, data: bytes, address: Address) -> None:
        receiver = self.network.nodes[address]
        if not receiver.flood:  # in a flood it is lost
            receiver.received.append((data, self.address))

    def recvfrom(self, size: int) -> tuple[bytes, Address]:
        if self.flood:
            self.received.append((self.flood(), ("stranger", 1)))
            self.now += READ_S
        if not self.received:
            self.now += self.timeout_s
            raise TimeoutError
        data, sender = self.received.popleft()
        return data[:size], sender

    # ---- The event that ends a watchdog

    closed = False

    def set(self) -> None:
        self.closed = True

    def is_set(self) -> bool:
        return self.closed

    def wait(self, seconds: float) -> None:
        self.now += seconds


class Network:
    """Nodes whose watchdogs take turns, interval by interval."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.nodes: dict[Address, Node] = {}

    def node(self) -> Node:
        node = Node(self, len(self.nodes))
        self.nodes[node.address] = node
        return node

    def watchdogs(
        self, ranks: int, warning_s: float, radix: int = 0
    ) -> tuple[list[Watchdog], list[list[str]]]:
        """The watchdogs of ranks and the messages that each would end with; heartbeats every
        0.05 s.
        """
        nodes = [self.node() for _ in range(ranks)]
        messages: list[list[str]] = [[] for _ in nodes]
        hosts = [chr(ord("a") + rank) for rank in range(ranks)]
        key = bytes(range(32))
        for rank, node in enumerate(nodes):
            parent = nodes[max(0, rank - 1) // radix if radix else 0]
            node.watchdog = Watchdog(
                rank,
                hosts,
                cast(socket.socket, node),
                [parent.address],
                key,
                warning_s,
                messages[rank].append,
                0.05,
                radix,
                node,
            )
            node.watchdog.closing = node
        return [node.watchdog for node in nodes], messages

    def advance(self, seconds: float) -> None:
        """Runs all watchdogs that are not closed, the one that is behind first."""
        self.now += seconds
        while behind := [
            n for n in self.nodes.values() if n.watchdog and not n.closed and n.now < self.now
        ]:
            min(behind, key=lambda node: node.now).watchdog.run_interval()
        for node in self.nodes.values():
            node.now = max(node.now, self.now)

    def advance_until(self, condition: Callable[[], bool], limit_s: float = 20.0) -> None:
        until = self.now + limit_s
        while not condition():
            assert self.now < until
            self.advance(0.02)
