"""Estimates of a simulation before it begins: time by each method, memory, disk.

Seconds are the counts of a `Workload` times the `Rates` that this machine reaches now. They leave
out reading crystals, the detector's noise, and writing, which happens while the next sample is
simulated.

Work that a configuration allows and this machine cannot do is refused before it begins. Its time is
first bounded by the rates of a slow machine, which takes no measurement, and measured only if it
exceeds the limit at these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from namsa.base.errors import InputError
from namsa.base.text import duration, plural
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset import manifest, strata
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry, feasible_entries, material_of, merged_names
from namsa.dataset.sharing import shuffled
from namsa.dataset.simulate_entry import check_entry
from namsa.dataset.strata import Strata
from namsa.dataset.workload import (
    Method,
    Workload,
    check_memory,
    count_workload,
    hdf5_bytes,
    memory_bytes,
    record_bytes,
)
from namsa.engines import prism
from namsa.engines.expected_time import stage_seconds
from namsa.engines.rates import Rates, measure_rates
from namsa.io.charge_density import ChargeDensity

# of these whose atoms are placed, and whose arguments are checked as the simulation checks them
CHECKED = 4
SAMPLED = 24  # entries of a dataset that are estimated, drawn from all of it

Rows = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class SampleEstimate:
    """Time, memory and disk of one sample, and the counts that they follow from."""

    id: str  # the sample's id
    method: Method  # the method that the simulation will use
    seconds: float  # time by `method`
    seconds_by_method: dict[Method, float]  # time by each method
    memory_bytes: int  # arrays at the peak; Python adds about 0.2 GB
    disk_bytes: int  # size of the record, or of the HDF5 file
    grid_shape: tuple[int, int]  # pixels (ny, nx) of the grid
    pixel_angstrom: float  # size of the larger side of a pixel, Å
    pattern_shape: tuple[int, int]  # pixels (dy, dx) of a pattern
    probes: int  # probe positions
    coherent_probes: int  # coherent probes per position
    configurations: int  # thermal configurations
    beams: int  # plane waves that the lens lets through
    slices: int  # slices of the specimen
    distinct_slices: int  # slices whose transmission is computed
    atoms: int  # atoms in the supercell
    specimen: str  # its thickness, made and asked, period and strain


@dataclass(frozen=True)
class DatasetEstimate:
    """Time, memory and disk of all samples of a dataset."""

    samples: int  # samples that can be built
    skipped: int  # samples that cannot be built
    sampled: int  # samples that were estimated, and stand for all
    ranks: int  # ranks that simulate
    seconds: float  # time of all samples, summed over the ranks
    # time per rank. Every rank is assumed to have the resources of this process
    seconds_per_rank: float
    memory_bytes: int  # arrays of one rank at the peak
    disk_bytes: int  # size of all records
    costliest: SampleEstimate  # the most expensive of the estimated samples
    strata: Strata  # counts of samples by split
    # names and sources of the crystals that were merged into a material, by its name
    merged: dict[str, list[str]]
    warning: str | None  # says that a split has no sample; `None` if all have some


def estimate_sample(workload: Workload, rates: Rates) -> SampleEstimate:
    """Returns time, memory and disk of one sample of a dataset; disk is the size of its record."""
    work = workload.work
    stages = stage_seconds(workload, rates)
    by_method: dict[Method, float] = {"multislice": stages.multislice, "prism": stages.prism}
    if workload.method == "scatter":
        shared = stages._replace(
            build=stages.build / workload.samples,
            plane_waves=stages.plane_waves / workload.samples,
        )
        by_method = {"scatter": shared.prism, "multislice": shared.multislice}
    seconds = {method: workload.configurations * time for method, time in by_method.items()}
    return SampleEstimate(
        id=workload.id,
        method=workload.method,
        seconds=seconds[workload.method],
        seconds_by_method=seconds,
        memory_bytes=memory_bytes(workload),
        disk_bytes=record_bytes(workload),
        grid_shape=workload.grid.shape,
        pixel_angstrom=max(workload.grid.sampling_angstrom),
        pattern_shape=workload.pattern_shape,
        probes=work.probes,
        coherent_probes=work.coherent,
        configurations=workload.configurations,
        beams=work.beams,
        slices=work.slices,
        distinct_slices=workload.distinct_slices,
        atoms=workload.atoms,
        specimen=workload.specimen,
    )


def estimate_stack(
    config: SimulationConfig,
    material: Material,
    entry: Entry,
    # patterns in memory if they are written batch by batch; `None` holds all
    batch_bytes: int | None = None,
    # that of the crystal, as `namsa.simulate` takes it
    charge_density: ChargeDensity | None = None,
) -> SampleEstimate:
    """Returns time, memory and disk of one sample that is written to an HDF5 file.

    Raises:
        InputError: If the simulation of the sample would raise it.
    """
    workload = count_workload(config, material, entry)
    check_entry(config, material, entry, charge_density, judged=True)
    estimate = estimate_sample(workload, measure_rates(workload))
    return replace(
        estimate, memory_bytes=memory_bytes(workload, batch_bytes), disk_bytes=hdf5_bytes(workload)
    )


def sampled(entries: Sequence[Entry]) -> list[Entry]:
    """Returns the entries whose time, memory and size stand for all."""
    return shuffled(entry for entry in entries if not entry.skipped)[:SAMPLED]


def estimate_dataset(
    config: SimulationConfig,
    materials: Sequence[Material],
    ranks: int,
    entries: Sequence[Entry] | None = None,
) -> DatasetEstimate:
    """Returns time, memory and disk of all samples of a dataset. `SAMPLED` of them stand for all.

    Args:
        materials: Its materials, or, with `entries`, at least those that `sampled` of them need.
        ranks: Ranks that simulate it. Each is assumed to have the resources of this process.
        entries: The dataset's entries. `None` builds them.

    Raises:
        InputError: If no sample can be built.
    """
    entries = build_entries(config, materials) if entries is None else entries
    feasible = feasible_entries(entries)
    if not feasible:
        raise InputError(
            f"none of the {len(entries)} samples can be built; {entries[0].id}: "
            f"{entries[0].skipped}"
        )
    # The first entries of a fixed random order stand for all.
    workloads = _workloads(config, materials, sampled(entries))
    costliest = _costliest(workloads)
    rates = measure_rates(workloads[costliest])
    estimates = [estimate_sample(workload, rates) for workload in workloads]
    scale = len(feasible) / len(estimates)
    seconds = scale * sum(sample.seconds for sample in estimates)
    disk_bytes = scale * sum(sample.disk_bytes for sample in estimates)
    largest = max(estimates, key=lambda sample: sample.memory_bytes)
    return DatasetEstimate(
        samples=len(feasible),
        skipped=len(entries) - len(feasible),
        sampled=len(estimates),
        ranks=ranks,
        seconds=seconds,
        seconds_per_rank=seconds / ranks,
        # One sample is stored while the next is simulated: patterns, record, and the LMDB pages
        # that it goes to.
        memory_bytes=largest.memory_bytes + 4 * largest.disk_bytes,
        disk_bytes=round(disk_bytes),
        costliest=estimates[costliest],
        strata=strata.count_strata(feasible),
        merged=merged_names(materials),
        warning=manifest.empty_splits(feasible, config.split),
    )


def _workloads(
    config: SimulationConfig, materials: Sequence[Material], chosen: Sequence[Entry]
) -> list[Workload]:
    """Returns the work of some samples. Some of them are checked as their simulation does it."""
    by_name = {material.name: material for material in materials}
    workloads = []
    for entry in chosen:
        workloads.append(count_workload(config, material_of(entry, by_name), entry))
    for entry in chosen[:CHECKED]:
        check_entry(config, material_of(entry, by_name), entry)
    return workloads


def _costliest(workloads: Sequence[Workload]) -> int:
    """Returns the index of the first sample that takes the most operations."""
    operations = []
    for workload in workloads:
        operations.append(prism.propagation_operations(workload.work, workload.work.probes))
    return operations.index(max(operations))


def table_rows(estimate: SampleEstimate | DatasetEstimate) -> Rows:
    """Yields an estimate as (name, value) for a table."""
    if isinstance(estimate, SampleEstimate):
        yield from _sample_rows(estimate)
        return
    yield (
        "samples",
        f"{estimate.samples} ({estimate.skipped} skipped), estimated from {estimate.sampled}",
    )
    yield (
        "time",
        f"{duration(estimate.seconds)}, {duration(estimate.seconds_per_rank)} on each of "
        f"{estimate.ranks}",
    )
    yield "memory per rank", f"{estimate.memory_bytes / 1e9:.2f} GB of arrays"
    yield "disk", f"{estimate.disk_bytes / 1e9:.3g} GB"
    if estimate.merged:
        yield (
            "merged",
            "; ".join(f"{', '.join(names)} into {kept}" for kept, names in estimate.merged.items()),
        )
    yield "", ""
    yield from strata.table_rows(estimate.strata)
    if estimate.warning:
        yield "warning", estimate.warning
    yield "", ""
    yield from _sample_rows(estimate.costliest)


def _sample_rows(estimate: SampleEstimate) -> Rows:
    """Yields the estimate of one sample as (name, value)."""
    other, other_seconds = next(
        pair for pair in estimate.seconds_by_method.items() if pair[0] != estimate.method
    )
    yield "sample", estimate.id
    yield (
        "method",
        f"{estimate.method}, {duration(estimate.seconds)}; {other} {duration(other_seconds)}",
    )
    yield "memory", f"{estimate.memory_bytes / 1e9:.2f} GB of arrays"
    yield "disk", f"{estimate.disk_bytes / 1e6:.3g} MB"
    yield "specimen", estimate.specimen
    yield "grid", f"{_times(estimate.grid_shape)}, pixels of {estimate.pixel_angstrom:.4f} Å"
    yield "patterns", f"{estimate.probes} of {_times(estimate.pattern_shape)}"
    yield (
        "coherent probes",
        f"{estimate.coherent_probes} per pattern, "
        f"{plural(estimate.configurations, 'configuration')}",
    )
    yield "plane waves", str(estimate.beams)
    yield "slices", f"{estimate.slices}, {estimate.distinct_slices} of them distinct"
    yield "atoms", str(estimate.atoms)


def _times(shape: tuple[int, int]) -> str:
    return "×".join(map(str, shape))


LONGEST_SECONDS = 30 * 86_400.0  # of one run: longer ones are a mistake, or need more ranks
# s per unit of work
SLOW_RATES = Rates(propagation=1e-9, plane_waves=1e-9, product=1e-9, pixel=1e-7, potential=1e-5)


def check_machine(
    workload: Workload, samples: float, available_bytes: int, batch_bytes: int | None = None
) -> None:
    """Checks that this machine can simulate some samples in a reasonable time.

    Args:
        samples: How many times the work of the costliest sample all of them take together.
        batch_bytes: Patterns in memory if they are written batch by batch. `None` holds all.

    Raises:
        OutOfMemoryError: If the costliest sample is expected to need more memory.
        InputError: If the samples are expected to take longer than `LONGEST_SECONDS`.
    """
    check_memory(workload, available_bytes, batch_bytes)
    if samples * estimate_sample(workload, SLOW_RATES).seconds <= LONGEST_SECONDS:
        return
    seconds = estimate_sample(workload, measure_rates(workload)).seconds
    if samples * seconds > LONGEST_SECONDS:
        costliest = f" ({duration(seconds)} for this sample)" if samples > 1 else ""
        raise InputError(
            f"{workload.id}: the simulation is expected to take "
            f"{duration(samples * seconds)}{costliest}, and the limit is "
            f"{duration(LONGEST_SECONDS)}: use fewer positions, a smaller grid, thicker slices, "
            "fewer samples or more ranks, or set a time limit; --force tries it nevertheless"
        )
