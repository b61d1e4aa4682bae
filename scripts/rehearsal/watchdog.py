"""The watchdog of a job: rank 0, those below it and one below these are real, on sockets; the
others are played.

A played rank sends what a real one would: its own state and those of the ranks below it, in one
datagram per second.
"""

import contextlib
import io
import socket
import threading
import time
from typing import cast

from train.ranks.datagrams import KEY_BYTES, Codec, Relayed
from train.ranks.stalls import STEPPING
from train.ranks.watchdog import Watchdog
from train.ranks.watching import RECEIVE_BUFFER_BYTES

HOST = "127.0.0.1"
STEP_S = 0.86  # of a step of the paper


class CountedSocket:
    """A socket that counts what it sends and receives."""

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._socket.bind((HOST, 0))
        self.getsockname = self._socket.getsockname
        self.settimeout = self._socket.settimeout
        self.close = self._socket.close

    def recvfrom(self, size: int) -> tuple[bytes, tuple[str, int]]:
        data, sender = self._socket.recvfrom(size)
        self.received += len(data)
        return data, sender

    def sendto(self, data: bytes, address: tuple[str, int]) -> None:
        self.sent += len(data)
        self._socket.sendto(data, address)


class PlayedRanks:
    """Ranks of a job in one thread that send what real ones would. `dead` ones send nothing."""

    def __init__(self, ranks: int, real: dict[int, Watchdog], key: bytes) -> None:
        tree = real[0].tree
        self.interval_s = real[0].interval_s
        self.began = time.monotonic()
        self.dead = set[int]()
        # Those that send to a real rank; each speaks for the ranks below it.
        self.speakers = []
        for parent in real:
            for rank in tree.children(parent):
                if rank not in real:
                    children = list(tree.children(rank))
                    self.speakers.append((rank, parent, children, Codec(key, rank, ranks)))
        self.addresses = {rank: watchdog.socket.getsockname() for rank, watchdog in real.items()}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp_socket:
            udp_socket.setblocking(False)
            due = time.monotonic()
            while not self.ended.wait(0):
                # In a job the datagrams of different ranks are spread over the interval.
                for index, (rank, parent, below, codec) in enumerate(self.speakers):
                    wait_s = due + self.interval_s * index / len(self.speakers) - time.monotonic()
                    if wait_s > 0.005 and self.ended.wait(wait_s):
                        return
                    if rank not in self.dead:
                        step, since_s = self.step()
                        relayed = []
                        for other in below[:60]:
                            relayed.append(Relayed(other, step, STEPPING, since_s, 0.5))
                        with contextlib.suppress(OSError):
                            udp_socket.sendto(
                                codec.encode(parent, step, STEPPING, relayed),
                                self.addresses[parent],
                            )
                due += self.interval_s

    def step(self) -> tuple[int, float]:
        """Returns the step that the job is in, and the time since it began, s."""
        step, seconds_of_step = divmod(time.monotonic() - self.began, STEP_S)
        return int(step), seconds_of_step


def rehearse(ranks: int, seconds: float, warning_s: float = 60.0) -> dict[str, float | str]:
    """Runs the watchdogs, then lets one rank fall silent.

    Args:
        ranks: Number of emulated ranks.
        seconds: Time for which all ranks are well.
        warning_s: training.ranks.stall_warning_s.

    Returns:
        What rank 0 received per second, its processor time in seconds, the false warnings, and the
        rank that was named.
    """
    key = bytes(range(KEY_BYTES))
    messages = list[str]()
    names = [f"node{rank // 6:04d}" for rank in range(ranks)]

    def watchdog(rank: int, parent: Watchdog | None) -> Watchdog:
        server = [parent.socket.getsockname()] if parent else []
        counted = cast(socket.socket, CountedSocket())
        return Watchdog(rank, names, counted, server, key, warning_s, messages.append)

    real = {0: watchdog(0, None)}
    if real[0].tree.depth() > 1:
        for rank in real[0].children:
            real[rank] = watchdog(rank, real[0])
        last = real[max(real)]
        for rank in [*last.children][:1]:
            real[rank] = watchdog(rank, last)
    played = PlayedRanks(ranks, real, key)
    timer = ThreadTimer(real[0])
    with contextlib.redirect_stderr(text := io.StringIO()):
        played.began = time.monotonic()
        for member in real.values():
            member.start()
        played.thread.start()
        _work(real, played, seconds)
        received = cast(CountedSocket, real[0].socket).received
        false = len(messages) + text.getvalue().count("warning:")
        known = len(real[0].others)
        cpu_s = timer.spent_s
        result: dict[str, float | str] = {
            "kB/s in": received / seconds / 1e3,
            "CPU s": cpu_s,
            "ranks known": known,
            "false warnings": false,
        }
        if played.speakers:
            dead = played.speakers[-1][0]
            began = time.monotonic()
            played.dead.add(dead)
            limit_s = warning_s + 3 * real[0].silent_s + 10
            while "warning:" not in text.getvalue() and time.monotonic() < began + limit_s:
                _work(real, played, 0.2)
            named = f"rank {dead} on {names[dead]}" in text.getvalue()
            result |= {
                "dead rank named": "yes" if named else f"no: {text.getvalue()}",
                "s": time.monotonic() - began,
            }
    played.ended.set()
    for member in real.values():
        member.closing.set()
    for member in real.values():
        member.close()
        member.socket.close()
    return result


def _work(real: dict[int, Watchdog], played: PlayedRanks, seconds: float) -> None:
    """Takes the steps of the real ranks for some time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        step, _ = played.step()
        for watchdog in real.values():
            if watchdog.state.step != step:
                watchdog.enter(step, STEPPING)
        time.sleep(0.05)


class ThreadTimer:
    """Follows the processor time of the thread of a watchdog.

    Attributes:
        spent_s: The time until the end of its last interval.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        self.spent_s = 0.0
        self._run = watchdog.run_interval
        setattr(watchdog, "run_interval", self._timed)  # noqa: B010 - a method, to mypy

    def _timed(self) -> None:
        self._run()
        self.spent_s = time.thread_time()
