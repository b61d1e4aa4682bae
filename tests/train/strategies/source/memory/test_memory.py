"""Samples in the memory of the ranks: read once, by their owners, and with the bits of those on the
disk.
"""

import threading

import numpy as np
import pytest
import synthetic
import thread_ranks
from divided_samples import experiment, split, write
from needs_kind import needs

from namsa.base.errors import InputError, WorkError
from namsa.dataset.lmdb_structure import locations
from namsa.dataset.shards import Dataset
from namsa.dataset.slab_file import write_slab_file
from train.experiment.data import Simulated
from train.experiment.registry import OfKind
from train.input.batches import batches
from train.input.selection import epoch_order, epoch_share
from train.input.source import TrainingSet, source_of
from train.phases.plan import TrainingSamples
from train.strategies.division.parts.section import SampleSplit
from train.strategies.source.memory.section import Memory
from train.strategies.source.memory.source import MemorySource, assign_owners
from train.strategies.source.slabs.section import Slabs

EPOCHS = 4


def with_source(job, source):
    return job.model_copy(update={"data": job.data.model_copy(update={"source": source})})


def kept(job, **of):
    return with_source(job, Memory(of=Simulated(**of)))


def one_by_one(job, **training):
    return job.model_copy(
        update={"training": job.training.model_copy(update={"batch_size": 1, **training})}
    )


def undivided(layout, **inputs):
    return one_by_one(experiment(layout, "y", **inputs), split=SampleSplit())


def trained(folder, job, entries, ranks, ways=1, axis="y", start=(0, 0)):
    """Of each rank, the batches of all epochs, the samples that it has read, and the bytes that it
    has received.
    """
    load = MemorySource._load
    reads = [[] for _ in range(ranks)]
    done = threading.Barrier(ranks, timeout=60)
    lines = []

    def on_rank(rank):
        rank_number = rank.rank()
        divided = split(axis, rank.rank() % ways) if ways > 1 else None
        source = source_of(job)
        samples = TrainingSamples(
            source, job, TrainingSet(dataset, entries, start, rank, divided), lines.append
        )
        group = rank_number // ways
        groups = ranks // ways
        count = len(entries) // groups
        taken = start[1]
        epoch_batches = []
        after_first = 0
        for epoch in range(start[0], EPOCHS):
            rank_entries = source.epoch_entries(
                entries, epoch, group, groups, count - taken // groups, taken
            )
            take_part = None if samples.own_part or not divided else divided.take_part
            read = batches(
                source,
                rank_entries,
                job,
                epoch,
                samples.cache,
                take_part=take_part,
                own_part=samples.own_part,
            )
            epoch_batches += [(x.numpy(), y.numpy()) for x, y in read]
            source.end_epoch()
            after_first = len(reads[rank_number]) if epoch == start[0] else after_first
            taken = 0
        assert len(reads[rank_number]) == after_first  # no epoch but the first reads
        store = getattr(source, "store", None)
        received = store.peers.received_bytes if store else 0
        stored = sum(len(content.result()) for content in store._own.values()) if store else 0
        done.wait()
        source.close()
        return epoch_batches, reads[rank_number], received, stored

    def guarded(rank):
        try:
            return on_rank(rank)
        except Exception:
            rank._group.barrier.abort()  # the others need not wait for it
            done.abort()
            raise

    def counted(source, sample_id):
        reads[source._ranks.rank()].append(sample_id)
        return load(source, sample_id)

    with Dataset(folder) as dataset, pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemorySource, "_load", counted)
        results = thread_ranks.run([list(range(ranks))], guarded)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, threading.BrokenBarrierError):
            raise result
    return results


def same(results, expected):
    for ours, theirs in zip(results, expected, strict=True):
        assert len(ours[0]) == len(theirs[0]) > 0
        for pair, other in zip(ours[0], theirs[0], strict=True):
            for a, b in zip(pair, other, strict=True):
                np.testing.assert_array_equal(a, b)


