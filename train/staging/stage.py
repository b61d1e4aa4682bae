"""Stages a dataset: copies it from a shared file system to the nodes' own disks (Kurth et al. 2018,
section V-A1).

Each byte is read from the shared system once, by one rank, with several threads. What more than one
node needs then travels from node to node (`train.staging.pieces`). A later run fetches only files
of which the node has no complete copy (`train.staging.copies`).
"""

import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypedDict

from namsa.base.errors import InputError, WorkError
from namsa.base.files import write_text_atomic
from namsa.base.text import plural
from namsa.dataset import manifest, other_nodes
from namsa.dataset.contents import digest_of_contents
from namsa.dataset.shards import Shard, shard_paths

from ..ranks.interface import Ranks
from . import copies
from .copies import FileState
from .nodes import Place, needing_nodes
from .pieces import Complete, Item, Nodes, OnProgress, plan_staging, transfer

THREADS = 8  # Kurth et al.: 6.7 times the bandwidth of one


class RankTransfer(TypedDict):
    """The amount that one rank has moved."""

    node: int  # number of its node
    read: int  # bytes read from the shared file system
    sent: int  # bytes sent to other ranks
    received: int  # bytes received from other ranks
    written: int  # bytes written to the disk of the node
    seconds: float  # time of the whole staging, s


class StagedDataset(TypedDict):
    """The result of `stage`; the contents of `staging.json`."""

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
    # Whether every node gets the whole dataset. Otherwise shard R is only copied to the node of
    # rank R modulo the number of ranks.
    everywhere: bool = True,
    threads: int = THREADS,  # number of threads that read, per rank
    # called with what this rank has read and has to read, MiB
    on_progress: OnProgress = lambda done, total: None,
) -> StagedDataset:
    """Copies a dataset to the nodes' own disks. All ranks must call this function.

    Complete copies that are there already stay.

    Returns:
        What has moved, the same on every rank.

    Raises:
        InputError: If there is no dataset, or a file in `target` is no copy of a file of the
            dataset.
        WorkError: If there is no space, or a file cannot be read or written, has changed meanwhile,
            or arrives damaged.
    """
    start = time.monotonic()
    place = Place.of(ranks)
    files = _listed_files(source, ranks, place)
    items = [Item.whole(file) for file in with_contents(source, files, ranks)]
    placement = [_placement(item.name, place.nodes, everywhere) for item in items]
    counts = distribute(
        items, placement, source, target, ranks, threads=threads, on_progress=on_progress
    )
    if everywhere:
        with ranks.local_work():
            (target / other_nodes.FILE_NAME).unlink(missing_ok=True)
    else:
        names = [item.name for item in _of_node(items, placement, place.node)]
        _list_samples_of_other_nodes(target, ranks, place, names)
    return staged_dataset(items, placement, ranks, counts, start)


# ---- What whole files and single records have in common
# --------------------------------------------------------------


def distribute(
    items: Sequence[Item],  # what may move
    placement: Sequence[tuple[int, ...]],  # for each item the nodes that should have it
    source: Path,  # the dataset on the shared file system
    target: Path,  # a folder of this node's own
    ranks: Ranks,
    *,
    # Whether an item is in `target`, asked on the first rank of a node; `None` for complete copies,
    # which the ranks of a node look for together.
    is_present: Callable[[Item], bool] | None = None,
    complete: Complete | None = None,  # as of `pieces.transfer`; `None` makes copies
    threads: int = THREADS,  # number of threads that read, per rank
    # called with what this rank has read and has to read, MiB
    on_progress: OnProgress = lambda done, total: None,
) -> Counter[str]:
    """Brings items to the nodes that lack them; returns this rank's bytes, as of `pieces.transfer`.
    Collective.
    """

    def is_copied(item: Item) -> bool:
        return copies.is_complete_copy(target / item.name, item.origin)

    def finish_copy(item: Item, piece_bytes: int, digest: str) -> None:
        copies.finish_copy(target / item.name, item.origin, piece_bytes, digest)

    place = Place.of(ranks)
    lookers = place.members[:1] if is_present else place.members
    needed_by = needing_nodes(items, placement, target, ranks, lookers, is_present or is_copied)
    with ranks.local_work():
        if place.leads:
            make_room(target, _of_node(items, needed_by, place.node))
    plan = plan_staging(items, needed_by, place.nodes)
    return transfer(plan, source, target, ranks, threads, on_progress, complete or finish_copy)


def _of_node(
    items: Sequence[Item], nodes_of_items: Sequence[tuple[int, ...]], node: int
) -> list[Item]:
    """Returns the items of which a node is among the nodes."""
    return [item for item, nodes in zip(items, nodes_of_items, strict=True) if node in nodes]


def staged_dataset(
    items: Sequence[Item],
    placement: Sequence[tuple[int, ...]],
    ranks: Ranks,
    counts: Mapping[str, int],
    start: float,
) -> StagedDataset:
    """Returns what has moved to the nodes that should have it. Collective."""
    row = {"node": Place.of(ranks).node, **counts, "seconds": round(time.monotonic() - start, 3)}
    rows = ranks.gather_json(row)
    sizes = [item.size for item, nodes in zip(items, placement, strict=True) if nodes]
    return {
        "files": len(sizes),
        "bytes": sum(sizes),
        "nodes": len(ranks.nodes()),
        "seconds": max(row["seconds"] for row in rows),
        "ranks": rows,
    }


