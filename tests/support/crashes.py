"""Crashes of the factory by the hundred: processes killed at any instant, power cuts that drop
unsynced pages, full disks.

After each crash, every acknowledged sample must be present with the right bytes. Another run with
another number of ranks must then complete exactly the manifest: no sample twice, every byte as in
an undisturbed dataset, each failure written once. `tests/namsa/dataset/test_crashes.py` does it.
"""

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import fake_samples
from fake_samples import MATERIALS, config, contents, ids_of, simulate

from namsa import Sample, WorkError
from namsa.base import files
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset import disk_space, factory, listing, records, shards
from namsa.dataset.entry import Entry
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.verify import verify

fork = multiprocessing.get_context("fork")
SETTINGS = [config(data={"samples_per_commit": count}) for count in (1, 3)]
ACKNOWLEDGED = ".acknowledged"
# A process is killed before or after each of these calls. Points between them are reached by random
# delays.
POINTS = (
    *((os, name) for name in ("fsync", "open")),
    *((Path, name) for name in ("open", "replace", "hardlink_to", "unlink", "mkdir")),
    *((ShardWriter, name) for name in ("__init__", "__exit__", "put", "commit")),
    (shards.lmdb, "open"),
    (records, "encode"),
    (factory, "append_failure"),
    (listing, "write_text_atomic"),
    (files, "sync_folder"),
)


def stub() -> None:
    """Makes this process use the three materials, and not estimate the size of a sample."""
    listing.select_materials = lambda *_, **__: MATERIALS
    disk_space.SAMPLED = 0


def some_fail(settings: SimulationConfig, material: Material, entry: Entry) -> Sample:
    if entry.id.startswith("Fe-bcc-001"):
        raise WorkError(f"no iron: {entry.id}")
    sample = simulate(settings, material, entry)
    # Records of less than a page lie among the keys, others on pages of their own.
    return replace(
        sample, provenance=sample.provenance | {"padding": "." * (entry.seed % 7 * 3000)}
    )


def produce(
    directory: Path,
    rank: int = 0,
    size: int = 1,
    settings: SimulationConfig = SETTINGS[0],
    **more: Any,
) -> factory.ProductionSummary:
    return fake_samples.produce(
        directory, rank, size, settings=settings, simulate=some_fail, **more
    )


def acknowledged(directory: Path) -> Path:
    """Returns the list of acknowledged samples. It is not in the folder, whose disk may be full."""
    return directory.with_name(directory.name + ACKNOWLEDGED)


