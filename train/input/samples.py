"""Where a job reads its training samples: whole or in parts, from the disk or from the memory of the ranks."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext

from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.slab_file_reader import SlabFile
from namsa.dataset.slabs import SlabReader
from namsa.memory import check_memory_for

from ..experiment.experiment import Experiment
from ..ranks.protocol import Ranks
from .batches import Readable, ReadCache
from .memory_store import MemoryStore, assign_owners, stored_bytes
from .slab_files import check_parts_are_read, own_part_of
from .slabs import Division, OwnPart, own_part


class TrainingSamples:
    """The training samples of a job. Collective: all ranks make it together.

    Args:
        dataset: The stored samples. Close it afterwards.
        experiment: The configuration.
        entries: The samples that are trained on.
        split: This rank's part of a sample; `None` for whole samples.
        ranks: `train.ranks.reduction`.
        first: The first epoch that is trained, and the samples of it that are done; `None` if there is none to train.
        log_line: Prints a line about the job.

    Attributes:
        readable: The whole samples.
        own_part: Reads this rank's part of a sample; `None` for whole samples.
        cache: What is kept between epochs.

    Raises:
        InputError: If the memory of this node is too small for its ranks' samples, or if `data.slabs_from` does not
            hold the samples of the job.
    """

    def __init__(
        self,
        dataset: Dataset,
        experiment: Experiment,
        entries: Sequence[Entry],
        split: Division | None,
        ranks: Ranks,
        first: tuple[int, int] | None,
        log_line: Callable[[str], None],
    ) -> None:
        self.readable: Readable = dataset
        self.own_part: OwnPart | None = None
        self.cache, self._stack = ReadCache(), ExitStack()
        self._store: MemoryStore | None = None
        if first and split and (path := experiment.data.slabs_from):
            with ranks.together():
                check_parts_are_read(experiment)
                file = self._stack.enter_context(SlabFile(path, ranks.size()))
                self.own_part, line = own_part_of(file, experiment, split, entries, dataset)
            log_line(line)
        elif first and split:
            reader = self._stack.enter_context(SlabReader(dataset))
            self.own_part, line = own_part(reader, experiment, split, entries)
            log_line(line)
        if first and experiment.data.keep == "memory":
            log_line(self._keep(dataset, experiment, entries, split, ranks, first))

    def _keep(
        self,
        dataset: Dataset,
        experiment: Experiment,
        entries: Sequence[Entry],
        split: Division | None,
        ranks: Ranks,
        first: tuple[int, int],
    ) -> str:
        """Makes the store in memory and reads from it. Returns a line about it."""
        ways, part = (split.ways, split.part) if split else (1, 0)
        node = next(node for node in ranks.nodes() if ranks.rank() in node)
        members = node if experiment.data.node_local else range(ranks.size())  # that share samples
        needed = stored_bytes(experiment, len(entries), len(members))
        with ranks.together():
            check_memory_for(
                needed * len(node),
                f"data.keep memory of {len(entries)} samples on {len(members)} ranks, {len(node)} of them on this node",
                "use data.keep=disk, more nodes, or fewer training.samples",
            )
        groups = [members[at : at + ways] for at in range(0, len(members), ways)]
        slab = (self.own_part.source, self.own_part.slab) if self.own_part else None
        owners = assign_owners(entries, experiment.seed, *first, groups, part if slab else None)
        store = self._store = self._stack.enter_context(MemoryStore(ranks, dataset, owners, slab))
        self.cache = ReadCache(keep_views=False)
        self.readable = store
        if self.own_part:
            self.own_part = OwnPart(store, self.own_part.slab)
        return f"every rank keeps its samples in memory, {needed / 1e6:,.1f} MB"

    def end_epoch(self, ranks: Ranks) -> None:
        """Waits until all samples to be kept are in memory. Collective."""
        with ranks.together() if self._store else nullcontext():
            if self._store:
                self._store.finish_reading()

    def close(self) -> None:
        """Frees the memory and ends the connections. All ranks must have ended their batches."""
        self._stack.close()
