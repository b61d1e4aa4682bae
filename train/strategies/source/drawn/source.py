"""Stages for each node its own random samples of a dataset (Kurth et al. 2018, section V-A1: 1,500 per node).

Rank 0 finds where the records lie in the shards. A node's training samples are drawn from the seed and the number of
the node, so that a job that is started again has the same. The held-out samples are divided over the nodes. As with
whole files (`train.staging.stage`), each byte is read once by one rank, with several threads, and sent to the nodes
that need it. A record arrives as a partial file and is added to a shard of the node. What is there is not read again.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

import numpy as np
import xxhash

from namsa.dataset import lmdb_structure, manifest, other_nodes, records
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path, shard_paths
from namsa.errors import InputError, WorkError
from namsa.files import Closing

from ....input.source import Preparation, SampleSource
from ....ranks.protocol import Ranks
from ....staging import copies
from ....staging.copies import FileState
from ....staging.pieces import Item, OnProgress
from ....staging.stage import THREADS, Place, StagedDataset, distribute, list_files, staged_dataset, write_report

_PER_COMMIT = 16  # records


class Source(SampleSource):
    """Samples that this node has drawn."""

    def prepare(self, job: Preparation) -> Collection[str] | None:
        section, directory = self.section, self.experiment.data.directory
        with job.progress("rank 0 stages, MiB") as show_count:
            staged, ids = stage(
                section.folder, directory, job.ranks, section.samples, self.experiment.seed, on_progress=show_count
            )
        write_report(staged, job.run_dir, job.ranks, job.log_line)
        return ids


class Draw(TypedDict):
    """The samples that the nodes have drawn."""

    seed: int  # seed of the draws
    samples: int  # training samples per node
    different: int  # number of training samples that at least one node has
    digests: list[str]  # xxh3_64 of the sorted ids of all samples of each node, one per line


class StagedSamples(StagedDataset):
    """What `stage` has done; the contents of `staging.json`."""

    drawn: Draw  # the samples of the nodes


def draw(ids: Sequence[str], samples: int, seed: int, node: int) -> list[str]:
    """Returns `samples` of the sorted ids for a node, each at most once. Raises InputError if there are fewer."""
    if samples > len(ids):
        raise InputError(
            f"data.source.samples is {samples}, and data.source.folder has {len(ids)} training samples: lower it, or "
            "divide all samples over the nodes with kind staged and node_local"
        )
    order = np.random.default_rng([seed, node]).permutation(len(ids))
    return sorted(ids[index] for index in order[:samples])


def stage(
    source: Path,  # the dataset on the shared file system
    target: Path,  # a folder of this node's own
    ranks: Ranks,
    samples: int,  # number of training samples per node
    seed: int,
    *,
    threads: int = THREADS,  # number of threads that read, per rank
    on_progress: OnProgress = lambda done, total: None,  # called with what this rank has read and has to read, MiB
) -> tuple[StagedSamples, frozenset[str]]:
    """Copies to each node's own disk the training samples that it draws, and its part of the held-out samples.

    All ranks must call this function. Samples of earlier draws that are there stay.

    Returns:
        What has moved, the same on every rank, and the ids of the samples of this node.

    Raises:
        InputError: If there is no dataset or it has too few training samples, or a file in `target` is another's.
        WorkError: If there is no space, or a file cannot be read or written, is damaged, or has changed meanwhile.
    """
    start, place = time.monotonic(), Place.of(ranks)
    with ranks.together():
        listed, split_of = _list_dataset(source) if place.rank == 0 else ([], {})
    found, split_of = ranks.gather_json([[asdict(item) for item in listed], split_of])[0]
    items = [Item(**item | {"origin": FileState(**item["origin"])}) for item in found]
    with ranks.together():
        ids_of_nodes = _divide(split_of, samples, seed, len(place.nodes))
        present = _present_ids(target) if place.leads else frozenset()
    own_ids, everywhere = ids_of_nodes[place.node], tuple(range(len(place.nodes)))
    placement = [
        tuple(node for node in everywhere if item.name in ids_of_nodes[node]) if item.name in split_of else everywhere
        for item in items
    ]
    shard = NodeShard(target, place.rank)

    def is_present(item: Item) -> bool:
        if item.name in split_of:
            return item.name in present
        return copies.is_complete_copy(target / item.name, item.origin)

    def complete(item: Item, piece_bytes: int, digest: str) -> None:
        if item.name in split_of:
            shard.add(item)
        else:
            copies.finish_copy(target / item.name, item.origin, piece_bytes, digest)

    with shard:
        counts = distribute(
            items,
            placement,
            source,
            target,
            ranks,
            is_present=is_present,
            complete=complete,
            threads=threads,
            on_progress=on_progress,
        )
        with ranks.together():
            shard.close()
            if place.leads:
                others = split_of.keys() - own_ids
                other_nodes.write_ids(target, manifest.read_header(target)["samples_hash"], others)
    drawn: Draw = {
        "seed": seed,
        "samples": samples,
        "different": sum(
            split_of.get(item.name) == "train" and bool(group) for item, group in zip(items, placement, strict=True)
        ),
        "digests": [xxhash.xxh3_64_hexdigest("\n".join(sorted(ids)).encode()) for ids in ids_of_nodes],
    }
    return {**staged_dataset(items, placement, ranks, counts, start), "drawn": drawn}, own_ids


def _list_dataset(source: Path) -> tuple[list[Item], dict[str, str]]:
    """Returns the files of a dataset that are no shards, then its records, by id, and the split of each record."""
    states = {state.name: state for state in list_files(source)}
    records_of: dict[str, Item] = {}
    for path in shard_paths(source):
        state = states.pop(path.name)
        for sample_id, (first, size) in lmdb_structure.locations(path).items():
            records_of.setdefault(sample_id, Item(sample_id, state, first, size))
    split_of = {entry.id: str(entry.split) for entry in manifest.present(source, records_of)}
    return [*map(Item.whole, states.values()), *(records_of[sample_id] for sample_id in sorted(split_of))], split_of


def _divide(split_of: Mapping[str, str], samples: int, seed: int, nodes: int) -> list[frozenset[str]]:
    """Returns the ids of each node: of its draw, and every `nodes`-th sample that is held out."""
    ids = sorted(split_of)
    training = [sample_id for sample_id in ids if split_of[sample_id] == "train"]
    held_out = [sample_id for sample_id in ids if split_of[sample_id] != "train"]
    return [frozenset(draw(training, samples, seed, node) + held_out[node::nodes]) for node in range(nodes)]


def _present_ids(target: Path) -> frozenset[str]:
    """Returns the ids of the samples in this node's folder."""
    if not target.is_dir():
        return frozenset()
    with Dataset(target) as dataset:
        return frozenset(dataset.ids)


class NodeShard(Closing):
    """The shard of a node to which its first rank adds records that have arrived."""

    def __init__(self, target: Path, rank: int) -> None:
        self._target, self._rank, self._stack = target, rank, ExitStack()
        self._writer: ShardWriter | None = None

    def close(self) -> None:
        """Commits what was added."""
        self._stack.close()

    def add(self, item: Item) -> None:
        """Adds a record, which has arrived as a partial file. Raises WorkError if it is damaged."""
        if self._writer is None:
            self._writer = self._stack.enter_context(ShardWriter(shard_path(self._target, self._rank), _PER_COMMIT))
        partial = copies.partial_path(self._target / item.name)
        record = partial.read_bytes()
        try:
            records.decode(record, check=True)
        except WorkError as error:
            raise WorkError(f"{item.name} in {item.origin.name}: {error}") from None
        self._writer.put(item.name, record)
        partial.unlink()
