"""Crashes of the factory, by the hundred: killed at any instant, cut off from power with unsynced pages dropped, or
with a full disk.

After each, every sample that was acknowledged must be there with the right bytes, and another run, of another number of
ranks, must finish exactly the manifest: no sample twice, every byte as in an undisturbed dataset, failures noted once.

    python tests/support/crashes.py --kills 200 --cuts 500 --full 50
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import fake_samples
from fake_samples import MATERIALS, config, contents, simulate
from power import Disk, events

from namsa import WorkError, files
from namsa.dataset import disk_space, factory, records, shards
from namsa.dataset.verify import verify

fork = multiprocessing.get_context("fork")
SETTINGS = [config(data={"samples_per_commit": number}) for number in (1, 3)]
ACKNOWLEDGED = ".acknowledged"
# Before and after each of these a process is killed; whatever lies between them is left to random delays.
POINTS = (
    *((os, name) for name in ("fsync", "open")),
    *((Path, name) for name in ("open", "replace", "hardlink_to", "unlink", "mkdir")),
    *((shards.Writer, name) for name in ("__init__", "__exit__", "put", "commit")),
    (shards.lmdb, "open"),
    (records, "encode"),
    (factory, "append_failure"),
    (factory, "write_text_atomic"),
    (files, "sync_folder"),
)


def stub() -> None:
    """For this process: the three materials, no look at the stand-in's size."""
    factory.select_materials = lambda _: MATERIALS
    disk_space.SAMPLED = 0


def some_fail(settings, material, entry):
    if entry.id.startswith("Fe-bcc-001"):
        raise WorkError(f"no iron: {entry.id}")
    made = simulate(settings, material, entry)
    # Records of less than a page lie among the keys, others in pages of their own.
    return replace(made, provenance=made.provenance | {"padding": "." * (entry.seed % 7 * 3000)})


def produce(directory: Path, rank=0, size=1, settings=SETTINGS[0], **more):
    return fake_samples.produce(directory, rank, size, settings=settings, simulate=some_fail, **more)


def acknowledged(directory: Path) -> Path:
    """Beside it: what was said to the world needs no room on the disk."""
    return directory.with_name(directory.name + ACKNOWLEDGED)


