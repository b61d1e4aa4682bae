"""The factory: simulates what is missing of one rank's share of a dataset, into that rank's shard.

A rank's share follows from the manifest, the rank and the number of ranks alone. Shares cover the
manifest and do not overlap. A sample that is in any shard is not simulated again. An interrupted
run therefore continues where it stopped, also with another number of ranks, and a sample's bits do
not depend on which rank simulates it, or when.

The samples of a specimen are simulated one after the other, after what they have in common
(`prepare_samples`).

A sample that cannot be simulated is written down with its reason (`failures`) and not replaced. Its
failure follows from the configuration, so that no later run tries it again; after
`failed-RANK.jsonl` is deleted, runs try it again.

If a dataset is spread over nodes, the samples that other nodes hold are not missing
(`other_nodes`).
"""

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn, TypedDict

from namsa.base.errors import (
    DiskFullError,
    InputError,
    OutOfMemoryError,
    WorkError,
    stored_warnings,
)
from namsa.base.files import check_folder, existing_folder, make_folder
from namsa.base.memory import available_memory_bytes
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset import disk_space, identity, other_nodes, records, shards
from namsa.dataset.accuracy import check_dataset, warn_again
from namsa.dataset.entry import Entry, feasible_entries, material_of
from namsa.dataset.estimate import check_machine
from namsa.dataset.failures import append_failure, read_failures
from namsa.dataset.listing import plan_list
from namsa.dataset.sample_warnings import SampleWarnings
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.sharing import ONE_RANK, RankLayout, by_specimen, share
from namsa.dataset.simulate_entry import SimulateSample, prepare_samples
from namsa.dataset.workload import count_workload
from namsa.physics.backend import free_device_memory
from namsa.samples.sample import Sample

Prepare = Callable[[SimulationConfig, Material, Sequence[Entry]], SimulateSample]
# of a disk by a run with a time limit, for what comes after it; half of the room if it has less
_LEFT_FREE = 0.05
_FAILURES = (InputError, WorkError, MemoryError)  # of a sample; others are those of the program


