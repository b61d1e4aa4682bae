"""Stages for each node its own random samples of a dataset (Kurth et al. 2018, section V-A1: 1,500
per node).

Rank 0 finds where the records lie in the shards. A node's training samples are drawn from the seed
and the number of the node, so that a job that is started again has the same. The held-out samples
are divided over the nodes. As with whole files (`train.staging.stage`), each byte is read once by
one rank, with several threads, and sent to the nodes that need it. A record arrives as a partial
file and is added to a shard of the node. What is there is not read again.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np
import xxhash

from namsa.base.errors import InputError, WorkError
from namsa.base.files import Closing
from namsa.base.identity import Difference, refusal
from namsa.base.text import plural
from namsa.dataset import lmdb_structure, manifest, other_nodes, records
from namsa.dataset.contents import digest_of_contents, record_digests
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import shard_path, shard_paths

from ....input.source import Preparation, SampleSource
from ....ranks.interface import Ranks
from ....staging import copies
from ....staging.copies import FileState
from ....staging.nodes import Place
from ....staging.pieces import Item, OnProgress
from ....staging.stage import (
    THREADS,
    StagedDataset,
    distribute,
    list_files,
    staged_dataset,
    write_report,
)

_PER_COMMIT = 16  # records
MOST_SHOWN = 8  # samples in a message


class DrawnSource(SampleSource):
    """Samples that this node has drawn."""

    def prepare(self, job: Preparation) -> Collection[str] | None:
        section = self.section
        directory = self.experiment.data.directory
        with job.progress("rank 0 stages, MiB") as show_count:
            staged, ids = stage(
                section.folder,
                directory,
                job.ranks,
                section.samples,
                self.experiment.seed,
                on_progress=show_count,
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
    """The result of `stage`; the contents of `staging.json`."""

    drawn: Draw  # the samples of the nodes


def draw(ids: Sequence[str], samples: int, seed: int, node: int) -> list[str]:
    """Returns `samples` of the sorted ids for a node, each at most once. Raises InputError if there
    are fewer.
    """
    if samples > len(ids):
        raise InputError(
            f"data.source.samples is {samples}, and data.source.folder has {len(ids)} training "
            "samples: lower it, or divide all samples over the nodes with kind staged and "
            "node_local"
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
    # called with what this rank has read and has to read, MiB
    on_progress: OnProgress = lambda done, total: None,
) -> tuple[StagedSamples, frozenset[str]]:
    """Copies to each node's own disk the training samples that it draws, and its part of the
    held-out samples.

    All ranks must call this function. Samples of earlier draws that are there stay.

    Returns:
        What has moved, the same on every rank, and the ids of the samples of this node.

    Raises:
        InputError: If there is no dataset or it has too few training samples, or a file in `target`
            is another's.
        WorkError: If there is no space, or a file cannot be read or written, is damaged, or has
            changed meanwhile.
    """
    start = time.monotonic()
    place = Place.of(ranks)
    listed = _list_on_rank_0(source, ranks)
    with ranks.local_work():
        ids_of_nodes = _divide(listed.split_of, samples, seed, len(place.nodes))
        present = _present_digests(target) if place.leads else {}
        _check_present(target, present, source, listed.digests)
    own_ids = ids_of_nodes[place.node]
    placement = [_nodes_of(item.name, listed.split_of, ids_of_nodes) for item in listed.items]
    folder = _NodeFolder(target, present.keys(), listed.split_of.keys(), place.rank)
    with folder.shard:
        counts = distribute(
            listed.items,
            placement,
            source,
            target,
            ranks,
            is_present=folder.has,
            complete=folder.complete,
            threads=threads,
            on_progress=on_progress,
        )
        with ranks.local_work():
            folder.shard.close()
            if place.leads:
                others = listed.split_of.keys() - own_ids
                other_nodes.write_ids(target, manifest.read_header(target)["samples_hash"], others)
    staged = staged_dataset(listed.items, placement, ranks, counts, start)
    return {**staged, "drawn": _drawn(listed.split_of, samples, seed, ids_of_nodes)}, own_ids


def _drawn(
    split_of: Mapping[str, str], samples: int, seed: int, ids_of_nodes: Sequence[frozenset[str]]
) -> Draw:
    """Returns what the nodes have drawn, for the report of staging."""
    drawn_by_any = frozenset[str]().union(*ids_of_nodes)
    training = {sample_id for sample_id, split in split_of.items() if split == "train"}
    return {
        "seed": seed,
        "samples": samples,
        "different": len(drawn_by_any & training),
        "digests": [_digest_of_ids(ids) for ids in ids_of_nodes],
    }


class ListedDataset(NamedTuple):
    """A dataset on the shared file system."""

    items: list[Item]  # the files that are no shards, then the records in the order of their ids
    split_of: dict[str, str]  # the split of each record, by id
    digests: dict[str, str]  # the digest of each record, by id


def _list_on_rank_0(source: Path, ranks: Ranks) -> ListedDataset:
    """Returns what rank 0 finds in a dataset, on all ranks. Collective."""
    listed = ListedDataset([], {}, {})
    with ranks.local_work():
        if ranks.rank() == 0:
            listed = _list_dataset(source)
    as_json = [[asdict(item) for item in listed.items], listed.split_of, listed.digests]
    rows, split_of, digests = ranks.gather_json(as_json)[0]
    items = [Item(**{**row, "origin": FileState(**row["origin"])}) for row in rows]
    return ListedDataset(items, split_of, digests)


def _list_dataset(source: Path) -> ListedDataset:
    """Returns the files and records of a dataset. Of a record in two shards, the first counts."""
    states = {state.name: state for state in list_files(source)}
    record_items: dict[str, Item] = {}
    digests: dict[str, str] = {}
    for path in shard_paths(source):
        state = states.pop(path.name)
        digests = record_digests(path) | digests
        for sample_id, (offset, size) in lmdb_structure.locations(path).items():
            record_items.setdefault(sample_id, Item(sample_id, state, offset, size))
    entries = manifest.present(source, record_items)
    split_of = {entry.id: str(entry.split) for entry in entries}
    items = []
    for state in states.values():
        contents = digest_of_contents(source / state.name)
        items.append(Item.whole(replace(state, contents=contents)))
    ids = sorted(split_of)
    items.extend(record_items[sample_id] for sample_id in ids)
    return ListedDataset(items, split_of, {sample_id: digests[sample_id] for sample_id in ids})


def _nodes_of(
    name: str, split_of: Mapping[str, str], ids_of_nodes: Sequence[frozenset[str]]
) -> tuple[int, ...]:
    """Returns the nodes that get an item: of a record those that have drawn it, else all."""
    nodes = range(len(ids_of_nodes))
    if name not in split_of:
        return tuple(nodes)
    return tuple(node for node in nodes if name in ids_of_nodes[node])


def _digest_of_ids(ids: Collection[str]) -> str:
    return xxhash.xxh3_64_hexdigest("\n".join(sorted(ids)).encode())


def _divide(
    split_of: Mapping[str, str], samples: int, seed: int, nodes: int
) -> list[frozenset[str]]:
    """Returns the ids of each node: of its draw, and every `nodes`-th sample that is held out."""
    ids = sorted(split_of)
    training = [sample_id for sample_id in ids if split_of[sample_id] == "train"]
    held_out = [sample_id for sample_id in ids if split_of[sample_id] != "train"]
    return [
        frozenset(draw(training, samples, seed, node) + held_out[node::nodes])
        for node in range(nodes)
    ]


def _present_digests(target: Path) -> dict[str, str]:
    """Returns the digests of the samples in this node's folder, by id."""
    digests: dict[str, str] = {}
    if target.is_dir():
        for path in shard_paths(target):
            digests |= record_digests(path)
    return digests


