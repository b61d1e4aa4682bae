"""The interface of a task to the job, with the answers of most tasks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from rich.console import Group

from namsa.base.arrays import Array, Floats, Tensor
from namsa.base.errors import WorkError
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset

from ..execution import backend
from ..experiment.experiment import Experiment
from ..input.batches import Target
from ..input.views import Compose, Readable
from ..measure.results import Evaluation, RunFacts
from ..optimization.losses import Objective
from ..ranks.interface import Ranks
from ..reports.results import write_json
from .reporting import report_of

if TYPE_CHECKING:  # it needs Horovod, which the evaluation of a run does not
    import keras

    from ..input.division import RankDivision

Row = dict[str, Any]  # of JSON types
Score = Callable[[Sequence[Entry]], list[Row]]


@dataclass(frozen=True)
class Answers:
    """A network, and a rank's share of the samples that it is evaluated on."""

    model: "keras.Model"  # the network
    dataset: Dataset  # where the samples are read
    # The rank's manifest entries. Each entry belongs to exactly one rank; a rank may have none.
    entries: Sequence[Entry]
    baseline: Floats  # mean of `Task.statistic` over the training samples of all ranks
    run_generator: bool  # whether a generator of crystals, which is Python code, may run
    log_line: Callable[[str], None]  # prints a line about the job


@dataclass(frozen=True)
class FixedLoss:
    """A loss that is the same in all epochs, a `train.optimization.losses.Objective`."""

    terms: tuple[str, ...]  # names of its terms
    # Returns the terms, float32 scalars, of a network's output and the target.
    compute: Callable[[Tensor, Tensor], tuple[Tensor, ...]]

    def setting(self, epoch: int) -> dict[str, float]:
        """Returns nothing: no number changes with the epoch."""
        return {}

    def __call__(self, output: Tensor, target: Tensor, setting: Tensor) -> tuple[Tensor, ...]:
        """Returns the terms of a batch."""
        return self.compute(output, target)


