"""`namsa-train preflight`: whether every rank of a job has what the job needs, found out before
it computes.

It needs neither MPI nor a Horovod that works. The ranks meet in a folder that all of them share.
Groups of about the root of their number have a folder in it, where each rank writes what it has
found into a file of its own, and ends. The first rank of a group joins the files of the group into
one. Rank 0 reads these; if any rank lacks anything, it ends with exit code 2 and one line, which
names the ranks, their nodes and the remedy.
"""

import argparse
import json
import math
import os
import platform
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.errors import InputError, WorkError
from namsa.base.files import make_folder, write_text_atomic
from namsa.base.identity import digest_of
from namsa.base.json_files import read_typed
from namsa.base.launcher import bind_to_share, local_rank_and_size, rank_and_size
from namsa.base.memory import available_memory_bytes
from namsa.base.text import plural
from namsa.cli import doctor
from namsa.dataset import disk_space, manifest
from namsa.dataset.entry import Entry, feasible_entries
from namsa.dataset.listing import list_samples

from ..execution import backend
from ..experiment.experiment import Experiment, load
from ..experiment.functions import allow_functions
from ..input.source import source_of
from ..networks import count
from ..scaling.memory import in_words, step_memory
from .preflight_verdict import Fault, RankReport, verdict

# after the last report that came: ranks of a busy machine, or of many samples, take longer than
# others
WAIT_S = 55.0
PROBE_S = 600.0  # for a rank's libraries, which load in seconds where nothing is wrong
POLL_S = 0.2
POLLS_PER_S = 5000  # of all ranks together, on the file system that they share
REPEAT = "start the check again"
STARTED = "started.json"  # rank 0's clock when it started
CHECKPOINT_BYTES = 12  # per parameter: the weight and two moments, float32


@dataclass(frozen=True)
class LaunchedRank:
    """A rank's place among the ranks of its job, as the launcher says."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def of_launcher(cls) -> "LaunchedRank":
        rank, size = rank_and_size()
        local_rank, local_size = local_rank_and_size()
        return cls(rank, size, local_rank, local_size)


class ListedSamples(NamedTuple):
    """The list of a job's samples, and what one of them takes."""

    entries: Sequence[Entry]
    digest: str  # changes with the list
    materials: int  # number of materials
    bytes_each: int  # expected bytes of a sample on the disk


def preflight(options: argparse.Namespace) -> None:
    """Checks this rank; rank 0 reports on all."""
    started = time.monotonic()
    place = LaunchedRank.of_launcher()
    exchange: Path | None = options.exchange
    if place.size > 1 and exchange is None:
        raise InputError(
            f"the preflight of {place.size} ranks needs --exchange DIR, a new folder that all of "
            "them share"
        )
    bind_to_share(place.local_rank, place.local_size)
    report = RankReport(place.rank, os.environ.get("HOROVOD_HOSTNAME") or platform.node())
    faults: list[Fault] = []
    experiment: Experiment | None = None
    batch_size = 1
    memory: dict[str, int] = {}  # of a step, see `train.scaling.memory.StepMemory`
    if exchange and place.size > 1:
        behind_s = _seconds_behind(exchange, place, started + WAIT_S)
        report = replace(report, clock_ahead_s=-behind_s)
    with ThreadPoolExecutor(1) as pool, _noted(faults, "a valid configuration", "correct it"):
        try:
            experiment = load(options.config, options.overrides)
            # what KERAS_BACKEND names is what the machine is asked for
            backend.choose(experiment.training.backend)
        finally:
            machine = pool.submit(doctor.report, gpu=options.gpu, timeout_s=PROBE_S)
        allow_functions(experiment)
        batch_size = experiment.training.batch_size
        memory = step_memory(experiment, place.size, on_gpu=options.gpu)._asdict()
    checks = machine.result()
    report = _with_machine(report, checks, memory, options.gpu, place.local_size)
    # Listing crystals may take minutes: what the machine lacks is reported before.
    if experiment and checks.ok:
        report = _look_at_data(experiment, options.manifest, report, place.local_size, faults)
    report = replace(report, faults=(*report.faults, *faults))
    reports = [report]
    if exchange and place.size > 1:
        reports = meet(exchange, report, place.size)
        if place.rank:
            return
    if lacking := verdict(reports, place.size, batch_size):
        raise InputError(f"preflight: {'; '.join(lacking)}")
    nodes = len({report.host for report in reports})
    seconds = time.monotonic() - started
    with_gpus = "a GPU each and " if options.gpu else ""
    print(
        f"preflight: {plural(place.size, 'rank')} on {plural(nodes, 'node')} with {with_gpus}the "
        f"same list of {plural(report.training_samples, 'training sample')}, in {seconds:.1f} s; "
        f"a rank's step takes {in_words(memory)}"
    )


