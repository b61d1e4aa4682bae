"""Tasks that a network is trained for: one folder per task, and the job asks only `Task`. See
`train.tasks.registry`.

| task | answer |
|---|---|
| density | the projected electron density of a specimen, an image |
| classify | the class of a pattern, and by vote that of a scan |
| segment | the class of every scan position: matrix, grain, or another phase |
| embed | a few latent numbers of a pattern, and the pattern that is made from them |
| estimate | thickness, defocus and tilt of a scan |

A task says what the target of a sample is, what the loss is, how an answer is scored, which trivial
baseline it is compared with, what of it the report and the model card show, and how its networks
are applied to a scan.
"""

from typing import TYPE_CHECKING

from . import registry

if TYPE_CHECKING:  # the configuration contains the tasks' sections, and a task needs TensorFlow
    from ..experiment.experiment import Experiment
    from ..input.division import RankDivision
    from .task import Task


def task_of(experiment: "Experiment", split: "RankDivision | None" = None) -> "Task":
    """Returns the task of a configuration."""
    task: Task = registry.part(experiment.training.task, "task").TASK(experiment, split)
    return task
