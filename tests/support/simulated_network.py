"""Watchdogs on a network and in a time that are simulated, so that tests of them depend on no machine's speed."""

from collections import deque

from train.ranks.watchdog import Watchdog

READ_S = 1e-4  # that it takes to read a datagram of a flood


class Node:
    """Clock and UDP socket of one process. Its time goes on while it waits."""

    def __init__(self, network, number):
        self.network, self.address = network, (f"node {number}", 1)
        self.now, self.timeout_s = network.now, 0.0
        self.received = deque()  # (datagram, sender's address)
        self.flood = None  # a function of no arguments that makes datagrams without end
        self.watchdog = None

    # ---- The clock, as the module `time`

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.network.advance(seconds)

    # ---- The socket

    def settimeout(self, seconds):
        self.timeout_s = seconds

    def sendto(self, data, address):
        receiver = self.network.nodes[address]
        if not receiver.flood:  # in a flood it is lost
            receiver.received.append((data, self.address))

    def recvfrom(self, size):
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

    def set(self):
        self.closed = True

    def is_set(self):
        return self.closed

    def wait(self, seconds):
        self.now += seconds


class Network:
    """Nodes whose watchdogs take turns, interval by interval."""

    def __init__(self):
        self.now = 1000.0
        self.nodes = {}

    def node(self):
        node = Node(self, len(self.nodes))
        self.nodes[node.address] = node
        return node

    def watchdogs(self, ranks, warning_s, radix=0):
        """The watchdogs of ranks and the messages that each would end with; signs of life every 0.05 s."""
        nodes = [self.node() for _ in range(ranks)]
        messages = [[] for _ in nodes]
        hosts, key = [chr(ord("a") + rank) for rank in range(ranks)], bytes(range(32))
        for rank, node in enumerate(nodes):
            parent = nodes[max(0, rank - 1) // radix if radix else 0]
            node.watchdog = Watchdog(
                rank, hosts, node, [parent.address], key, warning_s, messages[rank].append, 0.05, radix, node
            )
            node.watchdog.closing = node
        return [node.watchdog for node in nodes], messages

    def advance(self, seconds):
        """Runs all watchdogs that are not closed, the one that is behind first."""
        self.now += seconds
        while behind := [n for n in self.nodes.values() if n.watchdog and not n.closed and n.now < self.now]:
            min(behind, key=lambda node: node.now).watchdog.run_interval()
        for node in self.nodes.values():
            node.now = max(node.now, self.now)

    def advance_until(self, condition, limit_s=20.0):
        until = self.now + limit_s
        while not condition():
            assert self.now < until
            self.advance(0.02)
