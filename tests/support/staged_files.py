"""Ranks that stage a dataset into the folders of their nodes, and what is in them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import thread_ranks

from train.staging import stage

Nodes = list[list[int]]
NODES: Nodes = [[0, 1], [2, 3, 4]]  # of different sizes


def folder(tmp_path: Path, rank: int, nodes: Nodes = NODES) -> Path:
    return tmp_path / f"node{next(n for n, members in enumerate(nodes) if rank in members)}"


def stage_all(
    source: Path, tmp_path: Path, nodes: Nodes = NODES, **options: Any
) -> list[dict[str, Any]]:
    return thread_ranks.run(
        nodes,
        lambda rank: stage.stage(source, folder(tmp_path, rank.rank(), nodes), rank, **options),
    )


def files(directory: Path) -> dict[str, bytes]:
    """Names and bytes of the files of a dataset, without notes and without the locks of LMDB's
    writers.
    """
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if not re.search(r"^\.|-lock$", path.name)
    }


def totals(result: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    for facts in result:
        assert facts == result[0], result
    sums = dict.fromkeys(("read", "sent", "received", "written"), 0)
    for row in result[0]["ranks"]:
        for key in sums:
            sums[key] += row[key]
    return sums
