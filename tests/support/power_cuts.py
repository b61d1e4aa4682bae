"""Runs of the factory that a power cut ends, with pages that are not synced; see `crashes`."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from crashes import ACKNOWLEDGED, SETTINGS, Reference, acknowledge, acknowledged, produce, stub
from power import Disk, events


def record(root: Path, work: Path) -> list[tuple]:
    """Returns what several runs of the factory did to their files, in a process of their own."""
    library = work / "record_writes.so"
    source = Path(__file__).with_name("record_writes.c")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    root.mkdir()
    environment = os.environ | {
        "LD_PRELOAD": str(library),
        "RECORD_ROOT": str(root),
        "RECORD_LOG": str(work / "log"),
    }
    command = [sys.executable, __file__, str(root / "data")]
    subprocess.run(command, env=environment, check=True)
    return list(events((work / "log").read_bytes()))


def recorded_runs(directory: Path) -> None:
    stub()
    acknowledge(directory)
    produce(directory, limit=4)
    produce(directory, 1, 2, SETTINGS[1])
    produce(directory, limit=3)
    produce(directory)


def cut_many(
    reference: Reference, log: list[tuple], root: Path, cuts: int, seed: int, honest: bool = True
) -> list[int]:
    """Cuts the power of the recorded runs at `cuts` points of the log. Each dataset is then
    completed.

    Returns the number of samples that were present after each cut.
    """
    rng = random.Random(seed)
    disk = Disk(honest)
    done = 0
    kept = []
    points = sorted(rng.choices(range(len(log)), k=cuts))
    for event_index, event in enumerate(log):
        while done < cuts and points[done] == event_index:
            directory = root / f"cut-{done}"
            directory.mkdir()
            for name, content in disk.after_a_cut(rng).items():
                if not name.endswith(
                    ("-lock", ACKNOWLEDGED)
                ):  # the lock is shared memory and is created again
                    (directory / Path(name).name).write_bytes(content)
            committed = "".join(
                past[5].decode() for past in log[:event_index] if past[3].endswith(ACKNOWLEDGED)
            )
            acknowledged(directory).write_text(committed)
            kept.append(reference.check_kept(directory))
            reference.check_finished(directory, rng.choice((1, 2, 3)))
            shutil.rmtree(directory)
            done += 1
        disk.do(event)
    return kept


if __name__ == "__main__":  # as `record` starts it
    recorded_runs(Path(sys.argv[1]))
