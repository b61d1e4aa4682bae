"""Moves damaged shards of a dataset aside, so that the next run simulates the lost samples again.

Nothing is changed and nothing is deleted. A shard that is damaged, or holds a damaged record, moves
unchanged into `quarantine-N` beside the others. A shard with its intact records takes its place in
one step. `quarantine-N/list.json` says what was damaged.
"""

import json
import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from namsa.base.errors import WorkError
from namsa.base.files import (
    NOT_OFFERED,
    make_folder,
    open_atomic,
    sync_folder,
    system_errors,
    write_text_atomic,
)
from namsa.dataset import manifest, records
from namsa.dataset.shard_writer import ShardWriter, only_writer
from namsa.dataset.shards import Shard, second_names, shard_paths
from namsa.dataset.verify import belongs, corrupt_ids


class RepairedShard(TypedDict):
    """One shard that was moved aside; JSON types."""

    shard: str  # the name of the file
    damaged: bool  # whether its structure was damaged
    moved: list[str]  # ids of damaged records, as far as they are known
    kept: int  # number of intact records, which are in the new shard


class Repair(TypedDict):
    """Summary of `repair`; JSON types."""

    quarantine: str | None  # the folder with the damaged shards; `None` if nothing was damaged
    shards: list[RepairedShard]  # one entry per damaged shard


def repair(directory: Path) -> Repair:
    """Moves damaged shards, and those with damaged records, aside.

    Raises:
        InputError: If it has no manifest, or a damaged one, or a run writes into a shard.
        WorkError: If it cannot be written.
    """
    samples_hash = manifest.read_header(directory)["samples_hash"]
    listed_ids = {entry.id for entry in manifest.read(directory)}
    quarantine = _unused_folder(directory)
    shards: list[RepairedShard] = []
    paths = shard_paths(directory)
    seconds = second_names(paths)
    for path in paths:
        with only_writer(path):
            bad_ids = None if path in seconds else corrupt_ids(path, samples_hash)
            if bad_ids == []:
                continue
            kept = 0
            # a link to another shard or to nothing, or a folder
            if path in seconds or not path.is_file():
                _set_aside(path, quarantine)
            else:
                if bad_ids is None:
                    kept = _write_repaired(path, _records_in_file(path, listed_ids, samples_hash))
                else:
                    kept = _write_repaired(path, _records_except(path, frozenset(bad_ids)))
                _exchange(path, quarantine)
            shards.append(
                {
                    "shard": path.name,
                    "damaged": bad_ids is None,
                    "moved": bad_ids or [],
                    "kept": kept,
                }
            )
            write_text_atomic(quarantine / "list.json", json.dumps(shards, indent=1) + "\n")
    return {"quarantine": str(quarantine) if shards else None, "shards": shards}


def _unused_folder(directory: Path) -> Path:
    """Returns the first `quarantine-N` that does not exist."""
    suffix = 0
    while os.path.lexists(directory / f"quarantine-{suffix}"):
        suffix += 1
    return directory / f"quarantine-{suffix}"


def _repaired_path(path: Path) -> Path:
    """Returns where the shard that will replace `path` is written."""
    return path.with_name(f".{path.name}.repaired")


def _write_repaired(path: Path, intact_records: Iterator[tuple[str, bytes]]) -> int:
    """Writes intact records to a shard that will replace `path`, and returns their number."""
    repaired = _repaired_path(path)
    try:
        repaired.unlink(missing_ok=True)
    except OSError as error:
        raise WorkError(
            f"cannot write {repaired}: {error.strerror}: remove it, and repair again"
        ) from None
    try:
        with ShardWriter(repaired, map_size=path.stat().st_size) as writer:
            return sum(1 for _ in writer.put_many(intact_records))
    except WorkError:
        repaired.unlink(missing_ok=True)
        raise
    finally:
        repaired.with_name(f"{repaired.name}-lock").unlink(missing_ok=True)


def _records_except(path: Path, bad_ids: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    """Yields (id, record) of a readable shard without the damaged records."""
    with Shard(path, any_ids=True) as shard:
        for sample_id in shard.ids:
            if sample_id not in bad_ids:
                yield sample_id, shard.read_bytes(sample_id)


def _records_in_file(
    path: Path, listed_ids: set[str], samples_hash: str
) -> Iterator[tuple[str, bytes]]:
    """Yields (id, record) of the intact records anywhere in a file, each once: a file may hold two
    copies of one.
    """
    remaining = set(listed_ids)
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for record in records.find_records(memoryview(content), content.find):
        decoded = records.decode(record)
        sample_id = decoded.header["provenance"].get("id")
        if (
            isinstance(sample_id, str)
            and sample_id in remaining
            and belongs(decoded, sample_id, samples_hash)
        ):
            remaining.remove(sample_id)
            yield sample_id, bytes(record)


def _set_aside(path: Path, quarantine: Path) -> None:
    """Moves what has the name of a shard and holds no records."""
    make_folder(quarantine)
    with system_errors(f"cannot move {path} to {quarantine}"):
        path.rename(quarantine / path.name)
        sync_folder(path.parent)


def _exchange(path: Path, quarantine: Path) -> None:
    """Replaces the damaged shard by the repaired one. There is a shard under its name at every
    moment.
    """
    repaired = _repaired_path(path)
    try:
        make_folder(quarantine)
        with system_errors(f"cannot move {path} to {quarantine}"):
            _give_second_name(path, quarantine / path.name)
            repaired.replace(path)
            sync_folder(path.parent)
    finally:
        repaired.unlink(missing_ok=True)


def _give_second_name(path: Path, second: Path) -> None:
    """Links a file under another name; where there are no hard links, copies it."""
    try:
        second.hardlink_to(path)
    except OSError as error:
        if error.errno not in NOT_OFFERED:
            raise
        with path.open("rb") as damaged, open_atomic(second) as copy:
            shutil.copyfileobj(damaged, copy)
    sync_folder(second.parent)
