"""What a simulation will take, told before it begins: time by each method, memory, disk.

A `Case` counts what is to be done and follows from the configuration alone; the method is chosen by its counts
(`prism.pays`). Seconds are those counts times rates measured here and now, in short runs of the loops that will do the
work: they hold for this machine, as busy as it is, and nothing but what is printed depends on them.

Not in the seconds: reading crystals, the detector's noise, and writing, which goes on beside the next simulation.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.crystals.supercell import filled
from namsa.dataset import manifest, scan, strata
from namsa.dataset.manifest import Entry
from namsa.dataset.sharing import shuffled
from namsa.dataset.simulate_entry import fit_of, focal_spread_angstrom, with_own_microscope
from namsa.engines import fused, multislice, prism
from namsa.errors import InputError
from namsa.physics import coherence, optics, potential
from namsa.physics import detector as detectors
from namsa.physics.backend import available_cores, resolve, to_host
from namsa.physics.grid import Array, Grid, fast_shape
from namsa.physics.potential import AtomList, Slices
from namsa.physics.specimen import atom_list
from namsa.text import duration, plural

Method = Literal["multislice", "prism"]

SAMPLED = 24  # of a dataset's entries, from all over it
_MEASURED_SLICES = 4
_MEASURED_SECONDS = 0.02  # for each rate, and no fewer than one run
_HEADER_BYTES = 2600  # of a record
_HDF5_BYTES, _HDF5_POSITION_BYTES = 20_000, 50  # of structure; of a position, twice, once as text
_PAGE = 4096  # LMDB's


@dataclass(frozen=True)
class Case:
    """One sample's counts. What they mean is in `prism.Work`; `atoms` are the supercell's."""

    grid: Grid
    work: prism.Work
    configurations: int
    distinct_slices: int
    atoms: int
    elements: int
    precision: Literal["float32", "float64"]
    backend: Literal["auto", "cpu", "cupy"]
    pattern_shape: tuple[int, int]
    density_shape: tuple[int, int]
    stored: Literal["float16", "float32"]
    wanted_method: Literal["auto", "multislice", "prism"]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The waves' complex type."""
        return np.result_type(self.precision, np.complex64)

    @property
    def method(self) -> Method:
        """The method that will be taken."""
        if self.wanted_method != "auto":
            return self.wanted_method
        return "prism" if prism.pays(self.work, self.dtype.itemsize) else "multislice"


class Rates(NamedTuple):
    """Seconds on all of this process's cores, or on its GPU: of an operation as `prism` counts them; of a pixel of a
    pattern, besides; of a pixel of a distinct slice."""

    propagation: float
    plane_waves: float
    product: float
    pixel: float
    potential: float


@dataclass(frozen=True)
class Estimate:
    """Of one sample, by `method`; bytes are those of arrays, to which Python adds about 0.2 GB."""

    method: Method
    seconds: float
    seconds_by_method: dict[Method, float]
    memory_bytes: int
    disk_bytes: int
    grid_shape: tuple[int, int]
    pattern_shape: tuple[int, int]
    probes: int
    coherent_probes: int
    configurations: int
    beams: int
    slices: int
    distinct_slices: int
    atoms: int


def count(config: SimulationConfig, material: Material, entry: Entry) -> Case:
    """What `entry.simulate_entry` would do. Raises InputError as it does."""
    own = with_own_microscope(config, entry)
    wanted, microscope, settings = own.specimen, own.microscope, own.simulation
    fit = fit_of(wanted, material, entry)
    lx, ly, lz = fit.lengths_angstrom
    grid = Grid(settings.grid_shape or fast_shape((ly, lx), settings.sampling_angstrom or 0.0), (ly, lx))
    positions = (
        scan.read(config.scan.file)
        if config.scan.file
        else scan.raster(*scan.positions(config.scan, grid.extent_angstrom, np.random.default_rng(entry.seed)))
    )
    wavelength = optics.wavelength_angstrom(microscope.energy_ev)
    lens = optics.lens(
        grid, microscope.energy_ev, microscope.semiangle_mrad, microscope.aberrations, microscope.beam_tilt_mrad
    )
    source_points = microscope.source_points
    if source_points is None and coherence.resolving(
        config.scan.shape, positions, grid, wavelength, microscope.semiangle_mrad
    ):
        source_points = 1
    modes = coherence.modes(
        wavelength,
        microscope.semiangle_mrad,
        microscope.source_size_angstrom,
        source_points,
        focal_spread_angstrom(microscope),
        microscope.focal_points,
    )
    binning = detectors.bin_matrices(grid, wavelength, config.detector) if config.detector else None
    pattern_shape = tuple(row.count for row in detectors.pixels(grid, wavelength, config.detector))
    n_slices = potential.slice_count(lz, settings.slice_thickness_angstrom)
    seen = prism.seen(grid.antialias(), binning)
    at_scan = config.target.at == "scan" and config.scan.shape
    return Case(
        grid,
        prism.count(n_slices, positions, len(modes), lens != 0, seen),
        wanted.frozen_phonons.configurations if wanted.frozen_phonons else 1,
        _distinct_slices(config, material, entry, n_slices),
        fit.atoms,
        len(set(material.atoms.numbers.tolist())),
        settings.precision,
        settings.backend,
        (pattern_shape[0], pattern_shape[1]),
        at_scan or grid.shape,
        config.data.dtype,
        settings.method,
    )


