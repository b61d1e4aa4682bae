"""The factory: simulates what is missing from a dataset, this rank's share of it, into this rank's shard.

A rank's share follows from the manifest, the rank and the number of ranks alone, so that shares cover the manifest
and do not overlap, whatever else happens; what lies in any shard already is not made again. So a run that was cut off
goes on where it was, also with another number of ranks, and a sample's bits are the same whoever makes it and when.

A sample that cannot be made is written down with its reason (`failures`) and not replaced. Its failure follows from the
configuration, so that no later run tries it again; deleting `failed-RANK.jsonl` makes them try.

Where a dataset is spread over nodes, `elsewhere.json` lists the samples that other nodes hold: they are not missing.
"""

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from namsa.config.loading import dump_yaml
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.crystals.select import select
from namsa.dataset import disk_space as space
from namsa.dataset import manifest, records, shards
from namsa.dataset.failures import append_failure, read_failures
from namsa.dataset.manifest import Entry
from namsa.dataset.sharing import share
from namsa.dataset.simulate_entry import simulate_entry
from namsa.errors import InputError, WorkError
from namsa.files import make_folder, write_text_atomic
from namsa.sample import Sample

ELSEWHERE = "elsewhere.json"


def produce(
    config: SimulationConfig,
    directory: Path,
    rank: int = 0,
    size: int = 1,
    *,
    local_size: int = 1,
    limit: int | None = None,
    time_limit_s: float | None = None,
    on_sample: Callable[[int, int], None] = lambda done, total: None,
    simulate: Callable[[SimulationConfig, Material, Entry], Sample] = simulate_entry,
) -> dict[str, Any]:
    """Makes what is missing of this rank's share, at most `limit` samples, starting none after `time_limit_s`.

    local_size: ranks that write to the same disk, so that it is foreseen where it does not hold what they will make
    on_sample: told (done, total) after each sample

    Returns {"rank", "size", "written", "present", "skipped", "failed", "remaining", "seconds", "bytes",
    "time_limit_reached"}; written to remaining are of this rank's share and sum to it.

    Raises InputError for limits below 0 and where the directory holds another configuration's samples, and WorkError
    where it cannot be written, or has no room for what is to be made in an unlimited time; what was committed stays.
    """
    start = time.monotonic()
    for name, limit_ in (("--limit", limit), ("--time-limit", time_limit_s)):
        if limit_ is not None and not limit_ >= 0:  # nor is not-a-number
            raise InputError(f"{name} is {limit_}; it must be 0 or more")
    make_folder(directory)
    materials = {material.name: material for material in select(config.materials)}
    mine = share(manifest.ensure(directory, config, tuple(materials.values())), rank, size)
    samples_hash = config.samples_hash()
    present, known = _present(directory, samples_hash), read_failures(directory, samples_hash)
    failed = known.keys() - present
    feasible = [entry for entry in mine if not entry.skipped]
    missing = [entry for entry in feasible if entry.id not in present and entry.id not in failed]
    todo, out_of_time = missing[:limit], False
    written: list[int] = []
    newly_failed: list[str] = []

    def fail(entry: Entry, error: Exception) -> None:
        append_failure(directory, rank, samples_hash, entry.id, error)
        newly_failed.append(entry.id)

    def store(entry: Entry, sample: Sample) -> None:
        try:
            record = records.encode(sample, config.data.dtype)
        except (WorkError, MemoryError) as error:
            fail(entry, error)
        else:
            writer.put(entry.id, record)
            written.append(len(record))

    if todo:
        expected = space.expected_bytes(config, materials, todo)
        space.check(directory, expected, local_size, time_limited=time_limit_s is not None)
        write_text_atomic(directory / "config.yaml", dump_yaml(config))
        # One sample is stored while the next is simulated; a second that is done waits, so that memory stays bounded.
        with (
            shards.Writer(shards.shard_path(directory, rank), config.data.samples_per_commit, 2 * expected) as writer,
            ThreadPoolExecutor(1) as pool,
        ):
            stored: Future[None] | None = None
            for done, entry in enumerate(todo, start=1):
                out_of_time = time_limit_s is not None and time.monotonic() - start >= time_limit_s
                if out_of_time:
                    break
                try:
                    sample = simulate(config, materials[entry.material], entry)
                except (InputError, WorkError, MemoryError) as error:
                    fail(entry, error)
                else:
                    if stored:
                        stored.result()
                    stored = pool.submit(store, entry, sample)
                on_sample(done, len(todo))
            if stored:
                stored.result()

    return {
        "rank": rank,
        "size": size,
        "written": len(written),
        "present": sum(entry.id in present for entry in feasible),
        "skipped": len(mine) - len(feasible),
        "failed": sum(entry.id in failed for entry in feasible) + len(newly_failed),
        "remaining": len(missing) - len(written) - len(newly_failed),
        "seconds": round(time.monotonic() - start, 3),
        "bytes": sum(written),
        "time_limit_reached": out_of_time,
    }


def _present(directory: Path, samples_hash: str) -> frozenset[str]:
    with shards.Dataset(directory) as dataset:
        if dataset.config_hash not in (None, samples_hash):
            raise InputError(
                f"{directory} holds samples of configuration {dataset.config_hash}, and this is {samples_hash}: "
                "give it a directory of its own"
            )
        return frozenset(dataset.ids) | elsewhere(directory, samples_hash)


def elsewhere(directory: Path, samples_hash: str) -> frozenset[str]:
    """The samples that other nodes hold. Raises WorkError where their list is damaged."""
    path = directory / ELSEWHERE
    if not path.exists():
        return frozenset()
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        return frozenset(listed["ids"]) if listed["config_hash"] == samples_hash else frozenset()
    except (OSError, ValueError, TypeError, KeyError):
        raise WorkError(f"{path} cannot be read or is damaged: stage the dataset again") from None
