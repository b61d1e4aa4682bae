"""Files of a job: the preflight's reports, the list of samples, and checkpoints."""

import math
import time
from functools import cache
from pathlib import Path

import numpy as np

from fcdensenet.config import NetworkConfig
from namsa.dataset.entry import Entry
from namsa.dataset.sharing import share
from train.commands import preflight as command
from train.commands.preflight_verdict import RankReport, verdict
from train.optimization import checkpoint as checkpoints

Facts = dict[str, float | str]
# of configs/paper.yaml
SAMPLES = 435_702
MATERIALS = 62_321
STATE_BYTES = 12 * 26_000_000  # weights and two moments in float32


def preflight(ranks: int, folder: Path) -> Facts:
    """All ranks report; this process is every rank, one after the other, and rank 0 the last."""
    exchange = folder / f"exchange-{ranks}"
    spent_s = 0.0
    for rank in reversed(range(ranks)):
        report = RankReport(
            rank,
            f"node{rank // 6:04d}",
            gpus=(f"{rank % 6}",),
            manifest="x",
            training_samples=400_000,
        )
        began = time.process_time()
        reports = command.meet(exchange, report, ranks)
        spent_s = time.process_time() - began
    began = time.process_time()
    faults = verdict(reports, ranks, 1)
    folders = [path for path in exchange.rglob("*") if path.is_dir()]
    files_of_first_group = list((exchange / "group-00000").iterdir())
    return {
        "CPU s": spent_s + time.process_time() - began,
        "faults": len(faults),
        "files": sum(path.is_file() for path in exchange.rglob("*")),
        "most in a folder": max(len(list(path.iterdir())) for path in [exchange, *folders]),
        "read by rank 0": sum(1 for _ in exchange.glob("group-*.json")) + len(files_of_first_group),
    }


@cache
def _list() -> tuple[str, ...]:
    """Lines of a list as long as that of configs/paper.yaml."""
    rng = np.random.default_rng(0)
    costs = (rng.uniform(0.5, 2, SAMPLES) * 1e9).astype(int).tolist()
    lines = []
    for index, cost in enumerate(costs):
        entry = Entry(
            id=f"material-{index % MATERIALS:05d}-{index // MATERIALS}",
            material=f"material-{index % MATERIALS:05d}",
            formula=f"A{index % 97}B",
            space_group="Fm-3m",
            zone_axis=(0, 0, 1),
            thickness_angstrom=200.0,
            seed=index,
            split=("train", "train", "train", "dev")[index % 4],
            skipped=None,
            source="substituted",
            varied={},
            cost=cost,
        )
        lines.append(entry.to_json())
    return tuple(lines)


def share_of_list(ranks: int) -> Facts:
    """Rank 0 reads the list from its node's disk, and finds its own share of the work."""
    lines = _list()
    began = time.process_time()
    entries = []
    for line in lines:
        entries.append(Entry.from_json(line, "", ""))
    read_s = time.process_time() - began
    share_of_rank = share(entries, 0, ranks)
    return {
        "CPU s": time.process_time() - began,
        "of it reading": read_s,
        "MB read": sum(map(len, lines)) / 1e6,
        "own samples": len(share_of_rank),
        "least of any": math.floor(SAMPLES / ranks),
    }


def checkpoint(folder: Path) -> Facts:
    """Rank 0 copies the state and writes it; the other ranks wait for the copy alone, whatever
    their number.
    """
    state = checkpoints.HostVariable("kernel", np.ones(STATE_BYTES // 4, np.float32))
    network = NetworkConfig(input_shape=(1, 8, 8), layers=(1, 1, 1))
    began = time.monotonic()
    copy = checkpoints.HostVariable(state.path, state.array.copy())
    copied_s = time.monotonic() - began
    path = checkpoints.save(folder, checkpoints.TrainingPosition(1), [copy], network, keep=1)
    return {
        "all wait, s": copied_s,
        "written behind it, s": time.monotonic() - began - copied_s,
        "MB": path.stat().st_size / 1e6,
    }
