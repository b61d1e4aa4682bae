"""Validation while a network is trained: scores of the dev split, the best checkpoint, and when to
stop.

Validation takes place at the end of an epoch, before its checkpoint is written, and draws nothing
at random. A resumed job drops the rows of later steps, as of metrics.jsonl, and so validates and
stops where an undisturbed one does.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from namsa.dataset.entry import Entry

from ..experiment.experiment import Experiment
from ..measure import rows, telemetry
from ..measure.rows import Row
from ..optimization import checkpoint
from ..optimization.checkpoint import TrainingPosition
from ..optimization.origin import Origin
from ..ranks.interface import Ranks
from .task import Score, Task, gathered

BEST = "best.npz"  # in the format of a checkpoint, beside the folder of the checkpoints


class Validator:
    """The validations of a job. All methods but `due` are collective.

    Attributes:
        rows: Rows of validation.jsonl up to now, the same on every rank.
    """

    def __init__(
        self,
        experiment: Experiment,
        task: Task,
        score: Score,  # of `task`
        entries: Sequence[Entry],  # this rank's samples
        run_dir: Path,
        ranks: Ranks,
        position: TrainingPosition,  # how far the job has come
    ) -> None:
        """Reads the rows of a run that is continued."""
        self.config = experiment.training.validation
        self.network = experiment.network
        self.task = task
        self.score = score
        self.entries = entries
        self.run_dir = run_dir
        self.ranks = ranks
        earlier_rows: list[Row] = []
        with ranks.local_work():
            path = run_dir / rows.VALIDATIONS
            if ranks.rank() == 0 and self.config.every_epochs and path.exists():
                telemetry.drop_rows_after(path, position.step)
                earlier_rows = rows.read(path)
        self.rows: list[Row] = list(ranks.gather_json(earlier_rows)[0])

    @property
    def reached(self) -> bool:
        """Whether the last validation reached the error at which training ends."""
        return (
            bool(self.rows)
            and self.config.stop_at is not None
            and self._error(self.rows[-1]) <= self.config.stop_at
        )

    def due(self, position: TrainingPosition) -> bool:
        """Returns whether a validation is due: at the end of an epoch, every so many of them."""
        every = self.config.every_epochs
        return every is not None and not position.taken and position.epoch % every == 0

    def run(
        self, position: TrainingPosition, variables: Sequence[object], origin: Origin | None = None
    ) -> Row | None:
        """Scores the dev split. Rank 0 writes the row, and `best.npz` if no error was lower.

        Args:
            position: How far the job has come.
            variables: Of the network and the optimizer, as in a checkpoint.
            origin: What made them.

        Returns:
            The row; `None` if no rank has a sample.
        """
        with self.ranks.local_work():
            scores = self.score(self.entries)
        samples = gathered(self.ranks, scores)
        if not samples:
            return None
        row: Row = {
            "step": position.step,
            "epoch": position.epoch,
            "samples": len(samples),
            **self.task.numbers(samples),
        }
        best = all(self._error(row) < self._error(earlier) for earlier in self.rows)
        with self.ranks.local_work():
            if self.ranks.rank() == 0:
                if best and self.config.keep_best:
                    best_path = self.run_dir / BEST
                    checkpoint.save_as(best_path, position, variables, self.network, origin=origin)
                rows.append(self.run_dir / rows.VALIDATIONS, row)
        self.rows.append(row)
        return row

    def _error(self, row: Row) -> float:
        error = row.get(self.task.error)
        return math.inf if error is None else float(error)
