"""The tasks that there are.

This module and `train.tasks.sections` alone name tasks. Everything else asks here for a part of a task's folder, which
is imported then:

    train/tasks/<task>/
      section.py      its section of the configuration, if it has one
      rules.py        what it asks of the network, the inputs and the samples: `check`
      task.py         target, loss, scores and trivial baseline: `TASK`, a `train.tasks.task.Task`
      report.py       its part of the report and of the terminal: `REPORT`, a `train.tasks.reporting.RunReport`
      card.py         its part of a model card: `CARD`, a `train.apply.card.TaskCard`
      command.py      the commands that apply its networks: `COMMANDS`, of `train.tasks.scan_command.ScanCommand`
      application.py  a network of the task on a scan
      calibrate.py    what `python -m train calibrate` measures of it, if there is something: `calibrate_run`

A task is removed by deleting its folder and its lines in these two modules.
"""

import importlib
import importlib.util
from typing import Any

TASKS = ("density", "classify", "segment", "embed", "estimate")


def part(task: str, name: str) -> Any:
    """Imports a module of a task's folder; returns the module; `None` if the task has no such module."""
    module = f"{__package__}.{task}.{name}"
    return importlib.import_module(module) if importlib.util.find_spec(module) else None
