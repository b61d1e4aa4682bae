"""Which rank has stalled: signs of life beside Horovod's collectives, which under Gloo wait for ever and in silence.

A thread of every rank tells rank 0 the rank's step and what it is doing, in one UDP datagram a second (more rarely
where ranks are many: 2000 a second arrive at most), and rank 0 answers. A rank that is dead or stopped falls silent;
one that hangs still talks, but stays behind the others, who wait for it in a collective. Rank 0 names it, first in a
warning, and after the limit in the message with which the job ends. Where rank 0 is silent, the next rank says so.
"""

import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NoReturn, Protocol

Addresses = Sequence[tuple[str, int]]

STALL_LIMIT = 10  # a job in which a rank does not move for this many times `stall_warning_s` is ended
DATAGRAMS_PER_S = 2000  # into rank 0
MISSED = 4  # signs missing in a row, after which a rank counts as silent
GONE = 2.5  # the same, where a collective has failed because a rank is gone
NAMED = 8  # ranks in a message
READING, STEPPING, WRITING, RESTING = range(4)  # in the order of a step; a rank that rests may take its time
PHASES = ("reads the samples of step {}", "is in step {}", "writes what it knows after step {}", "past step {}")


class Ranks(Protocol):
    """What is needed of `train.ranks.reduction`."""

    def rank(self) -> int: ...
    def size(self) -> int: ...
    def gather_json(self, value: Any) -> list[Any]: ...
    def lost_another_rank(self, error: Exception) -> bool: ...


@dataclass(frozen=True)
class Sign:
    """The last that was heard of a rank, and since when it is there; times in s of this process's clock."""

    step: int
    phase: int
    since: float
    heard: float


@contextmanager
def watch(ranks: Ranks, warning_s: float) -> Iterator["Watchdog"]:
    """A watchdog over all ranks while the context lasts; the ranks enter it together."""
    rank, host = ranks.rank(), socket.gethostname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind(("", 0))
        mine = {"host": host, "address": _address(), "port": door.getsockname()[1], "token": secrets.token_hex(8)}
        facts = ranks.gather_json(mine if rank == 0 else {"host": host})
        first = facts[0]
        near = {"127.0.0.1"} if first["host"] == host else {_look_up(first["host"]), first["address"]}
        dog = Watchdog(
            rank,
            [fact["host"] for fact in facts],
            door,
            [(address, first["port"]) for address in near],
            first["token"],
            warning_s,
        )
        try:
            yield dog
        except BaseException as error:
            lost = isinstance(error, Exception) and ranks.lost_another_rank(error)
            if lost and rank == 0 and (text := dog.dead()):
                print(f"error: {text}", file=sys.stderr, flush=True)
            dog.close({} if lost else {"failed": True})  # a rank that others still wait for shall be missed
            raise
        dog.close({"left": True})


