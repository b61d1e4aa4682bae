"""`python -m train preflight`: whether every rank of a job has what the job needs, found out before it computes.

It needs neither MPI nor a Horovod that works. The ranks meet in a folder that all of them share. Groups of about the
root of their number have a folder in it, where each rank writes what it has found into a file of its own, and ends. The
first rank of a group joins the files of the group into one. Rank 0 reads these; if any rank lacks anything, it ends
with exit code 2 and one line, which names the ranks, their nodes and the remedy.
"""

import argparse
import json
import math
import os
import platform
import shutil
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from namsa.cli import doctor
from namsa.dataset import disk_space, manifest
from namsa.dataset.listing import list_samples
from namsa.errors import InputError, WorkError
from namsa.files import make_folder, write_text_atomic
from namsa.json_files import read_json
from namsa.launcher import bind_to_share, local_rank_and_size, rank_and_size
from namsa.memory import available_memory_bytes
from namsa.text import plural

from ..experiment.experiment import Experiment, load
from ..networks import count
from ..scaling.memory import in_words, step_memory
from .preflight_verdict import Fault, RankReport, verdict

WAIT_S = 55.0  # after the last report that came: ranks of a busy machine, or of many samples, take longer than others
PROBE_S = 600.0  # for a rank's libraries, which load in seconds where nothing is wrong
POLL_S = 0.2
POLLS_PER_S = 5000  # of all ranks together, on the file system that they share
STARTED = "started.json"  # rank 0's clock when it started
CHECKPOINT_BYTES = 12  # per parameter: the weight and two moments, float32


def preflight(options: argparse.Namespace) -> None:
    """Checks this rank; rank 0 reports on all."""
    started = time.monotonic()
    rank, size = rank_and_size()
    local_rank, local_size = local_rank_and_size()
    exchange: Path | None = options.exchange
    if size > 1 and exchange is None:
        raise InputError(f"the preflight of {size} ranks needs --exchange DIR, a new folder that all of them share")
    bind_to_share(local_rank, local_size)
    own, batch_size = RankReport(rank, os.environ.get("HOROVOD_HOSTNAME") or platform.node()), 1
    of_step: dict[str, int] = {}
    with ThreadPoolExecutor(1) as pool:
        machine = pool.submit(doctor.report, gpu=options.gpu, timeout_s=PROBE_S)
        if exchange and size > 1:
            behind_s = _seconds_behind(exchange, rank, started + WAIT_S, POLL_S + size / POLLS_PER_S)
            own = replace(own, clock_ahead_s=-behind_s)
        with _noted(faults := list[Fault](), "a valid configuration", "correct it"):
            experiment = load(options.config, options.overrides)
            batch_size = experiment.training.batch_size
            of_step = step_memory(experiment, size, on_gpu=options.gpu)._asdict()
            own = _look_at_data(experiment, options.manifest, own, local_size, faults)
        own = _with_machine(own, faults, machine.result(), of_step, options.gpu, local_size)
    reports = [own]
    if exchange and size > 1:
        reports = meet(exchange, own, size)
        if rank:
            return
    if lacking := verdict(reports, size, batch_size):
        raise InputError(f"preflight: {'; '.join(lacking)}")
    nodes = len({report.host for report in reports})
    seconds = time.monotonic() - started
    print(
        f"preflight: {plural(size, 'rank')} on {plural(nodes, 'node')} with {'a GPU each and ' * options.gpu}the same "
        f"list of {plural(own.training_samples, 'training sample')}, in {seconds:.1f} s; a rank's step takes "
        f"{in_words(of_step)}"
    )


# ---- One rank -------------------------------------------------------------------------------------------------------


@contextmanager
def _noted(faults: list[Fault], name: str, remedy: str) -> Iterator[None]:
    """Appends an error inside the context to `faults`."""
    try:
        yield
    except (InputError, WorkError, OSError) as error:
        faults.append(Fault(name, str(error), remedy))


def _with_machine(
    own: RankReport, faults: list[Fault], found: doctor.Report, of_step: dict[str, int], gpu: bool, local_size: int
) -> RankReport:
    """Adds what the machine lacks, also of the memory that a step takes, and the GPU that the rank would use."""
    lacking = [Fault(check.name, check.found, check.remedy) for check in found.checks if check.needed and not check.ok]
    sizes = [check.memory_gib * 2**30 for check in found.checks if check.memory_gib]
    there = (min(sizes) if sizes else math.inf) if gpu else available_memory_bytes() / local_size
    if sum(of_step.values()) > there:
        words = f"{there / 1e9:.3g} GB for a rank, a step takes {in_words(of_step)}"
        remedy = "set training.batch_size lower, training.recompute to true, or training.split.ways to divide samples"
        lacking.append(Fault("the memory for a step", words, remedy))
    gpus = tuple(gpu for check in found.checks for gpu in check.devices)
    return replace(own, faults=(*lacking, *faults), gpus=gpus)


