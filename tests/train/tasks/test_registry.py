"""What the registry says of each task."""

import pytest

from train.apply.card import TaskCard, card_of
from train.tasks import registry
from train.tasks.registry import TASKS
from train.tasks.reporting import RunReport, report_of
from train.tasks.scan_command import commands_of, function_of


@pytest.mark.parametrize("task", TASKS)
def test_networks_of_every_task_are_reported_packed_and_applied(task):
    assert isinstance(report_of(task), RunReport)
    assert isinstance(card_of(task), TaskCard)
    assert all(callable(function_of(task, command)) for command in commands_of(task))


def test_what_a_task_lacks_is_none():
    assert registry.part("embed", "calibrate") is None
    assert callable(registry.part("estimate", "calibrate").calibrate_run)
