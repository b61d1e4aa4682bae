"""Several datasets of one configuration into one, each sample once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from namsa.dataset import disk_space as space
from namsa.dataset import manifest
from namsa.dataset.entry import Entry
from namsa.dataset.failures import copy_failures
from namsa.dataset.shards import Dataset, Writer, shard_path, shard_paths
from namsa.errors import InputError
from namsa.files import make_folder, write_text_atomic


def merge(
    sources: Sequence[Path], out: Path, on_sample: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, Any]:
    """Copies the samples of `sources` that `out` lacks, each after its checksum was compared; run again, it goes on.

    The manifest of `out`, or else one of the sources', must list the samples of all.

    Returns {"samples": how many `out` holds, "copied", "present": of the sources' there before, byte for byte alike,
    "failed": how many could not be made}.

    Raises InputError where the datasets do not belong together or two records of one sample differ, and WorkError
    where a record is damaged or `out` cannot be written; what was committed stays.
    """
    if out.resolve() in {source.resolve() for source in sources}:
        raise InputError(f"--out {out} is one of the datasets to merge: name another folder")
    samples_hash = _take_manifest(sources, out)
    copied = present = total = 0
    for source in sources:
        with Dataset(source) as dataset:
            total += len(dataset)
    for number, source in enumerate(sources):
        with Dataset(source) as dataset:
            with Dataset(out) as there:
                for sample_id in (shared := [sample_id for sample_id in dataset.ids if sample_id in there]):
                    if dataset.read_bytes(sample_id) != there.read_bytes(sample_id):
                        raise InputError(f"{sample_id} is one thing in {source} and another in {out}: leave one out")
            missing = sorted(set(dataset.ids) - set(shared))
            present += len(shared)
            on_sample(copied + present, total)
            size = sum(path.stat().st_size for path in shard_paths(source)) * len(missing) // max(1, len(dataset))
            space.check(out, size)
            if missing:
                with Writer(shard_path(out, number), map_size=2 * size) as writer:
                    for _ in writer.put_many((sample_id, dataset.read_bytes(sample_id)) for sample_id in missing):
                        copied += 1
                        on_sample(copied + present, total)
    failed = copy_failures(sources, out, samples_hash)
    with Dataset(out) as merged:
        return {"samples": len(merged), "copied": copied, "present": present, "failed": len(failed - set(merged.ids))}


def _take_manifest(sources: Sequence[Path], out: Path) -> str:
    """Gives `out` a manifest that lists what all do, where it has none; returns the hash of their samples."""
    hashes = {source: manifest.read_header(source)["samples_hash"] for source in sources}
    if len(set(hashes.values())) > 1:
        listed = ", ".join(f"{samples_hash} in {source}" for source, samples_hash in hashes.items())
        raise InputError(f"samples of different configurations do not go together: {listed}")
    has_one = (out / manifest.FILE_NAME).exists()
    for candidate in [out] if has_one else sources:
        if manifest.read_header(candidate)["samples_hash"] == hashes[sources[0]]:
            entries = set(_listed(candidate))
            if all(entries.issuperset(_listed(source)) for source in sources):
                break
    else:
        where = f"in {out} " * has_one
        raise InputError(
            f"no manifest {where}lists the samples of all {len(sources)} datasets: merge into a folder for which "
            "namsa dataset CONFIG --limit 0 has written that of a configuration that does"
        )
    if not has_one:
        make_folder(out)
        for name in ("config.yaml", manifest.FILE_NAME):
            if (candidate / name).exists():
                write_text_atomic(out / name, (candidate / name).read_text(encoding="utf-8"))
    return hashes[sources[0]]


def _listed(directory: Path) -> Iterator[str]:
    """What the manifest in `directory` wants of each sample; a cost is no part of it."""

    def wanted(entry: Entry) -> str:
        return repr(replace(entry, cost=0))

    return map(wanted, manifest.read(directory))