def _check_present(
    target: Path, present: Mapping[str, str], source: Path, digests: Mapping[str, str]
) -> None:
    """Raises DifferentError if samples in this node's folder are others than those of their ids in
    the dataset. Samples that the dataset lacks are those of earlier draws.
    """
    differences = []
    for sample_id, digest in present.items():
        if digests.get(sample_id, digest) != digest:
            differences.append(Difference(sample_id, digest, digests[sample_id]))
    if differences:
        raise refusal(
            f"the copy in {target}, with {plural(len(differences), 'other sample')},",
            differences[:MOST_SHOWN],
            f"remove {target}, into which the samples of {source} are copied, and run again",
        )


class NodeShard(Closing):
    """The shard of a node to which its first rank adds records that have arrived."""

    def __init__(self, target: Path, rank: int) -> None:
        self._target = target
        self._rank = rank
        self._stack = ExitStack()
        self._writer: ShardWriter | None = None

    def close(self) -> None:
        """Commits what was added."""
        self._stack.close()

    def add(self, item: Item) -> None:
        """Adds a record, which has arrived as a partial file. Raises WorkError if it is damaged."""
        if self._writer is None:
            self._writer = self._stack.enter_context(
                ShardWriter(shard_path(self._target, self._rank), _PER_COMMIT)
            )
        partial = copies.partial_path(self._target / item.name)
        record = partial.read_bytes()
        try:
            records.decode(record, check=True)
        except WorkError as error:
            raise WorkError(f"{item.name} in {item.origin.name}: {error}") from None
        self._writer.put(item.name, record)
        partial.unlink()


class _NodeFolder:
    """The folder of a node, into which its first rank brings records and files."""

    def __init__(
        self, target: Path, present: Collection[str], record_ids: Collection[str], rank: int
    ) -> None:
        self.shard = NodeShard(target, rank)
        self._target = target
        self._present = present  # ids of the records in the folder
        self._record_ids = record_ids  # of all records; other items are files

    def has(self, item: Item) -> bool:
        """Returns whether an item is there."""
        if item.name in self._record_ids:
            return item.name in self._present
        return copies.is_complete_copy(self._target / item.name, item.origin)

    def complete(self, item: Item, piece_bytes: int, digest: str) -> None:
        """Takes an item of which the partial file is whole."""
        if item.name in self._record_ids:
            self.shard.add(item)
        else:
            copies.finish_copy(self._target / item.name, item.origin, piece_bytes, digest)


SOURCE = DrawnSource
