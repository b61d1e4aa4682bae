"""Speed of simulations on this machine: short runs of the loops that do the work.

The rates hold for this machine at its current load. Nothing depends on them but estimates that are
printed, as those of `namsa.engines.expected_time`.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from namsa.base.memory import check_memory_for
from namsa.engines import dispatch, prism
from namsa.engines.counts import SimulationCounts
from namsa.engines.interface import DEVICE_BATCH_BYTES, HOST_BATCH_BYTES
from namsa.physics import detector as detectors
from namsa.physics import potential
from namsa.physics.backend import available_cores, resolve_backend, to_host
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import AtomList, Slices
from namsa.physics.specimen import building_bytes

_MEASURED_SLICES = 4
_MEASURED_SECONDS = 0.02  # per rate, and at least one run
_LONG_SECONDS = 0.5


class Rates(NamedTuple):
    """Seconds per unit of work, on all cores of this process or on its GPU."""

    # per operation that propagates probes, as `prism.propagation_operations` counts them
    propagation: float
    plane_waves: float  # per operation that propagates plane waves
    product: float  # per operation of `prism.product_operations`
    pixel: float  # per pixel of a pattern, for everything but propagation
    potential: float  # per pixel of a distinct slice


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `simulate`
def measure_rates(workload: SimulationCounts, engine: dispatch.EngineName = "auto") -> Rates:
    """Measures the rates at the sizes of `workload`, in about 0.3 s, longer for grids far beyond
    512×512.

    Args:
        engine: The requested engine.

    Raises:
        OutOfMemoryError: If the short runs do not fit into memory.
    """
    xp = resolve_backend(workload.backend)
    _check_memory(workload)
    workers = available_cores() if xp is np else 1
    with ThreadPoolExecutor(workers) as pool:
        runs = _ShortRuns(workload, engine, xp, workers, pool)
        without_slices = runs.pattern_seconds(0)
        of_slices = runs.pattern_seconds(_MEASURED_SLICES) - without_slices
        propagation = max(of_slices, 0.1 * without_slices) / runs.operations
        plane_waves = runs.plane_wave_seconds() / runs.operations
        product = _product_rate(workload, xp, workers, runs.seconds)
        build = runs.seconds(_slice_builder(workload, xp), [0] * workers, 1)
    pixels = workload.grid.shape[0] * workload.grid.shape[1]
    return Rates(
        propagation=propagation,
        plane_waves=plane_waves,
        product=product,
        pixel=without_slices / (runs.waves * pixels),
        potential=build / (workers * pixels),
    )


class _ShortRuns:
    """Short runs of an engine on the grid of a workload.

    Attributes:
        waves: Waves of a run, a batch for each worker.
        operations: Operations that propagate them through the measured slices.
    """

    def __init__(
        self,
        workload: SimulationCounts,
        engine: dispatch.EngineName,
        xp: ModuleType,
        workers: int,
        pool: ThreadPoolExecutor,
    ) -> None:
        shape = workload.grid.shape
        self._grid = workload.grid
        self._pool = pool
        self._engine = dispatch.choose_implementation(engine, xp, shape, workload.dtype)
        # It stands for the lens, the propagator and the transmissions.
        self._fresnel = xp.asarray(workload.grid.antialias().astype(workload.dtype))
        self._binning = None
        if workload.pattern_shape != shape:
            real = np.dtype(workload.precision)
            (dy, dx), (ny, nx) = workload.pattern_shape, shape
            self._binning = xp.ones((dy, ny), real), xp.ones((nx, dx), real)
        batch_bytes = HOST_BATCH_BYTES if xp is np else DEVICE_BATCH_BYTES
        self._batch = max(1, batch_bytes // self._fresnel.nbytes)
        self.waves = workers * self._batch
        measured = workload.work._replace(slices=_MEASURED_SLICES)
        self.operations = prism.propagation_operations(measured, self.waves)

    def seconds(self, work: Callable[[Array], Array], items: Array, size: int) -> float:
        """Returns the mean time of `work` on all items, of which each call gets `size`."""
        pieces = [items[start : start + size] for start in range(0, len(items), size)]

        def run() -> None:
            for result in self._pool.map(work, pieces):
                to_host(result[:1, :1])  # waits for a device

        return _mean_seconds(run)

    def pattern_seconds(self, slices: int) -> float:
        """Returns the time of the patterns of all waves behind so many slices."""
        engine = self._engine.engine(self._grid, self._slices(slices), self._fresnel)
        probes = engine.prepare(self._fresnel)

        def patterns(positions: Array) -> Array:
            return detectors.bin_patterns(probes.patterns(positions), self._binning)

        return self.seconds(patterns, np.zeros((self.waves, 2)), self._batch)

    def plane_wave_seconds(self) -> float:
        """Returns the time of as many plane waves through the measured slices."""
        slices = self._slices(_MEASURED_SLICES)
        engine = self._engine.plane_waves(self._grid, slices, self._fresnel)
        pixels = np.flatnonzero(to_host(self._fresnel))

        def exit_waves(indices: Array) -> Array:
            return engine.exit_waves(indices, [_MEASURED_SLICES], pixels)[0]

        return self.seconds(exit_waves, np.zeros(self.waves, dtype=np.int64), self._batch)

    def _slices(self, count: int) -> Slices:
        return Slices.equally_thick([self._fresnel], np.zeros(count, dtype=np.int64), 1.0)


def _check_memory(workload: SimulationCounts) -> None:
    """Raises OutOfMemoryError if the short runs do not fit into memory."""
    ny, nx = workload.grid.shape
    fine = workload.grid.refined(workload.heaviest).shape
    item = workload.dtype.itemsize
    building = available_cores() * building_bytes(fine, workload.elements, item)
    check_memory_for(
        ny * nx * (64 + available_cores() * 3 * item) + building,
        f"the estimate of the time on a grid of {ny}×{nx} pixels",
        "use larger pixels or a smaller cell",
    )


def _product_rate(
    workload: SimulationCounts, xp: ModuleType, workers: int, seconds: Callable[..., float]
) -> float:
    """Measures PRISM's products on a small grid that stands for a part of the pixels, with as many
    beams as fit it.
    """
    small = Grid((64, 64), (64.0, 64.0))
    beams = small.squared_frequency() <= min(workload.work.beams, 400) / (np.pi * 64**2)
    pixels = np.ones(small.shape, dtype=np.bool_)
    lens = xp.ones(small.shape, workload.dtype)
    row = max(1, round(workload.work.probes / workload.work.rows))
    itemsize = np.dtype(workload.precision).itemsize
    size = min(prism.batch_size(workload.grid.shape, itemsize, row), workload.work.probes)
    on_grid = np.flatnonzero(beams.T) % 64 * 64 + np.flatnonzero(beams.T) // 64  # sorted by column
    waves = xp.ones((len(on_grid), pixels.size), workload.dtype)
    matrix = prism.ScatteringMatrix(waves, on_grid, np.flatnonzero(pixels))
    probes = prism.PrismEngine(small, matrix, size).prepare(lens)
    positions = np.repeat(np.arange(workers * size) // row, 2).reshape(-1, 2).astype(np.float64)
    operations = prism.product_operations(prism.count_work(0, positions, 1, beams, pixels))
    return seconds(probes.patterns, positions, size) / operations


def _slice_builder(workload: SimulationCounts, xp: ModuleType) -> Callable[[Array], Array]:
    """Returns a function that builds the transmission of a slice with an average slice's atoms and
    elements.
    """
    n = max(workload.elements, workload.atoms // workload.work.slices)
    fine = workload.grid.refined(workload.heaviest)
    yx = np.random.default_rng(0).uniform(0, 10, (n, 2))
    atoms = AtomList(np.arange(n) % workload.elements, yx, np.zeros(n), np.ones(n))
    factors = {
        index: xp.ones((fine.shape[0] // 2 + 1, fine.shape[1] // 2 + 1))
        for index in range(workload.elements)
    }
    antialias = xp.asarray(workload.grid.antialias())

    def build(_: Array) -> Array:
        sums = potential.structure_sums(atoms, fine, xp, np.dtype(workload.precision))
        v = potential.field(sums, factors, fine, xp)
        return potential.transmission(v, 1e-3, antialias, workload.dtype)

    return build


def _mean_seconds(run: Callable[[], object]) -> float:
    """Returns the mean time of `run` after a first call. The mean over a moment includes the
    machine's other load.

    A first call that is many times longer than the moment is the measurement: what it prepares does
    not count then.
    """
    start = time.perf_counter()
    run()
    first_s = time.perf_counter() - start
    if first_s > _LONG_SECONDS:
        return first_s
    start = time.perf_counter()
    runs = 0
    while runs == 0 or time.perf_counter() - start < _MEASURED_SECONDS:
        run()
        runs += 1
    return (time.perf_counter() - start) / runs
