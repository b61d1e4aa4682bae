"""Finds the rank that has stalled. Under Gloo, Horovod's collectives wait for it forever and
without a message.

A thread of every rank sends its parent in a `Tree` the rank's step and phase in one UDP datagram
per second (less often if a rank has many children: at most 2000 arrive per second), and the parent
answers. With a datagram go the states of ranks below, of many ranks those that say most about a
stall, and with an answer that of rank 0. Rank 0 names the rank that stalls, first in a warning, and
after the limit in the message with which the job ends. If rank 0 is silent, the next rank reports
that. What is known by way of a silent rank counts as unknown.

Datagrams with a wrong key are dropped (`train.ranks.datagrams`). A flood of them takes a bounded
time per interval, and while it lasts no rank counts as silent, since the datagrams of the ranks
may be lost in it. A job that stalls then still ends, by the clock of the main thread.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import NoReturn, Protocol, TypeVar

from .datagrams import (
    FAILED,
    LARGEST_SIZE,
    LEFT,
    MOST_RELAYED,
    Codec,
    Datagram,
    Relayed,
    watch_tree,
)
from .stalls import IDLE, READING, STEPPING, RankState, describe, most_telling

Address = tuple[str, int]  # host, port
Batch = TypeVar("Batch")

# a job in which a rank makes no progress for this many times `stall_warning_s` is ended
STALL_LIMIT = 10
DATAGRAMS_PER_S = 2000  # that reach a rank
# without a datagram, after which a rank counts as silent; one more for each rank that relays it
SILENT_INTERVALS = 4
LOST_INTERVALS = 2.5  # the same after a collective failed because a rank has ended
SPARE_DATAGRAMS = 100  # that are read per interval, beyond four per neighbour in the tree
# of an interval between the datagrams of ranks that follow each other, so that a parent's are apart
SPREAD = 0.618034


class Clock(Protocol):
    """The functions of the module `time` that a watchdog uses."""

    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


class Watchdog:
    """The watchdog of one rank, which `start` runs in a thread.

    Attributes:
        state: Of this rank's main thread.
        others: The states of the parent, of rank 0, and of those ranks below that were heard or
            whose state a child relayed.
        failed: Whether another rank has reported that it fails, and will report the reason itself.
        flooded: Whether more datagrams than the job sends have ever arrived in an interval.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[str],
        udp_socket: socket.socket,  # a bound UDP socket
        server: Sequence[Address],  # addresses at which the parent may be reached
        key: bytes,  # of this job, random; see `train.ranks.datagrams`
        warning_s: float,  # see `train.ranks.watching.watch`
        # Called with the message that the job ends with; does not return. By default, it ends the
        # process.
        end: Callable[[str], object] | None = None,
        interval_s: float = 1.0,  # time between two datagrams
        radix: int = 0,  # see `train.ranks.watching.watch`
        clock: Clock = time,  # tests simulate time
    ) -> None:
        """Prepares a watchdog that sends nothing yet."""
        self.rank = rank
        self.hosts = hosts
        self.socket = udp_socket
        self.server = server
        self.codec = Codec(key, rank, len(hosts))
        self.tree = watch_tree(len(hosts), radix)
        self.parent, self.children = self.tree.parent(rank), self.tree.children(rank)
        self.interval_s = max(interval_s, (1 + len(self.tree.children(0))) / DATAGRAMS_PER_S)
        relays = max(0, self.tree.depth() - 1)
        self.silent_s, self.lost_s = (
            (n + relays) * self.interval_s for n in (SILENT_INTERVALS, LOST_INTERVALS)
        )
        # Rank 0 knows more, so it reports first. The others take turns, so that only one reports.
        turn_s = 2 * self.interval_s + min(rank, 10) if rank else 0.0
        self.warning_s = warning_s
        self.limit_s = STALL_LIMIT * warning_s + turn_s
        self.end = end or _end
        self.clock = clock
        self.interval_ended = now = clock.monotonic()
        self.state = RankState(0, IDLE, now, now)
        self.restarted = now
        self.others: dict[int, RankState] = {}
        self.relayed_by_child: dict[int, list[int]] = {}  # ranks in the last datagram of each child
        self.answering: Address | None = None  # that of `server` at which the parent was reached
        self.child_addresses: dict[int, Address] = {}  # the sender's of each child's last datagram
        self.warned = self.failed = self.flooded = False
        self.closing = threading.Event()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread."""
        # The first interval ends early on each rank by another part of it: its datagrams do not
        # arrive together.
        self.interval_ended = self.clock.monotonic() - self.interval_s * (self.rank * SPREAD % 1)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def enter(self, step: int, phase: int) -> None:
        """Records that this rank's main thread enters `phase` of the job's step number `step`."""
        now = self.clock.monotonic()
        self.state = RankState(step, phase, now, now)

    def follow(
        self, batches: Iterator[Batch], first_step: int, per_step: int = 1
    ) -> Iterator[Batch]:
        """Yields `batches`, `per_step` a step from number `first_step` on, and records when each is
        read and used.
        """
        for batch_index in count():
            step = first_step + batch_index // per_step
            self.enter(step, READING)
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.enter(step, STEPPING)
            yield batch

    def describe_lost_rank(self) -> str | None:
        """Returns, after a collective failed, a line about the rank that is silent and gave no
        reason: on rank 0 about another, on rank 1 about rank 0.

        It waits for a few intervals. `None` if no rank is silent.
        """
        if self.rank:
            return self._describe_lost_root()
        until = self.clock.monotonic() + self.lost_s + 2 * self.interval_s
        while (now := self.clock.monotonic()) < until and not self.failed:
            known = self._known(now, self.lost_s)
            if any(now - state.heard > self.lost_s for state in known.values()):
                return describe(known, self.hosts, now, self.lost_s, "died")
            self.clock.sleep(0.05)
        return None

    def _describe_lost_root(self) -> str | None:
        """Returns a line about rank 0 if nothing has been heard of it since a collective failed.

        Rank 0 is heard for `lost_s` at least when it is there, since it looks for another.
        """
        heard_by = self.clock.monotonic() + self.interval_s
        self.clock.sleep(self.lost_s + self.interval_s)
        now = self.clock.monotonic()
        root = self.others.get(0)
        if self.failed or root is None or root.heard > heard_by:
            return None
        return describe({0: root}, self.hosts, now, self.lost_s, "died")

    def close(self, farewell: int | None = None) -> None:
        """Ends the thread, and says why: `LEFT` to the parent, `FAILED` to all neighbours, or
        nothing.
        """
        self.closing.set()
        if self.thread:
            self.thread.join()
        if farewell is not None:
            self._send(farewell)
        if farewell == FAILED:
            self._tell_children_of_failure()

    # ---- The thread

    def _run(self) -> None:
        while not self.closing.is_set():
            self.run_interval()

    def run_interval(self) -> None:
        """Sends, listens and judges: what the thread does in each interval."""
        self._send(self.state.phase)
        flooded = self._listen(self.interval_ended + self.interval_s)
        now = self.clock.monotonic()
        # this process was stopped itself, so no rank is late
        if now - self.interval_ended > self.silent_s:
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
            with suppress(
                OSError
            ):  # unknown or out of reach: the parent will find this rank silent
                self.socket.sendto(data, address)

    def _tell_children_of_failure(self) -> None:
        """Sends the children that a rank fails: none of them has to look for a lost one."""
        for child, address in self.child_addresses.items():
            with suppress(OSError):  # then it reports that this rank is silent
                data = self.codec.encode(child, self.state.step, FAILED)
                self.socket.sendto(data, address)

    def _relay(self) -> list[Relayed]:
        """Returns what is known of the ranks below; of many ranks, of those that say most about a
        stall.
        """
        now = self.clock.monotonic()
        below = {
            rank: state
            for rank, state in self.others.items()
            if self.rank in self.tree.ancestors(rank)
        }
        relayed_ranks = most_telling(below, now, self.silent_s, MOST_RELAYED)
        return [_relayed(rank, below[rank], now) for rank in relayed_ranks]

    def _listen(self, until: float) -> bool:
        """Receives datagrams until the time `until`; returns whether there were too many to read
        them all.
        """
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
        now = self.clock.monotonic()
        rank = datagram.sender
        if rank != self.parent and rank not in self.children:
            return
        if datagram.content == FAILED:
            if not self.failed:
                self.failed = True  # the rank that fails reports the reason itself
                self._send(FAILED)
                self._tell_children_of_failure()
            return
        if rank == self.parent:
            self.answering = sender if sender in self.server else None
        else:
            self.child_addresses[rank] = sender
            # A child relays all states that matter each time.
            for other_rank in self.relayed_by_child.pop(rank, ()):
                self.others.pop(other_rank, None)
            if datagram.content == LEFT:
                self.others.pop(rank, None)
                return
            root = []
            if 0 in self.others:
                root.append(_relayed(0, self.others[0], now))
            answer = self.codec.encode(rank, self.state.step, self.state.phase, root)
            self.socket.sendto(answer, sender)
            self.relayed_by_child[rank] = [other.rank for other in datagram.relayed]
        for other in datagram.relayed:
            self.others[other.rank] = RankState(
                other.step, other.phase, now - other.since_s, now - other.heard_s
            )
        step = datagram.step
        phase = datagram.content
        since = now
        previous = self.others.get(rank)
        if previous is not None and (previous.step, previous.phase) == (step, phase):
            since = previous.since
        self.others[rank] = RankState(step, phase, since, now)

    def _known(self, now: float, silent_s: float) -> dict[int, RankState]:
        """Returns the states of other ranks without those that a silent rank relayed
        itself.
        """
        others = self.others.copy()
        silent = {rank for rank, state in others.items() if now - state.heard > silent_s}
        return {
            rank: state for rank, state in others.items() if silent.isdisjoint(self._relays(rank))
        }

    def _relays(self, rank: int) -> list[int]:
        """Returns the ranks that pass on to this one what it knows of `rank`, as far as it knows
        them.
        """
        above = self.tree.ancestors(rank)
        if self.rank in above:
            return above[: above.index(self.rank)]
        return [] if self.parent in (rank, None) else [self.parent]

    def _excuse_silence(self, now: float) -> None:
        """Counts all ranks as heard, and warns once: what they sent may be lost among the datagrams
        of others.
        """
        self.others = {rank: replace(state, heard=now) for rank, state in self.others.items()}
        if not self.flooded:
            self.flooded = True
            print(
                f"warning: the watchdog of rank {self.rank} on {self.hosts[self.rank]} gets more "
                "datagrams than its job sends: while that lasts, silent ranks are not found",
                file=sys.stderr,
                flush=True,
            )

    def _restart_clocks(self, now: float) -> None:
        """Counts all times from `now` on."""
        self.restarted = now
        self.others = {
            rank: replace(state, since=now, heard=now) for rank, state in self.others.items()
        }

    def _judge(self, now: float) -> None:
        """Warns, or ends the job, if a rank has stalled."""
        own_state = replace(self.state, heard=now)
        stuck_s = 0.0 if own_state.phase == IDLE else now - max(own_state.since, self.restarted)
        known = self._known(now, self.silent_s)
        waited_s = max(stuck_s, *(now - state.heard for state in known.values()), 0.0)
        if waited_s <= self.warning_s:
            self.warned = False
            return
        text = describe(known | {self.rank: own_state}, self.hosts, now, self.silent_s)
        if waited_s > self.limit_s:
            self.end(
                f"error: {text}: the job ends (the limit is {STALL_LIMIT} × "
                "training.ranks.stall_warning_s)"
            )
        elif self.rank == 0 and not self.warned:
            self.warned = True
            print(f"warning: {text}", file=sys.stderr, flush=True)


def _relayed(rank: int, state: RankState, now: float) -> Relayed:
    return Relayed(rank, state.step, state.phase, now - state.since, now - state.heard)


def _end(message: str) -> NoReturn:
    """Ends the process: the main thread cannot be woken from a collective."""
    print(message, file=sys.stderr, flush=True)
    os._exit(1)
