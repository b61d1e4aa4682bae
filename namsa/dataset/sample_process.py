"""Draws that are simulated beside other work: in a process of their own, or in the thread that asks
for them.

The process gets numbers of draws and sends back their samples, as JSON and the bytes of records. It
ignores the signals that ask a job to stop, which its parent answers, and ends when its parent does,
however that ends.
"""

import atexit
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from namsa.base.errors import InputError, WorkError, stored_warnings
from namsa.dataset.drawn import DrawFailure, DrawnSample, SpecimenDraws
from namsa.dataset.entry import Entry
from namsa.physics.backend import free_device_memory

_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")  # Windows has the first two


@dataclass(frozen=True)
class MadeSample:
    """A sample that was simulated beside other work."""

    entry: Entry  # the sample
    size: int  # bytes of its record
    seconds: float  # time of its simulation
    read: Callable[[], bytearray]  # returns its record, once, before the next sample is asked for


Made = MadeSample | DrawFailure


class Abandoned(Exception):
    """A sample is no longer wanted."""


class InThread:
    """Simulates draws in the thread that asks for them."""

    def __init__(self, draws: SpecimenDraws) -> None:
        self._draws = draws
        self._stopped = False

    def samples(self, draw: int) -> Iterator[Made]:
        """Yields what `SpecimenDraws.samples` does, and raises the same, or Abandoned after
        `stop`.
        """
        started = time.perf_counter()
        for made in self._draws.samples(draw, self._go_on):
            if isinstance(made, DrawnSample):
                yield MadeSample(
                    made.entry,
                    len(made.record),
                    time.perf_counter() - started,
                    partial(_same, made.record),
                )
                started = time.perf_counter()
            else:
                yield made

    def _go_on(self, stage: str, done: int, total: int) -> None:
        """Is called between the parts of a sample."""
        if self._stopped:
            raise Abandoned

    def stop(self) -> None:
        """Ends the sample that is made, after the part of it that its thread computes."""
        self._stopped = True

    def close(self) -> None:
        """Frees the memory of a GPU that the samples of this thread have taken."""
        free_device_memory()


class InProcess:
    """A process that simulates draws.

    Args:
        core: The core that it is bound to; `None` for those of this process.
    """

    def __init__(self, draws: SpecimenDraws, core: int | None, nice: int) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy threads' locks
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, draws, core, nice), daemon=True
        )
        self._process.start()
        theirs.close()  # so that its end is noticed
        # At the end of this process, before multiprocessing asks it to end by SIGTERM and waits for
        # that.
        atexit.register(self._process.kill)

    @property
    def pid(self) -> int | None:
        """The number of the process."""
        return self._process.pid

    def samples(self, draw: int) -> Iterator[Made]:
        """Yields what `SpecimenDraws.samples` does.

        Raises:
            WorkError: As that does, or if the process has ended.
            MemoryError: As that does.
        """
        try:
            self._connection.send_bytes(str(draw).encode())
            while not (message := json.loads(self._connection.recv_bytes())).get("done"):
                if reason := message.get("error"):
                    raise (MemoryError if message["memory"] else WorkError)(reason)
                if "reason" in message:
                    yield DrawFailure(**message)
                else:
                    entry = Entry.from_json(message["entry"], "a simulating process")
                    size = message["size"]
                    yield MadeSample(entry, size, message["seconds"], partial(self._receive, size))
        except (EOFError, OSError):
            raise WorkError(self._described_end()) from None

    def _receive(self, size: int) -> bytearray:
        record = bytearray(size)
        self._connection.recv_bytes_into(record)
        return record

    def _described_end(self) -> str:
        """Returns how the process has ended."""
        self._process.join(10)
        code = self._process.exitcode
        how = f"exit code {code}"
        if code and code < 0:
            how = signal.Signals(-code).name
            how += ", as when the memory is used up" if how == "SIGKILL" else ""
        return f"the simulating process {self.pid} has ended ({how})"

    def stop(self) -> None:
        """Ends the process, whatever it is doing. It has nothing to save. A thread that waits for
        it gets WorkError.
        """
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """Ends the process and the connection, which no thread may wait for."""
        self.stop()
        atexit.unregister(self._process.kill)
        self._connection.close()


def _same(record: bytearray) -> bytearray:
    return record


def _serve(connection: Connection, draws: SpecimenDraws, core: int | None, nice: int) -> None:
    """Answers numbers with samples until the connection or the parent ends."""
    for name in _IGNORED:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(nice)
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    with stored_warnings(), suppress(EOFError, OSError):
        while True:
            _answer(connection, draws, int(connection.recv_bytes()))


def _answer(connection: Connection, draws: SpecimenDraws, draw: int) -> None:
    """Sends the samples of a draw."""

    def send(**message: object) -> None:
        connection.send_bytes(json.dumps(message).encode())

    try:
        for made in InThread(draws).samples(draw):
            if isinstance(made, MadeSample):
                send(entry=made.entry.to_json(), size=made.size, seconds=made.seconds)
                connection.send_bytes(made.read())
            else:
                send(id=made.id, reason=made.reason, skipped=made.skipped)
    except (InputError, WorkError, MemoryError) as error:
        send(error=str(error) or type(error).__name__, memory=isinstance(error, MemoryError))
    else:
        send(done=True)


def _end_with_parent() -> None:
    """Ends this process when its parent has ended, also by SIGKILL."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
    os._exit(1)