def _look_at_data(
    experiment: Experiment, listed: Path | None, own: RankReport, local_size: int, faults: list[Fault]
) -> RankReport:
    """Adds the list of samples, which is written where there is none yet, and looks at the disk for them."""
    directory = experiment.data.directory
    remedy = "correct the configuration, or what it reads"
    disk_remedy = "set data.directory to a folder on the node's own disk, with more room"
    with _noted(faults, "a folder for samples", disk_remedy):
        make_folder(directory)
        if experiment.data.source.per_node:
            # Of two nodes that share the folder, the later one sees both.
            (directory / f".node-{own.host}").touch()
            hosts = sorted(path.name.removeprefix(".node-") for path in directory.glob(".node-*"))
            own = replace(own, hosts_of_disk=tuple(hosts))
    with _noted(faults, "a list of samples", remedy):
        # The record of the first entry that can be simulated stands for all.
        entries, first, materials = list_samples(
            listed or directory, experiment, lambda entries: [entry for entry in entries if not entry.skipped][:1]
        )
        header = manifest.read_header(listed or directory)
        own = replace(
            own,
            manifest=header["config_hash"],
            materials=header["materials"],
            training_samples=sum(entry.split == "train" and not entry.skipped for entry in entries),
        )
        # The least that a node must hold: a batch for each of its ranks, and the checkpoints.
        batch = experiment.training.batch_size * disk_space.expected_bytes(experiment, materials, first)
        checkpoints = experiment.training.checkpoints.keep + 1  # the next is written before the oldest goes
        needed = local_size * batch + checkpoints * CHECKPOINT_BYTES * count(experiment.network).parameters
        free = shutil.disk_usage(directory).free if directory.exists() else 0
        if directory.exists() and free < needed:
            room = (
                f"{directory} has {free / 1e9:.3g} GB free, a step's samples and checkpoints take {needed / 1e9:.3g} GB"
            )
            faults.append(Fault("room for samples", room, disk_remedy))
    return own


# ---- All ranks ------------------------------------------------------------------------------------------------------


def meet(exchange: Path, own: RankReport, size: int) -> list[RankReport]:
    """Tells the other ranks of a job what this one has found.

    Returns:
        On rank 0 the reports in the order of ranks, without those that have not come `WAIT_S` after the last one.
    """
    members = math.isqrt(size - 1) + 1
    group, place = divmod(own.rank, members)
    folder = exchange / _name("group", group)
    make_folder(folder)
    write_text_atomic(folder / f"{_name('rank', own.rank)}.json", json.dumps([asdict(own) | {"clock": time.time()}]))
    if place:
        return []
    of_group = _collect(folder, "rank", range(own.rank, min(own.rank + members, size)))
    write_text_atomic(exchange / f"{_name('group', group)}.json", json.dumps(of_group))
    if own.rank:
        return []
    joined = _collect(exchange, "group", groups := range(math.ceil(size / members)))
    # The reports of a group whose first rank does not answer, as they lie in its folder.
    lost = [number for number in groups if not (exchange / f"{_name('group', number)}.json").exists()]
    joined += [report for number in lost for report in _collect(exchange / _name("group", number), "rank", ())]
    return sorted(map(_read, joined), key=lambda report: report.rank)


def _name(kind: str, number: int) -> str:
    return f"{kind}-{number:05d}"


def _seconds_behind(exchange: Path, rank: int, deadline: float, poll_s: float) -> float:
    """Returns how far this rank's clock is certainly behind rank 0's: it shows less than what it reads."""
    path = exchange / STARTED
    if rank == 0:
        make_folder(exchange)
        write_text_atomic(path, json.dumps(time.time()))
        return 0.0
    while not path.exists():
        if time.monotonic() > deadline:
            return 0.0  # rank 0 has not started, and the launcher knows why
        time.sleep(poll_s)
    return max(0.0, float(read_json(path)) - time.time())


def _collect(folder: Path, kind: str, numbers: Collection[int]) -> list[dict[str, Any]]:
    """Returns what files of a kind hold, when those of all `numbers` are there, or `WAIT_S` after the last one came."""
    found: dict[str, list[dict[str, Any]]] = {}
    deadline = time.monotonic() + WAIT_S
    while True:
        for path in sorted(folder.glob(f"{kind}-*.json")):
            if path.name not in found:
                found[path.name] = read_json(path)
                deadline = time.monotonic() + WAIT_S
        if len(found) >= len(numbers) or time.monotonic() > deadline:
            return [report for reports in found.values() for report in reports]
        time.sleep(POLL_S)


def _read(values: dict[str, Any]) -> RankReport:
    """Returns a rank's report, with the time by which its clock is ahead: it has written later than it is here."""
    ahead = max(0.0, values.pop("clock") - time.time())
    values["faults"] = tuple(Fault(**fault) for fault in values["faults"])
    values |= {key: tuple(values[key]) for key in ("gpus", "hosts_of_disk")}
    return RankReport(**values | {"clock_ahead_s": ahead or values["clock_ahead_s"]})
