"""What a network is trained for: one module a task, and the job asks only `Task`.

| task | answer |
|---|---|
| density | the projected electron density of a specimen, an image |
| classify | the class of a pattern, and by vote that of a scan |
| segment | the class of every scan position: matrix, grain, or another phase |
| embed | a few latent numbers of a pattern, and the pattern that is made from them |

A task says what the target of a sample is, what the loss is, how an answer is scored, which trivial baseline it is
compared with, and what of it the report shows. The rules by which a configuration fits a task are in
`train.experiment.task_rules`.
"""

from train.experiment.experiment import Experiment
from train.tasks.classify import Classification
from train.tasks.density import Density
from train.tasks.embed import Embedding
from train.tasks.segment import Segmentation
from train.tasks.task import Task

TASKS: dict[str, type[Density] | type[Classification] | type[Segmentation] | type[Embedding]] = {
    "density": Density,
    "classify": Classification,
    "segment": Segmentation,
    "embed": Embedding,
}


def task_of(experiment: Experiment) -> Task:
    """Returns the task of a configuration."""
    return TASKS[experiment.training.task](experiment)
