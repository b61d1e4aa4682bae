"""Stages a dataset: copies it from a shared file system to the nodes' own disks (Kurth et al. 2018, section V-A1).

Each byte is read from the shared system once, by one rank, with several threads. What more than one node needs then
travels from node to node (`train.staging.pieces`). A later run fetches only files of which the node has no complete
copy (`train.staging.copies`).
"""

import json
import os
import re
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from namsa.dataset import manifest, other_nodes
from namsa.dataset.shards import Shard, shard_paths
from namsa.errors import InputError, WorkError
from namsa.files import system_errors, write_text_atomic
from namsa.text import plural

from ..ranks.protocol import Ranks
from . import copies
from .copies import FileState
from .pieces import Complete, Item, Nodes, OnProgress, plan_staging, transfer

THREADS = 8  # Kurth et al.: 6.7 times the bandwidth of one


class RankTransfer(TypedDict):
    """What one rank has moved."""

    node: int  # number of its node
    read: int  # bytes read from the shared file system
    sent: int  # bytes sent to other ranks
    received: int  # bytes received from other ranks
    written: int  # bytes written to the disk of the node
    seconds: float  # time of the whole staging, s


class StagedDataset(TypedDict):
    """What `stage` has done; the contents of `staging.json`."""

    files: int  # files of the dataset
    bytes: int  # their size
    nodes: int  # number of nodes
    seconds: float  # time of the slowest rank, s
    ranks: list[RankTransfer]  # one row per rank


def stage(
    source: Path,  # the dataset on the shared file system
    target: Path,  # a folder of this node's own
    ranks: Ranks,
    *,
    # Whether every node gets the whole dataset. Otherwise shard R is only copied to the node of rank R modulo the
    # number of ranks.
    everywhere: bool = True,
    threads: int = THREADS,  # number of threads that read, per rank
    on_progress: OnProgress = lambda done, total: None,  # called with what this rank has read and has to read, MiB
) -> StagedDataset:
    """Copies a dataset to the nodes' own disks. All ranks must call this function.

    Complete copies that are there already stay.

    Returns:
        What has moved, the same on every rank.

    Raises:
        InputError: If there is no dataset, or a file in `target` is no copy of a file of the dataset.
        WorkError: If there is no space, or a file cannot be read or written, has changed meanwhile, or arrives damaged.
    """
    start, place = time.monotonic(), Place.of(ranks)
    with ranks.together():
        listed = [asdict(file) for file in list_files(source)] if place.rank == 0 else []
    items = [Item.whole(FileState(**file)) for file in ranks.gather_json(listed)[0]]
    placement = [_placement(item.name, place.nodes, everywhere) for item in items]
    counts = distribute(items, placement, source, target, ranks, threads=threads, on_progress=on_progress)
    if everywhere:
        with ranks.together():
            (target / other_nodes.FILE_NAME).unlink(missing_ok=True)
    else:
        local = [item.name for item, group in zip(items, placement, strict=True) if place.node in group]
        _list_samples_of_other_nodes(target, ranks, place, local)
    return staged_dataset(items, placement, ranks, counts, start)


# ---- What whole files and single records have in common --------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A rank's place on the nodes."""

    rank: int  # number of the rank
    nodes: Nodes  # the ranks of each node
    node: int  # number of the rank's node

    @classmethod
    def of(cls, ranks: Ranks) -> "Place":
        """Returns the place of this rank. Collective."""
        rank, nodes = ranks.rank(), ranks.nodes()
        return cls(rank, nodes, next(number for number, members in enumerate(nodes) if rank in members))

    @property
    def members(self) -> list[int]:
        """The ranks of the node."""
        return self.nodes[self.node]

    @property
    def leads(self) -> bool:
        """Whether the rank is the first of its node."""
        return self.rank == self.members[0]


