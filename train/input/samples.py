"""How a job reads its training samples: whole, or this rank's part of each."""

from collections.abc import Callable

from ..experiment.experiment import Experiment
from .division import OwnPart
from .source import SampleSource, TrainingSet
from .views import ReadCache


class TrainingSamples:
    """The training samples of a job, as its source gives them. Collective: all ranks make it together.

    Args:
        source: The source of the samples.
        experiment: The configuration.
        training: The samples that are trained on; `None` if no epoch is left to train.
        log_line: Prints a line about the job.

    Attributes:
        source: See above.
        own_part: Reads this rank's part of a sample alone; `None` for whole samples.
        cache: What is kept between epochs.

    Raises:
        InputError: As of `SampleSource.open`.
    """

    def __init__(
        self,
        source: SampleSource,
        experiment: Experiment,
        training: TrainingSet | None,
        log_line: Callable[[str], None],
    ) -> None:
        self.source, self.cache = source, ReadCache(keep_views=source.keeps_views)
        self.own_part: OwnPart | None = None
        if training and (line := source.open(training)):
            log_line(line)
        if training and training.division:
            with training.ranks.together():
                self.own_part, line = training.division.own_part(source, experiment, training.entries)
            log_line(line)
