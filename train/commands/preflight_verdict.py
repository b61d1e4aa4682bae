"""Reports of the ranks of a preflight, and the line about all that they lack.

Clocks are compared without assumptions about the file system that the ranks share: what a rank
reads was written before. A rank that reads a time of rank 0's clock, later than its own, is behind.
A rank whose report bears a time later than rank 0's clock when it reads the report is ahead.
Smaller differences than the time between writing and reading stay unseen.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from namsa.base.text import plural

CLOCK_TOLERANCE_S = 2.0
MOST_HOSTS = 4  # that a message names


@dataclass(frozen=True)
class Fault:
    """Something that a rank needs and lacks."""

    name: str  # what is lacking
    found: str  # what is there instead
    remedy: str  # what to do


@dataclass(frozen=True)
class RankReport:
    """The report of one rank."""

    rank: int  # the rank
    host: str  # its node
    faults: tuple[Fault, ...] = ()  # what it lacks
    gpus: tuple[str, ...] = ()  # addresses of the GPUs that it would use; a rank uses one
    # hash of the dataset's list of samples; empty if there is none because of a fault
    manifest: str = ""
    materials: int = 0  # number of materials of that list
    training_samples: int = 0  # number of samples of that list to train on
    # The nodes that have written to the folder that should be on this node's own disk.
    hosts_of_disk: tuple[str, ...] = ()
    # time by which its clock is certainly ahead of rank 0's, negative if behind
    clock_ahead_s: float = 0.0


def verdict(reports: Sequence[RankReport], size: int, batch_size: int) -> list[str]:
    """Returns what the job lacks, equal faults of several ranks once; nothing if the job can
    start.
    """
    lines: list[str] = []
    silent = sorted(set(range(size)) - {report.rank for report in reports})
    if silent:
        lines.append(
            f"{ranges(silent)} of {size} did not report: see what the launcher says of them"
        )
    by_fault: dict[tuple[str, str], list[RankReport]] = defaultdict(list)
    faults: dict[tuple[str, str], str] = {}
    for report in reports:
        for fault in report.faults:
            by_fault[fault.name, fault.remedy].append(report)
            faults.setdefault((fault.name, fault.remedy), fault.found)
    for (name, remedy), lacking in by_fault.items():
        lines.append(f"{who(lacking, size)} without {name} ({faults[name, remedy]}): {remedy}")
    lines += [*_shared_gpus(reports), *_shared_disks(reports), *_clocks(reports, size)]
    return [*lines, *_lists(reports, size), *_too_few_samples(reports, size, batch_size)]


def who(reports: Sequence[RankReport], size: int) -> str:
    """Returns the ranks and nodes of some of `size` ranks in words: "ranks 6 to 11 on node02"."""
    if len(reports) == size > 1:
        return f"all {size} ranks"
    hosts = list(dict.fromkeys(report.host for report in reports))
    named = ", ".join(hosts[:MOST_HOSTS])
    if len(hosts) > MOST_HOSTS:
        named += f" and {len(hosts) - MOST_HOSTS} more nodes"
    return f"{ranges(report.rank for report in reports)} on {named}"


def ranges(ranks: Iterable[int]) -> str:
    """Returns numbers of ranks in words: "ranks 0, 2 and 6 to 11"."""
    ordered = sorted(ranks)
    runs: list[list[int]] = []  # of consecutive numbers
    for rank in ordered:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = []
    for run in runs:
        if len(run) == 1:
            parts.append(str(run[0]))
        elif len(run) == 2:
            parts.append(f"{run[0]} and {run[1]}")
        else:
            parts.append(f"{run[0]} to {run[-1]}")
    noun = "ranks" if len(ordered) > 1 else "rank"
    return f"{noun} {', '.join(parts)}"


def _shared_gpus(reports: Sequence[RankReport]) -> list[str]:
    """Ranks that would compute on one GPU."""
    users: dict[tuple[str, str], list[int]] = defaultdict(list)
    for report in reports:
        if len(report.gpus) == 1:
            users[report.host, report.gpus[0]].append(report.rank)
    return [
        f"{ranges(ranks)} on {host} have one GPU, {gpu}: start at most as many ranks on a node as "
        "it has GPUs"
        for (host, gpu), ranks in users.items()
        if len(ranks) > 1
    ]


def _shared_disks(reports: Sequence[RankReport]) -> list[str]:
    """A folder that should be on each node's own disk, and is the same on several nodes."""
    most = max((report.hosts_of_disk for report in reports), key=len, default=())
    if len(most) < 2:
        return []
    return [
        f"data.directory is one folder for {len(most)} nodes ({', '.join(most[:MOST_HOSTS])}): set "
        "it to a folder on each node's own disk, or data.source.node_local=false"
    ]


def _clocks(reports: Sequence[RankReport], size: int) -> list[str]:
    """Clocks that certainly are not rank 0's."""
    off = [report for report in reports if abs(report.clock_ahead_s) > CLOCK_TOLERANCE_S]
    if not off:
        return []
    worst = max(off, key=lambda report: abs(report.clock_ahead_s))
    way = "ahead of" if worst.clock_ahead_s > 0 else "behind"
    seconds = f"{abs(worst.clock_ahead_s):.0f} s or more {way}"
    return [
        f"{who(off, size)} with a clock up to {seconds} that of rank 0: have the clocks set "
        "(chronyc tracking)"
    ]


def _lists(reports: Sequence[RankReport], size: int) -> list[str]:
    """Ranks that list other samples than most ranks do, as where a folder of CIF files is not yet
    complete.
    """
    listed = [report for report in reports if report.manifest]
    if len({report.manifest for report in listed}) < 2:
        return []
    by_list: dict[str, list[RankReport]] = defaultdict(list)
    for report in listed:
        by_list[report.manifest].append(report)
    usual, *others = sorted(by_list.values(), key=len, reverse=True)
    parts = []
    for odd in others:
        parts.append(f"{who(odd, size)}: {plural(odd[0].materials, 'material')}")
    return [
        f"the ranks list different samples ({'; '.join(parts)}; the others: "
        f"{plural(usual[0].materials, 'material')}): see that materials.cif and the other files of "
        "the configuration are the same on all nodes"
    ]


def _too_few_samples(reports: Sequence[RankReport], size: int, batch_size: int) -> list[str]:
    """A list that cannot give each rank one batch even if all of it is simulated."""
    listed = [report.training_samples for report in reports if report.manifest]
    if not listed or min(listed) >= size * batch_size:
        return []
    return [
        f"{min(listed)} training samples are too few for {size} ranks with batches of "
        f"{batch_size}: add materials, thicknesses or zone axes, or use fewer ranks or smaller "
        "batches"
    ]
