"""How fast this machine simulates: short runs of the loops that do the work.

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
    shape = workload.grid.shape
    real = np.dtype(workload.precision)
    _check_memory(workload)
    on_host = xp is np
    implementation = dispatch.choose_implementation(engine, xp, shape, workload.dtype)
    fresnel = xp.asarray(workload.grid.antialias().astype(workload.dtype))
    matrices = None
    if workload.pattern_shape != shape:
        (dy, dx), (ny, nx) = workload.pattern_shape, shape
        matrices = xp.ones((dy, ny), real), xp.ones((nx, dx), real)
    workers = available_cores() if on_host else 1
    batch = max(1, (2**20 if on_host else 2**28) // fresnel.nbytes)
    waves = workers * batch
    operations = prism.propagation_operations(
        workload.work._replace(slices=_MEASURED_SLICES), waves
    )

    def slices(count: int) -> Slices:
        return Slices.equally_thick([fresnel], np.zeros(count, dtype=np.int64), 1.0)

    with ThreadPoolExecutor(workers) as pool:

        def seconds(work: Callable[[Array], Array], items: Array, size: int) -> float:
            pieces = [items[i : i + size] for i in range(0, len(items), size)]
            return _mean_seconds(
                lambda: [to_host(result[:1, :1]) for result in pool.map(work, pieces)]
            )

        def pattern_seconds(n_slices: int) -> float:
            probes = implementation.engine(workload.grid, slices(n_slices), fresnel).prepare(
                fresnel
            )
            return seconds(
                lambda r: detectors.bin_patterns(probes.patterns(r), matrices),
                np.zeros((waves, 2)),
                batch,
            )

        without_slices = pattern_seconds(0)
        propagation = (
            max(pattern_seconds(_MEASURED_SLICES) - without_slices, 0.1 * without_slices)
            / operations
        )
        exit_waves = implementation.plane_waves(
            workload.grid, slices(_MEASURED_SLICES), fresnel
        ).exit_waves
        indices = np.zeros(waves, dtype=np.int64)
        pixels = np.flatnonzero(to_host(fresnel))
        plane_waves = (
            seconds(lambda part: exit_waves(part, [_MEASURED_SLICES], pixels)[0], indices, batch)
            / operations
        )
        product = _product_rate(workload, xp, workers, seconds)
        build = seconds(_slice_builder(workload, xp), [0] * workers, 1) / (workers * fresnel.size)
    return Rates(propagation, plane_waves, product, without_slices / (waves * fresnel.size), build)


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
    first = time.perf_counter() - start
    if first > _LONG_SECONDS:
        return first
    start = time.perf_counter()
    runs = 0
    while runs == 0 or time.perf_counter() - start < _MEASURED_SECONDS:
        run()
        runs += 1
    return (time.perf_counter() - start) / runs