CASES = [  # ranks, ways, tiles, inputs
    (1, 1, None, {"augment": True}),
    (2, 1, None, {}),
    (4, 1, None, {"dose_electrons_per_pattern": 300.0}),
    (2, 2, (1, 1, 2, 1), {}),
    (4, 2, (1, 1, 2, 1), {}),
    (4, 2, None, {"augment": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "ways", "tiles", "inputs"), CASES)
def test_every_sample_is_read_once_and_batches_have_the_bits_of_the_disk(
    tmp_path, ranks, ways, tiles, inputs
):
    if ways > 1:
        job = one_by_one(experiment("detector", "y", tiles, **inputs))
    else:
        job = undivided("detector", **inputs)
    entries = write(tmp_path, job, tiles, count=9)  # one is left over in most epochs
    expected = trained(tmp_path, job, entries, ranks, ways)
    for start in ((0, 0), (1, 4)):  # from the start, and from within an epoch
        wanted = trained(tmp_path, job, entries, ranks, ways, start=start) if start[1] else expected
        results = trained(tmp_path, kept(job), entries, ranks, ways, start=start)
        same(results, wanted)
        ids = sorted(entry.id for entry in entries)
        slabs = ways > 1 and not inputs
        for part in range(ways) if slabs else range(1):
            read = []
            for rank in results[part :: ways if slabs else 1]:
                read.extend(rank[1])
            assert sorted(read) == ids
        assert (sum(rank[2] for rank in results) > 0) == (ranks > (ways if slabs else 1))
        for _, _, _, stored in results:
            assert 0 < stored <= source_of(kept(job)).kept_bytes(len(entries), ranks)


def test_parts_from_an_hdf5_file_have_the_bits_of_those_from_the_dataset(tmp_path):
    job = one_by_one(experiment("detector", "x", (1, 1, 2, 4)))
    entries = write(tmp_path, job, (1, 1, 2, 4), count=5)
    with Dataset(tmp_path) as dataset:
        write_slab_file(tmp_path / "slabs.h5", dataset)
    expected = trained(tmp_path, job, entries, 2, 2, "x")
    slabs = Slabs(file=tmp_path / "slabs.h5")
    for source, read in ((slabs, [0, 0]), (Memory(of=slabs), [5, 5])):
        results = trained(tmp_path, with_source(job, source), entries, 2, 2, "x")
        same(results, expected)
        assert [len(rank[1]) for rank in results] == read


def test_owners_are_those_that_take_a_sample_first():
    entries = synthetic.dataset(11)[1]
    for taken in (0, 4):
        groups = [[0, 1], [2, 3]]
        ids = [entries[index].id for index in np.roll(epoch_order(11, 5, 2), -taken)]
        for part in range(2):
            owners = assign_owners(ids, groups, part)
            assert len(owners) == 11
            for group, members in enumerate(groups):
                share = epoch_share(entries, 5, 2, group, 2, (11 - taken) // 2, taken)
                assert {owners[entry.id] for entry in share} == {members[part]}
            assert list(owners)[:2] == [
                epoch_share(entries, 5, 2, group, 2, 1, taken)[0].id for group in range(2)
            ]
        all_owners = list(assign_owners(ids, groups, None).values())
        assert all_owners[:8] == [0, 2, 1, 3, 0, 2, 1, 3]


@needs("fixed", "source")
def test_samples_of_a_rank_that_keeps_its_share_never_travel(tmp_path):
    job = undivided("detector")
    entries = write(tmp_path, job, None, count=8)
    fixed = OfKind("source", Simulated).section("fixed")()
    results = trained(tmp_path, with_source(job, Memory(of=fixed)), entries, 2)
    same(results, trained(tmp_path, with_source(job, fixed), entries, 2))
    for rank, (_, read, received, _) in enumerate(results):
        assert sorted(read) == sorted(entry.id for entry in entries[rank::2])
        assert received == 0


def test_samples_of_a_node_stay_on_it(tmp_path):
    job = undivided("detector")
    entries = write(tmp_path, job, None, count=4)
    nodes = [[0, 1], [2, 3]]

    def owners(rank):
        source = source_of(kept(job, node_local=True))
        source.open(TrainingSet(dataset, entries, (0, 0), rank, None))
        source.close()
        return set(source.store.owners.values())

    with Dataset(tmp_path) as dataset:
        assert thread_ranks.run(nodes, owners) == [{0, 1}, {0, 1}, {2, 3}, {2, 3}]


def test_memory_that_does_not_suffice_is_refused_with_the_figures(tmp_path, monkeypatch):
    job = undivided("detector")
    entries = write(tmp_path, job, None, count=2)
    needed = source_of(kept(job)).kept_bytes(2, 2) * 2  # both ranks are on one node
    monkeypatch.setattr("namsa.base.memory.available_memory_bytes", lambda: needed - 1)

    def opened(rank):
        return source_of(kept(job)).open(TrainingSet(dataset, entries, (0, 0), rank, None))

    with Dataset(tmp_path) as dataset:
        error, _ = thread_ranks.run([[0, 1]], opened)
    assert isinstance(error, InputError)
    assert (
        "data.source memory of 2 samples on 2 ranks, 2 of them on this node: 0.0 GB of memory, "
        "and 0.0" in str(error)
    )


def test_a_damaged_sample_ends_the_epoch_with_its_name(tmp_path):
    job = experiment("detector", "y", (1, 1, 2, 1))
    entries = write(tmp_path, job, (1, 1, 2, 1))
    shard = tmp_path / "shard-00000.lmdb"
    start, size = locations(shard)["sample-2"]
    with shard.open("r+b") as file:
        file.seek(start + size // 2)
        file.write(bytes(100))
    with pytest.raises(WorkError, match="sample-2 in .*the record is damaged"):
        trained(tmp_path, kept(job), entries, 2, 2)