@dataclass(frozen=True)
class RunLimits:
    """Limits at which a run stops before its share is complete."""

    samples: int | None = None  # the largest number of samples to simulate; `None`: all
    # The time after which no simulation starts; `None`: unlimited. A run with it also ends where
    # the disk is nearly full, so that what comes after it has its share of both.
    seconds: float | None = None
    # The memory of this rank. If the costliest sample needs more, or the samples are expected to
    # take longer than `estimate.LONGEST_SECONDS`, no simulation starts. `None`: neither is
    # estimated.
    memory_bytes: int | None = None

    @classmethod
    def of_machine(
        cls, local_size: int, force: bool, samples: int | None = None, seconds: float | None = None
    ) -> "RunLimits":
        """Returns the limits of a rank of this machine.

        Args:
            local_size: The number of ranks on this machine, which share its memory.
            samples: The largest number of samples to simulate.
            seconds: The time after which no simulation starts.
        """
        return cls(samples, seconds, None if force else available_memory_bytes() // local_size)

    def check(self) -> None:
        """Raises InputError for limits below 0, in terms of the command line's options."""
        for option, limit in (("--limit", self.samples), ("--time-limit", self.seconds)):
            if limit is not None and not limit >= 0:  # not-a-number included
                raise InputError(f"{option} is {limit}; it must be 0 or more")


UNLIMITED = RunLimits()


class ProductionSummary(TypedDict):
    """Summary of a run; JSON types. `written` to `remaining` are counts of the rank's share and sum
    to it.
    """

    rank: int  # the rank
    size: int  # the number of ranks
    written: int  # samples that this run simulated
    present: int  # samples that were in a shard before
    skipped: int  # entries for which no supercell can be built
    failed: int  # samples that could not be simulated, in this run or before
    remaining: int  # samples that a limit left out
    seconds: float  # duration of the run
    bytes: int  # size of the records that this run wrote
    time_limit_reached: bool  # whether the run stopped because its time was over
    disk_full: bool  # whether a run with a time limit stopped because the disk was nearly full


def produce(
    config: SimulationConfig,
    directory: Path,
    # The rank, the number of ranks, and how many of them write to the same disk. With the latter, a
    # disk that is too small is noticed before the first sample.
    layout: RankLayout = ONE_RANK,
    limits: RunLimits = UNLIMITED,  # where to stop early
    *,
    # Called as `on_sample(done, total)` after each sample.
    on_sample: Callable[[int, int], None] = lambda done, total: None,
    # Returns what makes the samples of a specimen, of the configuration, a material and all of the
    # specimen's entries that can be built.
    prepare: Prepare = prepare_samples,
    # Called with the entries of all ranks that can be built, if a sample is missing, before
    # anything is written. What it raises ends the run.
    check: Callable[[Sequence[Entry]], None] = lambda entries: None,
    # Returns the entries to simulate, of all ranks together, from those of the manifest.
    select: Callable[[Sequence[Entry]], Sequence[Entry]] = lambda entries: entries,
) -> ProductionSummary:
    """Simulates the missing samples of this rank's share; returns counts of the rank's share.

    Raises:
        InputError: If a limit is below 0, the directory holds samples of another configuration, or
            the samples need more memory or time than `limits` allow.
        WorkError: If the directory cannot be written, or has no room for the samples of a run
            without time limit. Committed samples are kept.
    """
    start = time.monotonic()
    limits.check()
    check_folder(directory)
    listing = plan_list(
        directory, config, lambda listed: share(select(listed), layout.rank, layout.size)
    )
    entries = listing.selected
    samples_hash = config.samples_hash()
    present = _present_ids(directory, samples_hash)
    failures = read_failures(directory, samples_hash)
    failed = failures.keys() - present
    feasible = feasible_entries(entries)
    done = present | failed
    missing = [entry for entry in feasible if entry.id not in done]
    run = _Run(
        config,
        listing.materials,
        directory,
        layout,
        samples_hash,
        start,
        limits,
        on_sample,
        prepare,
    )
    todo = missing[: limits.samples]
    if todo:  # nothing is written before all checks
        check(feasible_entries(listing.entries))
        run.check_resources(todo)
    make_folder(directory)
    listing.write()
    if todo:
        if layout.rank == 0 and prepare is prepare_samples:
            selected = feasible_entries(select(listing.entries))
            check_dataset(directory, config, selected, listing.materials)
        run.simulate_entries(todo, by_specimen(feasible))
        run.warnings.issue(len(run.record_bytes))
        free_device_memory()  # the process may go on to train
    elif layout.rank == 0 and prepare is prepare_samples:
        warn_again(directory, config)
    return run.summary(
        present=sum(entry.id in present for entry in feasible),
        skipped=len(entries) - len(feasible),
        failed=sum(entry.id in failed for entry in feasible),
        missing=len(missing),
    )


@dataclass
class _Run:
    """One call of `produce`. The lists are appended to by two threads: one simulates, one
    stores.
    """

    config: SimulationConfig
    materials: Mapping[str, Material]
    directory: Path
    layout: RankLayout
    samples_hash: str
    start: float
    limits: RunLimits
    on_sample: Callable[[int, int], None]
    prepare: Prepare
    record_bytes: list[int] = field(default_factory=list)
    warnings: SampleWarnings = field(default_factory=SampleWarnings)  # of the samples
    failed: list[str] = field(default_factory=list)
    # by another job of this rank, which ended before this one began
    stored_meanwhile: frozenset[str] = frozenset()
    time_limit_reached: bool = False
    disk_full: bool = False
    expected_bytes: int = 0  # of the records to come
    least_free_bytes: float = 0  # on the disk, for a sample to begin

    def check_resources(self, entries: Sequence[Entry]) -> None:
        """Checks the room on the disk, the memory and the time for some entries.

        Raises:
            InputError: If they are expected to need more memory or time than this machine has.
            WorkError: If the disk has no room for the samples of a run without time limit.
        """
        self.expected_bytes = disk_space.expected_bytes(self.config, self.materials, entries)
        time_limited = self.limits.seconds is not None
        disk = existing_folder(self.directory)
        disk_space.check(
            disk, self.expected_bytes, self.layout.local_size, time_limited=time_limited
        )
        if time_limited:
            usage = shutil.disk_usage(disk)
            next_bytes = self.layout.local_size * self.expected_bytes / len(entries)
            self.least_free_bytes = min(_LEFT_FREE * usage.total, usage.free / 2) + next_bytes
        self._check_machine(entries)

    def simulate_entries(
        self, entries: Sequence[Entry], specimens: Sequence[Sequence[Entry]]
    ) -> None:
        """Simulates and stores entries, specimen by specimen, until the time is over.

        `check_resources` was called with the same entries.

        Args:
            specimens: All entries of each specimen, in the order of their simulation.
        """
        identity.write_settings(self.directory, self.config)
        path = shards.shard_path(self.directory, self.layout.rank)
        per_commit = self.config.data.samples_per_commit
        # One sample is stored while the next is simulated. A second finished sample waits, so that
        # memory is bounded.
        wanted = {entry.id for entry in entries}
        done = 0
        with (
            ShardWriter(path, per_commit, 2 * self.expected_bytes) as writer,
            ThreadPoolExecutor(1) as pool,
        ):
            self.stored_meanwhile = writer.ids & wanted
            wanted -= writer.ids
            stored: Future[None] | None = None
            try:
                for entry, sample in self._samples(specimens, wanted):
                    if stored and sample:
                        stored.result()
                    if sample:
                        stored = pool.submit(self._store, writer, entry, sample)
                    done += 1
                    self.on_sample(done, len(wanted))
                if stored:
                    stored.result()
                writer.commit()
            except DiskFullError as error:
                if self.limits.seconds is None:
                    raise
                self.disk_full = True
                del self.record_bytes[len(self.record_bytes) - error.lost :]

    def summary(
        self, *, present: int, skipped: int, failed: int, missing: int
    ) -> ProductionSummary:
        """Returns the summary of the run, from counts of the rank's share before it began.

        Args:
            missing: Entries that were neither present nor failed nor skipped.
        """
        written = len(self.record_bytes)
        stored_meanwhile = len(self.stored_meanwhile)
        return {
            "rank": self.layout.rank,
            "size": self.layout.size,
            "written": written,
            "present": present + stored_meanwhile,
            "skipped": skipped,
            "failed": failed + len(self.failed),
            "remaining": missing - written - len(self.failed) - stored_meanwhile,
            "seconds": round(time.monotonic() - self.start, 3),
            "bytes": sum(self.record_bytes),
            "time_limit_reached": self.time_limit_reached,
            "disk_full": self.disk_full,
        }

    def _samples(
        self, specimens: Sequence[Sequence[Entry]], wanted: Collection[str]
    ) -> Iterator[tuple[Entry, Sample | None]]:
        """Yields the wanted entries with their samples, `None` for one that failed, until a limit
        is reached.
        """
        for entries in specimens:
            todo = [entry for entry in entries if entry.id in wanted]
            if not todo or self._is_over():
                continue
            simulate: SimulateSample
            try:
                with stored_warnings():
                    simulate = self.prepare(
                        self.config, material_of(entries[0], self.materials), entries
                    )
            except _FAILURES as error:
                simulate = partial(_fail, error)
            for entry in todo:
                if self._is_over():
                    break
                try:
                    with stored_warnings():
                        sample = simulate(entry)
                except _FAILURES as error:
                    self._fail(entry, error)
                    yield entry, None
                else:
                    self.warnings.add(sample.provenance.get("warnings", ()))
                    yield entry, sample
            # and with it what the samples have in common, before the next specimen takes memory
            del simulate

    def _is_over(self) -> bool:
        """Whether the time is over, or, in a run with a time limit, the disk is nearly full."""
        if self.limits.seconds is not None:
            self.time_limit_reached |= time.monotonic() - self.start >= self.limits.seconds
            self.disk_full |= shutil.disk_usage(self.directory).free < self.least_free_bytes
        return self.time_limit_reached or self.disk_full

    def _check_machine(self, entries: Sequence[Entry]) -> None:
        """Raises InputError if the entries are expected to need more memory or time than this
        machine has.
        """
        if self.limits.memory_bytes is None:
            return
        costliest = max(entries, key=lambda entry: entry.cost)
        try:
            workload = count_workload(
                self.config, material_of(costliest, self.materials), costliest
            )
        except OutOfMemoryError:
            raise
        except InputError:  # a sample that cannot be simulated needs no memory
            return
        if costliest.cost:
            relative_cost = sum(entry.cost for entry in entries) / costliest.cost
        else:
            relative_cost = len(entries)
        # A run with a time limit may end after its first sample.
        check_machine(
            workload, relative_cost if self.limits.seconds is None else 1, self.limits.memory_bytes
        )

    def _store(self, writer: ShardWriter, entry: Entry, sample: Sample) -> None:
        """Encodes and writes a sample."""
        try:
            record = records.encode(sample, self.config.data.dtype, self.config.data.tiles)
        except (WorkError, MemoryError) as error:
            self._fail(entry, error)
        else:
            self.record_bytes.append(len(record))
            writer.put(entry.id, record)

    def _fail(self, entry: Entry, error: Exception) -> None:
        """Writes down that a sample could not be made."""
        append_failure(self.directory, self.layout.rank, self.samples_hash, entry.id, error)
        self.failed.append(entry.id)


def _fail(error: Exception, entry: Entry) -> NoReturn:
    """Fails each sample of a specimen for the same reason."""
    raise error


def _present_ids(directory: Path, samples_hash: str) -> frozenset[str]:
    """Returns the samples that are in a shard, here or on another node."""
    if not directory.exists():
        return frozenset()
    with shards.Dataset(directory) as dataset:
        identity.check_same_samples(directory, dataset.config_hash, samples_hash)
        return frozenset(dataset.ids) | other_nodes.read_ids(directory, samples_hash)
