"""Whether a dataset holds what its manifest promises, byte for byte."""

from collections import Counter
from pathlib import Path
from typing import Any

from namsa.dataset import lmdb_structure as structure
from namsa.dataset import manifest, other_nodes
from namsa.dataset.failures import not_made
from namsa.dataset.records import NewerVersion
from namsa.dataset.shards import Shard, shard_paths
from namsa.errors import WorkError


def verify(directory: Path) -> dict[str, Any]:
    """Reads every record and compares its checksum.

    Returns {"samples": how many there are, "corrupt": their ids, or the name of a shard that cannot be read,
    "missing": ids that are neither there, nor on another node, nor skipped, nor failed, "repeated": ids in more than
    one shard, "skipped": how many cannot be built, "failed": how many could not be made, "failures": {id: reason}}.

    Raises InputError where the directory has no manifest, or a damaged one.
    """
    header, entries = manifest.read_header(directory), manifest.read(directory)
    times: Counter[str] = Counter()
    corrupt: list[str] = []
    for path in shard_paths(directory):
        bad = bad_records(path, header["samples_hash"])
        if bad is None:
            corrupt.append(path.name)
            continue
        times.update(structure.keys(path))
        corrupt += bad
    made = times.keys() | other_nodes.read_ids(directory, header["samples_hash"])
    failures = not_made(directory, header["samples_hash"], made)
    missing = [e.id for e in entries if not e.skipped and e.id not in made and e.id not in failures]
    return {
        "samples": len(times),
        "corrupt": corrupt,
        "missing": missing,
        "repeated": [sample_id for sample_id, number in times.items() if number > 1],
        "skipped": sum(bool(entry.skipped) for entry in entries),
        "failed": len(failures),
        "failures": failures,
    }


def bad_records(path: Path, samples_hash: str) -> list[str] | None:
    """The ids in a shard whose records are damaged, or not of this configuration; None where the shard itself is.

    Raises NewerVersion where a record is a later namsa's.
    """
    try:
        structure.keys(path, thorough=True)
        shard = Shard(path)
    except WorkError:
        return None
    with shard:
        return [sample_id for sample_id in shard.ids if not _sound(shard, sample_id, samples_hash)]


def _sound(shard: Shard, sample_id: str, samples_hash: str) -> bool:
    try:
        with shard.view(sample_id) as record:
            provenance = record.header["provenance"]
            return provenance["config_hash"] == samples_hash and provenance.get("id", sample_id) == sample_id
    except NewerVersion:
        raise
    except (WorkError, KeyError):
        return False
