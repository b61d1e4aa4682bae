"""The training samples in the memory of the ranks: `data.keep: memory`.

Every sample has one owner, which reads it from the disk once, in the background and in the order of the first epoch,
and keeps it. The order of every epoch is known to all ranks (`train.input.selection.epoch_share`), and so are owners. A
rank that reads ahead asks the owner for what it does not own itself. What was received is dropped after its batch.

With samples that are divided over ranks, a rank keeps its parts of its group's samples, and parts travel between ranks
that have the same part. Where such samples must be read whole, the ranks of a group own them in turns.
"""

import json
import math
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np

from namsa.dataset import records
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.slabs import SampleSlab
from namsa.dataset.tiles import Slab
from namsa.errors import InputError, WorkError

from ..experiment.experiment import Experiment
from ..ranks.peers import Peers
from ..ranks.protocol import Ranks
from .slabs import SlabSource, whole_reason

Buffer = bytes | bytearray | memoryview

_HEADER_BYTES = 4096  # of a record, with its entry in the store
_LENGTH = struct.Struct("<Q")


class MemoryStore:
    """Training samples in the memory of all ranks. It is a `Readable` and a `SlabSource`, for several threads.

    Collective: all ranks make one together, and close it when none needs it any more.

    Args:
        ranks: `train.ranks.reduction`.
        dataset: What samples are read from that no rank owns, and whole ones that this rank owns.
        owners: The rank that owns each sample, by id, in the order in which they are first needed.
        slab: This rank's part of each sample, and where it is read; `None` for whole samples.
    """

    def __init__(
        self, ranks: Ranks, dataset: Dataset, owners: Mapping[str, int], slab: tuple[SlabSource, Slab] | None = None
    ) -> None:
        self._rank, self._dataset, self._owners, self._slab = ranks.rank(), dataset, owners, slab
        self._own: dict[str, Future[Buffer]] = {}
        self._lock, self._closed = threading.Lock(), False
        self.peers = Peers(ranks, self._own_content)
        self._loader = threading.Thread(target=self._load_all, name="memory-store", daemon=True)
        self._loader.start()

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends reading and connections, and frees the memory. Views must not be used afterwards."""
        self._closed = True
        self.peers.close()
        self._loader.join()
        self._own.clear()

    def finish_reading(self) -> None:
        """Waits until all samples that this rank owns are in its memory. Raises WorkError if one cannot be read."""
        self._loader.join()
        for future in list(self._own.values()):
            future.result()

    @contextmanager
    def view(self, sample_id: str, check: bool = False) -> Iterator[records.Record]:
        """Yields a whole sample. Its owner has compared its checksum."""
        if sample_id in self._owners and self._slab is None:
            yield records.decode(self._content(sample_id))
        else:
            with self._dataset.view(sample_id, check) as record:
                yield record

    def read(self, sample_id: str, slab: Slab, check: bool = True) -> SampleSlab:
        """Returns this rank's part of a sample. Its owner has compared its checksums."""
        assert self._slab is not None
        assert slab == self._slab[1]
        return _unpacked(self._content(sample_id))

    def _content(self, sample_id: str) -> Buffer:
        owner = self._owners[sample_id]
        return self._own_content(sample_id) if owner == self._rank else self.peers.fetch(owner, sample_id)

    def _own_content(self, sample_id: str) -> Buffer:
        """Returns a sample that this rank owns. The first thread that asks for it reads it, others wait."""
        if self._owners.get(sample_id) != self._rank:
            raise WorkError(f"rank {self._rank} does not own {sample_id!r}")
        with self._lock:
            future = self._own.get(sample_id)
            is_first = future is None
            if future is None:
                future = self._own[sample_id] = Future()
        if is_first:
            try:
                future.set_result(self._load(sample_id))
            except (InputError, WorkError, MemoryError, OSError) as error:
                future.set_exception(error)
        return future.result()

    def _load(self, sample_id: str) -> Buffer:
        if self._slab is None:
            return self._dataset.read_bytes(sample_id)
        source, slab = self._slab
        return _packed(source.read(sample_id, slab))

    def _load_all(self) -> None:
        for sample_id, owner in self._owners.items():
            if self._closed:
                return
            if owner == self._rank:
                try:
                    self._own_content(sample_id)
                except (InputError, WorkError, MemoryError, OSError):
                    return  # whoever needs the sample raises it


def assign_owners(
    entries: Sequence[Entry], seed: int, epoch: int, taken: int, groups: Sequence[Sequence[int]], part: int | None
) -> dict[str, int]:
    """Returns the rank that owns each sample: one of the group that takes it first.

    Args:
        entries: All training entries.
        seed: Of the experiment.
        epoch: The first epoch that is trained.
        taken: Entries of its order that were used before.
        groups: The ranks of each group. A group shares samples.
        part: This rank's place in its group, for owners of its part; `None` for owners of whole samples.

    Returns:
        Ranks by id, in the order in which the samples are first needed.
    """
    order = np.roll(np.random.default_rng([seed, epoch]).permutation(len(entries)), -taken)
    owners = {}
    for place, index in enumerate(order):
        turn, group = divmod(place, len(groups))
        members = groups[group]
        owners[entries[index].id] = members[turn % len(members) if part is None else part]
    return owners


def stored_bytes(experiment: Experiment, samples: int, ranks: int) -> int:
    """Returns the memory that a rank's samples take.

    Args:
        experiment: The configuration.
        samples: Number of training samples of all ranks that share them.
        ranks: Number of these ranks.
    """
    patterns, image = experiment.sample_shapes()
    ways = experiment.training.split.ways
    numbers = math.prod(patterns) * {"float16": 2, "float32": 4}[experiment.data.dtype]
    if ways > 1 and whole_reason(experiment) is None:
        return math.ceil(samples / (ranks // ways)) * (numbers // ways + 4 * math.prod(image) + _HEADER_BYTES)
    potential = math.prod(experiment.simulation.grid_shape or patterns[2:])
    positions = 16 * math.prod(patterns[:2])
    return math.ceil(samples / ranks) * (numbers + 4 * (math.prod(image) + potential) + positions + _HEADER_BYTES)


def _packed(slab: SampleSlab) -> bytes:
    """Returns a slab as bytes that travel."""
    patterns, density = np.ascontiguousarray(slab.patterns), np.ascontiguousarray(slab.density)
    described = [slab.raster, slab.scale, patterns.dtype.str, patterns.shape, density.shape]
    header = json.dumps(described).encode()
    header += b" " * (-(len(header) + _LENGTH.size) % 64)
    return b"".join([_LENGTH.pack(len(header)), header, density.tobytes(), patterns.tobytes()])


def _unpacked(content: Buffer) -> SampleSlab:
    """Returns a slab whose arrays are views of `content`."""
    start = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    raster, scale, dtype, shape, image = json.loads(bytes(memoryview(content)[_LENGTH.size : start]))
    density: Any = np.frombuffer(content, np.float32, math.prod(image), start).reshape(image)
    patterns = np.frombuffer(content, dtype, math.prod(shape), start + density.nbytes).reshape(shape)
    return SampleSlab(tuple(raster), scale, patterns, density)
