"""Runs of the factory on a full disk; see `crashes`."""

import random
import resource
import shutil
import subprocess
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from crashes import SETTINGS, Reference, acknowledge, acknowledged, fork, produce

from namsa import WorkError
from namsa.config.simulation import SimulationConfig


def fill_many(
    reference: Reference,
    root: Path,
    runs: int,
    seed: int,
    disk: Callable[[Path, int], None] | None = None,
) -> int:
    """Runs the factory with a limited size of files, or on a small disk whose size `disk` sets.

    Each dataset is then completed with enough room. Returns the number of runs that the limit
    ended.
    """
    rng = random.Random(seed)
    ended = 0
    for index in range(runs):
        directory, (receiver, sender) = root / f"full-{index}", fork.Pipe()
        directory.mkdir()
        room = rng.randint(0, 80) * 4096
        acknowledged(directory).unlink(missing_ok=True)
        settings = rng.choice(SETTINGS)
        try:
            if disk:
                disk(directory, max(room, 4096))
            arguments = (directory, settings, None if disk else room, sender)
            rank = fork.Process(target=hungry, args=arguments)
            rank.start()
            rank.join()
            assert rank.exitcode == 0
            message = receiver.recv()
            if message:
                assert "cannot write" in message
                kept = all(words in message for words in ("GiB free", "what was committed is kept"))
                assert kept or "shard-" not in message, message
                assert any(
                    reason in message
                    for reason in ("No space left", "File too large", "disk is full")
                ), message
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


def hungry(
    directory: Path, settings: SimulationConfig, largest_file: int | None, answer: Connection
) -> None:
    acknowledge(directory)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    try:
        produce(directory, settings=settings)
        answer.send("")
    except WorkError as error:
        answer.send(str(error))


def memory_disk(directory: Path, size: int) -> None:
    """Mounts a disk of `size` bytes at `directory`, resizes one that is mounted, or unmounts it if
    `size` is 0.
    """
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    if not size:
        command = ["umount", str(directory)]
    elif directory.is_mount():
        command = ["mount", "-o", f"remount,size={size}", str(directory)]
    subprocess.run(command, check=True, capture_output=True)
