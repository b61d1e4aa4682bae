"""Stages a dataset: copies it from a shared file system to the nodes' own disks (Kurth et al. 2018, section V-A1).

Each byte is read from the shared system once, by one rank, with several threads. What more than one node needs then
travels from node to node (`train.staging.pieces`). A later run fetches only files of which the node has no complete
copy (`train.staging.copies`).
"""

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from namsa.dataset import manifest, other_nodes
from namsa.dataset.shards import Shard, shard_paths
from namsa.errors import InputError, WorkError
from namsa.text import plural

from ..ranks.protocol import Ranks
from . import copies
from .copies import FileState
from .pieces import Nodes, OnProgress, plan_staging, transfer

THREADS = 8  # Kurth et al.: 6.7 times the bandwidth of one


class RankTransfer(TypedDict):
    """What one rank has moved.

    Attributes:
        node: Number of its node.
        read: Bytes read from the shared file system.
        sent: Bytes sent to other ranks.
        received: Bytes received from other ranks.
        written: Bytes written to the disk of the node.
        seconds: Time of the whole staging, s.
    """

    node: int
    read: int
    sent: int
    received: int
    written: int
    seconds: float


class StagedDataset(TypedDict):
    """What `stage` has done; the contents of `staging.json`.

    Attributes:
        files: Files of the dataset.
        bytes: Their size.
        nodes: Number of nodes.
        seconds: Time of the slowest rank, s.
        ranks: One row per rank.
    """

    files: int
    bytes: int
    nodes: int
    seconds: float
    ranks: list[RankTransfer]