# ---- One rank
# ----------------------------------------------------------------------------------------


@contextmanager
def _noted(faults: list[Fault], name: str, remedy: str) -> Iterator[None]:
    """Appends an error inside the context to `faults`."""
    try:
        yield
    except (InputError, WorkError, OSError) as error:
        faults.append(Fault(name, str(error), remedy))


def _with_machine(
    report: RankReport,
    machine: doctor.Report,
    memory: dict[str, int],  # that a step takes
    gpu: bool,
    local_size: int,
) -> RankReport:
    """Adds what the machine lacks, also of the memory that a step takes, and the GPU that the rank
    would use.
    """
    lacking = []
    gpu_sizes_gib = []
    gpus: list[str] = []
    for check in machine.checks:
        if check.needed and not check.ok:
            lacking.append(Fault(check.name, check.found, check.remedy))
        if check.memory_gib:
            gpu_sizes_gib.append(check.memory_gib)
        gpus += check.devices
    if gpu:
        available_bytes = min(gpu_sizes_gib, default=math.inf) * 2**30
    else:
        available_bytes = available_memory_bytes() / local_size
    if sum(memory.values()) > available_bytes:
        words = f"{available_bytes / 1e9:.3g} GB for a rank, a step takes {in_words(memory)}"
        remedy = (
            "set training.batch_size lower, training.recompute to true, or training.split.ways to "
            "divide samples"
        )
        lacking.append(Fault("the memory for a step", words, remedy))
    return replace(report, faults=tuple(lacking), gpus=tuple(gpus))


def _look_at_data(
    experiment: Experiment,
    listed: Path | None,
    report: RankReport,
    local_size: int,
    faults: list[Fault],
) -> RankReport:
    """Adds the list of samples, which is written where there is none yet, and looks at the disk for
    them.
    """
    directory = experiment.data.directory
    disk_remedy = "set data.directory to a folder on the node's own disk, with more room"
    with _noted(faults, "a folder for samples", disk_remedy):
        make_folder(directory)
        if experiment.data.source.per_node:
            report = replace(report, hosts_of_disk=_hosts_of_disk(directory, report.host))
    with _noted(faults, "a list of samples", "correct the configuration, or what it reads"):
        samples = _listed_samples(experiment, listed)
        entries = samples.entries
        report = replace(
            report,
            manifest=samples.digest,
            materials=samples.materials,
            training_samples=sum(entry.split == "train" and not entry.skipped for entry in entries),
        )
        # The least that a node must hold: a batch for each of its ranks, and the checkpoints.
        sample_bytes = samples.bytes_each
        batches_bytes = local_size * experiment.training.batch_size * sample_bytes
        # the next is written before the oldest goes
        checkpoints = experiment.training.checkpoints.keep + 1
        parameters = count(experiment.network).parameters
        needed_bytes = batches_bytes + checkpoints * CHECKPOINT_BYTES * parameters
        if directory.exists():
            free_bytes = shutil.disk_usage(directory).free
            if free_bytes < needed_bytes:
                room = (
                    f"{directory} has {free_bytes / 1e9:.3g} GB free, a step's samples and "
                    f"checkpoints take {needed_bytes / 1e9:.3g} GB"
                )
                faults.append(Fault("room for samples", room, disk_remedy))
    return report


def _listed_samples(experiment: Experiment, listed: Path | None) -> ListedSamples:
    """Lists the samples of a job, as of `_look_at_data`."""
    brought = source_of(experiment).listed()
    if brought is not None:
        patterns, image = experiment.sample_shapes()
        values = [json.loads(entry.to_json()) for entry in brought]
        return ListedSamples(
            entries=brought,
            digest=digest_of(values),
            materials=len({entry.material for entry in brought}),
            bytes_each=4 * (math.prod(patterns) + 2 * math.prod(image)),
        )
    folder = listed or experiment.data.directory
    # The record of the first entry that can be simulated stands for all.
    entries, first_epoch, materials = list_samples(
        folder, experiment, lambda entries: feasible_entries(entries)[:1]
    )
    header = manifest.read_header(folder)
    return ListedSamples(
        entries=entries,
        digest=header["config_hash"],
        materials=header["materials"],
        bytes_each=disk_space.expected_bytes(experiment, materials, first_epoch),
    )