def distribute(
    items: Sequence[Item],  # what may move
    placement: Sequence[tuple[int, ...]],  # for each item the nodes that should have it
    source: Path,  # the dataset on the shared file system
    target: Path,  # a folder of this node's own
    ranks: Ranks,
    *,
    # Whether an item is in `target`, asked on the first rank of a node; `None` for complete copies, which the ranks of
    # a node look for together.
    is_present: Callable[[Item], bool] | None = None,
    complete: Complete | None = None,  # as of `pieces.transfer`; `None` makes copies
    threads: int = THREADS,  # number of threads that read, per rank
    on_progress: OnProgress = lambda done, total: None,  # called with what this rank has read and has to read, MiB
) -> Counter[str]:
    """Brings items to the nodes that lack them; returns this rank's bytes, as of `pieces.transfer`. Collective."""

    def is_copied(item: Item) -> bool:
        return copies.is_complete_copy(target / item.name, item.origin)

    def finish_copy(item: Item, piece_bytes: int, digest: str) -> None:
        copies.finish_copy(target / item.name, item.origin, piece_bytes, digest)

    place = Place.of(ranks)
    lookers = place.members[:1] if is_present else place.members
    needed_by = needing_nodes(items, placement, target, ranks, lookers, is_present or is_copied)
    with ranks.together():
        if place.leads:
            make_room(target, [item for item, group in zip(items, needed_by, strict=True) if place.node in group])
    plan = plan_staging(items, needed_by, place.nodes)
    return transfer(plan, source, target, ranks, threads, on_progress, complete or finish_copy)


def staged_dataset(
    items: Sequence[Item], placement: Sequence[tuple[int, ...]], ranks: Ranks, counts: Mapping[str, int], start: float
) -> StagedDataset:
    """Returns what has moved to the nodes that should have it. Collective."""
    row = {"node": Place.of(ranks).node, **counts, "seconds": round(time.monotonic() - start, 3)}
    rows = ranks.gather_json(row)
    sizes = [item.size for item, group in zip(items, placement, strict=True) if group]
    return {
        "files": len(sizes),
        "bytes": sum(sizes),
        "nodes": len(ranks.nodes()),
        "seconds": max(row["seconds"] for row in rows),
        "ranks": rows,
    }


def summary(staged: StagedDataset) -> str:
    """Returns one line about what `stage` did."""
    read, sent = ([row["read"] / 2**20 for row in staged["ranks"]], [row["sent"] / 2**20 for row in staged["ranks"]])
    return (
        f"staged {plural(staged['files'], 'file')} of {staged['bytes'] / 2**20:,.1f} MiB on "
        f"{plural(staged['nodes'], 'node')} in {staged['seconds']:.1f} s: {sum(read):,.1f} MiB read from the shared "
        f"file system, at most {max(read):,.1f} by one rank; {sum(sent):,.1f} MiB sent between ranks"
    )


def write_report(staged: StagedDataset, run_dir: Path, ranks: Ranks, log_line: Callable[[str], None]) -> None:
    """Prints one line, and writes `staging.json` into the run directory. Collective."""
    log_line(summary(staged))
    with ranks.together():
        if ranks.rank() == 0:
            write_text_atomic(run_dir / "staging.json", json.dumps(staged, indent=1))


# ---- Which files go where -------------------------------------------------------------------------------------------


def list_files(source: Path) -> list[FileState]:
    """Returns the files of a dataset. Raises InputError for none, or if one is a folder or a link to nothing."""
    shards = shard_paths(source) if source.is_dir() else []
    if not shards or not (source / manifest.FILE_NAME).exists():
        raise InputError(f"there is no dataset at {source} to stage: it needs {manifest.FILE_NAME} and shards")
    small = [source / manifest.FILE_NAME, source / "config.yaml", *sorted(source.glob("failed-*.jsonl"))]
    present = [path for path in [*small, *shards] if os.path.lexists(path)]
    for path in present:
        if not path.is_file():
            raise InputError(f"{path} is a folder or a link to nothing, and must be a file: remove it")
    return [FileState.of(path) for path in present]


