"""Merges several datasets of one configuration into one, each sample once."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from namsa.base.errors import InputError
from namsa.base.files import make_folder, read_text, write_text_atomic
from namsa.base.json_files import LARGEST_FILE_BYTES
from namsa.dataset import disk_space, manifest
from namsa.dataset.entry import Entry
from namsa.dataset.failures import copy_failures
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path, shard_paths


class MergeSummary(TypedDict):
    """Summary of a merge; JSON types."""

    samples: int  # number of samples that the merged dataset holds
    copied: int  # samples that this run copied
    # samples of the sources that the merged dataset already held, byte for byte the same
    present: int
    failed: int  # samples that could not be simulated


def merge(
    sources: Sequence[Path],
    out: Path,
    on_sample: Callable[[int, int], None] = lambda done, total: None,
) -> MergeSummary:
    """Copies the samples of `sources` that `out` lacks, after their checksums were compared.

    An interrupted merge continues when it is run again. The manifest of `out`, or else that of one
    of the sources, must list the samples of all.

    Args:
        on_sample: Called as `on_sample(done, total)` after each sample.

    Raises:
        InputError: If the datasets do not belong together, or two records of one sample differ.
        WorkError: If a record is damaged, or `out` cannot be written. Committed samples are kept.
    """
    if os.path.realpath(out) in map(
        os.path.realpath, sources
    ):  # of links in a circle, too, unlike Path.resolve
        raise InputError(f"--out {out} is one of the datasets to merge: name another folder")
    samples_hash = _ensure_manifest(sources, out)
    copied = present = total = 0
    for source in sources:
        with Dataset(source) as dataset:
            total += len(dataset)
    for index, source in enumerate(sources):
        with Dataset(source) as dataset:
            shared = _shared_ids(dataset, source, out)
            missing = sorted(set(dataset.ids) - set(shared))
            present += len(shared)
            on_sample(copied + present, total)
            size = (
                sum(path.stat().st_size for path in shard_paths(source))
                * len(missing)
                // max(1, len(dataset))
            )
            disk_space.check(out, size)
            if missing:
                with ShardWriter(shard_path(out, index), map_size=2 * size) as writer:
                    for _ in writer.put_many(
                        (sample_id, dataset.read_bytes(sample_id)) for sample_id in missing
                    ):
                        copied += 1
                        on_sample(copied + present, total)
    failed = copy_failures(sources, out, samples_hash)
    with Dataset(out) as merged:
        return {
            "samples": len(merged),
            "copied": copied,
            "present": present,
            "failed": len(failed - set(merged.ids)),
        }


def _shared_ids(dataset: Dataset, source: Path, out: Path) -> list[str]:
    """Returns the ids that are in `dataset` and in `out`. Raises InputError if two records of one
    id differ.
    """
    with Dataset(out) as merged:
        shared = [sample_id for sample_id in dataset.ids if sample_id in merged]
        for sample_id in shared:
            if dataset.read_bytes(sample_id) != merged.read_bytes(sample_id):
                raise InputError(f"{sample_id} differs between {source} and {out}: leave one out")
    return shared


def _ensure_manifest(sources: Sequence[Path], out: Path) -> str:
    """Copies to `out`, if it has none, the manifest that lists all samples. Returns the hash of the
    samples.
    """
    hashes = {source: manifest.read_header(source)["samples_hash"] for source in sources}
    if len(set(hashes.values())) > 1:
        listed = ", ".join(f"{samples_hash} in {source}" for source, samples_hash in hashes.items())
        raise InputError(f"samples of different configurations do not go together: {listed}")
    samples_hash = hashes[sources[0]]
    has_one = (out / manifest.FILE_NAME).exists()
    candidates = [out] if has_one else sources
    for candidate in candidates:
        if _lists_all(candidate, sources, samples_hash):
            break
    else:
        where = f"in {out} " * has_one
        raise InputError(
            f"no manifest {where}lists the samples of all {len(sources)} datasets: merge into a "
            "folder for which namsa dataset CONFIG --limit 0 has written that of a configuration "
            "that does"
        )
    if not has_one:
        make_folder(out)
        for name in ("config.yaml", manifest.FILE_NAME):
            if os.path.lexists(candidate / name):
                text = read_text(candidate / name, largest_bytes=LARGEST_FILE_BYTES)
                write_text_atomic(out / name, text)
    return samples_hash


def _lists_all(candidate: Path, sources: Sequence[Path], samples_hash: str) -> bool:
    """Returns whether the manifest of a folder is of a configuration and has the entries of all
    sources.
    """
    if manifest.read_header(candidate)["samples_hash"] != samples_hash:
        return False
    entries = _entries_without_cost(candidate)
    return all(entries.issuperset(_entries_without_cost(source)) for source in sources)


def _entries_without_cost(directory: Path) -> set[str]:
    """Returns the entries of a manifest as text. Their cost does not matter: an older manifest has
    none.
    """

    def text(entry: Entry) -> str:
        return repr(replace(entry, cost=0))

    return set(map(text, manifest.read(directory)))
