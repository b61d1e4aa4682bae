"""Finds the rank that has stalled. Under Gloo, Horovod's collectives wait for it forever and without a message.

A thread of every rank sends rank 0 the rank's step and phase in one UDP datagram per second (less often if there are
many ranks: at most 2000 arrive per second), and rank 0 answers. Rank 0 names the rank that stalls, first in a warning,
and after the limit in the message with which the job ends. If rank 0 is silent, the next rank reports that.
"""

import json
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

from train.ranks.protocol import Ranks
from train.ranks.stalls import IDLE, READING, STEPPING, RankState, describe

Address = tuple[str, int]  # host, port

STALL_LIMIT = 10  # a job in which a rank makes no progress for this many times `stall_warning_s` is ended
DATAGRAMS_PER_S = 2000  # that reach rank 0
SILENT_INTERVALS = 4  # without a datagram, after which a rank counts as silent
LOST_INTERVALS = 2.5  # the same after a collective failed because a rank has ended


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
        port, token = udp_socket.getsockname()[1], secrets.token_hex(8)
        server = {"host": host, "address": _outgoing_address(), "port": port, "token": token}
        gathered = ranks.gather_json(server if rank == 0 else {"host": host})
        first = gathered[0]
        addresses = {"127.0.0.1"} if first["host"] == host else {_look_up(first["host"]), first["address"]}
        watchdog = Watchdog(
            rank,
            [other["host"] for other in gathered],
            udp_socket,
            [(address, first["port"]) for address in addresses],
            first["token"],
            warning_s,
        )
        try:
            yield watchdog
        except BaseException as error:
            lost = isinstance(error, Exception) and ranks.lost_another_rank(error)
            if lost and rank == 0 and (text := watchdog.describe_lost_rank()):
                print(f"error: {text}", file=sys.stderr, flush=True)
            # Without a farewell: a rank that others still wait for must be missed.
            watchdog.close({} if lost else {"failed": True})
            raise
        watchdog.close({"left": True})


class Watchdog:
    """The watchdog of one rank, which runs in a thread.

    Attributes:
        state: Of this rank's main thread.
        others: On rank 0 the states of all ranks that were ever heard, elsewhere that of rank 0.
        failed: On rank 0, whether a rank has said that it fails, and will report the reason itself.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[str],
        udp_socket: socket.socket,
        server: Sequence[Address],
        token: str,
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
            token: Of this job; datagrams without it are ignored.
            warning_s: See `watch`.
            end: Called with the message that the job ends with; does not return. By default, it ends the process.
            interval_s: Time between two datagrams.
        """
        self.rank, self.hosts, self.socket, self.server, self.token = rank, hosts, udp_socket, server, token
        self.interval_s = max(interval_s, len(hosts) / DATAGRAMS_PER_S)
        # Rank 0 knows more, so it reports first. The others take turns, so that only one reports.
        turn_s = 2 * self.interval_s + min(rank, 10) if rank else 0.0
        self.warning_s, self.limit_s = warning_s, STALL_LIMIT * warning_s + turn_s
        self.end = end or _end
        now = time.monotonic()
        self.state, self.restarted = RankState(0, IDLE, now, now), now
        self.others: dict[int, RankState] = {}
        self.warned = self.failed = False
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def enter(self, step: int, phase: int) -> None:
        """Records that this rank's main thread enters `phase` of the job's step number `step`."""
        now = time.monotonic()
        self.state = RankState(step, phase, now, now)

    def follow(self, batches: Iterator[Any], first_step: int) -> Iterator[Any]:
        """Yields `batches`, one per step from number `first_step` on, and records when each is read and used."""
        for step in count(first_step):
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

    def close(self, farewell: dict[str, bool] | None = None) -> None:
        """Ends the thread and sends rank 0 the `farewell`: {"left": True}, {"failed": True} or none."""
        self.closing.set()
        self.thread.join()
        if farewell:
            self._send(farewell)

    # ---- The thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Sends, listens and judges, once per interval."""
        last = time.monotonic()
        while not self.closing.is_set():
            self._send(self._place())
            self._listen(last + self.interval_s)
            now = time.monotonic()
            if now - last > SILENT_INTERVALS * self.interval_s:  # this process was stopped itself, so no rank is late
                self._restart_clocks(now)
            last = now
            self._judge(now)

    def _place(self) -> dict[str, int]:
        """Returns where the main thread is, as a datagram says it."""
        return {"step": self.state.step, "phase": self.state.phase}

    def _send(self, content: dict[str, Any]) -> None:
        """Sends `content` to rank 0, from any other rank."""
        text = json.dumps({"token": self.token, "rank": self.rank} | content).encode()
        for address in self.server if self.rank else ():
            with suppress(OSError):  # unknown or out of reach: rank 0 will find this rank silent
                self.socket.sendto(text, address)

    def _listen(self, until: float) -> None:
        """Receives datagrams until the time `until`."""
        while (remaining := until - time.monotonic()) > 0 and not self.closing.is_set():
            self.socket.settimeout(min(remaining, 0.2))
            with suppress(OSError, ValueError, KeyError, TypeError):  # datagrams of other senders are ignored
                text, sender = self.socket.recvfrom(512)
                content = json.loads(text)
                if content["token"] == self.token:
                    self._receive(content, sender)

    def _receive(self, content: dict[str, Any], sender: Address) -> None:
        """Records the state of the rank that sent `content`; rank 0 answers."""
        now, rank = time.monotonic(), int(content["rank"])
        if self.rank:
            self.server = [sender]
        elif "failed" in content:
            self.failed = True  # it reports the reason itself
            return
        elif "left" in content:
            self.others.pop(rank, None)
            return
        else:
            answer = {"token": self.token, "rank": 0} | self._place()
            self.socket.sendto(json.dumps(answer).encode(), sender)
        previous, step, phase = self.others.get(rank), int(content["step"]), int(content["phase"])
        unmoved = previous is not None and (previous.step, previous.phase) == (step, phase)
        self.others[rank] = RankState(step, phase, previous.since if previous and unmoved else now, now)

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
