"""The way of a GPU's patterns to the host, on a stand-in for CuPy whose streams are late."""

import sys
import threading

import cuda_on_cpu
import numpy as np

from namsa.engines.interface import BatchedProbes
from namsa.physics.detector import bin_patterns

SHAPE, PIXELS = (4, 6), (2, 3)


def test_the_plain_engine_computes_a_batch_while_the_one_before_is_copied(monkeypatch):
    """The first copy ends only when the second batch is enqueued. A copy that blocks would wait for ever."""
    cupy, cupyx, _ = cuda_on_cpu.fake_cupy(2**24, None)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupyx", cupyx)
    second, overlapped, batches, progress = threading.Event(), [], [], []
    get = cuda_on_cpu.Array.get

    def late(patterns, stream, **options):
        stream.enqueue(lambda: overlapped.append(second.wait(10)))
        return get(patterns, stream=stream, **options)

    monkeypatch.setattr(cuda_on_cpu.Array, "get", late)

    class Probes(BatchedProbes):
        def patterns(self, positions):
            out = cupy.empty((len(positions), *SHAPE), np.float64)
            cupy.cuda.get_current_stream().enqueue(lambda: np.copyto(out, expected(positions)))
            batches.append(len(positions))
            if len(batches) == 2:
                second.set()
            return out

    def expected(positions):
        return positions[:, :1, None] + np.arange(24.0).reshape(SHAPE)

    rng = np.random.default_rng(0)
    positions, matrices = rng.normal(size=(7, 2)), (rng.normal(size=(2, 4)), rng.normal(size=(6, 3)))
    cbed = np.full((7, *PIXELS), 0.5)
    Probes(3, on_host=False).add_patterns(cbed, positions, matrices, lambda *done: progress.append(done))
    assert batches == [3, 3, 1]
    assert progress == [(3, 7), (6, 7), (7, 7)]
    assert overlapped == [True] * 3
    np.testing.assert_allclose(cbed, 0.5 + bin_patterns(expected(positions), matrices), rtol=1e-12)