def acknowledge(directory: Path) -> None:
    """From here on, this process writes down which samples are committed, after they are."""
    file = os.open(acknowledged(directory), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    original = shards.Writer.commit

    def commit(self):
        ids = [sample_id for sample_id, _ in self._pending]
        original(self)
        if ids:
            os.write(file, "".join(f"{sample_id}\n" for sample_id in ids).encode())

    shards.Writer.commit = commit


class Reference:
    """What an undisturbed run leaves, and whether a directory keeps to it."""

    def __init__(self, directory: Path) -> None:
        produce(directory)
        self.samples, self.failures = contents(directory), failures(directory)
        self.manifest = (directory / "manifest.jsonl").read_bytes()
        assert len(self.samples) == 10
        assert len(self.failures) == 2

    def check_kept(self, directory: Path) -> int:
        """After a crash: what was acknowledged is there, and what is there is right. Returns the number of samples."""
        found = contents(directory)
        promised = set(acknowledged(directory).read_text().split()) if acknowledged(directory).exists() else set()
        assert promised <= found.keys(), f"lost: {promised - found.keys()}"
        assert found.items() <= self.samples.items()
        return len(found)

    def check_finished(self, directory: Path, size: int, settings=SETTINGS[0]) -> None:
        """Another run finishes the manifest, and nothing but the manifest."""
        summaries = [produce(directory, rank, size, settings) for rank in range(size)]
        assert sum(summary["remaining"] for summary in summaries) == 0
        assert contents(directory) == self.samples
        assert failures(directory) == self.failures
        assert (directory / "manifest.jsonl").read_bytes() == self.manifest
        in_shards = [sample_id for path in shards.shard_paths(directory) for sample_id in ids_of(path)]
        assert len(in_shards) == len(set(in_shards))
        found = verify(directory)
        assert (found["samples"], found["corrupt"], found["missing"]) == (10, [], [])


def failures(directory: Path) -> list[str]:
    """The lines that say so, sorted: none may be there twice, and none but one that was cut short be unreadable."""
    whole = []
    for path in directory.glob("failed-*.jsonl"):
        for line in path.read_text(errors="replace").splitlines():
            try:
                whole.append(json.loads(line)["id"])
            except ValueError:
                continue
    return sorted(whole)


def ids_of(path: Path) -> tuple[str, ...]:
    with shards.Shard(path) as shard:
        return shard.ids


# ---- Killed ---------------------------------------------------------------------------------------------------------


def kill_at(number: int) -> list[int]:
    """From here on this process kills itself at its `number`th point; the list has how many it has passed."""
    passed = [0]

    def point() -> None:
        passed[0] += 1
        if passed[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def instrument(owner, name: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args, **kwargs):
            point()
            result = original(*args, **kwargs)
            point()
            return result

        setattr(owner, name, wrapped)

    for owner, name in POINTS:
        instrument(owner, name)
    return passed


def victim(directory: Path, rank: int, size: int, settings, number: int, count=None) -> None:
    """A rank that kills itself at its `number`th point, or tells how many there were."""
    acknowledge(directory)
    passed = kill_at(number)
    produce(directory, rank, size, settings)
    if count:
        count.send(passed[0])


def killed(work, *args, number: int) -> bool:
    """Whether `work(*args)`, in a process of its own, came to its `number`th point, where it is killed."""

    def run() -> None:
        kill_at(number)
        work(*args)

    process = fork.Process(target=run)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def kill_many(reference: Reference, root: Path, kills: int, seed: int) -> dict[str, int]:
    """Runs that are killed, some several times, until there were `kills` of them; each is then finished."""
    rng, done = random.Random(seed), {"kills": 0, "at points": 0, "at times": 0, "runs": 0, "datasets": 0}
    here, there = fork.Pipe()
    begun = time.perf_counter()
    whole = fork.Process(target=victim, args=(root / "counted", 0, 1, SETTINGS[0], 0, there))
    whole.start()
    points = here.recv()
    whole.join()
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
                    args=(directory, rank, size, settings, 0 if timed else rng.randint(1, 2 * points // (size + 1))),
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


# ---- Cut off from power ---------------------------------------------------------------------------------------------


def record(root: Path, work: Path) -> list[tuple]:
    """What the factory did to its files: two runs of it, the first of which stops early, in a process of their own."""
    library = work / "record_writes.so"
    source = Path(__file__).with_name("record_writes.c")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    root.mkdir()
    environment = os.environ | {"LD_PRELOAD": str(library), "RECORD_ROOT": str(root), "RECORD_LOG": str(work / "log")}
    command = [sys.executable, __file__, "--record", str(root / "data")]
    subprocess.run(command, env=environment, check=True)
    return list(events((work / "log").read_bytes()))


def recorded_runs(directory: Path) -> None:
    stub()
    acknowledge(directory)
    produce(directory, limit=4)
    produce(directory, 1, 2, SETTINGS[1])
    produce(directory, limit=3)
    produce(directory)


def cut_many(reference: Reference, log: list[tuple], root: Path, cuts: int, seed: int, honest=True) -> list[int]:
    """The recorded runs, cut off at `cuts` points all over the log; each is then finished. Says how many were kept."""
    rng, disk, done, kept = random.Random(seed), Disk(honest), 0, []
    points = sorted(rng.choices(range(len(log)), k=cuts))
    for number, event in enumerate(log):
        while done < cuts and points[done] == number:
            directory = root / f"cut-{done}"
            directory.mkdir()
            for name, content in disk.after_a_cut(rng).items():
                if not name.endswith(("-lock", ACKNOWLEDGED)):  # the lock is shared memory, made anew
                    (directory / Path(name).name).write_bytes(content)
            committed = "".join(each[5].decode() for each in log[:number] if each[3].endswith(ACKNOWLEDGED))
            acknowledged(directory).write_text(committed)
            kept.append(reference.check_kept(directory))
            reference.check_finished(directory, rng.choice((1, 2, 3)))
            shutil.rmtree(directory)
            done += 1
        disk.do(event)
    return kept


# ---- A full disk ----------------------------------------------------------------------------------------------------


def fill_many(reference: Reference, root: Path, runs: int, seed: int, disk=None) -> int:
    """Runs that find no more room after so many bytes: of a file, or of `disk`, whose size it sets.

    Returns how many of them were ended by that; each is then finished with room enough.
    """
    rng, ended = random.Random(seed), 0
    for number in range(runs):
        directory, here_there = root / f"full-{number}", fork.Pipe()
        directory.mkdir()
        room = rng.randint(0, 80) * 4096
        acknowledged(directory).unlink(missing_ok=True)
        settings = rng.choice(SETTINGS)
        try:
            if disk:
                disk(directory, max(room, 4096))
            arguments = (directory, settings, None if disk else room, here_there[1])
            rank = fork.Process(target=hungry, args=arguments)
            rank.start()
            rank.join()
            assert rank.exitcode == 0
            message = here_there[0].recv()
            if message:
                assert "cannot write" in message
                assert any(reason in message for reason in ("No space left", "File too large", "disk is full")), message
                ended += 1
            if disk:
                disk(directory, 2**26)
            reference.check_kept(directory)
            reference.check_finished(directory, rng.choice((1, 2)))
        finally:
            if disk:
                disk(directory, 0)
        shutil.rmtree(directory)
    return ended


def hungry(directory: Path, settings, largest_file: int | None, answer) -> None:
    acknowledge(directory)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    try:
        produce(directory, settings=settings)
        answer.send("")
    except WorkError as error:
        answer.send(str(error))


def memory_disk(directory: Path, size: int) -> None:
    """A disk of `size` bytes at `directory`; of another size, where there is one; none, where `size` is 0."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory]
    if not size:
        command = ["umount", directory]
    elif directory.is_mount():
        command = ["mount", "-o", f"remount,size={size}", directory]
    subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--cuts", type=int, default=500)
    parser.add_argument("--full", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        recorded_runs(options.record)
        return
    stub()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        reference = Reference(root / "undisturbed")
        begun = time.perf_counter()
        killed = kill_many(reference, root, options.kills, options.seed)
        print(f"killed: {json.dumps(killed)}, {time.perf_counter() - begun:.0f} s; nothing lost, nothing twice")
        begun = time.perf_counter()
        log = record(root / "recorded", root)
        kept = cut_many(reference, log, root, options.cuts, options.seed)
        print(
            f"power cut: {len(kept)} times among {len(log)} writes and syncs, with {min(kept)} to {max(kept)} samples "
            f"committed, {time.perf_counter() - begun:.0f} s; nothing lost, nothing twice"
        )
        begun = time.perf_counter()
        for what, disk in (("file too large", None), *([("disk full", memory_disk)] if os.geteuid() == 0 else [])):
            ended = fill_many(reference, root, options.full, options.seed, disk)
            print(f"{what}: {ended} of {options.full} runs, {time.perf_counter() - begun:.0f} s; nothing lost")


if __name__ == "__main__":
    main()