def summary(staged: StagedDataset) -> str:
    """Returns one line about what `stage` did."""
    read = [row["read"] / 2**20 for row in staged["ranks"]]
    sent = [row["sent"] / 2**20 for row in staged["ranks"]]
    return (
        f"staged {plural(staged['files'], 'file')} of {staged['bytes'] / 2**20:,.1f} MiB on "
        f"{plural(staged['nodes'], 'node')} in {staged['seconds']:.1f} s: {sum(read):,.1f} MiB "
        f"read from the shared file system, at most {max(read):,.1f} by one rank; {sum(sent):,.1f} "
        "MiB sent between ranks"
    )


def write_report(
    staged: StagedDataset, run_dir: Path, ranks: Ranks, log_line: Callable[[str], None]
) -> None:
    """Prints one line, and writes `staging.json` into the run directory. Collective."""
    log_line(summary(staged))
    with ranks.local_work():
        if ranks.rank() == 0:
            write_text_atomic(run_dir / "staging.json", json.dumps(staged, indent=1))


# ---- Which files go where
# -------------------------------------------------------------------------------------------


def _listed_files(source: Path, ranks: Ranks, place: Place) -> list[FileState]:
    """Returns the files of a dataset as rank 0 lists them. Collective."""
    listed = []
    with ranks.local_work():
        if place.rank == 0:
            listed = [asdict(file) for file in list_files(source)]
    return [FileState(**file) for file in ranks.gather_json(listed)[0]]


def list_files(source: Path) -> list[FileState]:
    """Returns the files of a dataset. Raises InputError for none, or if one is a folder or a link
    to nothing.
    """
    shards = []
    if source.is_dir():
        shards = shard_paths(source)
    if not shards or not (source / manifest.FILE_NAME).exists():
        raise InputError(
            f"there is no dataset at {source} to stage: it needs {manifest.FILE_NAME} and shards"
        )
    small = [
        source / manifest.FILE_NAME,
        source / "config.yaml",
        *sorted(source.glob("failed-*.jsonl")),
    ]
    files = []
    for path in (*small, *shards):
        if not os.path.lexists(path):
            continue
        if not path.is_file():
            raise InputError(
                f"{path} is a folder or a link to nothing, and must be a file: remove it"
            )
        files.append(FileState.of(path))
    return files


def with_contents(source: Path, files: Sequence[FileState], ranks: Ranks) -> list[FileState]:
    """Returns files of a dataset with the digests of their contents. Collective.

    Each is read by one rank, and of a shard only what `namsa.dataset.contents` reads. Raises
    WorkError if one cannot be read.
    """
    digests = {}
    with ranks.local_work():
        for file in files[ranks.rank() :: ranks.size()]:
            digests[file.name] = digest_of_contents(source / file.name)
    contents: dict[str, str] = {}
    for of_rank in ranks.gather_json(digests):
        contents |= of_rank
    return [replace(file, contents=contents[file.name]) for file in files]


def _placement(name: str, nodes: Nodes, everywhere: bool) -> tuple[int, ...]:
    """Returns the nodes that get a file.

    A rank continues the shard of its number, so that shard must be on its node.
    """
    shard = re.match(r"shard-(\d+)", name)
    if everywhere or not shard:
        return tuple(range(len(nodes)))
    number_of_ranks = sum(map(len, nodes))
    rank = int(shard[1]) % number_of_ranks
    return tuple(node for node, members in enumerate(nodes) if rank in members)


def make_room(target: Path, items: Sequence[Item]) -> None:
    """Removes what an interrupted run left, and makes empty partial files. Raises WorkError without
    the space.
    """
    for partial in target.glob(".*.part"):
        partial.unlink()
    needed = sum(item.size for item in items)
    free = shutil.disk_usage(target).free
    if needed > free:
        raise WorkError(
            f"{target} has {free / 2**30:.2f} GiB free, and staging needs {needed / 2**30:.2f} "
            "GiB: make room, take more nodes with data.source.node_local=true, so that each holds "
            "only a part, or stage into another folder"
        )
    for item in items:
        copies.partial_path(target / item.name).touch()


def _list_samples_of_other_nodes(
    target: Path, ranks: Ranks, place: Place, local_names: Sequence[str]
) -> None:
    """Writes which samples other nodes hold, so that `namsa dataset` does not simulate them again
    on this one.
    """
    with ranks.local_work():
        local_ids: set[str] = set()
        names = set(local_names[place.members.index(place.rank) :: len(place.members)])
        for path in (path for path in shard_paths(target) if path.name in names):
            with Shard(path) as shard:
                local_ids.update(shard.ids)
    ids_of_ranks = ranks.gather_json(sorted(local_ids))
    with ranks.local_work():
        if place.leads:
            others = {
                id
                for rank, ids in enumerate(ids_of_ranks)
                if rank not in place.members
                for id in ids
            }
            other_nodes.write_ids(target, manifest.read_header(target)["samples_hash"], others)
