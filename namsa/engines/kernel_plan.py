"""The plan of the GPU kernels of fused_gpu.cu: radices, sizes of blocks and shared memory, probes
per batch.

It needs no GPU. The rules are those of the fastest of the variants that an H200 has timed on grids
of 256² to 1024².
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from namsa.base.errors import WorkError
from namsa.physics.backend import to_host
from namsa.physics.grid import Array

RADICES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24, 32)
MAX_PIXELS = 1024  # per axis: two stages of the largest radix
# columns per block: 64 contiguous bytes, two sectors of memory; if two blocks fit into a
# multiprocessor
_TILE = 8
_COMPLEX = 8  # bytes
# Two batches are computed at a time, each on a stream with waves of its own, so that one's kernel
# fills the multiprocessors which the end of the other's leaves idle. Waves of both that take about
# 0.55 of the second-level cache stay there from pass to pass: on an H200, 1.48 µs per probe of 512²
# and slice, 1.57 at 0.43 and at 0.72 of the cache, 1.72 where waves come from memory. A cache below
# `_LEAST_CACHE` holds too few to fill the device.
LANES = 2
_CACHE_SHARE = 0.55
_LEAST_CACHE = 2**25  # bytes: an A100, H100 or RTX 4090 has more, a V100 or A10 less
# of a batch's waves without such a cache: a launch takes 40 µs or more, to enqueue it about 10 µs
_LANE_BYTES = 2**26
# batches: of each stream, one is computed while another is copied to the host and added
IN_FLIGHT = 2 * LANES


@dataclass(frozen=True)
class AxisPlan:
    """The transforms along one axis."""

    n: int  # number of pixels
    radices: tuple[int, ...]  # radices of the stages
    low: int  # first frequency that is zero; n if there is none
    high: int  # first frequency after those that are zero; n if there is none
    threads: int  # per line

    @property
    def values(self) -> int:
        """Most values that a thread holds."""
        return max(radix * -(-self.n // radix // self.threads) for radix in self.radices)

    @property
    def pads(self) -> tuple[int, int]:
        """Values (forward, reversed radices) after which one slot of shared memory stays empty.

        The first exchange writes at a stride of its radix. An even radix would use few of the
        memory's 16 double banks.
        """

        def pad(radix: int) -> int:
            return self.n if radix % 2 else radix

        return pad(self.radices[0]), pad(self.radices[-1])

    @property
    def slots(self) -> int:
        """Slots of shared memory per line."""
        return self.n + (self.n - 1) // min(self.pads)

    @property
    def kept(self) -> int:
        """Number of stored frequencies."""
        return self.n - (self.high - self.low)


@dataclass(frozen=True)
class KernelPlan:
    """Sizes and options that the kernels are compiled for."""

    y: AxisPlan  # the transforms along y
    x: AxisPlan  # the transforms along x
    tile: int  # columns per block of the columns pass
    row_probes: int  # probes per block of the rows pass

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks (rows, columns) that fit into a multiprocessor by their registers: the compiler
        may use no more.

        A thread of 32 values gets 128 registers, one of up to 16 values 80, one of up to 10 values
        64.
        """

        def fit(axis: AxisPlan, lines: int) -> int:
            if axis.values <= 10:
                threads = 1024
            elif axis.values <= 16:
                threads = 768
            else:
                threads = 512
            return max(1, threads // (axis.threads * lines))

        return fit(self.x, self.row_probes), fit(self.y, self.tile)

    @property
    def pitch(self) -> int:
        """Stored columns, including those that complete the last tile."""
        return -(-self.x.kept // self.tile) * self.tile

    @property
    def shared_bytes(self) -> tuple[int, int]:
        """Shared memory (rows, columns) per block, bytes."""
        return self.row_probes * self.x.slots * _COMPLEX, self.tile * self.y.slots * _COMPLEX

    @property
    def bytes_per_slice(self) -> int:
        """Device memory traffic of a probe per slice, bytes: two passes, each with a read and a
        write.

        t and P are shared by all probes and stay in the second-level cache. For 512² with a third
        of the columns zero it is 5.6 MB; with all columns it would be 8.4 MB, and 25.2 MB for plain
        transforms and products.
        """
        return 4 * self.y.n * self.pitch * _COMPLEX


def radices(n: int) -> tuple[int, ...]:
    """Returns the radices that transform `n` values: as few as possible, then the smallest and the
    most equal ones.

    The result is empty if n has a prime factor above 7 or exceeds `MAX_PIXELS`. The smallest
    radices come first and last: these stages access memory, where all threads of a line should take
    part. A radix above 16 is used where a line keeps at least half as many threads.
    """

    def factorisations(rest: int, most: int) -> Iterator[tuple[int, ...]]:
        if rest == 1:
            yield ()
        for radix in RADICES:
            if radix <= most and rest % radix == 0 and (radix <= 16 or radix * radix <= 2 * n):
                for others in factorisations(rest // radix, radix):
                    yield (radix, *others)

    if not 2 <= n <= MAX_PIXELS:
        return ()
    best = min(factorisations(n, max(RADICES)), key=lambda r: (len(r), max(r), -min(r)), default=())
    if len(best) < 2:
        return best
    return (best[-1], *best[:-2], best[-2])


def supports(shape: tuple[int, int], dtype: npt.DTypeLike) -> bool:
    """Returns whether the kernels support a grid (ny, nx) and a type; the plain engine supports
    all.
    """
    return np.dtype(dtype) == np.complex64 and all(radices(n) for n in shape)


def make_plan(lens: Array, fresnel: Array, shared_limit: int) -> KernelPlan | None:
    """Plans kernels for the frequencies where the lens or the propagator is not zero.

    Args:
        lens: The probe at the origin, (ny, nx) complex64, zero frequency first.
        fresnel: The propagator over one slice, (ny, nx) complex64, zero frequency first.
        shared_limit: The device's largest shared memory per block, bytes.

    Returns:
        The plan. `None` if the kernels do not support the grid on this device.
    """
    if not supports(fresnel.shape, fresnel.dtype):
        return None
    used = (lens != 0) | (fresnel != 0)
    y = _axis(to_host(used.any(axis=1)))
    x = _axis(to_host(used.any(axis=0)))
    most_row_probes = 8 if x.values <= 16 else 4
    row_probes = min(most_row_probes, max(1, 128 // x.threads))  # blocks of 64 to 128 threads
    # Half a tile still fills a sector.
    for tile, threads, blocks in ((_TILE, 512, 2), (_TILE // 2, 1024, 1)):
        plan = KernelPlan(y, x, tile, row_probes)
        if tile * y.threads <= threads and blocks * max(plan.shared_bytes) <= shared_limit:
            return plan
    return None


def _axis(used: npt.NDArray[np.bool_]) -> AxisPlan:
    """Returns the plan of an axis for the frequencies (n,) that are used."""
    n = len(used)
    frequencies = np.abs(np.fft.fftfreq(n, 1 / n)).round().astype(int)
    reach = int(frequencies[used].max(initial=0))
    low = n
    high = n
    if 2 * reach + 1 < n:
        low = reach + 1
        high = n - reach
    stages = radices(n)
    # If all divide the largest, every thread has as many values at every stage.
    if all(max(stages) % radix == 0 for radix in stages):
        threads = n // max(stages)
    else:
        threads = n // min(stages)
    return AxisPlan(n, stages, low, high, threads)


def geometry(
    plan: KernelPlan, kernel: str, probes: int
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Returns (grid, block, shared bytes) of the launch of a kernel over `probes` waves."""
    rows, columns = plan.shared_bytes
    if kernel == "rows":
        return (plan.y.n, -(-probes // plan.row_probes)), (plan.x.threads, plan.row_probes), rows
    return (plan.pitch // plan.tile, probes), (plan.tile, plan.y.threads), columns


def batch_size(
    plan: KernelPlan, probes: int, free_bytes: int, cache_bytes: int, requested: int | None = None
) -> int:
    """Returns the probes per batch. All batches are about equal and take at most half of the free
    memory.

    Args:
        requested: Largest batch; by default one whose waves, and those of the batch beside it, stay
            in the cache.

    Raises:
        WorkError: If one probe does not fit into the memory.
    """
    waves = plan.y.n * plan.pitch * _COMPLEX
    per_lane = waves + (plan.y.n + plan.pitch) * _COMPLEX
    probe_bytes = LANES * per_lane + 2 * IN_FLIGHT * plan.y.n * plan.x.n * 4
    fit = free_bytes // 2 // probe_bytes
    if not fit:
        raise WorkError(
            f"a probe of {plan.y.n}×{plan.x.n} needs {probe_bytes / 1e6:.1f} MB twice over on the "
            f"GPU, which has {free_bytes / 1e6:.1f} MB free: close what else uses it, or use "
            "backend 'cpu'"
        )
    cached = round(_CACHE_SHARE * cache_bytes / LANES / waves / plan.row_probes) * plan.row_probes
    if cache_bytes < _LEAST_CACHE or not cached:
        cached = max(1, _LANE_BYTES // waves)
    most = min(probes, fit, requested or cached, 65535)  # CUDA's limit on a grid's second axis
    return -(-probes // -(-probes // most))
