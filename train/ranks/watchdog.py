"""Finds the rank that has stalled. Under Gloo, Horovod's collectives wait for it forever and without a message.

A thread of every rank sends its parent in a `Tree` the rank's step and phase in one UDP datagram per second (less often
if a rank has many children: at most 2000 arrive per second), and the parent answers. With a datagram go the states of
ranks below, of many ranks those that say most about a stall, and with an answer that of rank 0. Rank 0 names the rank
that stalls, first in a warning, and after the limit in the message with which the job ends. If rank 0 is silent, the
next rank reports that. What is known by way of a silent rank counts as unknown.

Datagrams of strangers are dropped (`train.ranks.datagrams`). A flood of them takes a bounded time per interval, and
while it lasts no rank counts as silent, since the datagrams of the ranks may be lost in it. A job that stalls then
still ends, by the clock of the main thread.
"""

import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any, NoReturn

from .datagrams import (
    FAILED,
    KEY_BYTES,
    LARGEST_SIZE,
    LEFT,
    MOST_RELAYED,
    Codec,
    Datagram,
    Relayed,
    look_up,
    outgoing_address,
    watch_tree,
)
from .protocol import Ranks
from .stalls import IDLE, READING, STEPPING, RankState, describe, most_telling

Address = tuple[str, int]  # host, port

STALL_LIMIT = 10  # a job in which a rank makes no progress for this many times `stall_warning_s` is ended
DATAGRAMS_PER_S = 2000  # that reach a rank
RECEIVE_BUFFER_BYTES = 4 * 2**20  # for the datagrams that arrive while the process computes
SILENT_INTERVALS = 4  # without a datagram, after which a rank counts as silent; one more for each rank that relays it
LOST_INTERVALS = 2.5  # the same after a collective failed because a rank has ended
SPARE_DATAGRAMS = 100  # that are read per interval, beyond four per neighbour in the tree
SPREAD = 0.618034  # of an interval between the datagrams of ranks that follow each other, so that a parent's are apart


@contextmanager
def watch(ranks: Ranks, warning_s: float, radix: int = 0) -> Iterator["Watchdog"]:
    """Yields a watchdog that runs inside the context. Collective: all ranks enter it together.

    Args:
        warning_s: Time without progress after which rank 0 warns; the job ends after `STALL_LIMIT` times that.
        radix: Children per rank of the tree; 0: see `watch_tree`.
    """
    rank, host = ranks.rank(), socket.gethostname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp_socket:
        udp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)  # or what the system allows
        udp_socket.bind(("", 0))
        port, key = udp_socket.getsockname()[1], secrets.token_hex(KEY_BYTES)
        own = {"host": host, "address": outgoing_address(), "port": port}
        gathered = ranks.gather_json(own if rank else own | {"key": key})
        parent = gathered[watch_tree(len(gathered), radix).parent(rank) or 0]
        addresses = {"127.0.0.1"} if parent["host"] == host else {look_up(parent["host"]), parent["address"]}
        watchdog = Watchdog(
            rank,
            [other["host"] for other in gathered],
            udp_socket,
            [(address, parent["port"]) for address in addresses],
            bytes.fromhex(gathered[0]["key"]),
            warning_s,
            radix=radix,
        )
        watchdog.start()
        try:
            yield watchdog
        except BaseException as error:
            lost = isinstance(error, Exception) and ranks.lost_another_rank(error)
            if lost and rank == 0 and (text := watchdog.describe_lost_rank()):
                print(f"error: {text}", file=sys.stderr, flush=True)
            # Without a farewell: a rank that others still wait for must be missed.
            watchdog.close(None if lost else FAILED)
            raise
        watchdog.close(LEFT)


