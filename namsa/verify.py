"""Whether a dataset holds what its manifest promises, byte for byte."""

from pathlib import Path
from typing import Any

from namsa import manifest
from namsa.errors import WorkError
from namsa.failures import read_failures
from namsa.shards import Shard, shard_paths


def verify(directory: Path) -> dict[str, Any]:
    """Reads every record and compares its checksum.

    Returns {"samples": how many there are, "corrupt": their ids, or the name of a shard that cannot be read,
    "missing": ids that are neither there, nor skipped, nor failed, "failed": how many could not be made}.

    Raises InputError where the directory has no manifest, or a damaged one.
    """
    header, entries = manifest.read_header(directory), manifest.read(directory)
    present: set[str] = set()
    corrupt: list[str] = []
    for path in shard_paths(directory):
        try:
            shard = Shard(path)
        except WorkError:
            corrupt.append(path.name)
            continue
        with shard:
            present.update(shard.ids)
            corrupt += [sample_id for sample_id in shard.ids if not _sound(shard, sample_id, header["samples_hash"])]
    failed = read_failures(directory, header["samples_hash"])
    missing = [e.id for e in entries if not e.skipped and e.id not in present and e.id not in failed]
    return {"samples": len(present), "corrupt": corrupt, "missing": missing, "failed": len(failed)}


def _sound(shard: Shard, sample_id: str, samples_hash: str) -> bool:
    try:
        with shard.view(sample_id) as record:
            return record.header["provenance"]["config_hash"] == samples_hash
    except WorkError:
        return False