def stage(
    source: Path,
    target: Path,
    ranks: Ranks,
    *,
    everywhere: bool = True,
    threads: int = THREADS,
    on_progress: OnProgress = lambda done, total: None,
) -> StagedDataset:
    """Copies a dataset to the nodes' own disks. All ranks must call this function.

    Complete copies that are there already stay.

    Args:
        source: The dataset on the shared file system.
        target: A folder of this node's own.
        ranks: The ranks of the job.
        everywhere: Whether every node gets the whole dataset. Otherwise shard R is only copied to the node of rank R
            modulo the number of ranks.
        threads: Number of threads that read, per rank.
        on_progress: Called with what this rank has read and has to read, MiB.

    Returns:
        What has moved, the same on every rank.

    Raises:
        InputError: If there is no dataset, or a file in `target` is no copy of a file of the dataset.
        WorkError: If there is no space, or a file cannot be read or written, has changed meanwhile, or arrives damaged.
    """
    start = time.monotonic()
    rank, nodes = ranks.rank(), ranks.nodes()
    node = next(number for number, members in enumerate(nodes) if rank in members)
    members = nodes[node]

    with ranks.together():
        listed = [asdict(file) for file in list_files(source)] if rank == 0 else []
    files = [FileState(**file) for file in ranks.gather_json(listed)[0]]
    placement = [_placement(file, nodes, everywhere) for file in files]
    local_files = [index for index, group in enumerate(placement) if node in group]
    checked = local_files[members.index(rank) :: len(members)]
    needed_by = needing_nodes(
        target,
        ranks,
        placement,
        checked,
        lambda index: copies.is_complete_copy(target / files[index].name, files[index]),
    )
    with ranks.together():
        if rank == members[0]:
            make_room(target, [file for file, group in zip(files, needed_by, strict=True) if node in group])
    counts = transfer(plan_staging(files, needed_by, nodes), source, target, ranks, threads, on_progress)

    if everywhere:
        with ranks.together():
            (target / other_nodes.FILE_NAME).unlink(missing_ok=True)
    else:
        _list_samples_of_other_nodes(target, ranks, members, [files[index].name for index in local_files])
    rows = ranks.gather_json({"node": node, **counts, "seconds": round(time.monotonic() - start, 3)})
    return {
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "nodes": len(nodes),
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


# ---- Which files go where -------------------------------------------------------------------------------------------


def list_files(source: Path) -> list[FileState]:
    """Returns the files of a dataset.

    Args:
        source: The dataset.

    Raises:
        InputError: If there is none, or one of its files is a folder or a link to nothing.
    """
    shards = shard_paths(source) if source.is_dir() else []
    if not shards or not (source / manifest.FILE_NAME).exists():
        raise InputError(f"there is no dataset at {source} to stage: it needs {manifest.FILE_NAME} and shards")
    small = [source / manifest.FILE_NAME, source / "config.yaml", *sorted(source.glob("failed-*.jsonl"))]
    present = [path for path in [*small, *shards] if os.path.lexists(path)]
    for path in present:
        if not path.is_file():
            raise InputError(f"{path} is a folder or a link to nothing, and must be a file: remove it")
    return [FileState.of(path) for path in present]


def _placement(file: FileState, nodes: Nodes, everywhere: bool) -> tuple[int, ...]:
    """The nodes that get `file`. A rank continues the shard of its number, so that shard must be on its node."""
    number = re.match(r"shard-(\d+)", file.name)
    if everywhere or not number:
        return tuple(range(len(nodes)))
    rank = int(number[1]) % sum(map(len, nodes))
    return (next(index for index, members in enumerate(nodes) if rank in members),)


def needing_nodes(
    target: Path,
    ranks: Ranks,
    placement: Sequence[tuple[int, ...]],
    checked: Sequence[int],
    is_complete: Callable[[int], bool],
) -> list[tuple[int, ...]]:
    """Returns for each file the nodes that should have it and do not. All ranks must call this function.

    Args:
        target: A folder of this node's own.
        ranks: The ranks of the job.
        placement: For each file the nodes that should have it.
        checked: Indices of the files that this rank looks for.
        is_complete: Whether the file of an index is in `target`.

    Raises:
        InputError: If nodes share `target`, or as `is_complete` raises it.
        WorkError: If `target` cannot be written.
    """
    rank, nodes = ranks.rank(), ranks.nodes()
    node = next(number for number, members in enumerate(nodes) if rank in members)
    members = nodes[node]
    token = ranks.gather_json(uuid.uuid4().hex if rank == 0 else "")[0]
    with ExitStack() as stack:
        with ranks.together():
            if rank == members[0]:
                _mark(stack, target, f".staging-{token}-{node}")
        with ranks.together():
            if len(marks := list(target.glob(f".staging-{token}-*"))) > 1:
                raise InputError(
                    f"{target} is one folder for {len(marks)} nodes: stage into storage of each node's own"
                )
            missing = {index for index in checked if not is_complete(index)}
        masks = ranks.gather_json(format(sum(1 << index for index in missing), "x"))
    lacking = [int(mask, 16) for mask in masks]
    return [
        tuple(n for n in group if any(lacking[member] >> index & 1 for member in nodes[n]))
        for index, group in enumerate(placement)
    ]


# ---- The node's folder ----------------------------------------------------------------------------------------------


def _mark(stack: ExitStack, target: Path, name: str) -> None:
    """Makes a file that another node sees only if the two share the folder; `stack` removes it."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / name).touch()
    except OSError as error:
        raise WorkError(f"cannot write into {target}: {error.strerror}") from None
    stack.callback((target / name).unlink, missing_ok=True)


def make_room(target: Path, files: Sequence[FileState]) -> None:
    """Removes what an interrupted run left, and makes empty partial files. Raises WorkError without the space."""
    for partial in target.glob(".*.part"):
        partial.unlink()
    needed, free = sum(file.size for file in files), shutil.disk_usage(target).free
    if needed > free:
        raise WorkError(
            f"{target} has {free / 2**30:.2f} GiB free, and staging needs {needed / 2**30:.2f} GiB: make room, take "
            "more nodes with data.node_local=true, so that each holds only a part, or stage into another folder"
        )
    for file in files:
        copies.partial_path(target / file.name).touch()


def _list_samples_of_other_nodes(target: Path, ranks: Ranks, members: list[int], local_names: Sequence[str]) -> None:
    """Writes which samples other nodes hold, so that `namsa dataset` does not simulate them again on this one."""
    with ranks.together():
        local_ids: set[str] = set()
        names = set(local_names[members.index(ranks.rank()) :: len(members)])
        for path in (path for path in shard_paths(target) if path.name in names):
            with Shard(path) as shard:
                local_ids.update(shard.ids)
    ids_of_ranks = ranks.gather_json(sorted(local_ids))
    with ranks.together():
        if ranks.rank() == members[0]:
            others = {id for rank, ids in enumerate(ids_of_ranks) if rank not in members for id in ids}
            other_nodes.write_ids(target, manifest.read_header(target)["samples_hash"], others)
