"""Finds the rank that has stalled. Under Gloo, Horovod's collectives wait for it forever and without a message.

A thread of every rank sends rank 0 the rank's step and phase in one UDP datagram per second (less often if there are
many ranks: at most 2000 arrive per second), and rank 0 answers. Rank 0 names the rank that stalls, first in a warning,
and after the limit in the message with which the job ends. If rank 0 is silent, the next rank reports that.

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

from train.ranks.datagrams import FAILED, KEY_BYTES, LEFT, SIZE, Codec, Datagram
from train.ranks.protocol import Ranks
from train.ranks.stalls import IDLE, READING, STEPPING, RankState, describe

Address = tuple[str, int]  # host, port

STALL_LIMIT = 10  # a job in which a rank makes no progress for this many times `stall_warning_s` is ended
DATAGRAMS_PER_S = 2000  # that reach rank 0
SILENT_INTERVALS = 4  # without a datagram, after which a rank counts as silent
LOST_INTERVALS = 2.5  # the same after a collective failed because a rank has ended
SPARE_DATAGRAMS = 100  # that are read per interval, beyond four per rank


@contextmanager
def watch(ranks: Ranks, warning_s: float) -> Iterator["Watchdog"]:
    """Yields a watchdog that runs inside the context. Collective: all ranks enter it together.

    Args:
        ranks: `train.ranks.reduction`.
        warning_s: Time without progress after which rank 0 warns; the job ends after `STALL_LIMIT` times that.
    """
    rank, host = ranks.rank(), socket.gethostname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp_socket:
        udp_socket.bind(("", 0))
        port, key = udp_socket.getsockname()[1], secrets.token_hex(KEY_BYTES)
        server = {"host": host, "address": _outgoing_address(), "port": port, "key": key}
        gathered = ranks.gather_json(server if rank == 0 else {"host": host})
        first = gathered[0]
        addresses = {"127.0.0.1"} if first["host"] == host else {_look_up(first["host"]), first["address"]}
        watchdog = Watchdog(
            rank,
            [other["host"] for other in gathered],
            udp_socket,
            [(address, first["port"]) for address in addresses],
            bytes.fromhex(first["key"]),
            warning_s,
        )
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
    """The watchdog of one rank, which runs in a thread.

    Attributes:
        state: Of this rank's main thread.
        others: On rank 0 the states of all ranks that were ever heard, elsewhere that of rank 0.
        failed: On rank 0, whether a rank has said that it fails, and will report the reason itself.
        flooded: Whether more datagrams than the job sends have ever arrived in an interval.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[str],
        udp_socket: socket.socket,
        server: Sequence[Address],
        key: bytes,
        warning_s: float,
        end: Callable[[str], Any] | None = None,
        interval_s: float = 1.0,
    ) -> None:
        """Starts the thread.

        Args:
            rank: Number of this rank.
            hosts: The host of each rank.
            udp_socket: A bound UDP socket.
            server: Addresses at which rank 0 may be reached.
            key: Of this job, random; see `train.ranks.datagrams`.
            warning_s: See `watch`.
            end: Called with the message that the job ends with; does not return. By default, it ends the process.
            interval_s: Time between two datagrams.
        """
        self.rank, self.hosts, self.socket, self.server = rank, hosts, udp_socket, server
        self.codec = Codec(key, rank, len(hosts))
        self.interval_s = max(interval_s, len(hosts) / DATAGRAMS_PER_S)
        # Rank 0 knows more, so it reports first. The others take turns, so that only one reports.
        turn_s = 2 * self.interval_s + min(rank, 10) if rank else 0.0
        self.warning_s, self.limit_s = warning_s, STALL_LIMIT * warning_s + turn_s
        self.end = end or _end
        now = time.monotonic()
        self.state, self.restarted = RankState(0, IDLE, now, now), now
        self.others: dict[int, RankState] = {}
        self.answering: Address | None = None  # that of `server` at which rank 0 was reached
        self.warned = self.failed = self.flooded = False
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def enter(self, step: int, phase: int) -> None:
        """Records that this rank's main thread enters `phase` of the job's step number `step`."""
        now = time.monotonic()
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
        until = time.monotonic() + (LOST_INTERVALS + 2) * self.interval_s
        while (now := time.monotonic()) < until and not self.failed:
            if any(now - state.heard > LOST_INTERVALS * self.interval_s for state in self.others.values()):
                return describe(self.others, self.hosts, now, LOST_INTERVALS * self.interval_s, "died")
            time.sleep(0.05)
        return None

    def close(self, farewell: int | None = None) -> None:
        """Ends the thread and sends rank 0 the `farewell`: `LEFT`, `FAILED` or none."""
        self.closing.set()
        self.thread.join()
        if farewell is not None:
            self._send(farewell)

    # ---- The thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Sends, listens and judges, once per interval."""
        last = time.monotonic()
        while not self.closing.is_set():
            self._send(self.state.phase)
            flooded = self._listen(last + self.interval_s)
            now = time.monotonic()
            if now - last > SILENT_INTERVALS * self.interval_s:  # this process was stopped itself, so no rank is late
                self._restart_clocks(now)
            elif flooded:
                self._excuse_silence(now)
            last = now
            self._judge(now)

    def _send(self, content: int) -> None:
        """Sends rank 0 the step with `content`, from any other rank."""
        if not self.rank:
            return
        data = self.codec.encode(0, self.state.step, content)
        heard = self.others.get(0)
        if heard and time.monotonic() - heard.heard > SILENT_INTERVALS * self.interval_s:
            self.answering = None  # an address that answers no more may not be the right one
        for address in [self.answering] if self.answering else self.server:
            with suppress(OSError):  # unknown or out of reach: rank 0 will find this rank silent
                self.socket.sendto(data, address)

    def _listen(self, until: float) -> bool:
        """Receives datagrams until the time `until`; returns whether there were too many to read them all."""
        for _ in range(SPARE_DATAGRAMS + 4 * len(self.hosts)):
            remaining = until - time.monotonic()
            if remaining <= 0 or self.closing.is_set():
                return False
            self.socket.settimeout(min(remaining, 0.2))
            with suppress(OSError):  # no datagram in this time
                data, sender = self.socket.recvfrom(SIZE + 1)
                if datagram := self.codec.decode(data):
                    self._receive(datagram, sender)
        self.closing.wait(max(0.0, until - time.monotonic()))
        return True

    def _receive(self, datagram: Datagram, sender: Address) -> None:
        """Records the state of the rank that sent `datagram`; rank 0 answers."""
        now, rank = time.monotonic(), datagram.sender
        if self.rank:
            self.answering = sender if sender in self.server else None
        elif datagram.content == FAILED:
            self.failed = True  # it reports the reason itself
            return
        elif datagram.content == LEFT:
            self.others.pop(rank, None)
            return
        else:
            self.socket.sendto(self.codec.encode(rank, self.state.step, self.state.phase), sender)
        previous, step, phase = self.others.get(rank), datagram.step, datagram.content
        unmoved = previous is not None and (previous.step, previous.phase) == (step, phase)
        self.others[rank] = RankState(step, phase, previous.since if previous and unmoved else now, now)

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
        waited_s = max(stuck_s, *(now - state.heard for state in self.others.values()), 0.0)
        if waited_s <= self.warning_s:
            self.warned = False
            return
        text = describe(self.others | {self.rank: own}, self.hosts, now, SILENT_INTERVALS * self.interval_s)
        if waited_s > self.limit_s:
            self.end(f"error: {text}: the job ends (the limit is {STALL_LIMIT} × training.reduction.stall_warning_s)")
        elif self.rank == 0 and not self.warned:
            self.warned = True
            print(f"warning: {text}", file=sys.stderr, flush=True)


def _outgoing_address() -> str:
    """Returns this host's address for outgoing packets, for hosts that cannot look up its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def _look_up(host: str) -> str:
    """Returns the address of `host`, or this host's own if the name is unknown."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "127.0.0.1"


def _end(message: str) -> NoReturn:
    """Ends the process: the main thread cannot be woken from a collective."""
    print(message, file=sys.stderr, flush=True)
    os._exit(1)
