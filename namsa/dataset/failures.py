"""Samples that could not be made: `failed-RANK.jsonl`, the manifest's continuation.

The manifest is fixed before the first sample, and its digest says so; no rank may have to wait for another to write
into it. So each rank writes down beside it what it could not make, a line a sample with the reason: an entry of the
manifest is in a shard, skipped, failed, or missing. A line is on the disk before the rank goes on.
"""

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from namsa.files import append_line


def read_failures(directory: Path, samples_hash: str) -> dict[str, str]:
    """{id: reason} of the samples that no run with this configuration can make, by any rank."""
    failures = {}
    for path in sorted(directory.glob("failed-*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            # A line that a crash cut short is no failure: its sample is tried again.
            with suppress(ValueError, KeyError, TypeError):
                failure = json.loads(line)
                if failure["config_hash"] == samples_hash and failure.get("final", True):
                    failures[failure["id"]] = failure["reason"]
    return failures


def not_made(directory: Path, samples_hash: str, made: Collection[str]) -> dict[str, str]:
    """Those of `read_failures` that nobody, on a machine with more memory perhaps, has `made` after all."""
    there = frozenset(made)
    return {name: why for name, why in read_failures(directory, samples_hash).items() if name not in there}


def append_failure(directory: Path, rank: int, samples_hash: str, sample_id: str, error: Exception) -> None:
    """Writes down that `rank` could not make a sample; out of memory, it or another machine tries again next time.

    Raises WorkError where that cannot be written.
    """
    if isinstance(error, MemoryError):
        _append(directory, rank, samples_hash, sample_id, f"out of memory: {error}", final=False)
    else:
        _append(directory, rank, samples_hash, sample_id, str(error))


def copy_failures(sources: Sequence[Path], out: Path, samples_hash: str) -> set[str]:
    """Adds what is written down in `sources` to what is in `out`; returns the ids."""
    known = read_failures(out, samples_hash)
    for source in sources:
        for sample_id, reason in read_failures(source, samples_hash).items():
            if sample_id not in known:
                _append(out, 0, samples_hash, sample_id, reason)
                known[sample_id] = reason
    return set(known)


def _append(directory: Path, rank: int, samples_hash: str, sample_id: str, reason: str, **more: bool) -> None:
    line = {"id": sample_id, "reason": reason, "config_hash": samples_hash} | more
    append_line(directory / f"failed-{rank:05d}.jsonl", json.dumps(line, ensure_ascii=False))
