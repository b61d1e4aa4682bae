"""Validation while a network is trained: scores of the dev split, the best checkpoint, and when to stop.

Validation takes place at the end of an epoch, before its checkpoint is written, and draws nothing at random. A resumed
job drops the rows of later steps, as of metrics.jsonl, and so validates and stops where an undisturbed one does.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from namsa.dataset.entry import Entry

from ..experiment.experiment import Experiment
from ..measure import rows, telemetry
from ..measure.rows import Row
from ..optimization import checkpoint
from ..optimization.checkpoint import TrainingPosition
from ..ranks.protocol import Ranks
from .task import Score, Task, gathered

BEST = "best.npz"  # in the format of a checkpoint, beside the folder of the checkpoints


class Validation:
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
        self.config, self.network, self.task = experiment.training.validation, experiment.network, task
        self.score, self.entries, self.run_dir, self.ranks = score, entries, run_dir, ranks
        own: list[dict[str, Any]] = []
        with ranks.together():
            path = run_dir / rows.VALIDATIONS
            if ranks.rank() == 0 and self.config.every_epochs and path.exists():
                telemetry.drop_rows_after(path, position.step)
                own = rows.read(path)
        self.rows: list[Row] = list(ranks.gather_json(own)[0])

    @property
    def reached(self) -> bool:
        """Whether the last validation reached the error at which training ends."""
        return bool(self.rows) and self.config.stop_at is not None and self._error(self.rows[-1]) <= self.config.stop_at

    def due(self, position: TrainingPosition) -> bool:
        """Returns whether a validation is due: at the end of an epoch, every so many of them."""
        every = self.config.every_epochs
        return every is not None and not position.taken and position.epoch % every == 0

    def run(self, position: TrainingPosition, variables: Sequence[Any]) -> Row | None:
        """Scores the dev split. Rank 0 writes the row, and `best.npz` if no error was lower.

        Args:
            position: How far the job has come.
            variables: Of the network and the optimizer, as in a checkpoint.

        Returns:
            The row; `None` if no rank has a sample.
        """
        with self.ranks.together():
            own = self.score(self.entries)
        samples = gathered(self.ranks, own)
        if not samples:
            return None
        row: Row = {
            "step": position.step,
            "epoch": position.epoch,
            "samples": len(samples),
            **self.task.numbers(samples),
        }
        best = all(self._error(row) < self._error(earlier) for earlier in self.rows)
        with self.ranks.together():
            if self.ranks.rank() == 0:
                if best and self.config.keep_best:
                    checkpoint.save_as(self.run_dir / BEST, position, variables, self.network)
                rows.append(self.run_dir / rows.VALIDATIONS, row)
        self.rows.append(row)
        return row

    def _error(self, row: Row) -> float:
        error = row.get(self.task.error)
        return math.inf if error is None else float(error)