class Watchdog:
    """One rank's thread. `end` is told the message that the job ends with, and does not return."""

    def __init__(
        self,
        rank: int,
        hosts: Sequence[str],
        door: socket.socket,
        first: Addresses,
        token: str,
        warning_s: float,
        end: Callable[[str], Any] | None = None,
        interval_s: float = 1.0,
    ) -> None:
        self.rank, self.hosts, self.door, self.first, self.token = rank, hosts, door, first, token
        self.interval_s = max(interval_s, len(hosts) / DATAGRAMS_PER_S)
        # Rank 0 knows more, so it speaks first; then one after the other, so that one is heard.
        turn_s = 2 * self.interval_s + min(rank, 10) if rank else 0.0
        self.warning_s, self.limit_s = warning_s, STALL_LIMIT * warning_s + turn_s
        self.end = end or _end
        now = time.monotonic()
        self.me, self.forgiven = Sign(0, RESTING, now, now), now
        self.others: dict[int, Sign] = {}  # on rank 0 all that were ever heard, elsewhere rank 0
        self.warned = self.failed = False
        self.leaving = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def beat(self, step: int, phase: int) -> None:
        """Says that this rank's main thread comes to `phase` of the job's step number `step`."""
        now = time.monotonic()
        self.me = Sign(step, phase, now, now)

    def over(self, batches: Iterator[Any], first: int) -> Iterator[Any]:
        """`batches`, of the steps from number `first` on, with a beat before and after each is read."""
        for step in count(first):
            self.beat(step, READING)
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.beat(step, STEPPING)
            yield batch

    def dead(self) -> str | None:
        """After a collective failed, on rank 0: which rank is silent and has not said why; waits for a few signs."""
        until = time.monotonic() + (GONE + 2) * self.interval_s
        while (now := time.monotonic()) < until and not self.failed:
            if any(now - sign.heard > GONE * self.interval_s for sign in self.others.values()):
                return verdict(self.others, self.hosts, now, GONE * self.interval_s, "died")
            time.sleep(0.05)
        return None

    def close(self, farewell: dict[str, bool] | None = None) -> None:
        self.leaving.set()
        self.thread.join()
        if farewell:
            self._tell(farewell)

    # ---- The thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        last = time.monotonic()
        while not self.leaving.is_set():
            self._tell(self._place())
            self._listen(last + self.interval_s)
            now = time.monotonic()
            if now - last > MISSED * self.interval_s:  # this process was stopped and goes on: nobody is to blame
                self._forgive(now)
            last = now
            self._judge(now)

    def _place(self) -> dict[str, int]:
        return {"step": self.me.step, "phase": self.me.phase}

    def _tell(self, words: dict[str, Any]) -> None:
        text = json.dumps({"token": self.token, "rank": self.rank} | words).encode()
        for address in self.first if self.rank else ():
            with suppress(OSError):  # unknown or out of reach: rank 0 will find this rank silent
                self.door.sendto(text, address)

    def _listen(self, until: float) -> None:
        while (left := until - time.monotonic()) > 0 and not self.leaving.is_set():
            self.door.settimeout(min(left, 0.2))
            with suppress(OSError, ValueError, KeyError, TypeError):  # what is not ours is passed over
                text, sender = self.door.recvfrom(512)
                words = json.loads(text)
                if words["token"] == self.token:
                    self._hear(words, sender)

    def _hear(self, words: dict[str, Any], sender: tuple[str, int]) -> None:
        now, rank = time.monotonic(), int(words["rank"])
        if self.rank:
            self.first = [sender]
        elif "failed" in words:
            self.failed = True  # it says why itself
            return
        elif "left" in words:
            self.others.pop(rank, None)
            return
        else:
            answer = {"token": self.token, "rank": 0} | self._place()
            self.door.sendto(json.dumps(answer).encode(), sender)
        before, step, phase = self.others.get(rank), int(words["step"]), int(words["phase"])
        since = before.since if before and (before.step, before.phase) == (step, phase) else now
        self.others[rank] = Sign(step, phase, since, now)

    def _forgive(self, now: float) -> None:
        self.forgiven = now
        self.others = {rank: replace(sign, since=now, heard=now) for rank, sign in self.others.items()}

    def _judge(self, now: float) -> None:
        me = replace(self.me, heard=now)
        stuck_s = 0.0 if me.phase == RESTING else now - max(me.since, self.forgiven)
        waited_s = max(stuck_s, *(now - sign.heard for sign in self.others.values()), 0.0)
        if waited_s <= self.warning_s:
            self.warned = False
            return
        text = verdict(self.others | {self.rank: me}, self.hosts, now, MISSED * self.interval_s)
        if waited_s > self.limit_s:
            self.end(f"error: {text}: the job ends (the limit is {STALL_LIMIT} × training.reduction.stall_warning_s)")
        elif self.rank == 0 and not self.warned:
            self.warned = True
            print(f"warning: {text}", file=sys.stderr, flush=True)


# ---- Words ----------------------------------------------------------------------------------------------------------


def suspects(signs: Mapping[int, Sign], now: float, silent_after_s: float) -> list[int]:
    """The ranks that a stall is due to: those that are silent, or else those behind; none where all stand alike."""
    silent = [rank for rank, sign in signs.items() if now - sign.heard > silent_after_s]
    places = {(sign.step, sign.phase) for sign in signs.values()}
    behind = [rank for rank, sign in signs.items() if len(places) > 1 and (sign.step, sign.phase) == min(places)]
    return sorted(silent or behind)


def verdict(
    signs: Mapping[int, Sign], hosts: Sequence[str], now: float, silent_after_s: float, word: str = "stalled"
) -> str:
    """One line that names the ranks that a stall is due to, where they are and since when."""
    ranks = suspects(signs, now, silent_after_s)
    if not ranks:
        rank, known = min(signs), "" if len(signs) == len(hosts) else f" (of {len(signs)} of {len(hosts)} ranks)"
        everyone = f"rank {rank}" if len(hosts) == 1 else f"every rank that is heard{known}"
        return f"{everyone} {_place(signs[rank])} since {now - signs[rank].since:.0f} s"
    named = []
    for rank in ranks[:NAMED]:
        sign = signs[rank]
        silence = f"silent since {now - sign.heard:.0f} s, " if now - sign.heard > silent_after_s else ""
        named.append(f"rank {rank} on {hosts[rank]} ({silence}{_place(sign)} since {now - sign.since:.0f} s)")
    more = f" and {len(ranks) - NAMED} more" if len(ranks) > NAMED else ""
    return f"{word}: {', '.join(named)}{more}"


def _place(sign: Sign) -> str:
    return PHASES[sign.phase].format(sign.step)


def _address() -> str:
    """This host's address on the way out, for where others cannot look its name up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def _look_up(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "127.0.0.1"


def _end(message: str) -> NoReturn:
    print(message, file=sys.stderr, flush=True)
    os._exit(1)  # the main thread cannot be woken from a collective
