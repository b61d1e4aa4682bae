"""Moves what is damaged in a dataset aside, so that the next run makes it again.

Nothing is changed and nothing deleted: a shard with something bad in it goes, as it is, into `quarantine-N` beside the
others, and one with its whole records takes its place in one step. `quarantine-N/list.json` says what was wrong.
"""

import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from namsa.dataset import manifest, records
from namsa.dataset.shards import Shard, Writer, shard_paths
from namsa.dataset.verify import bad_records
from namsa.errors import WorkError
from namsa.files import make_folder, sync_folder, write_text_atomic


def repair(directory: Path) -> dict[str, Any]:
    """Moves damaged shards, and those with damaged records, aside; no run may be writing into them meanwhile.

    Returns {"quarantine": the folder, or None where nothing was wrong, "shards": [{"shard", "damaged": whether its
    structure was, "moved": ids of bad records as far as they are known, "kept": how many whole ones}]}.

    Raises InputError where the directory has no manifest, or a damaged one, and WorkError where it cannot be written.
    """
    samples_hash = manifest.read_header(directory)["samples_hash"]
    known = {entry.id for entry in manifest.read(directory)}
    quarantine, moved = _unused(directory), []
    for path in shard_paths(directory):
        bad = bad_records(path, samples_hash)
        if bad == []:
            continue
        if bad is None:
            kept = _rescue(path, _scan(path, known, samples_hash))
        else:
            kept = _rescue(path, _all_but(path, frozenset(bad)))
        _exchange(path, quarantine)
        moved.append({"shard": path.name, "damaged": bad is None, "moved": bad or [], "kept": kept})
        write_text_atomic(quarantine / "list.json", json.dumps(moved, indent=1) + "\n")
    return {"quarantine": str(quarantine) if moved else None, "shards": moved}


def _unused(directory: Path) -> Path:
    number = 0
    while (directory / f"quarantine-{number}").exists():
        number += 1
    return directory / f"quarantine-{number}"


def _repaired(path: Path) -> Path:
    return path.with_name(f".{path.name}.repaired")


def _rescue(path: Path, whole: Iterator[tuple[str, bytes]]) -> int:
    """Writes whole records to a shard that is to replace `path`, and says how many there were."""
    _repaired(path).unlink(missing_ok=True)
    with Writer(_repaired(path), map_size=path.stat().st_size) as writer:
        return sum(1 for _ in writer.put_many(whole))


def _all_but(path: Path, bad: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    with Shard(path) as shard:
        for sample_id in shard.ids:
            if sample_id not in bad:
                yield sample_id, shard.read_bytes(sample_id)


def _scan(path: Path, known: set[str], samples_hash: str) -> Iterator[tuple[str, bytes]]:
    """Records that are whole wherever they lie in the file; the same one may have been left in two places."""
    left = set(known)
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for record in records.scan(memoryview(content), content.find):
        provenance = records.decode(record).header["provenance"]
        sample_id = provenance.get("id")
        if sample_id in left and provenance["config_hash"] == samples_hash:
            left.remove(sample_id)
            yield sample_id, bytes(record)


def _exchange(path: Path, quarantine: Path) -> None:
    """At every moment there is a shard: the damaged one, then the whole one."""
    make_folder(quarantine)
    try:
        (quarantine / path.name).hardlink_to(path)
        sync_folder(quarantine)
        _repaired(path).replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise WorkError(f"cannot move {path} to {quarantine}: {error.strerror}") from None
    _repaired(path).with_name(_repaired(path).name + "-lock").unlink(missing_ok=True)
