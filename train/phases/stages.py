"""Stages of a recipe: where each is, how far it has come, and which are left to train."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from namsa.base.errors import InputError

from ..experiment.continuation import START
from ..experiment.experiment import Experiment, load
from ..measure import rows
from ..measure.results import RunFacts
from ..optimization import checkpoint
from ..optimization.checkpoint_fit import Header
from ..reports.results import check_facts
from ..tasks import task_of
from ..tasks.reporting import read_results
from .continuation import check_run, check_start


@dataclass(frozen=True)
class Stage:
    """One job of a recipe."""

    number: int  # from 1
    overrides: Sequence[str]  # applied to the file's values
    experiment: Experiment  # the configuration with them
    run_dir: Path
    home: Path | None  # copy of the run directory
    previous: "Stage | None" = None  # the stage from whose weights it starts, if it starts from one

    @property
    def folders(self) -> list[Path]:
        """The run directory, then its home if there is one."""
        return [self.run_dir, self.home] if self.home else [self.run_dir]

    def newest_checkpoint(self) -> Header | None:
        """Returns the header of the newest checkpoint; `None` without one that is intact."""
        newest = checkpoint.newest_header([folder / "checkpoints" for folder in self.folders])
        return newest[1] if newest else None

    def facts(self) -> RunFacts | None:
        """Returns the facts of the last evaluation; `None` if it is missing or damaged."""
        for folder in self.folders:
            try:
                return check_facts(folder / "evaluation.json", read_results(folder))
            except InputError:
                continue
        return None

    def is_over(self, epochs: int, steps: int) -> bool:
        """Returns whether a training that has come so far is at its end."""
        training = self.experiment.training
        if epochs >= training.epochs or (training.steps and steps >= training.steps):
            return True
        stop_at = training.validation.stop_at
        if stop_at is None:
            return False
        error = self._last_validation_error()
        return error is not None and error <= stop_at

    def _last_validation_error(self) -> float | None:
        for folder in self.folders:
            path = folder / rows.VALIDATIONS
            validations = rows.read(path) if path.is_file() else []
            if validations:
                return validations[-1].get(task_of(self.experiment).error)
        return None

    def is_trained(self) -> bool:
        """Returns whether the newest checkpoint is that of the end of the training."""
        header = self.newest_checkpoint()
        return header is not None and self.is_over(header["epoch"], header["step"])

    def is_done(self) -> bool:
        """Returns whether the training is over and evaluated, and its weights are there."""
        facts = self.facts()
        header = self.newest_checkpoint()
        if facts is None or header is None or facts["steps"] != header["step"]:
            return False
        return self.is_trained()

    def check(self) -> None:
        """Checks the stage against what is in its run directory, before samples are simulated.

        Raises:
            InputError: If its checkpoints are of another training, or started from weights of the
                stage before that are no longer its result.
        """
        if self.newest_checkpoint() is None:
            return
        check_run(self.experiment, self.folders)
        self._check_previous()

    def check_start(self) -> None:
        """Checks the weights to start from, if the stage has not begun. Raises InputError."""
        if self.experiment.training.start_from and self.newest_checkpoint() is None:
            check_start(self.experiment)

    def _check_previous(self) -> None:
        previous = self.previous
        if previous and previous.newest_checkpoint() is not None and not previous.is_trained():
            raise InputError(
                f"stage {previous.number} in {previous.run_dir} is to be trained further, and "
                f"stage {self.number} in {self.run_dir} has started from it: remove "
                f"{self.run_dir}/checkpoints to train that again, restore the former values of "
                f"stage {previous.number}, or give the recipe another --run-dir"
            )

    @property
    def model_folder(self) -> Path:
        """Folder into which the calibrated network is packed."""
        return self.run_dir / "model" / self.experiment.name

    def packed_header(self) -> Header | None:
        """Returns the header of the packed network's weights; `None` if they cannot be used."""
        try:
            return checkpoint.read(self.model_folder / "weights.npz")[0]
        except checkpoint.BROKEN:
            return None

    def is_packed(self) -> bool:
        """Returns whether the packed network is all that is left of a training that was over."""
        if self.experiment.finish is None or self.newest_checkpoint() is not None:
            return False
        facts = self.facts()
        if facts is None or self.packed_header() is None:
            return False
        return self.is_over(facts["epochs"], facts["steps"])


def stages_of(
    config: Path,
    overrides: Sequence[str],
    experiment: Experiment,
    run_dir: Path | None,
    home: Path | None = None,
) -> list[Stage]:
    """Returns a configuration's jobs. Raises InputError if one is not valid.

    A stage that `overrides` choose is the only one, and has its run directory and its start as in
    the whole recipe, unless `run_dir` and `overrides` say otherwise.

    Args:
        experiment: The configuration with `overrides`.
    """
    given = {}
    for override in overrides:
        key, _, value = override.partition("=")
        given[key.strip()] = value
    chosen = int(given.get("stage", 0))
    if chosen:
        recipe_dir = Path("runs") / experiment.name
        folder = run_dir or recipe_dir / _subfolder(experiment, chosen)
        start = None
        if _starts_from_previous(experiment, chosen) and START not in given:
            start = recipe_dir / _subfolder(experiment, chosen - 1)
        return [_stage(config, overrides, chosen, folder, home, start)]
    recipe_dir = run_dir or Path("runs") / experiment.name
    stages: list[Stage] = []
    for stage_number in range(1, 2 + len(experiment.stages)):
        subfolder = _subfolder(experiment, stage_number)
        home_of_stage = home / subfolder if home else None
        previous = None
        start = None
        if _starts_from_previous(experiment, stage_number):
            previous = stages[-1]
            start = previous.run_dir
        stage = _stage(
            config, overrides, stage_number, recipe_dir / subfolder, home_of_stage, start
        )
        stages.append(replace(stage, previous=previous))
    return stages


def _subfolder(experiment: Experiment, stage_number: int) -> Path:
    """Returns the folder of a stage in that of the recipe, which is the last stage's."""
    if stage_number == 1 + len(experiment.stages):
        return Path()
    return Path("stages", str(stage_number))


def _starts_from_previous(experiment: Experiment, stage_number: int) -> bool:
    """Returns whether a stage starts from the one before, as far as the file says."""
    return stage_number > 1 and START not in experiment.stages[stage_number - 2]


def _stage(
    config: Path,
    overrides: Sequence[str],
    stage_number: int,
    run_dir: Path,
    home: Path | None,
    start: Path | None,  # the weights to start from, if not those of the configuration
) -> Stage:
    settings = [f"stage={stage_number}", *overrides]
    if start:
        settings.append(f"{START}={start}")
    return Stage(stage_number, settings, load(config, settings), run_dir, home)


def left_to_train(stages: Sequence[Stage]) -> list[Stage]:
    """Returns the stages that are not done and whose result is needed.

    The result of a stage is not needed once a later one has begun. A single stage is always
    started: its job says what is there.
    """
    if len(stages) == 1:
        return list(stages)
    left: list[Stage] = []
    if stages[-1].is_packed():
        return left
    for stage in reversed(stages):
        if stage.is_done():
            break
        left.insert(0, stage)
        if stage.newest_checkpoint() is not None:
            break
    return left


def not_needed(stages: Sequence[Stage], left: Sequence[Stage]) -> Iterator[str]:
    """Yields a line about each stage whose weights are gone and not needed any more."""
    for stage in stages:
        if stage not in left and stage.newest_checkpoint() is None:
            yield f"stage {stage.number}, {stage.run_dir}: no weights there, and none needed"