def acknowledge(directory: Path) -> None:
    """Makes this process write down the ids of samples after each commit."""
    file = os.open(acknowledged(directory), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    original = ShardWriter.commit

    def commit(self: ShardWriter) -> None:
        ids = [sample_id for sample_id, _ in self._pending]
        original(self)
        if ids:
            os.write(file, "".join(f"{sample_id}\n" for sample_id in ids).encode())

    ShardWriter.commit = commit  # type: ignore[method-assign]


class Reference:
    """The result of an undisturbed run, and checks of a directory against it."""

    def __init__(self, directory: Path) -> None:
        produce(directory)
        self.samples = contents(directory)
        self.failures = failures(directory)
        self.manifest = (directory / "manifest.jsonl").read_bytes()
        assert len(self.samples) == 10
        assert len(self.failures) == 2

    def check_kept(self, directory: Path) -> int:
        """Checks after a crash that acknowledged samples are present and all samples right. Returns
        their number.
        """
        samples = contents(directory)
        if acknowledged(directory).exists():
            promised = set(acknowledged(directory).read_text().split())
        else:
            promised = set()
        assert promised <= samples.keys(), f"lost: {promised - samples.keys()}"
        assert samples.items() <= self.samples.items()
        return len(samples)

    def check_finished(
        self, directory: Path, size: int, settings: SimulationConfig = SETTINGS[0]
    ) -> None:
        """Checks that another run completes the manifest, and nothing but the manifest."""
        summaries = [produce(directory, rank, size, settings) for rank in range(size)]
        assert sum(summary["remaining"] for summary in summaries) == 0
        assert contents(directory) == self.samples
        assert failures(directory) == self.failures
        assert (directory / "manifest.jsonl").read_bytes() == self.manifest
        in_shards = []
        for path in shards.shard_paths(directory):
            for sample_id in ids_of(path):
                in_shards.append(sample_id)
        assert len(in_shards) == len(set(in_shards))
        verification = verify(directory)
        assert (verification["samples"], verification["corrupt"], verification["missing"]) == (
            10,
            [],
            [],
        )


def failures(directory: Path) -> list[str]:
    """Returns the ids of all failures, sorted. Lines that were cut short are left out."""
    ids = []
    for path in directory.glob("failed-*.jsonl"):
        for line in path.read_text(errors="replace").splitlines():
            try:
                ids.append(json.loads(line)["id"])
            except ValueError:
                continue
    return sorted(ids)


# ---- Killed


def kill_at(number: int) -> list[int]:
    """Makes this process kill itself at its `number`th point. The returned list holds the number of
    points so far.
    """
    passed = [0]

    def point() -> None:
        passed[0] += 1
        if passed[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def instrument(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            point()
            result = original(*args, **kwargs)
            point()
            return result

        setattr(owner, name, wrapped)

    for owner, name in POINTS:
        instrument(owner, name)
    return passed


def victim(
    directory: Path,
    rank: int,
    size: int,
    settings: SimulationConfig,
    number: int,
    count: Connection | None = None,
) -> None:
    """Runs a rank that kills itself at its `number`th point. If it survives, sends the number of
    points.
    """
    acknowledge(directory)
    passed = kill_at(number)
    produce(directory, rank, size, settings)
    if count:
        count.send(passed[0])


def killed(work: Callable[..., object], *args: Any, number: int) -> bool:
    """Runs `work(*args)` in a process that is killed at its `number`th point. Returns whether it
    was killed.
    """

    def run() -> None:
        kill_at(number)
        work(*args)

    process = fork.Process(target=run)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def kill_many(reference: Reference, root: Path, kills: int, seed: int) -> dict[str, int]:
    """Kills runs, some several times, until `kills` were killed. Each dataset is then completed."""
    rng = random.Random(seed)
    done = {"kills": 0, "at points": 0, "at times": 0, "runs": 0, "datasets": 0}
    receiver, sender = fork.Pipe()
    begun = time.perf_counter()
    uninterrupted = fork.Process(
        target=victim, args=(root / "counted", 0, 1, SETTINGS[0], 0, sender)
    )
    uninterrupted.start()
    sender.close()  # or the receiver would wait for a process that has failed
    points = receiver.recv()
    uninterrupted.join()
    seconds = time.perf_counter() - begun
    while done["kills"] < kills:
        directory = root / f"killed-{done['datasets']}"
        done["datasets"] += 1
        settings = rng.choice(SETTINGS)
        for _ in range(rng.randint(1, 4)):
            size = rng.choice((1, 1, 2, 3))
            timed = rng.random() < 0.5
            ranks = [
                fork.Process(
                    target=victim,
                    args=(
                        directory,
                        rank,
                        size,
                        settings,
                        0 if timed else rng.randint(1, 2 * points // (size + 1)),
                    ),
                )
                for rank in range(size)
            ]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                if timed:
                    rank.join(rng.uniform(0, 0.7 * seconds))
                    rank.kill()
                rank.join()
                done["runs"] += 1
                if rank.exitcode == -signal.SIGKILL:
                    done["kills"] += 1
                    done["at times" if timed else "at points"] += 1
                else:
                    assert rank.exitcode == 0
            if directory.exists():
                reference.check_kept(directory)
        reference.check_finished(directory, rng.choice((1, 2, 4)), settings)
        shutil.rmtree(directory)
    return done


# ---- Cut off from power


# ---- A full disk