def _hosts_of_disk(directory: Path, host: str) -> tuple[str, ...]:
    """Returns the nodes that have written into a folder. Of two, the later one sees both."""
    (directory / f".node-{host}").touch()
    hosts = [path.name.removeprefix(".node-") for path in directory.glob(".node-*")]
    return tuple(sorted(hosts))


# ---- All ranks
# ----------------------------------------------------------------------------------------


def meet(exchange: Path, report: RankReport, size: int) -> list[RankReport]:
    """Gives the other ranks of a job what this one has found.

    Returns:
        On rank 0 the reports in the order of ranks, without those that have not come `WAIT_S` after
        the last one.
    """
    members = math.isqrt(size - 1) + 1
    group, place = divmod(report.rank, members)
    folder = _group_folder(exchange, group)
    make_folder(folder)
    stamped = asdict(report) | {"clock": time.time()}
    write_text_atomic(folder / f"rank-{report.rank:05d}.json", json.dumps([stamped]))
    if place:
        return []
    last = min(report.rank + members, size)
    of_group = _collect(folder, "rank", last - report.rank)
    write_text_atomic(_group_file(exchange, group), json.dumps(of_group))
    if report.rank:
        return []
    groups = math.ceil(size / members)
    joined = _collect(exchange, "group", groups)
    for group in range(groups):
        # the reports of a group whose first rank does not answer, as they lie in its folder
        if not _group_file(exchange, group).exists():
            joined += _collect(_group_folder(exchange, group), "rank", 0)
    return sorted(map(_read, joined), key=lambda report: report.rank)


def _group_folder(exchange: Path, group: int) -> Path:
    return exchange / f"group-{group:05d}"


def _group_file(exchange: Path, group: int) -> Path:
    return exchange / f"group-{group:05d}.json"


def _seconds_behind(exchange: Path, place: LaunchedRank, deadline: float) -> float:
    """Returns how far this rank's clock is certainly behind rank 0's: it shows less than what it
    reads.
    """
    path = exchange / STARTED
    if place.rank == 0:
        make_folder(exchange)
        write_text_atomic(path, json.dumps(time.time()))
        return 0.0
    while not path.exists():
        if time.monotonic() > deadline:
            return 0.0  # rank 0 has not started, and the launcher knows why
        time.sleep(POLL_S + place.size / POLLS_PER_S)
    return max(0.0, read_typed(float, path, REPEAT) - time.time())


class StoredFault(TypedDict):
    """A `Fault` in JSON types."""

    name: str
    found: str
    remedy: str


class StampedReport(TypedDict):
    """A `RankReport` in JSON types, with the time at which it was written."""

    rank: int
    host: str
    faults: list[StoredFault]
    gpus: list[str]
    manifest: str
    materials: int
    training_samples: int
    hosts_of_disk: list[str]
    clock_ahead_s: float
    clock: float  # time of the rank's clock, s


def _collect(folder: Path, kind: str, count: int) -> list[StampedReport]:
    """Returns the reports in files of a kind, when there are so many files, or `WAIT_S` after the
    last one came.
    """
    reports: list[StampedReport] = []
    seen: set[str] = set()
    deadline = time.monotonic() + WAIT_S
    while True:
        for path in sorted(folder.glob(f"{kind}-*.json")):
            if path.name not in seen:
                seen.add(path.name)
                reports += read_typed(list[StampedReport], path, REPEAT)
                deadline = time.monotonic() + WAIT_S
        if len(seen) >= count or time.monotonic() > deadline:
            return reports
        time.sleep(POLL_S)


def _read(stamped: StampedReport) -> RankReport:
    """Returns a rank's report, with the time by which its clock is ahead: it has written later than
    it is here.
    """
    ahead_s = max(0.0, stamped["clock"] - time.time())
    return RankReport(
        rank=stamped["rank"],
        host=stamped["host"],
        faults=tuple(Fault(**fault) for fault in stamped["faults"]),
        gpus=tuple(stamped["gpus"]),
        manifest=stamped["manifest"],
        materials=stamped["materials"],
        training_samples=stamped["training_samples"],
        hosts_of_disk=tuple(stamped["hosts_of_disk"]),
        clock_ahead_s=ahead_s or stamped["clock_ahead_s"],
    )
