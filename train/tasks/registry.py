"""The tasks that there are.

This module and `train.tasks.sections` alone name tasks. Everything else asks here for a part of a
task's folder, which is imported then:

    train/tasks/<task>/
      section.py      its section of the configuration, if it has one
      rules.py        what it asks of the network, the inputs and the samples: `check`
      task.py         target, loss, scores and trivial baseline: `TASK`, a `train.tasks.task.Task`
      report.py       its part of the report and of the terminal: `REPORT`, a
                      `train.tasks.reporting.RunReport`
      card.py         its part of a model card: `CARD`, a `train.tasks.card.TaskCard`
      command.py      the commands that apply its networks: `COMMANDS`, of
                      `train.tasks.scan_command.ScanCommand`
      application.py  a network of the task on a scan
      calibrate.py    the measurements of `python -m train calibrate`, if there are some:
                      `calibrate_run`

A task whose modules are in folders of its own says in `MODULES` of its `__init__.py` where each of
these is.

A task is removed by deleting its folder and its lines in these two modules.
"""

from pathlib import Path
from typing import Any

from namsa.base.registry import Registry

TASKS = ("density", "classify", "segment", "embed", "estimate")
_FOLDERS = Registry(__package__, Path(__file__).parent)


def part(task: str, name: str) -> Any:
    """Imports a module of a task's folder; returns the module; `None` if the task has no such
    module.
    """
    places: dict[str, str] = getattr(_FOLDERS.module(task), "MODULES", {})
    return _FOLDERS.find(task, *places.get(name, name).split("."))
