"""Sources of a rank's samples: the class `SampleSource`, and its default, samples that are
simulated.

A job makes one source (`source_of`), which brings samples to data.directory (`prepare`) before
their list is read. Training then opens it, reads whole samples (`view`) or this rank's parts of
them (`read_part`), and closes it. Other sources than the default are strategies
(`train.experiment.registry`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.base.text import plural
from namsa.dataset import factory
from namsa.dataset.entry import UNKNOWN, Entry
from namsa.dataset.factory import ProductionSummary
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset
from namsa.dataset.sharing import RankLayout
from namsa.dataset.slabs import SampleSlab, SlabReader
from namsa.dataset.tiles import Slab

from ..experiment import registry
from ..experiment.data import Simulated, SourceSection
from ..experiment.experiment import Experiment
from ..ranks.interface import Ranks
from .division import RankDivision
from .selection import epoch_order, share_of

OnProgress = Callable[[int, int], None]  # (done, total)


class NoMoreSamples(Exception):
    """Samples are no longer waited for."""


@dataclass(frozen=True)
class Preparation:
    """The parts of the job that a source needs to bring its samples to data.directory."""

    ranks: Ranks  # the ranks of the job
    run_dir: Path  # the run directory
    layout: RankLayout  # this rank's place among those that simulate
    simulate: bool  # whether missing samples may be simulated
    # whether to simulate even if that is expected to exceed this machine's memory or 30 days
    force: bool
    # Raises InputError if samples that are going to be simulated do not fit the task.
    check_listed: Callable[[Sequence[Entry]], None]
    # Shows the progress of what is counted in its argument, in the context that it opens.
    progress: Callable[[str], AbstractContextManager[OnProgress]]
    log_line: Callable[[str], None]  # prints a line about the job


@dataclass(frozen=True)
class TrainingSet:
    """The samples that a job trains on."""

    dataset: Dataset  # the samples in data.directory; the job closes it after its source
    entries: Sequence[Entry]  # those that are trained on
    first: tuple[int, int]  # the first epoch that is trained, and the samples of it that are done
    ranks: Ranks  # the ranks of the job
    # this rank's place among those that divide samples; `None` for whole samples
    division: RankDivision | None
    ranks_before: int = 0  # number of ranks that took the last step before this job
    # Whether this rank is asked to stop, and no longer waits for samples: then `NoMoreSamples` is
    # raised.
    stopping: Callable[[], bool] = lambda: False


class SampleSource:
    """Source of a rank's samples: by default data.directory, where they are read from the
    disk.

    Several threads call `view` and `read_part` at once.

    Attributes:
        keeps_views: Whether what `view` yields may be used until the source is closed.
        waits: Whether samples may have to be waited for while the network trains.
    """

    keeps_views = True
    waits = False
    _dataset: Dataset
    _parts: SlabReader | None = None

    def __init__(self, section: Any, experiment: Experiment) -> None:
        self.section = section
        self.experiment = experiment

    def selected(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Returns the samples of the list that belong into data.directory."""
        return entries

    def listed(self) -> Sequence[Entry] | None:
        """Returns the samples that `prepare` will bring, which it does not bring yet.

        Returns:
            Their entries; `None` if the list is that of the configuration's materials.

        Raises:
            InputError: If they cannot be listed.
        """
        return None

    def prepare(self, job: Preparation) -> Collection[str] | None:
        """Brings the samples to data.directory. Collective.

        Returns:
            The ids of the samples that this node uses; `None` for all that are there.
        """
        return None

    def epoch_samples(self, training: int, shares: int) -> int:
        """Returns the samples of an epoch. Raises InputError if they are too few.

        Args:
            training: Number of samples of the training split in data.directory.
        """
        return training

    def epoch_entries(
        self, training: Sequence[Entry], epoch: int, share: int, shares: int, count: int, taken: int
    ) -> Sequence[Entry]:
        """Returns what a rank takes in an epoch. Entries may be waited for when they are read.

        Args:
            training: The samples of the training split in data.directory.
            taken: Samples of the epoch that all have taken before.
        """
        order = self.epoch_order(len(training), epoch, shares)
        return share_of(training, order, share, shares, count, taken)

    def epoch_order(self, samples: int, epoch: int, shares: int) -> npt.NDArray[np.int64]:
        """Returns the common order of an epoch's training samples, of which shares take one after
        the other.
        """
        return epoch_order(samples, self.experiment.seed, epoch)

    def trained_on(self, training: int, epochs: int) -> int:
        """Returns on how many different samples a job trains in so many epochs, of those in
        data.directory.
        """
        return training

    def formulas_learnt(self, training: Sequence[Entry]) -> dict[str, str]:
        """Returns the formulas of the materials that training learns, by the materials' names.

        The source is open.

        Args:
            training: The samples of the training split in data.directory.
        """
        partners = {entry.partner: UNKNOWN for entry in training if entry.partner}
        return partners | {entry.material: entry.formula for entry in training}

    def numbers(self) -> Mapping[str, float]:
        """Returns what the row of a step says about the source, as of
        `train.measure.results.StepRow`.
        """
        return {}

    def release(self) -> None:
        """Ends waiting for samples. Is called before the threads that read them are ended."""

    def kept_bytes(self, samples: int, ranks: int) -> int:
        """Returns the memory that a rank's samples take; 0 if they stay where they are.

        Args:
            samples: Number of training samples of all ranks that share them.
        """
        return 0

    def open(self, training: TrainingSet) -> str:
        """Begins reading, and returns a line about it, or none. Collective.

        Raises:
            InputError: If the samples cannot be read in this way.
        """
        self._dataset = training.dataset
        self._parts = SlabReader(training.dataset) if training.division else None
        return ""

    def view(self, sample_id: str, check: bool = False) -> AbstractContextManager[Record]:
        """Opens a whole sample; compares its checksum if `check` is set."""
        return self._dataset.view(sample_id, check)

    def has_part(self, sample_id: str, part: Slab) -> bool:
        """Returns whether a part of a sample is read alone. All samples of a dataset are alike."""
        assert self._parts
        return self._parts.has(sample_id, part)

    def read_part(self, sample_id: str, part: Slab, check: bool = True) -> SampleSlab:
        """Returns a part of a sample; compares its digests if `check` is set."""
        assert self._parts
        return self._parts.read(sample_id, part, check)

    def end_epoch(self) -> None:
        """Is called after each epoch. Collective."""

    def close(self) -> None:
        """Ends reading. All ranks must have ended their batches."""
        if self._parts:
            self._parts.close()