def _placement(name: str, nodes: Nodes, everywhere: bool) -> tuple[int, ...]:
    """The nodes that get a file. A rank continues the shard of its number, so that shard must be on its node."""
    number = re.match(r"shard-(\d+)", name)
    if everywhere or not number:
        return tuple(range(len(nodes)))
    rank = int(number[1]) % sum(map(len, nodes))
    return (next(index for index, members in enumerate(nodes) if rank in members),)


def needing_nodes(
    items: Sequence[Item],  # what may move
    placement: Sequence[tuple[int, ...]],
    target: Path,  # a folder of this node's own
    ranks: Ranks,
    lookers: Sequence[int],  # the ranks of this node that look for items, each for others
    is_present: Callable[[Item], bool],  # whether an item is in `target`
) -> list[tuple[int, ...]]:
    """Returns for each item the nodes that should have it and do not. All ranks must call this function.

    Raises:
        InputError: If nodes share `target`, or as `is_present` raises it.
        WorkError: If `target` cannot be written.
    """
    place = Place.of(ranks)
    local = [index for index, group in enumerate(placement) if place.node in group]
    checked = local[lookers.index(place.rank) :: len(lookers)] if place.rank in lookers else []
    token = ranks.gather_json(uuid.uuid4().hex if place.rank == 0 else "")[0]
    with ExitStack() as stack:
        with ranks.together():
            if place.leads:
                # Another node sees this file only if the two share the folder.
                mark = target / f".staging-{token}-{place.node}"
                with system_errors(f"cannot write into {target}"):
                    target.mkdir(parents=True, exist_ok=True)
                    mark.touch()
                stack.callback(mark.unlink, missing_ok=True)
        with ranks.together():
            if len(marks := list(target.glob(f".staging-{token}-*"))) > 1:
                raise InputError(
                    f"{target} is one folder for {len(marks)} nodes: stage into storage of each node's own"
                )
            missing = {index for index in checked if not is_present(items[index])}
        masks = ranks.gather_json(format(sum(1 << index for index in missing), "x"))
    lacking = [int(mask, 16) for mask in masks]
    return [
        tuple(n for n in group if any(lacking[member] >> index & 1 for member in place.nodes[n]))
        for index, group in enumerate(placement)
    ]


# ---- The node's folder ----------------------------------------------------------------------------------------------


def make_room(target: Path, items: Sequence[Item]) -> None:
    """Removes what an interrupted run left, and makes empty partial files. Raises WorkError without the space."""
    for partial in target.glob(".*.part"):
        partial.unlink()
    needed, free = sum(item.size for item in items), shutil.disk_usage(target).free
    if needed > free:
        raise WorkError(
            f"{target} has {free / 2**30:.2f} GiB free, and staging needs {needed / 2**30:.2f} GiB: make room, take "
            "more nodes with data.source.node_local=true, so that each holds only a part, or stage into another folder"
        )
    for item in items:
        copies.partial_path(target / item.name).touch()


def _list_samples_of_other_nodes(target: Path, ranks: Ranks, place: Place, local_names: Sequence[str]) -> None:
    """Writes which samples other nodes hold, so that `namsa dataset` does not simulate them again on this one."""
    with ranks.together():
        local_ids: set[str] = set()
        names = set(local_names[place.members.index(place.rank) :: len(place.members)])
        for path in (path for path in shard_paths(target) if path.name in names):
            with Shard(path) as shard:
                local_ids.update(shard.ids)
    ids_of_ranks = ranks.gather_json(sorted(local_ids))
    with ranks.together():
        if place.leads:
            others = {id for rank, ids in enumerate(ids_of_ranks) if rank not in place.members for id in ids}
            other_nodes.write_ids(target, manifest.read_header(target)["samples_hash"], others)
