"""Samples that are drawn and simulated while the network trains. See `order`, `ring` and
`simulator` beside this.
"""

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import overload

import numpy as np

from namsa.base.errors import InputError
from namsa.base.files import make_folder
from namsa.base.launcher import usable_cores
from namsa.base.memory import check_memory_for
from namsa.base.text import plural
from namsa.dataset.disk_space import expected_bytes
from namsa.dataset.drawn import DrawFailure, SpecimenDraws, further_materials, train_entries
from namsa.dataset.entry import Entry, seed_of
from namsa.dataset.failures import append_failure, read_failures
from namsa.dataset.listing import list_samples
from namsa.dataset.records import Record
from namsa.dataset.sample_process import InProcess, InThread
from namsa.dataset.sharing import by_specimen
from namsa.physics.backend import resolve_backend

from ....experiment.experiment import Experiment
from ....input.source import Preparation, SimulatedSource, TrainingSet
from .order import Order
from .ring import Ring
from .section import Simulate
from .simulator import Simulator

FAILURES = "drawn"  # folder in data.directory


class OnlineSimulationSource(SimulatedSource):
    """Samples that are simulated beside the training."""

    keeps_views = False
    waits = True
    section: Simulate
    _simulator: Simulator | None = None
    _draws: SpecimenDraws

    def __init__(self, section: Simulate, experiment: Experiment) -> None:
        super().__init__(section, experiment)
        self._folder = experiment.data.directory / FAILURES
        self._lock = threading.Lock()
        self._failed: Counter[bool] = Counter()  # by whether a supercell could not be built

    # ---- Before training

    def selected(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Returns the baseline's samples and the held-out ones."""
        return [*self._baseline(entries), *(entry for entry in entries if entry.split != "train")]

    def _baseline(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Returns the specimens of the training split whose mean is the baseline."""
        chosen: list[Entry] = []
        for specimen in by_specimen(train_entries(entries)):
            if len(chosen) < self.section.baseline_samples:
                chosen += specimen
        return chosen

    def prepare(self, job: Preparation) -> Collection[str] | None:
        self._rank = job.ranks.rank()
        self._log_line = job.log_line
        # training.simulate_seconds may leave out held-out samples, not the baseline
        if job.simulate:
            self.simulate_missing(job, self._baseline)
        return super().prepare(job)

    def epoch_samples(self, training: int, shares: int) -> int:
        order = self._order(0, shares)
        if training < shares:
            raise InputError(
                f"data.directory has {plural(training, 'sample')} of the training split, whose "
                f"mean is the baseline, fewer than the {plural(shares, 'rank')}: raise "
                "data.source.baseline_samples"
            )
        if not order.uses:
            section = self.section
            needed = shares * order.per_specimen * order.reuse
            raise InputError(
                f"data.source.samples_per_epoch is {section.samples_per_epoch}; "
                f"{plural(shares, 'rank')} with one specimen each, of {order.per_specimen} samples "
                f"used {plural(order.reuse, 'time')}, need {needed}: raise it"
            )
        return shares * order.uses

    def trained_on(self, training: int, epochs: int) -> int:
        return self.section.samples_per_epoch // self.section.reuse * epochs

    def kept_bytes(self, samples: int, ranks: int) -> int:
        return round(self.section.memory_gib * 2**30)

    def _order(self, share: int, shares: int, first: tuple[int, int] = (0, 0)) -> Order:
        section = self.section
        per_specimen = SpecimenDraws(self.experiment, {}, ()).samples_per_specimen
        specimens = section.samples_per_epoch // section.reuse // per_specimen
        seed = self.experiment.seed
        epochs = self.experiment.training.epochs
        return Order(
            seed,
            share,
            shares,
            epochs,
            specimens,
            per_specimen,
            section.window,
            section.reuse,
            first,
        )

    # ---- Training

    def open(self, training: TrainingSet) -> str:
        """Begins to simulate, and waits until the first window is there.

        Raises:
            InputError: If the memory does not suffice, or the job stopped within an epoch with
                other ranks.
            WorkError: As of `Ring.take`.
        """
        super().open(training)
        ranks, (epoch, taken) = training.ranks, training.first
        self._ranks = ranks
        shares = ranks.size()
        with ranks.local_work():
            if taken and training.ranks_before != shares:
                raise InputError(
                    f"data.source of kind simulate: the job stopped within epoch {epoch + 1} on "
                    f"{plural(training.ranks_before, 'rank')}, each of which has draws of its own, "
                    f"and continues with as many, not {shares}; after a whole epoch any number can "
                    "continue"
                )
            order = self._order(ranks.rank(), shares, (epoch, taken // shares))
            self._draws = draws = self._specimen_draws()
            needed = self._check_memory(
                draws, len(next(node for node in ranks.nodes() if ranks.rank() in node))
            )
            make_folder(self._folder)
            self._known = read_failures(self._folder, self.experiment.samples_hash())
        with ranks.local_work():
            self._ring = Ring(order, self.kept_bytes(0, shares), training.stopping)
            makers, line = self._makers(draws)
            self._simulator = Simulator(makers, order.draws(), self._ring, self._write_failure)
        self._log_line(
            f"samples are simulated by {line}, each trained on "
            f"{plural(self.section.reuse, 'time')}, in windows of {self.section.window}; {needed}; "
            f"an epoch has {shares * order.uses} of samples_per_epoch "
            f"{self.section.samples_per_epoch}"
        )
        with ranks.local_work():
            self._ring.wait_for_block()
        # the first step's row has these samples, too
        made, seconds = self._simulator.numbers(reset=False)
        return f"the first window is simulated, {made / max(seconds, 1e-9):.3g} samples/s"

    def _specimen_draws(self) -> SpecimenDraws:
        """Returns the draws, from the list in data.directory."""
        directory = self.experiment.data.directory
        experiment = self.experiment
        listed, _, materials = list_samples(directory, experiment, train_entries)
        count = self.section.new_materials
        more = further_materials(experiment, listed, count) if count else ()
        return SpecimenDraws.of_list(experiment, listed, materials, more)

    def _check_memory(self, draws: SpecimenDraws, local_ranks: int) -> str:
        """Returns a line about the memory. Raises InputError if it does not suffice for a
        window.
        """
        section = self.section
        most = self.kept_bytes(0, 1)
        feasible = (
            entry for index in range(8) for entry in draws.entries(index) if not entry.skipped
        )
        if error := next(feasible, None):
            size = expected_bytes(self.experiment, draws.materials, [error])
            if size * section.window > most:
                raise InputError(
                    f"data.source.memory_gib is {section.memory_gib:g}, and a window of "
                    f"{section.window} samples takes about {size * section.window / 2**30:.3g} "
                    f"GiB: raise it, or lower data.source.window to {most // size}"
                )
        check_memory_for(
            local_ranks * most,
            f"data.source.memory_gib of {plural(local_ranks, 'rank')} on this node",
            "lower it, and with it data.source.window",
        )
        return f"they take at most {section.memory_gib:g} GiB"

    def _makers(self, draws: SpecimenDraws) -> tuple[Sequence[InProcess | InThread], str]:
        """Returns the processes or the thread that simulate, and a text about them."""
        section = self.section
        cores = sorted(usable_cores())
        on_host = resolve_backend(self.experiment.simulation.backend) is np
        workers = section.workers
        if workers is None:
            workers = max(1, len(cores) // 2) if on_host else 0
        where = "processor" if on_host else "GPU"
        if not workers:
            return [InThread(draws)], f"a thread of this process on the {where}"
        processes = []
        for index in range(workers):
            core = cores[-1 - index % len(cores)] if on_host else None
            processes.append(InProcess(draws, core, section.nice))
        counted = "1 process" if workers == 1 else f"{workers} processes"
        text = f"{counted} of a rank on the {where}"
        if on_host:
            text += ", each on one core"
        return processes, f"{text} at niceness {section.nice}"

    def epoch_entries(
        self, training: Sequence[Entry], epoch: int, share: int, shares: int, count: int, taken: int
    ) -> Sequence[Entry]:
        self._ring.begin_epoch(epoch)
        return _Uses(self._ring, epoch, range(taken // shares, taken // shares + count))

    @contextmanager
    def view(self, sample_id: str, check: bool = False) -> Iterator[Record]:
        """Yields the record of a sample that an epoch's entries have. Its checksum was compared."""
        with self._ring.view(sample_id) as record:
            yield record

    def release(self) -> None:
        self._ring.release()

    def formulas_learnt(self, training: Sequence[Entry]) -> dict[str, str]:
        return {name: material.formula for name, material in self._draws.materials.items()}

    def numbers(self) -> Mapping[str, float]:
        """Returns the samples that were simulated since the last call, their time, and the wait for
        them, s.
        """
        assert self._simulator
        made, seconds = self._simulator.numbers()
        return {
            "simulated": made,
            "simulator_s": seconds,
            "simulator_wait_s": self._ring.waited_s(),
        }

    def end_epoch(self) -> None:
        """Says how many samples could not be made since the last epoch."""
        with self._lock:
            failures = self._failed
            self._failed = Counter()
        failed, skipped = (
            sum(counts)
            for counts in zip(
                *self._ranks.gather_json([failures[False], failures[True]]), strict=True
            )
        )
        if failed or skipped:
            reasons = f" (reasons: {self._folder}/failed-*.jsonl)" * bool(failed)
            self._log_line(
                f"data.source: {plural(failed, 'sample')} failed{reasons}, {skipped} had no "
                "supercell; further specimens were drawn in their place"
            )

    def _write_failure(self, failure: DrawFailure) -> None:
        """Writes a sample that could not be made down, once for all jobs."""
        with self._lock:
            self._failed[failure.skipped] += 1
            if not failure.skipped and failure.id not in self._known:
                self._known[failure.id] = failure.reason
                samples_hash = self.experiment.samples_hash()
                append_failure(
                    self._folder, self._rank, samples_hash, failure.id, InputError(failure.reason)
                )

    def close(self) -> None:
        if self._simulator:
            self._simulator.close()
            self._ring.clear()
        super().close()


class _Uses(Sequence[Entry]):
    """The samples that a rank trains on in an epoch.

    An entry is waited for until its sample is simulated.

    Each use of a sample has a seed of its own, so that its window, symmetry and noise are others.
    """

    def __init__(self, ring: Ring, epoch: int, places: range) -> None:
        self._ring = ring
        self._epoch = epoch
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(index, slice):
            return [self._entry(place) for place in self._places[index]]
        return self._entry(self._places[index])

    def _entry(self, place: int) -> Entry:
        key, turn = self._ring.order.use(self._epoch, place)
        entry = self._ring.take(key)
        if turn:
            return replace(entry, seed=seed_of(entry.seed, f"use {turn}"))
        return entry


SOURCE = OnlineSimulationSource
