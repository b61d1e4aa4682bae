"""Ranks that stage a dataset into the folders of their nodes, and what is in them."""

import re

import thread_ranks

from train.staging import stage

NODES = [[0, 1], [2, 3, 4]]  # of different sizes


def folder(tmp_path, rank, nodes=NODES):
    return tmp_path / f"node{next(n for n, members in enumerate(nodes) if rank in members)}"


def stage_all(source, tmp_path, nodes=NODES, **options):
    return thread_ranks.run(
        nodes,
        lambda rank: stage.stage(source, folder(tmp_path, rank.rank(), nodes), rank, **options),
    )


def files(directory):
    """Names and bytes of the files of a dataset, without notes and without the locks of LMDB's
    writers.
    """
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if not re.search(r"^\.|-lock$", path.name)
    }


def totals(result):
    assert all(each == result[0] for each in result), result
    return {
        key: sum(row[key] for row in result[0]["ranks"])
        for key in ("read", "sent", "received", "written")
    }
