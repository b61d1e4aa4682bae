"""The tasks that there are.

This module and `train.tasks.sections` alone name tasks of this package. Everything else asks here
for a part of a task's folder, which is imported then:

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
      calibrate.py    the measurements of `namsa-train calibrate`, if there are some:
                      `calibrate_run`

A task whose modules are in folders of its own says in `MODULES` of its `__init__.py` where each of
these is.

A task is removed by deleting its folder and its lines in these two modules.

Another package adds a task by an entry point of the group namsa.tasks: its name is the task's, and
its value the package with these modules. Those of `REQUIRED` must be there. What such a task is
given is in training.arguments, which its `rules` check.
"""

from pathlib import Path
from typing import Any

from namsa.base.errors import InputError
from namsa.base.registry import Registry
from namsa.base.text import shorten

TASKS = ("density", "classify", "segment", "embed", "estimate")
REQUIRED = ("rules", "task", "report", "card")  # modules of a task
_FOLDERS = Registry(__package__, Path(__file__).parent, "namsa.tasks")


def names() -> list[str]:
    """Returns the tasks that there are: those of this package, then those of others."""
    tasks = _FOLDERS.names(having="task.py")
    return [*TASKS, *(name for name in tasks if name not in TASKS)]


def is_known(task: str) -> bool:
    """Returns whether there is a task of a name."""
    return task in TASKS or task in names()


def part(task: str, name: str) -> Any:
    """Imports a module of a task's folder; returns the module; `None` if the task has no such
    module.

    Raises:
        InputError: If the package of a task cannot be imported, or lacks a module of `REQUIRED`.
    """
    try:
        places: dict[str, str] = getattr(_FOLDERS.module(task), "MODULES", {})
        module = _FOLDERS.find(task, *places.get(name, name).split("."))
    except ImportError as error:
        if task in TASKS:
            raise
        raise InputError(
            f"the package of the task {task} cannot be imported: {shorten(error, 300)}"
        ) from None
    if module is None and name in REQUIRED:
        raise InputError(
            f"the package of the task {task} has no module {name}: a task needs "
            f"{', '.join(REQUIRED)}"
        )
    return module