class SimulatedSource(SampleSource):
    """Samples that the ranks simulate, each a part of those that are missing."""

    def prepare(self, job: Preparation) -> Collection[str] | None:
        if job.simulate:
            self.simulate_missing(job, self.selected)
        return None

    def simulate_missing(
        self, job: Preparation, select: Callable[[Sequence[Entry]], Sequence[Entry]]
    ) -> None:
        """Simulates what is missing of the selected samples of the list. Collective."""
        experiment = self.experiment
        directory = self.experiment.data.directory
        with job.ranks.local_work(), job.progress("rank 0 simulates") as show_count:
            seconds = experiment.training.simulate_seconds
            limits = factory.RunLimits.of_machine(job.layout.local_size, job.force, seconds=seconds)
            simulated = factory.produce(
                experiment,
                directory,
                job.layout,
                limits,
                on_sample=show_count,
                check=job.check_listed,
                select=select,
            )
        job.log_line(simulation_line(job.ranks.gather_json(simulated), directory))


class LayeredSource(SampleSource):
    """Samples that another source brings, which `LayeredSection.of` names."""

    def __init__(self, section: Any, experiment: Experiment) -> None:
        super().__init__(section, experiment)
        self._origin = source_of(experiment, section.of)

    def listed(self) -> Sequence[Entry] | None:
        return self._origin.listed()

    def prepare(self, job: Preparation) -> Collection[str] | None:
        return self._origin.prepare(job)

    def formulas_learnt(self, training: Sequence[Entry]) -> dict[str, str]:
        return self._origin.formulas_learnt(training)

    def epoch_order(self, samples: int, epoch: int, shares: int) -> npt.NDArray[np.int64]:
        return self._origin.epoch_order(samples, epoch, shares)


def fault_of_sample(
    raster: tuple[int, ...], image: tuple[int, ...], dtype: npt.DTypeLike, experiment: Experiment
) -> str | None:
    """Returns why stored samples are not those of a configuration; `None` if they are.

    Args:
        raster: Shape (sy, sx, dy, dx) of their patterns.
        image: Shape (ty, tx) of their densities, or (bins, ty, tx) by depth.
    """
    patterns, density = experiment.sample_shapes()
    target = (*experiment.bins_shape(), *density)
    if (raster, image) != (patterns, target):
        return (
            f"holds patterns {raster} and density {image}, where the configuration has {patterns} "
            f"and {target}: give its samples another data.directory"
        )
    if not np.can_cast(dtype, experiment.data.dtype):
        return f"holds {np.dtype(dtype)} patterns: set data.dtype={np.dtype(dtype)}"
    return None


def simulation_line(summaries: Sequence[ProductionSummary], directory: Path) -> str:
    """Returns one line about the samples that all ranks have simulated, from what each has."""
    written = 0
    present = 0
    failed = 0
    full = 0
    stopped = False
    for summary in summaries:
        written += summary["written"]
        present += summary["present"]
        failed += summary["failed"]
        full += summary["disk_full"]
        stopped = stopped or summary["time_limit_reached"]
    text = f"samples: {written} simulated, {present} present before"
    if failed:
        text += f", {failed} failed and left out (reasons: {directory}/failed-*.jsonl)"
    if stopped:
        text += "; stopped by training.simulate_seconds, run again for the rest"
    if full:
        text += (
            f"; on {plural(full, 'rank')} the disk is nearly full, the job continues with the "
            "samples that are there"
        )
    return text


def source_of(experiment: Experiment, section: SourceSection | None = None) -> SampleSource:
    """Returns the source of a job's samples, or that of a section of another source."""
    section = section or experiment.data.source
    if isinstance(section, Simulated):
        return SimulatedSource(section, experiment)
    kind = type(section).model_fields["kind"].default
    source: SampleSource = registry.strategy("source", kind, "source").SOURCE(section, experiment)
    return source