def _distinct_slices(config: SimulationConfig, material: Material, entry: Entry, n_slices: int) -> int:
    """As many as there are slices where atoms are displaced; else those of the smallest supercell, which is tiled."""
    if config.specimen.frozen_phonons:
        return n_slices
    smallest = config.specimen.model_copy(update={"lateral_angstrom": (1e-3, 1e-3)})
    fit = fit_of(smallest, material, entry)
    atoms = atom_list(filled(material.atoms, fit).atoms)
    return len(potential.distinct_slices(atoms, fit.lengths_angstrom[2], n_slices)[0])


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `simulate`
def calibrate(case: Case) -> Rates:
    """Rates at the sizes of `case`, in about 0.3 s, longer for grids far beyond 512×512."""
    xp, shape, real = resolve(case.backend), case.grid.shape, np.dtype(case.precision)
    on_host = xp is np
    chosen = fused if on_host and fused.supports(shape) else multislice
    fresnel = xp.asarray(case.grid.antialias().astype(case.dtype))
    matrices = None
    if case.pattern_shape != shape:
        (dy, dx), (ny, nx) = case.pattern_shape, shape
        matrices = xp.ones((dy, ny), real), xp.ones((nx, dx), real)
    workers = available_cores() if on_host else 1
    together = max(1, (2**20 if on_host else 2**28) // fresnel.nbytes)
    waves = workers * together
    operations = prism.propagation_operations(case.work._replace(slices=_MEASURED_SLICES), waves)

    def slices(count: int) -> Slices:
        return Slices([fresnel], np.zeros(count, dtype=np.int64), 1.0)

    with ThreadPoolExecutor(workers) as pool:

        def seconds(work: Callable[[Any], Array], items: Any, size: int) -> float:
            pieces = [items[i : i + size] for i in range(0, len(items), size)]
            return _seconds(lambda: [to_host(result[:1, :1]) for result in pool.map(work, pieces)])

        def pattern_seconds(n_slices: int) -> float:
            patterns = chosen.engine(case.grid, slices(n_slices), fresnel)(fresnel)
            return seconds(lambda r: detectors.collect(patterns(r), matrices), np.zeros((waves, 2)), together)

        without = pattern_seconds(0)
        propagation = max(pattern_seconds(_MEASURED_SLICES) - without, 0.1 * without) / operations
        exit_waves = chosen.plane_waves(case.grid, slices(_MEASURED_SLICES), fresnel)
        plane_waves = seconds(exit_waves, np.zeros(waves, dtype=np.int64), together) / operations
        product = _product_rate(case, xp, workers, seconds)
        build = seconds(_slice_builder(case, xp), [0] * workers, 1) / (workers * fresnel.size)
    return Rates(propagation, plane_waves, product, without / (waves * fresnel.size), build)


def _product_rate(case: Case, xp: Any, workers: int, seconds: Callable[..., float]) -> float:
    """On a small grid that stands for a part of the pixels, with as many beams as fit it."""
    small = Grid((64, 64), (64.0, 64.0))
    beams = small.squared_frequency() <= min(case.work.beams, 400) / (np.pi * 64**2)
    wanted = np.ones(small.shape, dtype=np.bool_)
    lens = xp.ones(small.shape, case.dtype)
    scan = prism.engine(small, lambda b: xp.ones((len(b), *small.shape), case.dtype), lens, beams, wanted)
    row = max(1, round(case.work.probes / case.work.rows))
    size = min(prism.batch(case.grid.shape, np.dtype(case.precision).itemsize, row), case.work.probes)
    positions = np.repeat(np.arange(workers * size) // row, 2).reshape(-1, 2).astype(np.float64)
    operations = prism.product_operations(prism.count(0, positions, 1, beams, wanted))
    return seconds(scan(lens), positions, size) / operations


def _slice_builder(case: Case, xp: Any) -> Callable[[Any], Array]:
    """What makes the transmission of a slice that holds an average slice's atoms, of as many elements."""
    n, shape = max(case.elements, case.atoms // case.work.slices), case.grid.shape
    yx = np.random.default_rng(0).uniform(0, 10, (n, 2))
    atoms = AtomList(np.arange(n) % case.elements, yx, np.zeros(n), np.ones(n))
    factors = {number: xp.ones((shape[0] // 2 + 1, shape[1] // 2 + 1)) for number in range(case.elements)}
    antialias = xp.asarray(case.grid.antialias())

    def build(_: Any) -> Array:
        v = potential.field(
            potential.structure_sums(atoms, case.grid, xp, np.dtype(case.precision)), factors, case.grid, xp
        )
        return potential.transmission(v, 1e-3, antialias, case.dtype)

    return build


def _seconds(run: Callable[[], Any]) -> float:
    """What `run` takes when it has run before, in the mean over a moment: a busy machine is no faster than that."""
    run()
    start, runs = time.perf_counter(), 0
    while runs == 0 or time.perf_counter() - start < _MEASURED_SECONDS:
        run()
        runs += 1
    return (time.perf_counter() - start) / runs


def estimate(case: Case, rates: Rates) -> Estimate:
    """Time, memory and disk of `case`; disk is that of its record in a dataset."""
    work, pixels = case.work, case.grid.shape[0] * case.grid.shape[1]
    patterns = work.probes * work.coherent
    build = case.distinct_slices * pixels * rates.potential
    collect = patterns * pixels * rates.pixel
    seconds: dict[Method, float] = {
        "multislice": prism.propagation_operations(work, patterns) * rates.propagation,
        "prism": prism.propagation_operations(work, work.beams) * rates.plane_waves
        + prism.product_operations(work) * rates.product,
    }
    seconds = {method: case.configurations * (build + collect + spent) for method, spent in seconds.items()}
    return Estimate(
        method=case.method,
        seconds=seconds[case.method],
        seconds_by_method=seconds,
        memory_bytes=memory_bytes(case),
        disk_bytes=record_bytes(case),
        grid_shape=case.grid.shape,
        pattern_shape=case.pattern_shape,
        probes=work.probes,
        coherent_probes=work.coherent,
        configurations=case.configurations,
        beams=work.beams,
        slices=work.slices,
        distinct_slices=case.distinct_slices,
        atoms=case.atoms,
    )


def memory_bytes(case: Case) -> int:
    """The arrays at the peak: patterns, transmissions, what building a slice takes, and each core's waves."""
    pixels, item = case.grid.shape[0] * case.grid.shape[1], case.dtype.itemsize
    patterns = case.work.probes * case.pattern_shape[0] * case.pattern_shape[1] * item // 2
    transmissions = case.distinct_slices * pixels * item
    build = pixels * (8 * 8 + 12 * case.elements)  # planes in double precision; half planes of factors and sums
    per_core = 3 * max(2**20, pixels * item)
    matrix = 0
    if case.method == "prism":
        matrix = case.work.beams * case.work.seen * item
        row = max(1, case.work.probes // case.work.rows)
        per_core = 2 * prism.batch(case.grid.shape, item // 2, row) * pixels * item // 2
    return patterns + transmissions + build + available_cores() * per_core + matrix


def record_bytes(case: Case) -> int:
    """A record as it lies in a shard: header, patterns, density, potential, positions, in whole pages."""
    (dy, dx), (ty, tx), (ny, nx) = case.pattern_shape, case.density_shape, case.grid.shape
    numbers = {"float16": 2, "float32": 4}[case.stored] * case.work.probes * dy * dx + 4 * (ty * tx + ny * nx)
    return -(-(_HEADER_BYTES + numbers + 16 * case.work.probes) // _PAGE) * _PAGE


def hdf5_bytes(case: Case) -> int:
    """A sample as `hdf5.write` stores it: patterns, density and potential as they are, positions and provenance."""
    (dy, dx), (ty, tx), (ny, nx) = case.pattern_shape, case.density_shape, case.grid.shape
    numbers = case.work.probes * dy * dx + ty * tx + ny * nx
    return numbers * case.dtype.itemsize // 2 + _HDF5_BYTES + _HDF5_POSITION_BYTES * case.work.probes


def stack(config: SimulationConfig, material: Material, entry: Entry) -> dict[str, Any]:
    """One sample in an HDF5 file; JSON types."""
    case = count(config, material, entry)
    found = estimate(case, calibrate(case))
    return {"id": entry.id} | asdict(replace(found, disk_bytes=hdf5_bytes(case)))


def dataset(config: SimulationConfig, materials: Sequence[Material], size: int) -> dict[str, Any]:
    """All samples of a dataset, made by `size` ranks: `SAMPLED` of them, scaled to all; JSON types.

    Ranks are taken to have as much each as this process has. Raises InputError where no sample can be built.
    """
    entries = manifest.build(config, materials)
    feasible = shuffled(entry for entry in entries if not entry.skipped)
    if not feasible:
        raise InputError(f"none of the {len(entries)} samples can be built; {entries[0].id}: {entries[0].skipped}")
    by_name = {material.name: material for material in materials}
    # The first of a fixed shuffle stand for all.
    cases = [count(config, by_name[entry.material], entry) for entry in feasible[:SAMPLED]]
    costliest = max(range(len(cases)), key=lambda i: prism.propagation_operations(cases[i].work, cases[i].work.probes))
    rates = calibrate(cases[costliest])
    found = [estimate(case, rates) for case in cases]
    scale = len(feasible) / len(found)
    seconds = scale * sum(one.seconds for one in found)
    largest = max(found, key=lambda one: one.memory_bytes)
    return {
        "samples": len(feasible),
        "skipped": len(entries) - len(feasible),
        "sampled": len(found),
        "ranks": size,
        "seconds": seconds,
        "seconds_a_rank": seconds / size,
        # One sample is stored while the next is made: patterns, record, and LMDB's pages that it goes to.
        "memory_bytes": largest.memory_bytes + 4 * largest.disk_bytes,
        "disk_bytes": round(scale * sum(one.disk_bytes for one in found)),
        "costliest": {"id": feasible[costliest].id} | asdict(found[costliest]),
        "strata": strata.strata(feasible),
        "merged": {material.name: list(material.merged) for material in materials if material.merged},
        "warning": manifest.empty_splits(feasible, config.split),
    }


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What `stack` or `dataset` found, as (name, value) for a table."""
    if "samples" in found:
        yield "samples", f"{found['samples']} ({found['skipped']} skipped), estimated from {found['sampled']}"
        yield "time", f"{duration(found['seconds'])}, {duration(found['seconds_a_rank'])} on each of {found['ranks']}"
        yield "memory a rank", f"{found['memory_bytes'] / 1e9:.2f} GB of arrays"
        yield "disk", f"{found['disk_bytes'] / 1e9:.3g} GB"
        if found["merged"]:
            yield "merged", "; ".join(f"{', '.join(names)} into {kept}" for kept, names in found["merged"].items())
        yield "", ""
        yield from strata.rows(found["strata"])
        if found["warning"]:
            yield "warning", found["warning"]
        yield "", ""
        found = found["costliest"]
    other, seconds = next(pair for pair in found["seconds_by_method"].items() if pair[0] != found["method"])
    yield "sample", found["id"]
    yield "method", f"{found['method']}, {duration(found['seconds'])}; {other} {duration(seconds)}"
    yield "memory", f"{found['memory_bytes'] / 1e9:.2f} GB of arrays"
    yield "disk", f"{found['disk_bytes'] / 1e6:.3g} MB"
    yield "grid", _times(found["grid_shape"])
    yield "patterns", f"{found['probes']} of {_times(found['pattern_shape'])}"
    yield (
        "coherent probes",
        f"{found['coherent_probes']} a pattern, {plural(found['configurations'], 'configuration')}",
    )
    yield "plane waves", str(found["beams"])
    yield "slices", f"{found['slices']}, {found['distinct_slices']} of them distinct"
    yield "atoms", str(found["atoms"])


def _times(shape: tuple[int, int]) -> str:
    return "×".join(map(str, shape))
