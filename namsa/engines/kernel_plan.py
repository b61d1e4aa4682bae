"""The plan of the GPU kernels of fused_gpu.cu: radices, sizes of blocks and shared memory, probes per batch.

It needs no GPU. Times in the comments are estimates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.errors import WorkError
from namsa.physics.backend import to_host
from namsa.physics.grid import Array

RADICES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16)
MAX_PIXELS = (
    1024  # per axis: a block of longer columns would fill a multiprocessor, which could not load while it computes
)
_BLOCK_THREADS = 256  # of the rows pass: several blocks per multiprocessor, so that one computes while others load
_TILE = 8  # columns per block: 64 contiguous bytes, two sectors of memory; if two blocks fit into a multiprocessor
_COMPLEX = 8  # bytes
# Size of a batch's waves. A launch takes about 80 µs on an H100, so that the 5 µs to enqueue it do not matter and no
# graph is captured. Larger batches would gain less from the second-level cache between passes.
_WAVES_BYTES = 2**27
IN_FLIGHT = 2  # batches: one is computed while the other is copied to the host and added


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

        The first exchange writes at a stride of its radix. An even radix would use few of the memory's 16 double banks.
        """
        return tuple(self.n if radix % 2 else radix for radix in (self.radices[0], self.radices[-1]))  # type: ignore[return-value]

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
    """What the kernels are compiled for."""

    y: AxisPlan  # the transforms along y
    x: AxisPlan  # the transforms along x
    tile: int  # columns per block of the columns pass
    row_probes: int  # probes per block of the rows pass
    blocks: tuple[int, int] = (1, 1)  # (rows, columns) blocks that shall fit a multiprocessor by their registers

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
        """Device memory traffic of a probe per slice, bytes: two passes, each with a read and a write.

        t and P are shared by all probes and stay in the second-level cache. For 512² with a third of the columns zero
        it is 5.6 MB; with all columns it would be 8.4 MB, and 25.2 MB for plain transforms and products.
        """
        return 4 * self.y.n * self.pitch * _COMPLEX


def radices(n: int) -> tuple[int, ...]:
    """Returns the radices that transform `n` values: as few as possible, then the smallest and the most equal ones.

    The result is empty if n has a prime factor above 7 or exceeds `MAX_PIXELS`. The smallest radices come first and
    last: these stages access memory, where all threads of a line should take part.
    """

    def factorisations(rest: int, most: int) -> Iterator[tuple[int, ...]]:
        if rest == 1:
            yield ()
        for radix in RADICES:
            if radix <= most and rest % radix == 0:
                for others in factorisations(rest // radix, radix):
                    yield (radix, *others)

    if not 2 <= n <= MAX_PIXELS:
        return ()
    best = min(factorisations(n, max(RADICES)), key=lambda r: (len(r), max(r), -min(r)), default=())
    return best if len(best) < 2 else (best[-1], *best[:-2], best[-2])


def supports(shape: tuple[int, int], dtype: Any) -> bool:
    """Returns whether the kernels support a grid (ny, nx) and a type; the plain engine supports all."""
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
    y, x = (_axis(to_host(used.any(axis=other))) for other in (1, 0))
    row_probes = min(16, max(1, _BLOCK_THREADS // x.threads))
    for tile, threads, blocks in ((_TILE, 512, 2), (_TILE // 2, 1024, 1)):  # half a tile still fills a sector
        plan = KernelPlan(y, x, tile, row_probes)
        if tile * y.threads <= threads and blocks * max(plan.shared_bytes) <= shared_limit:
            return plan
    return None


def _axis(used: npt.NDArray[np.bool_]) -> AxisPlan:
    """Returns the plan of an axis for the frequencies (n,) that are used."""
    n = len(used)
    frequencies = np.abs(np.fft.fftfreq(n, 1 / n)).round().astype(int)
    reach = int(frequencies[used].max(initial=0))
    low, high = (reach + 1, n - reach) if 2 * reach + 1 < n else (n, n)
    return AxisPlan(n, radices(n), low, high, n // min(radices(n)))


def geometry(plan: KernelPlan, kernel: str, probes: int) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Returns (grid, block, shared bytes) of the launch of a kernel over `probes` waves."""
    rows, columns = plan.shared_bytes
    if kernel == "rows":
        return (plan.y.n, -(-probes // plan.row_probes)), (plan.x.threads, plan.row_probes), rows
    return (plan.pitch // plan.tile, probes), (plan.tile, plan.y.threads), columns


def batch_size(plan: KernelPlan, probes: int, free_bytes: int, requested: int | None = None) -> int:
    """Returns the probes per batch. All batches are about equal and take at most half of the free memory.

    Args:
        free_bytes: Free memory of the device, bytes.
        requested: Largest batch; by default waves of `_WAVES_BYTES`.

    Raises:
        WorkError: If one probe does not fit into the memory.
    """
    waves = plan.y.n * plan.pitch * _COMPLEX
    each = waves + (plan.y.n + plan.pitch) * _COMPLEX + 2 * IN_FLIGHT * plan.y.n * plan.x.n * 4
    fit = free_bytes // 2 // each
    if not fit:
        raise WorkError(
            f"a probe of {plan.y.n}×{plan.x.n} needs {each / 1e6:.1f} MB twice over on the GPU, which has "
            f"{free_bytes / 1e6:.1f} MB free: close what else uses it, or use backend 'cpu'"
        )
    most = min(probes, fit, requested or max(1, _WAVES_BYTES // waves), 65535)  # CUDA's limit on a grid's second axis
    return -(-probes // -(-probes // most))
