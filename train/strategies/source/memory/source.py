"""The training samples in the memory of the ranks.

Every sample has one owner, which reads it from the disk once, in the background and in the order of
the first epoch, and keeps it. The order of every epoch is known to all ranks
(`SampleSource.epoch_order`), and so are owners. A rank that reads ahead asks the owner for what it
does not own itself. What was received is dropped after its batch.

With samples that are divided over ranks, a rank keeps its parts of its group's samples, and parts
travel between ranks that have the same part. Where such samples must be read whole, the ranks of a
group own them in turns.
"""

import json
import math
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np

from namsa.base.arrays import Array, Buffer
from namsa.base.errors import InputError, WorkError
from namsa.base.memory import check_memory_for
from namsa.dataset import records
from namsa.dataset.slabs import SampleSlab
from namsa.dataset.tiles import Slab

from ....input.source import LayeredSource, TrainingSet
from ....ranks.interface import Ranks
from ....ranks.peers import Peers

_FAILURES = (InputError, WorkError, MemoryError, OSError)


class MemoryStore:
    """Bytes in the memory of all ranks, for several threads.

    Collective: all ranks make one together, and close it when none needs it any more.

    Args:
        owners: The rank that owns each name, in the order in which they are first needed.
        load: Returns the bytes of a name that this rank owns.
    """

    def __init__(
        self, ranks: Ranks, owners: Mapping[str, int], load: Callable[[str], Buffer]
    ) -> None:
        self._rank = ranks.rank()
        self.owners = owners
        self._load = load
        self._own: dict[str, Future[Buffer]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.peers = Peers(ranks, self._own_content)
        self._loader = threading.Thread(target=self._load_all, name="memory-store", daemon=True)
        self._loader.start()

    def close(self) -> None:
        """Ends loading and connections, and frees the memory. What was returned must not be used
        afterwards.
        """
        self._closed = True
        self.peers.close()
        self._loader.join()
        self._own.clear()

    def finish_loading(self) -> None:
        """Waits until all that this rank owns is in its memory. Raises WorkError if something
        cannot be loaded.
        """
        self._loader.join()
        for future in list(self._own.values()):
            future.result()

    def content(self, name: str) -> Buffer:
        """Returns the bytes of a name, from this rank's memory or from its owner."""
        owner = self.owners[name]
        if owner == self._rank:
            return self._own_content(name)
        return self.peers.fetch(owner, name)

    def _own_content(self, name: str) -> Buffer:
        """Returns the bytes of a name that this rank owns. The first thread that asks for it loads
        it, others wait.
        """
        if self.owners.get(name) != self._rank:
            raise WorkError(f"rank {self._rank} does not own {name!r}")
        with self._lock:
            is_first = name not in self._own
            future = self._own.setdefault(name, Future())
        if is_first:
            try:
                future.set_result(self._load(name))
            except _FAILURES as error:
                future.set_exception(error)
        return future.result()

    def _load_all(self) -> None:
        for name, owner in self.owners.items():
            if self._closed:
                return
            if owner == self._rank:
                try:
                    self._own_content(name)
                except _FAILURES:
                    return  # whoever needs it raises it


_HEADER_BYTES = 4096  # of a record, with its entry in the store
_LENGTH = struct.Struct("<Q")


class MemorySource(LayeredSource):
    """Samples that another source reads once."""

    keeps_views = False  # of what other ranks have sent
    store: MemoryStore | None = None
    _part: Slab | None = None

    def kept_bytes(self, samples: int, ranks: int) -> int:
        patterns, image = self.experiment.sample_shapes()
        numbers = math.prod(patterns) * np.dtype(self.experiment.data.dtype).itemsize
        division = self.experiment.training.split
        if division.reads_parts(self.experiment):
            sample_bytes = numbers // division.ranks + 4 * math.prod(image) + _HEADER_BYTES
            return math.ceil(samples / (ranks // division.ranks)) * sample_bytes
        potential = math.prod(self.experiment.simulation.grid_shape or patterns[2:])
        positions = 16 * math.prod(patterns[:2])
        return math.ceil(samples / ranks) * (
            numbers + 4 * (math.prod(image) + potential) + positions + _HEADER_BYTES
        )

    def open(self, training: TrainingSet) -> str:
        """Begins to read the samples that this rank owns. Raises InputError if this node lacks the
        memory.
        """
        lines = [self._origin.open(training)]
        super().open(training)
        ranks = training.ranks
        entries = training.entries
        node = next(node for node in ranks.nodes() if ranks.rank() in node)
        members: Sequence[int] = range(ranks.size())  # the ranks that share samples
        if self.section.per_node:
            members = node
        needed = self.kept_bytes(len(entries), len(members))
        with ranks.local_work():
            check_memory_for(
                needed * len(node),
                f"data.source memory of {len(entries)} samples on {len(members)} ranks, "
                f"{len(node)} of them on this node",
                "leave data.source memory out, or use more nodes or fewer training.samples",
            )
        ways = training.division.ranks if training.division else 1
        groups = [members[start : start + ways] for start in range(0, len(members), ways)]
        with ranks.local_work():
            place_in_group = self._choose_part(training)
        epoch, taken = training.first
        order = np.roll(self.epoch_order(len(entries), epoch, len(groups)), -taken)
        owners = assign_owners([entries[index].id for index in order], groups, place_in_group)
        self._ranks = ranks
        self.store = MemoryStore(ranks, owners, self._load)
        lines.append(f"every rank keeps its samples in memory, {needed / 1e6:,.1f} MB")
        return "; ".join(filter(None, lines))

    def _choose_part(self, training: TrainingSet) -> int | None:
        """Sets the part of the samples that this rank keeps, where it reads one alone.

        Returns:
            This rank's place in its group, for `assign_owners`.
        """
        self._part = None
        division = training.division
        if not division:
            return None
        own_part, _ = division.own_part(self._origin, self.experiment, training.entries)
        if own_part is None:
            return None
        self._part = own_part.slab
        return division.part

    @contextmanager
    def view(self, sample_id: str, check: bool = False) -> Iterator[records.Record]:
        """Yields a whole sample. Its owner has compared its checksum."""
        if self.store and self._part is None and sample_id in self.store.owners:
            yield records.decode(self.store.content(sample_id))
        else:
            with super().view(sample_id, check) as record:
                yield record

    def has_part(self, sample_id: str, part: Slab) -> bool:
        return self._origin.has_part(sample_id, part)

    def read_part(self, sample_id: str, part: Slab, check: bool = True) -> SampleSlab:
        """Returns this rank's part of a sample. Its owner has compared its checksums."""
        assert self.store
        assert part == self._part
        return _unpacked(self.store.content(sample_id))

    def _load(self, sample_id: str) -> Buffer:
        if self._part is None:
            return self._dataset.read_bytes(sample_id)
        return _packed(self._origin.read_part(sample_id, self._part))

    def end_epoch(self) -> None:
        """Waits until all samples to be kept are in memory."""
        assert self.store
        with self._ranks.local_work():
            self.store.finish_loading()

    def close(self) -> None:
        """Frees the memory and ends the connections."""
        if self.store:
            self.store.close()
        super().close()
        self._origin.close()


def assign_owners(
    ids: Sequence[str], groups: Sequence[Sequence[int]], place_in_group: int | None
) -> dict[str, int]:
    """Returns the rank that owns each sample, in the order in which they are needed: one of the
    group that is first.

    Args:
        place_in_group: This rank's place in its group, for owners of its part; `None` for owners
            of whole samples.
    """
    owners = {}
    for position, sample_id in enumerate(ids):
        turn, group = divmod(position, len(groups))
        members = groups[group]
        place = turn % len(members) if place_in_group is None else place_in_group
        owners[sample_id] = members[place]
    return owners


def _packed(slab: SampleSlab) -> bytes:
    """Returns a slab as bytes that travel."""
    patterns = np.ascontiguousarray(slab.patterns)
    density = np.ascontiguousarray(slab.density)
    described = [slab.raster, slab.scale, patterns.dtype.str, patterns.shape, density.shape]
    header = json.dumps(described).encode()
    header += b" " * (-(len(header) + _LENGTH.size) % 64)
    return b"".join([_LENGTH.pack(len(header)), header, density.tobytes(), patterns.tobytes()])


def _unpacked(content: Buffer) -> SampleSlab:
    """Returns a slab whose arrays are views of `content`."""
    start = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    raster, scale, dtype, shape, image = json.loads(
        bytes(memoryview(content)[_LENGTH.size : start])
    )
    density: Array = np.frombuffer(content, np.float32, math.prod(image), start).reshape(image)
    patterns = np.frombuffer(content, dtype, math.prod(shape), start + density.nbytes).reshape(
        shape
    )
    return SampleSlab(tuple(raster), scale, patterns, density)


SOURCE = MemorySource
