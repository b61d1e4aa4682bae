"""Samples that could not be simulated: `failed-RANK.jsonl`, the manifest's continuation.

The manifest is fixed before the first sample, its digest guards it, and no rank may have to wait
for another to write into it. Each rank therefore writes its failures beside the manifest, one line
per sample with the reason. An entry of the manifest is in a shard, skipped, failed, or missing. A
line is on the disk before the rank continues.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from namsa.base.files import append_line
from namsa.base.json_files import Name, read_typed_lines
from namsa.base.text import plural, shorten

_MOST_REASONS = 3  # that are listed
_REMEDY = "delete the file, and the next `namsa dataset` tries its samples again"


@dataclass(frozen=True)
class Failure:
    """One line of `failed-RANK.jsonl`."""

    id: Name  # the sample
    reason: str  # why it could not be simulated
    config_hash: str  # the hash of its configuration's samples
    final: bool = True  # whether no later run tries it again


def read_failures(directory: Path, samples_hash: str) -> dict[str, str]:
    """Returns {id: reason} of the samples that no run with this configuration can simulate, of all
    ranks.

    A line that a crash cut short is no failure: its sample is tried again.

    Raises:
        InputError: If a file cannot be read, or another line of it is no failure.
    """
    failures = {}
    for path in sorted(directory.glob("failed-*.jsonl")):
        for failure in read_typed_lines(Failure, path, _REMEDY):
            if failure.config_hash == samples_hash and failure.final:
                failures[failure.id] = failure.reason
    return failures


def unresolved_failures(
    directory: Path, samples_hash: str, present_ids: Collection[str]
) -> dict[str, str]:
    """Returns {id: reason} of the failed samples that are not present.

    A failed sample may be present because a machine with more memory simulated it.
    """
    present = frozenset(present_ids)
    failures = read_failures(directory, samples_hash)
    return {sample_id: reason for sample_id, reason in failures.items() if sample_id not in present}


def most_common_reasons(failures: Mapping[str, str]) -> str:
    """Returns the reasons of failed samples, {id: reason}, for a message: with counts, the most
    common first.
    """
    common = Counter(failures.values()).most_common(_MOST_REASONS)
    return "; ".join(
        f"{plural(times, 'sample')}: {shorten(reason, 300)}" for reason, times in common
    )


def append_failure(
    directory: Path, rank: int, samples_hash: str, sample_id: str, error: Exception
) -> None:
    """Writes down that `rank` failed at a sample. The next run retries after a MemoryError. Raises
    WorkError.
    """
    if isinstance(error, MemoryError):
        _append(directory, rank, samples_hash, sample_id, f"out of memory: {error}", final=False)
    else:
        _append(directory, rank, samples_hash, sample_id, str(error))


def copy_failures(sources: Sequence[Path], out: Path, samples_hash: str) -> set[str]:
    """Adds the failures in `sources` to those in `out` and returns the ids of all."""
    failures = read_failures(out, samples_hash)
    for source in sources:
        for sample_id, reason in read_failures(source, samples_hash).items():
            if sample_id not in failures:
                _append(out, 0, samples_hash, sample_id, reason)
                failures[sample_id] = reason
    return set(failures)


def _append(
    directory: Path, rank: int, samples_hash: str, sample_id: str, reason: str, **flags: bool
) -> None:
    """Writes one line."""
    line = {"id": sample_id, "reason": reason, "config_hash": samples_hash} | flags
    append_line(directory / f"failed-{rank:05d}.jsonl", json.dumps(line, ensure_ascii=False))
