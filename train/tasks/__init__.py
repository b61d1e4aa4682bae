"""What a network is trained for: one module a task, and the job asks only `Task`.

| task | answer |
|---|---|
| density | the projected electron density of a specimen, an image |
| classify | the class of a pattern, and by vote that of a scan |
| segment | the class of every scan position: matrix, grain, or another phase |
| embed | a few latent numbers of a pattern, and the pattern that is made from them |
| estimate | thickness, defocus and tilt of a scan |

A task says what the target of a sample is, what the loss is, how an answer is scored, which trivial baseline it is
compared with, and what of it the report shows. The rules by which a configuration fits a task are in
`train.experiment.task_rules`.
"""

from typing import TYPE_CHECKING

from ..experiment.experiment import Experiment

if TYPE_CHECKING:
    from ..ranks.split import RankSplit  # it needs Horovod, which the evaluation of a run does not
    from .task import Task  # it needs TensorFlow, which reports do not


def task_of(experiment: Experiment, split: "RankSplit | None" = None) -> "Task":
    """Returns the task of a configuration.

    Args:
        experiment: The configuration. It divides samples for the task density alone.
        split: What the ranks that divide samples exchange.
    """
    from .classify import Classification
    from .density import Density
    from .embed import Embedding
    from .estimate import Estimation
    from .segment import Segmentation

    if split:
        return Density(experiment, split)
    tasks: dict[str, type[Density] | type[Classification] | type[Segmentation] | type[Embedding] | type[Estimation]] = {
        "density": Density,
        "classify": Classification,
        "segment": Segmentation,
        "embed": Embedding,
        "estimate": Estimation,
    }
    return tasks[experiment.training.task](experiment)