class Watchdog:
    """The watchdog of one rank, which `start` runs in a thread.

    Attributes:
        state: Of this rank's main thread.
        others: The states of the parent, of rank 0, and of those ranks below that were heard or that a child told of.
        failed: Whether a rank below has said that it fails, and will report the reason itself.
        flooded: Whether more datagrams than the job sends have ever arrived in an interval.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[str],
        udp_socket: socket.socket,  # a bound UDP socket
        server: Sequence[Address],  # addresses at which the parent may be reached
        key: bytes,  # of this job, random; see `train.ranks.datagrams`
        warning_s: float,  # see `watch`
        # Called with the message that the job ends with; does not return. By default, it ends the process.
        end: Callable[[str], Any] | None = None,
        interval_s: float = 1.0,  # time between two datagrams
        radix: int = 0,  # see `watch`
        clock: Any = time,  # has `monotonic` and `sleep`; tests simulate time
    ) -> None:
        """Prepares a watchdog that sends nothing yet."""
        self.rank, self.hosts, self.socket, self.server = rank, hosts, udp_socket, server
        self.codec = Codec(key, rank, len(hosts))
        self.tree = watch_tree(len(hosts), radix)
        self.parent, self.children = self.tree.parent(rank), self.tree.children(rank)
        self.interval_s = max(interval_s, (1 + len(self.tree.children(0))) / DATAGRAMS_PER_S)
        relays = max(0, self.tree.depth() - 1)
        self.silent_s, self.lost_s = ((n + relays) * self.interval_s for n in (SILENT_INTERVALS, LOST_INTERVALS))
        # Rank 0 knows more, so it reports first. The others take turns, so that only one reports.
        turn_s = 2 * self.interval_s + min(rank, 10) if rank else 0.0
        self.warning_s, self.limit_s = warning_s, STALL_LIMIT * warning_s + turn_s
        self.end, self.clock = end or _end, clock
        self.interval_ended = now = clock.monotonic()
        self.state, self.restarted = RankState(0, IDLE, now, now), now
        self.others: dict[int, RankState] = {}
        self.told: dict[int, list[int]] = {}  # by child, the ranks of which its last datagram told
        self.answering: Address | None = None  # that of `server` at which the parent was reached
        self.warned = self.failed = self.flooded = False
        self.closing = threading.Event()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread."""
        # The first interval ends early on each rank by another part of it: its datagrams do not arrive together.
        self.interval_ended = self.clock.monotonic() - self.interval_s * (self.rank * SPREAD % 1)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def enter(self, step: int, phase: int) -> None:
        """Records that this rank's main thread enters `phase` of the job's step number `step`."""
        now = self.clock.monotonic()
        self.state = RankState(step, phase, now, now)

    def follow(self, batches: Iterator[Any], first_step: int, per_step: int = 1) -> Iterator[Any]:
        """Yields `batches`, `per_step` a step from number `first_step` on, and records when each is read and used."""
        for number in count():
            step = first_step + number // per_step
            self.enter(step, READING)
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.enter(step, STEPPING)
            yield batch

    def describe_lost_rank(self) -> str | None:
        """Returns, on rank 0 after a collective failed, a line about the rank that is silent and gave no reason.

        It waits for a few intervals. `None` if no rank is silent.
        """
        until = self.clock.monotonic() + self.lost_s + 2 * self.interval_s
        while (now := self.clock.monotonic()) < until and not self.failed:
            known = self._known(now, self.lost_s)
            if any(now - state.heard > self.lost_s for state in known.values()):
                return describe(known, self.hosts, now, self.lost_s, "died")
            self.clock.sleep(0.05)
        return None

    def close(self, farewell: int | None = None) -> None:
        """Ends the thread and sends the parent the `farewell`: `LEFT`, `FAILED` or none."""
        self.closing.set()
        if self.thread:
            self.thread.join()
        if farewell is not None:
            self._send(farewell)

    # ---- The thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self.closing.is_set():
            self.run_interval()

    def run_interval(self) -> None:
        """Sends, listens and judges: what the thread does in each interval."""
        self._send(self.state.phase)
        flooded = self._listen(self.interval_ended + self.interval_s)
        now = self.clock.monotonic()
        if now - self.interval_ended > self.silent_s:  # this process was stopped itself, so no rank is late
            self._restart_clocks(now)
        elif flooded:
            self._excuse_silence(now)
        self.interval_ended = now
        self._judge(now)

    def _send(self, content: int) -> None:
        """Sends the parent the step with `content`, and what is known of ranks below."""
        if self.parent is None:
            return
        data = self.codec.encode(self.parent, self.state.step, content, self._relay())
        heard = self.others.get(self.parent)
        if heard and self.clock.monotonic() - heard.heard > self.silent_s:
            self.answering = None  # an address that answers no more may not be the right one
        for address in [self.answering] if self.answering else self.server:
            with suppress(OSError):  # unknown or out of reach: the parent will find this rank silent
                self.socket.sendto(data, address)

    def _relay(self) -> list[Relayed]:
        """Returns what is known of the ranks below; of many ranks, of those that say most about a stall."""
        now = self.clock.monotonic()
        below = {rank: state for rank, state in self.others.items() if self.rank in self.tree.ancestors(rank)}
        told = most_telling(below, now, self.silent_s, MOST_RELAYED)
        return [_relayed(rank, below[rank], now) for rank in told]

    def _listen(self, until: float) -> bool:
        """Receives datagrams until the time `until`; returns whether there were too many to read them all."""
        for _ in range(SPARE_DATAGRAMS + 4 * (len(self.children) + 1)):
            remaining = until - self.clock.monotonic()
            if remaining <= 0 or self.closing.is_set():
                return False
            self.socket.settimeout(min(remaining, 0.2))
            with suppress(OSError):  # no datagram in this time
                data, sender = self.socket.recvfrom(LARGEST_SIZE + 1)
                if datagram := self.codec.decode(data):
                    self._receive(datagram, sender)
        self.closing.wait(max(0.0, until - self.clock.monotonic()))
        return True

    def _receive(self, datagram: Datagram, sender: Address) -> None:
        """Records the states that a neighbour in the tree sends; a parent answers its children."""
        now, rank = self.clock.monotonic(), datagram.sender
        if rank == self.parent:
            self.answering = sender if sender in self.server else None
        elif rank not in self.children:
            return
        elif datagram.content == FAILED:
            self.failed = True  # it, or one below it, reports the reason itself
            self._send(FAILED)
            return
        else:
            for other_rank in self.told.pop(rank, ()):  # a child tells of all that matter each time
                self.others.pop(other_rank, None)
            if datagram.content == LEFT:
                self.others.pop(rank, None)
                return
            root = [_relayed(0, self.others[0], now)] if 0 in self.others else []
            self.socket.sendto(self.codec.encode(rank, self.state.step, self.state.phase, root), sender)
            self.told[rank] = [other.rank for other in datagram.relayed]
        for other in datagram.relayed:
            self.others[other.rank] = RankState(other.step, other.phase, now - other.since_s, now - other.heard_s)
        previous, step, phase = self.others.get(rank), datagram.step, datagram.content
        unmoved = previous is not None and (previous.step, previous.phase) == (step, phase)
        self.others[rank] = RankState(step, phase, previous.since if previous and unmoved else now, now)

    def _known(self, now: float, silent_s: float) -> dict[int, RankState]:
        """Returns the states of other ranks without those that a rank has told of which is silent itself."""
        others = self.others.copy()
        silent = {rank for rank, state in others.items() if now - state.heard > silent_s}
        return {rank: state for rank, state in others.items() if silent.isdisjoint(self._relays(rank))}

    def _relays(self, rank: int) -> list[int]:
        """Returns the ranks that pass on to this one what it knows of `rank`, as far as it knows them."""
        above = self.tree.ancestors(rank)
        if self.rank in above:
            return above[: above.index(self.rank)]
        return [] if self.parent in (rank, None) else [self.parent]

    def _excuse_silence(self, now: float) -> None:
        """Counts all ranks as heard, and warns once: what they sent may be lost among the datagrams of others."""
        self.others = {rank: replace(state, heard=now) for rank, state in self.others.items()}
        if not self.flooded:
            self.flooded = True
            text = f"the watchdog of rank {self.rank} on {self.hosts[self.rank]} gets more datagrams than its job sends"
            print(f"warning: {text}: while that lasts, silent ranks are not found", file=sys.stderr, flush=True)

    def _restart_clocks(self, now: float) -> None:
        """Counts all times from `now` on."""
        self.restarted = now
        self.others = {rank: replace(state, since=now, heard=now) for rank, state in self.others.items()}

    def _judge(self, now: float) -> None:
        """Warns, or ends the job, if a rank has stalled."""
        own = replace(self.state, heard=now)
        stuck_s = 0.0 if own.phase == IDLE else now - max(own.since, self.restarted)
        known = self._known(now, self.silent_s)
        waited_s = max(stuck_s, *(now - state.heard for state in known.values()), 0.0)
        if waited_s <= self.warning_s:
            self.warned = False
            return
        text = describe(known | {self.rank: own}, self.hosts, now, self.silent_s)
        if waited_s > self.limit_s:
            self.end(f"error: {text}: the job ends (the limit is {STALL_LIMIT} × training.ranks.stall_warning_s)")
        elif self.rank == 0 and not self.warned:
            self.warned = True
            print(f"warning: {text}", file=sys.stderr, flush=True)


def _relayed(rank: int, state: RankState, now: float) -> Relayed:
    return Relayed(rank, state.step, state.phase, now - state.since, now - state.heard)


def _end(message: str) -> NoReturn:
    """Ends the process: the main thread cannot be woken from a collective."""
    print(message, file=sys.stderr, flush=True)
    os._exit(1)
