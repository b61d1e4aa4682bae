"""The way of a GPU's patterns to the host, beside the computation of the batches after them.

A stream of its own copies a batch to page-locked memory, from where a few threads add it.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.physics.backend import available_cores
from namsa.physics.detector import bin_patterns
from namsa.physics.grid import Array

if TYPE_CHECKING:
    import cupy

_THREADS = 8  # at most: one core adds patterns more slowly than a device computes them


def add_behind(
    compute: Callable[[int, slice], tuple[Array, "cupy.cuda.Event"]],
    cbed: npt.NDArray[np.floating],
    size: int,
    in_flight: int,
    binning: tuple[Array, Array] | None,
    on_probes: Callable[[int, int], None],
) -> None:
    """Adds patterns that are computed on the current CUDA device to an array on the host.

    Args:
        compute: Enqueues a batch of the patterns in `rows`, called as `compute(batch, rows)` with
            the batch's number. Returns its patterns on the device, which it may use again for batch
            `batch + in_flight`, and the event of their end.
        cbed: Patterns (n, dy, dx) on the host, changed in place.
        in_flight: Most batches that are computed, copied or added at a time.
        binning: The detector's matrices; see `namsa.engines.interface.Probes.add_patterns`.
        on_probes: Called as `on_probes(done, total)` after each batch.
    """
    import cupy
    import cupyx

    copying = cupy.cuda.Stream(non_blocking=True)
    threads = min(_THREADS, available_cores())
    host_buffers: list[Array] = []
    under_way: deque[_Batch] = deque()
    done = 0
    with ThreadPoolExecutor(threads) as pool:
        for batch, start in enumerate(range(0, len(cbed), size)):
            if len(under_way) == in_flight:
                done += under_way.popleft().finish()
                on_probes(done, len(cbed))
            rows = cbed[start : start + size]
            patterns, computed = compute(batch, slice(start, start + len(rows)))
            copying.wait_event(computed)
            with copying:  # cuBLAS would not promise the same bits on streams that run together
                collected = bin_patterns(patterns, binning)
            if len(host_buffers) < in_flight:
                host_buffers.append(cupyx.empty_pinned(collected.shape, collected.dtype))
            on_host = host_buffers[batch % in_flight][: len(rows)]
            collected.get(stream=copying, out=on_host, blocking=False)
            copied = copying.record()
            additions = []
            for of_thread in np.array_split(np.arange(len(rows)), threads):
                if len(of_thread):
                    share = slice(of_thread[0], of_thread[-1] + 1)
                    additions.append(pool.submit(_add, copied, rows[share], on_host[share]))
            under_way.append(_Batch(len(rows), additions, (patterns, collected)))
        while under_way:
            done += under_way.popleft().finish()
            on_probes(done, len(cbed))


class _Batch(NamedTuple):
    """A batch that is being copied and added: its probes, the additions, and the arrays to keep
    until it is copied.
    """

    probes: int
    additions: list[Future[None]]
    kept: tuple[Array, Array]

    def finish(self) -> int:
        """Waits until the batch has been added; returns the number of its probes."""
        for addition in self.additions:
            addition.result()
        return self.probes


def _add(
    copied: "cupy.cuda.Event", rows: npt.NDArray[np.floating], patterns: npt.NDArray[np.floating]
) -> None:
    """Adds patterns on the host as soon as their copy from the device has finished."""
    copied.synchronize()
    rows += patterns
