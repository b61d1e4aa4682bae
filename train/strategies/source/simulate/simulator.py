"""The simulator of a rank: threads that have draws simulated, by processes or by themselves, and
fill the ring.
"""

import threading
from collections.abc import Callable, Iterable, Sequence

from namsa.base.errors import InputError, WorkError, stored_warnings
from namsa.dataset.drawn import DrawFailure
from namsa.dataset.sample_process import Abandoned, InProcess, InThread

from ....input.source import NoMoreSamples
from .order import Key
from .ring import Ring


class Simulator:
    """Simulates draws, each with its first sample, in their order, until it is closed or there are
    none left.
    """

    def __init__(
        self,
        makers: Sequence[InProcess | InThread],
        draws: Iterable[tuple[int, Key]],
        ring: Ring,
        on_failure: Callable[[DrawFailure], None],
    ) -> None:
        self.makers = makers
        self._draws = iter(draws)
        self._ring = ring
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._made = 0
        self._seconds = 0.0
        self._threads = [
            threading.Thread(target=self._work, args=(maker,), name="simulate", daemon=True)
            for maker in makers
        ]
        for thread in self._threads:
            thread.start()

    def numbers(self, reset: bool = True) -> tuple[int, float]:
        """Returns the samples that were made since the last reset, and the time of all workers
        together, s.
        """
        with self._lock:
            made = self._made
            seconds = self._seconds
            if reset:
                self._made = 0
                self._seconds = 0.0
        return made, seconds / len(self.makers)

    def close(self) -> None:
        """Ends processes at once, and threads after the part of a sample that they compute."""
        self._ring.fail(NoMoreSamples())
        for maker in self.makers:
            maker.stop()
        for thread in self._threads:
            thread.join()
        for maker in self.makers:
            maker.close()

    def _work(self, maker: InProcess | InThread) -> None:
        draw_number: int | None = None
        try:
            with stored_warnings():
                while (draw := self._next()) is not None:
                    draw_number, key = draw
                    self._simulate(maker, draw_number, key)
        except (NoMoreSamples, Abandoned):
            pass
        except MemoryError as error:
            self._ring.fail(
                WorkError(f"draw {draw_number} of data.source: {error}: lower data.source.workers")
            )
        except (InputError, WorkError) as error:
            self._ring.fail(WorkError(f"draw {draw_number} of data.source: {error}"))
        except BaseException as error:  # training must not wait for a thread that has ended
            self._ring.fail(error)
            raise

    def _next(self) -> tuple[int, Key] | None:
        with self._lock:
            return next(self._draws, None)

    def _simulate(self, maker: InProcess | InThread, draw_number: int, key: Key) -> None:
        """Puts the samples of a draw into the ring."""
        epoch, sample = key
        for made in maker.samples(draw_number):
            if isinstance(made, DrawFailure):
                self._on_failure(made)
                continue
            with self._lock:
                self._made += 1
                self._seconds += made.seconds
            needed = self._ring.admit((epoch, sample), made.size)
            content = made.read()
            if needed:
                self._ring.put((epoch, sample), made.entry, content)
            sample += 1
