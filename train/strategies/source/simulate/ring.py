"""Simulated samples between the simulator and training: bounded bytes, and a bounded number of uses
of each sample.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from namsa.base.errors import WorkError
from namsa.dataset import records
from namsa.dataset.entry import Entry
from namsa.dataset.records import Record

from ....input.source import NoMoreSamples
from .order import Key, Order

POLL_S = 0.2  # time after which a reader that waits asks whether it still should


@dataclass
class _RingEntry:
    """A sample in the ring, and how often it is still used."""

    entry: Entry
    record: Record
    size: int
    left: int


class Ring:
    """The samples of a rank that are simulated and not yet used up. Several threads call it.

    A sample has a place before its record is read (`admit`), and leaves the ring with its last use.
    A sample of a later block is admitted only if those that are missing before it still find room.

    Args:
        stopping: Returns whether samples that are not there are no longer waited for.
    """

    def __init__(
        self, order: Order, capacity: int, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self.order = order
        self.capacity = capacity
        self.bytes = 0
        self.most_bytes = 0
        self._stopping = stopping
        self._condition = threading.Condition()
        self._stored: dict[Key, _RingEntry] = {}
        self._taken: defaultdict[str, list[Record]] = defaultdict(list)
        self._admitted: Counter[int] = Counter()  # by block
        self._present: Counter[int] = Counter()  # by block, those with a place
        self._incomplete = self._used_before = order.block((order.first[0], 0))  # numbers of blocks
        self._largest = 0
        self.failure: BaseException | None = None  # what has ended the ring
        self._released = False
        self._waiting = 0
        self._waiting_since = 0.0
        self._waited_s = 0.0
        self._advance()
        self._first = self._incomplete

    # ---- The simulator's side

    def admit(self, key: Key, size: int) -> bool:
        """Waits until there is room for a sample; returns whether it is used at all.

        Raises:
            WorkError: If it never fits.
            NoMoreSamples: If the ring has failed or is closed.
        """
        block = self.order.block(key)
        uses = self.order.uses_left(key)
        with self._condition:
            self._largest = max(self._largest, size)
            while uses and block >= self._used_before and not self._has_room(block, size):
                if self.failure:
                    raise NoMoreSamples
                self._check_that_it_fits(block, size)
                self._condition.wait()
            if self.failure:
                raise NoMoreSamples
            if not uses or block < self._used_before:
                return False
            self.bytes += size
            self.most_bytes = max(self.most_bytes, self.bytes)
            self._admitted[block] += 1
            self._present[block] += 1
            self._advance()
            return True

    def put(self, key: Key, entry: Entry, content: bytearray) -> None:
        """Adds a sample that was admitted, after its checksum was compared."""
        record = records.decode(content, check=True)
        with self._condition:
            if self.order.block(key) < self._used_before:
                self.bytes -= len(content)
            else:
                self._stored[key] = _RingEntry(
                    entry, record, len(content), self.order.uses_left(key)
                )
            self._condition.notify_all()

    def clear(self) -> None:
        """Frees the memory of an ended ring."""
        with self._condition:
            self._stored.clear()
            self._taken.clear()
            self.bytes = 0

    def fail(self, error: BaseException) -> None:
        """Ends the ring: training raises `error` with its next sample."""
        with self._condition:
            self.failure = self.failure or error
            self._condition.notify_all()

    # ---- Training's side

    def take(self, key: Key) -> Entry:
        """Uses a sample, which is waited for; `view` then yields its record, once.

        Raises:
            NoMoreSamples: If it is not there, and this rank is asked to stop, or its readers to
                end.
        """
        with self._condition, self._counted_wait():
            while not (key in self._stored or self.failure or self._released):
                if self._stopping():
                    raise NoMoreSamples
                self._condition.wait(POLL_S)
            if self.failure:
                raise self.failure
            if self._released:
                raise NoMoreSamples
            stored = self._stored[key]
            self._taken[stored.entry.id].append(stored.record)
            stored.left -= 1
            if not stored.left:
                self._remove(key)
            return stored.entry

    def wait_for_block(self) -> None:
        """Waits until all samples of the first block are in the ring. Raises what the simulator has
        failed with.
        """
        with self._condition:
            while self._incomplete == self._first and not self.failure:
                self._condition.wait()
            if self.failure:
                raise self.failure

    @contextmanager
    def view(self, sample_id: str) -> Iterator[Record]:
        """Yields the record of a sample that was taken."""
        with self._condition:
            record = self._taken[sample_id].pop()
            if not self._taken[sample_id]:
                del self._taken[sample_id]
        yield record

    def begin_epoch(self, epoch: int) -> None:
        """Drops what is left of earlier epochs, which steps of whole batches do not use."""
        with self._condition:
            self._released = False
            self._taken.clear()
            self._used_before = max(self._used_before, self.order.block((epoch, 0)))
            for key in [key for key in self._stored if self.order.block(key) < self._used_before]:
                self._remove(key)
            self._advance()
            self._condition.notify_all()

    def release(self) -> None:
        """Ends the waits for samples, until the next epoch begins."""
        with self._condition:
            self._released = True
            self._condition.notify_all()

    def waited_s(self) -> float:
        """Returns the time in which readers have waited for samples, since the last call."""
        with self._condition:
            now = time.perf_counter()
            waited = self._waited_s + (now - self._waiting_since if self._waiting else 0.0)
            self._waited_s = 0.0
            self._waiting_since = now
            return waited

    # ---- Under the lock

    def _has_room(self, block: int, size: int) -> bool:
        missing = sum(
            self.order.used_samples(earlier) - self._admitted[earlier]
            for earlier in range(self._incomplete, block)
        )
        return self.bytes + size + missing * self._largest <= self.capacity

    def _check_that_it_fits(self, block: int, size: int) -> None:
        """Raises WorkError if nothing can leave the ring before a sample comes in."""
        if block == self._incomplete and not any(
            self._present[earlier] for earlier in range(self._used_before, block)
        ):
            raise WorkError(
                f"data.source.memory_gib is {self.capacity / 2**30:.3g}, which {len(self._stored)} "
                f"samples of a window of {self.order.window} fill, the next taking "
                f"{size / 1e6:.3g} MB: raise it, or lower data.source.window"
            )

    def _advance(self) -> None:
        """Finds the first block that lacks samples."""
        self._incomplete = max(self._incomplete, self._used_before)
        while self._admitted[self._incomplete] >= self.order.used_samples(self._incomplete):
            self._incomplete += 1

    def _remove(self, key: Key) -> None:
        self.bytes -= self._stored.pop(key).size
        self._present[self.order.block(key)] -= 1
        self._condition.notify_all()

    @contextmanager
    def _counted_wait(self) -> Iterator[None]:
        if not self._waiting:
            self._waiting_since = time.perf_counter()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._waited_s += time.perf_counter() - self._waiting_since
