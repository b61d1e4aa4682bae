"""What the job asks of a task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from rich.table import Table

from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset

from ..experiment.experiment import Experiment
from ..input.batches import Compose, Readable, Target
from ..measure.results import RunFacts
from ..optimization.objective import Objective
from ..ranks.protocol import Ranks

Array = npt.NDArray[np.float64]
Row = dict[str, Any]  # of JSON types
Score = Callable[[Sequence[Entry]], list[Row]]


@dataclass(frozen=True)
class Answers:
    """A network, and a rank's share of the samples that it is evaluated on.

    Attributes:
        model: The network.
        dataset: Where the samples are read.
        entries: The rank's manifest entries. Each entry belongs to exactly one rank; a rank may have none.
        baseline: Mean of `Task.statistic` over the training samples of all ranks.
        run_generator: Whether a generator of crystals, which is Python code, may run.
        log_line: Prints a line about the job.
    """

    model: Any
    dataset: Dataset
    entries: Sequence[Entry]
    baseline: Array
    run_generator: bool
    log_line: Callable[[str], None]


class Task(Protocol):
    """A task of a configuration. See `train.tasks`.

    Attributes:
        error: Key of `numbers` by which networks are compared; less is better.
        objective: The loss.
        target: Returns y of a batch; `None` for its densities. See `train.input.batches.batches`.
    """

    error: str

    @property
    def objective(self) -> Objective:
        """See the class."""
        ...

    @property
    def target(self) -> Target | None:
        """See the class."""
        ...

    def check_listed(self, entries: Sequence[Entry]) -> None:
        """Checks the samples that are going to be simulated, as far as the manifest says what they are.

        Args:
            entries: Entries of all splits, without those that are skipped.

        Raises:
            InputError: If the samples do not fit the configuration.
        """
        ...

    def resolve(self, entries: Sequence[Entry], dataset: Readable) -> Experiment:
        """Returns the configuration with what follows from the samples, as the names of classes.

        Raises:
            InputError: If the samples do not fit the configuration.
        """
        ...

    def readable(self, dataset: Readable) -> Readable:
        """Returns the samples as training reads them: a target over the positions of a scan replaces the density."""
        ...

    def usable(self, entries: Sequence[Entry]) -> list[Entry]:
        """Returns the entries that the task can use."""
        ...

    def held_out(self, training: Sequence[Entry], others: Sequence[Entry]) -> list[Entry]:
        """Returns the entries that networks are evaluated on: the others, and training samples of which a part is kept.

        Args:
            training: The entries of the training split that are trained on.
            others: Those of the other splits.
        """
        ...

    def statistic(self, dataset: Readable, entries: Sequence[Entry]) -> Array:
        """Returns the mean over samples of what the trivial baseline is made from."""
        ...

    def composer(self, dataset: Dataset) -> Compose | None:
        """Returns what makes the scans that an epoch takes in place of samples; `None` if it takes the samples."""
        ...

    def random_target(self, batch: tuple[Any, Any]) -> Any:
        """Returns a target for `train.input.random_batches.random_batch`, to time steps without samples."""
        ...

    def scorer(self, model: Any, dataset: Dataset) -> Score:
        """Returns a function from entries to one row of JSON types each, for `numbers`. Each row has the key "id"."""
        ...

    def numbers(self, rows: Sequence[Row]) -> dict[str, float | None]:
        """Returns what samples score together, from the rows of all ranks in the order of their ids."""
        ...

    def evaluate(self, answers: Answers, run_dir: Path, *, ranks: Ranks, run: RunFacts) -> Mapping[str, Any]:
        """Scores a network beside the baseline; rank 0 writes `evaluation.json`. Collective.

        Returns:
            The contents of `evaluation.json`, the same on every rank.
        """
        ...

    def table(self, evaluation: Mapping[str, Any], run_dir: Path, report: Path | None) -> Table:
        """Returns the main results for the terminal."""
        ...
