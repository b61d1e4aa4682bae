"""Staging: a dataset on a shared file system is spread over the nodes' own disks (Kurth et al. 2018, V-A1).

Each byte is read from the shared system once, by one rank, with several threads; what more than one node wants then
goes from node to node. `transfer` moves the pieces, `copies` says what makes a copy of a file: a later run fetches only
what is not there whole.
"""

import json
import re
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from namsa.dataset import factory, manifest
from namsa.dataset.shards import Shard, shard_paths
from namsa.errors import InputError, WorkError
from namsa.files import write_text_atomic
from train.ranks.protocol import Ranks
from train.staging import copies
from train.staging.copies import Original
from train.staging.pieces import piece_size, plan, transfer

THREADS = 8  # Kurth et al.: 6.7 times the bandwidth of one


def stage(
    source: Path,
    target: Path,
    ranks: Ranks,
    *,
    everywhere: bool = True,
    threads: int = THREADS,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Brings the dataset in `source` to `target`, a folder of each node's own; every rank calls it.

    everywhere: the whole dataset on every node; else shard R only on the node of rank R mod ranks
    threads: that read at once, in each rank
    on_progress: told (done, total) of this rank's reading, in MiB

    Returns {"files", "bytes": of the dataset, "nodes", "seconds", "ranks": for each rank {"node", "seconds" and, in
    bytes, "read" from `source`, "sent", "received", "written"}}, the same on every rank.

    Raises InputError where there is no dataset, or a file in `target` is none of ours; WorkError where there is no
    space, a file cannot be read or written, has changed meanwhile, or arrives damaged. Files that are whole stay.
    """
    start = time.monotonic()
    rank, nodes = ranks.rank(), ranks.nodes()
    node = next(number for number, members in enumerate(nodes) if rank in members)
    here = nodes[node]

    with ranks.together():
        listed = [asdict(file) for file in listing(source)] if rank == 0 else []
    files = [Original(**file) for file in ranks.gather_json(listed)[0]]
    places = [_places(file, nodes, everywhere) for file in files]
    token = ranks.gather_json(uuid.uuid4().hex if rank == 0 else "")[0]
    with ExitStack() as stack:
        with ranks.together():
            if rank == here[0]:
                _mark(stack, target, f".staging-{token}-{node}")
        with ranks.together():
            if len(found := list(target.glob(f".staging-{token}-*"))) > 1:
                raise InputError(
                    f"{target} is one folder for {len(found)} nodes: stage into storage of each node's own"
                )
            mine = [i for i, place in enumerate(places) if node in place][here.index(rank) :: len(here)]
            missing = {i for i in mine if not copies.is_there(target / files[i].name, files[i])}
        masks = ranks.gather_json(format(sum(1 << i for i in missing), "x"))
    lacking = [int(mask, 16) for mask in masks]
    wanted = [tuple(n for n in place if any(lacking[r] >> i & 1 for r in nodes[n])) for i, place in enumerate(places)]

    with ranks.together():
        if rank == here[0]:
            _make_room(target, [file for file, ns in zip(files, wanted, strict=True) if node in ns])
    piece_bytes = piece_size(sum(file.size for file, ns in zip(files, wanted, strict=True) if ns), nodes)
    rounds = plan(files, wanted, nodes, piece_bytes)
    counts = transfer(source, target, ranks, nodes, files, rounds, piece_bytes, threads, on_progress)

    if everywhere:
        with ranks.together():
            (target / factory.ELSEWHERE).unlink(missing_ok=True)
    else:
        _note_elsewhere(target, ranks, here, [i for i, place in enumerate(places) if node in place], files)
    rows = ranks.gather_json({"node": node, **counts, "seconds": round(time.monotonic() - start, 3)})
    return {
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "nodes": len(nodes),
        "seconds": max(row["seconds"] for row in rows),
        "ranks": rows,
    }


# ---- What goes where ------------------------------------------------------------------------------------------------


def listing(source: Path) -> list[Original]:
    """The files of the dataset in `source`. Raises InputError where there is none."""
    shards = shard_paths(source) if source.is_dir() else []
    if not shards or not (source / manifest.FILE_NAME).exists():
        raise InputError(f"there is no dataset at {source} to stage: it needs {manifest.FILE_NAME} and shards")
    small = [source / manifest.FILE_NAME, source / "config.yaml", *sorted(source.glob("failed-*.jsonl"))]
    return [Original.at(path) for path in [*small, *shards] if path.exists()]


def _places(file: Original, nodes: list[list[int]], everywhere: bool) -> tuple[int, ...]:
    """The nodes that shall have `file`. A rank goes on with the shard of its number, so that one is on its node."""
    number = re.match(r"shard-(\d+)", file.name)
    if everywhere or not number:
        return tuple(range(len(nodes)))
    rank = int(number[1]) % sum(map(len, nodes))
    return (next(index for index, members in enumerate(nodes) if rank in members),)


# ---- The node's folder ----------------------------------------------------------------------------------------------


def _mark(stack: ExitStack, target: Path, name: str) -> None:
    """A file that another node sees only if the folder is no node's own."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / name).touch()
    except OSError as error:
        raise WorkError(f"cannot write into {target}: {error.strerror}") from None
    stack.callback((target / name).unlink, missing_ok=True)


def _make_room(target: Path, files: Sequence[Original]) -> None:
    """Removes what an interrupted run left, and makes empty files to write into. Raises WorkError without the space."""
    for left in target.glob(".*.part"):
        left.unlink()
    needed, free = sum(file.size for file in files), shutil.disk_usage(target).free
    if needed > free:
        raise WorkError(
            f"{target} has {free / 2**30:.2f} GiB free, and staging needs {needed / 2**30:.2f} GiB: make room, take "
            "more nodes with data.node_local=true, where each holds only a part, or another place"
        )
    for file in files:
        copies.partial(target / file.name).touch()


def _note_elsewhere(target: Path, ranks: Ranks, here: list[int], local: list[int], files: Sequence[Original]) -> None:
    """Writes down which samples other nodes hold, so that `namsa dataset` does not make them again on this one."""
    with ranks.together():
        held: set[str] = set()
        names = {files[index].name for index in local[here.index(ranks.rank()) :: len(here)]}
        for path in (path for path in shard_paths(target) if path.name in names):
            with Shard(path) as shard:
                held.update(shard.ids)
    everyone = ranks.gather_json(sorted(held))
    with ranks.together():
        if ranks.rank() == here[0]:
            others = sorted({id for rank, ids in enumerate(everyone) if rank not in here for id in ids})
            header = manifest.read_header(target)
            text = json.dumps({"config_hash": header["samples_hash"], "ids": others})
            write_text_atomic(target / factory.ELSEWHERE, text)


def summary(staged: dict[str, Any]) -> str:
    """One line about what `stage` did."""
    rows = staged["ranks"]
    read, sent = ([row[key] / 2**20 for row in rows] for key in ("read", "sent"))
    return (
        f"staged {staged['files']} files of {staged['bytes'] / 2**20:,.1f} MiB on {staged['nodes']} node"
        f"{'s' * (staged['nodes'] > 1)} in {staged['seconds']:.1f} s: {sum(read):,.1f} MiB read from the shared file "
        f"system, at most {max(read):,.1f} by one rank; {sum(sent):,.1f} sent between ranks"
    )