@dataclass(frozen=True)
class Task(ABC):
    """A task of a configuration. See `train.tasks`."""

    experiment: Experiment  # the configuration
    split: "RankDivision | None" = None  # what the ranks that divide samples exchange
    # key of `numbers` by which networks are compared; less is better
    error: ClassVar[str] = "error"

    # ---- Samples
    # ----------------------------------------------------------------------------------------------

    def check_listed(self, entries: Sequence[Entry]) -> None:  # noqa: B027 - most tasks take all samples
        """Checks the samples that are going to be simulated, as far as the manifest says what they
        are.

        Args:
            entries: Entries of all splits, without those that are skipped.

        Raises:
            InputError: If the samples do not fit the configuration.
        """

    def resolve(self, entries: Sequence[Entry], dataset: Readable) -> Experiment:
        """Returns the configuration with what follows from samples, as classes. Raises InputError
        if they misfit.
        """
        return self.experiment

    def readable(self, dataset: Readable) -> Readable:
        """Returns the samples as training reads them: a target over the positions of a scan
        replaces the density.
        """
        return dataset

    def usable(self, entries: Sequence[Entry]) -> list[Entry]:
        """Returns the entries that the task can use."""
        return list(entries)

    def held_out(self, training: Sequence[Entry], others: Sequence[Entry]) -> list[Entry]:
        """Returns the entries to evaluate on: the others, and training samples of which a part is
        kept.
        """
        return [*(training if self.experiment.training.inputs.held_out_positions else ()), *others]

    def composer(self, dataset: Dataset) -> Compose | None:
        """Returns what makes the scans that an epoch takes in place of samples; `None` if it takes
        the samples.
        """
        return None

    # ---- Target, loss and baseline
    # ----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def objective(self) -> Objective:
        """The loss."""

    @property
    def target(self) -> Target | None:
        """Returns y of a batch; `None` for its densities. See `train.input.batches.batches`."""
        return None

    @abstractmethod
    def random_target(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Returns a target for `train.input.batches.random_batch`, to time steps without
        samples.
        """

    @abstractmethod
    def statistic(self, dataset: Readable, entries: Sequence[Entry]) -> Floats:
        """Returns the mean over samples of what the trivial baseline is made from."""

    # ---- Scores
    # ----------------------------------------------------------------------------------------------

    def scorer(self, model: "keras.Model", dataset: Dataset) -> Score:
        """Returns a function from entries to one row of JSON types each, for `numbers`. Each row
        has the key "id".
        """
        score = self.row_scorer(model, dataset)
        return lambda entries: self._reported([dict(score(entry)) for entry in entries])

    @abstractmethod
    def numbers(self, rows: Sequence[Row]) -> dict[str, float | None]:
        """Returns what samples score together, from the rows of all ranks in the order of their
        ids.
        """

    def evaluate(
        self, answers: Answers, run_dir: Path, *, ranks: Ranks, run: RunFacts
    ) -> Evaluation:
        """Scores a network beside the baseline; rank 0 writes `evaluation.json`. Collective.

        Returns:
            The contents of `evaluation.json`, the same on every rank.
        """
        with ranks.local_work():
            score = self.row_scorer(answers.model, answers.dataset, answers.baseline)
            scores = self._reported([score(entry) for entry in answers.entries])
        evaluation = self.summarise(gathered(ranks, scores), answers.baseline, run)
        with ranks.local_work():
            if ranks.rank() == 0:
                write_json(run_dir / "evaluation.json", evaluation)
                self.draw(answers, run_dir)
        return evaluation

    @property
    def _is_scored(self) -> bool:
        """Whether this rank reports its samples. All ranks that divide them see them, and one
        reports them.
        """
        return self.split is None or self.split.place == 0

    def _reported(self, rows: list[Any]) -> list[Any]:
        return rows if self._is_scored else []

    def row_scorer(
        self, model: "keras.Model", dataset: Dataset, baseline: Floats | None = None
    ) -> Callable[[Entry], Mapping[str, object]]:
        """Returns a function from an entry to its row, beside the baseline if its statistic is
        given.
        """
        raise NotImplementedError

    def summarise(self, rows: Sequence[Any], baseline: Floats, run: RunFacts) -> Evaluation:
        """Returns the contents of `evaluation.json`."""
        raise NotImplementedError

    def draw(self, answers: Answers, run_dir: Path) -> None:  # noqa: B027 - most tasks draw nothing
        """Writes what the report shows of some of rank 0's samples."""

    def table(self, evaluation: Evaluation, run_dir: Path, report: Path | None) -> Group:
        """Returns the main results for the terminal."""
        return report_of(self.experiment.training.task).table(evaluation, run_dir, report)


def gathered(ranks: Ranks, local_rows: Sequence[Mapping[str, object]]) -> list[Any]:
    """Returns the rows of all ranks in the order of their ids. Collective."""
    return sorted(
        (row for rows in ranks.gather_json(local_rows) for row in rows), key=lambda row: row["id"]
    )


def check_finite(entry: Entry, *answers: Array) -> None:
    """Raises WorkError if a network's answer to a sample is not finite."""
    if not all(np.isfinite(answer).all() for answer in answers):
        raise WorkError(
            f"the network's answer to {entry.id} is not finite: nothing can be measured"
        )


def in_parts(
    forward: Callable[[Tensor], Tensor],
    network: "keras.Model",
    at_once: int,
    dtype: npt.DTypeLike = None,
) -> Callable[[Array], Tensor]:
    """Returns a function from arrays `(n, ...)` to what a network makes of them, computed some at a
    time.

    Args:
        forward: From a tensor to a tensor or several, with the same first axis. It is compiled.
        dtype: Of the results; `None` keeps the network's.
    """
    compiled = backend.execution().compiled(forward, network.variables)

    def concatenated(parts: Iterable[Tensor]) -> Array:
        return np.concatenate([np.asarray(result, dtype) for result in parts])

    def compute(x: Array) -> Tensor:
        parts = [compiled(x[at : at + at_once]) for at in range(0, len(x), at_once)]
        if isinstance(parts[0], list | tuple):
            return tuple(map(concatenated, zip(*parts, strict=True)))
        return concatenated(parts)

    return compute
