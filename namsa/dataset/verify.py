"""Whether a dataset holds what its manifest lists, byte for byte."""

from collections import Counter
from pathlib import Path
from typing import TypedDict

from namsa.base import pixels, provenance_values
from namsa.base.errors import InputError, WorkError
from namsa.base.names import is_name
from namsa.dataset import lmdb_structure, manifest, other_nodes
from namsa.dataset.failures import unresolved_failures
from namsa.dataset.records import NewerVersionError, Record
from namsa.dataset.shards import Shard, second_names, shard_paths


class Verification(TypedDict):
    """Result of `verify`; JSON types."""

    samples: int  # number of samples in the shards
    # Ids of records that are damaged or that namsa did not write, and names of shards that cannot
    # be read or that are links to another one.
    corrupt: list[str]
    # ids that are not in a shard, not on another node, not skipped, and did not fail
    missing: list[str]
    repeated: list[str]  # ids that are in more than one shard
    skipped: int  # number of entries that cannot be built
    failed: int  # number of samples that could not be simulated
    failures: dict[str, str]  # their reasons by id


def verify(directory: Path) -> Verification:
    """Reads every record of a dataset, compares its checksum, and looks for every entry of the
    manifest.

    Raises:
        InputError: If it has no manifest, or a damaged one.
        NewerVersionError: If a later version of namsa wrote a record.
    """
    header = manifest.read_header(directory)
    entries = manifest.read(directory)
    samples_hash = header["samples_hash"]
    copies: Counter[str] = Counter()
    corrupt: list[str] = []
    paths = shard_paths(directory)
    seconds = second_names(paths)
    for path in paths:
        bad_ids = None if path in seconds else corrupt_ids(path, samples_hash)
        if bad_ids is None:
            corrupt.append(path.name)
            continue
        copies.update(lmdb_structure.keys(path))
        corrupt += bad_ids
    present = copies.keys() | other_nodes.read_ids(directory, samples_hash)
    failures = unresolved_failures(directory, samples_hash, present)
    accounted = present | failures.keys()
    missing = []
    skipped = 0
    for entry in entries:
        if entry.skipped:
            skipped += 1
        elif entry.id not in accounted:
            missing.append(entry.id)
    return {
        "samples": len(copies),
        "corrupt": corrupt,
        "missing": missing,
        "repeated": [sample_id for sample_id, count in copies.items() if count > 1],
        "skipped": skipped,
        "failed": len(failures),
        "failures": failures,
    }


def corrupt_ids(path: Path, samples_hash: str) -> list[str] | None:
    """Returns the ids in a shard whose records are damaged, belong to another configuration, or are
    not namsa's.

    Returns:
        The ids. `None` if the shard itself is damaged.

    Raises:
        NewerVersionError: If a later version of namsa wrote a record.
    """
    try:
        lmdb_structure.keys(path, thorough=True)
        shard = Shard(path, any_ids=True)
    except WorkError:
        return None
    with shard:
        return [
            sample_id for sample_id in shard.ids if not _is_intact(shard, sample_id, samples_hash)
        ]


def _is_intact(shard: Shard, sample_id: str, samples_hash: str) -> bool:
    """Returns whether a record is whole and belongs to its id and to the configuration."""
    try:
        with shard.view(sample_id) as record:
            return belongs(record, sample_id, samples_hash)
    except NewerVersionError:
        raise
    except WorkError:
        return False


def belongs(record: Record, sample_id: str, samples_hash: str) -> bool:
    """Returns whether a whole record is that of a sample: its provenance says so and describes its
    arrays.
    """
    provenance = record.header["provenance"]
    if not is_name(sample_id) or provenance.get("id", sample_id) != sample_id:
        return False
    try:
        provenance_values.check(provenance)
        pixels.array_axes(
            record.provenance,
            {name: array.shape for name, array in pixels.sample_arrays(record).items()},
        )
    except InputError:
        return False
    return provenance.get("config_hash") == samples_hash
