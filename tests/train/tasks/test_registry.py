"""Entries of the registry for each task, and networks of one that pass for those of another."""

import re

import numpy as np
import pytest

from train.__main__ import main
from train.tasks import registry
from train.tasks.card import TaskCard, card_of
from train.tasks.registry import TASKS
from train.tasks.reporting import RunReport, report_of
from train.tasks.scan_command import commands_of, function_of


@pytest.mark.parametrize("task", TASKS)
def test_networks_of_every_task_are_reported_packed_and_applied(task):
    assert isinstance(report_of(task), RunReport)
    assert isinstance(card_of(task), TaskCard)
    for command in commands_of(task):
        assert callable(function_of(task, command))


@pytest.mark.parametrize(
    ("asked", "network", "message"),
    [
        (
            "reconstruct",
            "5mrad-segment",
            "segment, and a density is asked for: .*, or use namsa-train segment",
        ),
        (
            "classify",
            "20mrad-fast",
            "density, and classes are asked for: .*, or use namsa-train reconstruct",
        ),
        (
            "segment",
            "5mrad-classify",
            "classify, and classes of positions are asked for: .* namsa-train classify",
        ),
        ("embed", "20mrad-fast", "density, and latent numbers are asked for"),
        ("estimate", "8mrad-embed", "embed, and estimates are asked for"),
    ],
)
def test_a_network_of_another_task_is_refused(asked, network, message, tmp_path, capsys):
    np.save(tmp_path / "scan.npy", np.zeros((2, 2, 8, 8)))
    files = [str(tmp_path / "scan.npy"), "--out", str(tmp_path / "out.h5")]
    assert main([asked, *files, "--checkpoint", f"200kv-{network}"]) == 2
    assert re.search(f"is a network for training.task {message}", capsys.readouterr().err)


def test_what_a_task_lacks_is_none():
    assert registry.part("embed", "calibrate") is None
    assert callable(registry.part("estimate", "calibrate").calibrate_run)
