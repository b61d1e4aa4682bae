"""Stages for each node its own random samples of a dataset (Kurth et al. 2018, section V-A1: 1,500 per node).

Rank 0 finds where the records lie in the shards. A node's training samples are drawn from the seed and the number of
the node, so that a job that is started again has the same. The held-out samples are divided over the nodes. As with
whole files (`train.staging.stage`), each byte is read once by one rank, with several threads, and sent to the nodes
that need it. A record arrives as a partial file and is added to a shard of the node. What is there is not read again.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
import xxhash

from namsa.dataset import lmdb_structure, manifest, other_nodes, records
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path, shard_paths
from namsa.errors import InputError, WorkError

from ..ranks.protocol import Ranks
from . import copies
from .copies import FileState
from .pieces import OnProgress, plan_staging, transfer
from .stage import THREADS, StagedDataset, list_files, make_room, needing_nodes

_PER_COMMIT = 16  # records


class Draw(TypedDict):
    """The samples that the nodes have drawn.

    Attributes:
        seed: Seed of the draws.
        samples: Training samples per node.
        different: Number of training samples that at least one node has.
        digests: xxh3_64 of the sorted ids of all samples of each node, one per line.
    """

    seed: int
    samples: int
    different: int
    digests: list[str]


class StagedSamples(StagedDataset):
    """What `stage` has done; the contents of `staging.json`.

    Attributes:
        drawn: The samples of the nodes.
    """

    drawn: Draw


def draw(ids: Sequence[str], samples: int, seed: int, node: int) -> list[str]:
    """Returns the ids of the training samples of a node.

    Args:
        ids: Of all training samples, sorted.
        samples: Number of samples to draw, each at most once.
        seed: Of the experiment.
        node: Number of the node.

    Raises:
        InputError: If there are fewer samples.
    """
    if samples > len(ids):
        raise InputError(
            f"data.node_samples is {samples}, and data.stage_from has {len(ids)} training samples: lower it, or unset "
            "it to divide all samples over the nodes"
        )
    order = np.random.default_rng([seed, node]).permutation(len(ids))
    return sorted(ids[index] for index in order[:samples])


def stage(
    source: Path,
    target: Path,
    ranks: Ranks,
    samples: int,
    seed: int,
    *,
    threads: int = THREADS,
    on_progress: OnProgress = lambda done, total: None,
) -> tuple[StagedSamples, frozenset[str]]:
    """Copies to each node's own disk the training samples that it draws, and its part of the held-out samples.

    All ranks must call this function. Samples of earlier draws that are there stay.

    Args:
        source: The dataset on the shared file system.
        target: A folder of this node's own.
        ranks: The ranks of the job.
        samples: Number of training samples per node.
        seed: Of the draws.
        threads: Number of threads that read, per rank.
        on_progress: Called with what this rank has read and has to read, MiB.

    Returns:
        What has moved, the same on every rank, and the ids of the samples of this node.

    Raises:
        InputError: If there is no dataset or it has too few training samples, or a file in `target` is another's.
        WorkError: If there is no space, or a file cannot be read or written, is damaged, or has changed meanwhile.
    """
    start = time.monotonic()
    rank, nodes = ranks.rank(), ranks.nodes()
    node = next(number for number, members in enumerate(nodes) if rank in members)
    leads = rank == nodes[node][0]

    with ranks.together():
        found = [asdict(item) for item in _list_dataset(source)] if rank == 0 else []
    items = [_Item(**item | {"origin": FileState(**item["origin"])}) for item in ranks.gather_json(found)[0]]
    with ranks.together():
        ids_of_nodes = _divide(items, samples, seed, len(nodes))
        present = _present_ids(target) if leads else frozenset()
    files = [item.as_file() for item in items]
    placement = [
        tuple(number for number, ids in enumerate(ids_of_nodes) if not item.split or item.name in ids) for item in items
    ]

    def is_complete(index: int) -> bool:
        if items[index].split:
            return items[index].name in present
        return copies.is_complete_copy(target / files[index].name, files[index])

    own = [index for index, group in enumerate(placement) if node in group]
    needed_by = needing_nodes(target, ranks, placement, own if leads else [], is_complete)
    plan = plan_staging(files, needed_by, nodes)
    with ExitStack() as stack:
        with ranks.together():
            if leads:
                make_room(target, [file for file, group in zip(files, needed_by, strict=True) if node in group])
            writer = stack.enter_context(ShardWriter(shard_path(target, rank), _PER_COMMIT)) if leads else None

        def complete(index: int, digest: str) -> None:
            if items[index].split:
                assert writer
                _add_record(writer, target, items[index])
            else:
                copies.finish_copy(target / files[index].name, files[index], plan.piece_bytes, digest)

        def origin(index: int) -> tuple[FileState, int]:
            return items[index].origin, items[index].first

        counts = transfer(plan, source, target, ranks, threads, on_progress, origin=origin, complete=complete)
        with ranks.together():
            stack.close()  # commits
            if leads:
                others = {item.name for item in items if item.split} - ids_of_nodes[node]
                other_nodes.write_ids(target, manifest.read_header(target)["samples_hash"], others)

    rows = ranks.gather_json({"node": node, **counts, "seconds": round(time.monotonic() - start, 3)})
    return {
        "files": sum(map(bool, placement)),
        "bytes": sum(file.size for file, group in zip(files, placement, strict=True) if group),
        "nodes": len(nodes),
        "seconds": max(row["seconds"] for row in rows),
        "ranks": rows,
        "drawn": {
            "seed": seed,
            "samples": samples,
            "different": sum(
                item.split == "train" and bool(group) for item, group in zip(items, placement, strict=True)
            ),
            "digests": [xxhash.xxh3_64_hexdigest("\n".join(sorted(ids)).encode()) for ids in ids_of_nodes],
        },
    }, ids_of_nodes[node]


# ---- What there is --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Item:
    """A record of the dataset, or a whole file of it that all nodes get.

    Attributes:
        name: The sample's id, or the file's name.
        split: Of the sample; "" for a file.
        origin: The shard, or the file itself.
        first: First byte in the file.
        size: Number of bytes.
    """

    name: str
    split: str
    origin: FileState
    first: int
    size: int

    def as_file(self) -> FileState:
        """Returns the file that the item is staged as."""
        return FileState(self.name, self.size, 0) if self.split else self.origin


def _list_dataset(source: Path) -> list[_Item]:
    """Returns the files of a dataset that are no shards, then its records, sorted by id."""
    states = {state.name: state for state in list_files(source)}
    found: dict[str, tuple[FileState, int, int]] = {}
    for path in shard_paths(source):
        state = states.pop(path.name)
        for sample_id, (first, size) in lmdb_structure.locations(path).items():
            found.setdefault(sample_id, (state, first, size))
    files = [_Item(state.name, "", state, 0, state.size) for state in states.values()]
    splits = {entry.id: entry.split for entry in manifest.present(source, found)}
    return files + [_Item(sample_id, splits[sample_id], *found[sample_id]) for sample_id in sorted(splits)]


def _divide(items: Sequence[_Item], samples: int, seed: int, nodes: int) -> list[frozenset[str]]:
    """Returns the ids of each node: of its draw, and every `nodes`-th sample that is held out."""
    training = [item.name for item in items if item.split == "train"]
    held_out = [item.name for item in items if item.split not in ("train", "")]
    return [frozenset(draw(training, samples, seed, node) + held_out[node::nodes]) for node in range(nodes)]


# ---- The node's shards ----------------------------------------------------------------------------------------------


def _present_ids(target: Path) -> frozenset[str]:
    """Returns the ids of the samples in this node's folder."""
    if not target.is_dir():
        return frozenset()
    with Dataset(target) as dataset:
        return frozenset(dataset.ids)


def _add_record(writer: ShardWriter, target: Path, item: _Item) -> None:
    """Adds a record, which has arrived as a partial file, to the node's shard. Raises WorkError if it is damaged."""
    partial = copies.partial_path(target / item.name)
    record = partial.read_bytes()
    try:
        records.decode(record, check=True)
    except WorkError as error:
        raise WorkError(f"{item.name} in {item.origin.name}: {error}") from None
    writer.put(item.name, record)
    partial.unlink()
