"""A recipe, top to bottom: the stages of a configuration one after the other, then the network's calibration and card.

Each stage is a job of its own (`train.main`) with a run directory of its own, and starts from the weights of the stage
before. The last one's is that of the recipe, the others are in its folder `stages`. What is done is not done again.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from namsa import locks
from namsa.errors import InputError
from namsa.json_files import read_json
from namsa.text import duration, plural

from .apply.models import CALIBRATION, load_model
from .apply.pack import pack
from .experiment.experiment import Experiment, load
from .main import train
from .measure import telemetry
from .optimization import checkpoint
from .phases.connect import load_connected
from .ranks import reduction
from .scaling.forecast import Samples, count_samples, forecast
from .tasks import registry
from .tasks.reporting import read_results


@dataclass(frozen=True)
class Stage:
    """One job of a recipe."""

    number: int  # from 1
    overrides: Sequence[str]  # applied to the file's values
    experiment: Experiment  # the configuration with them
    run_dir: Path
    home: Path | None  # copy of the run directory

    def is_done(self) -> bool:
        """Returns whether the job is evaluated after all of its epochs or steps."""
        training = self.experiment.training
        try:
            run = read_results(self.run_dir)["run"]
        except InputError:
            return False
        return bool(run["epochs"] >= training.epochs or (training.steps and run["steps"] >= training.steps))

    def check_start(self) -> None:
        """Raises InputError if the weights to start from are missing, before samples are simulated."""
        start = self.experiment.training.start_from
        if start and not any((folder / "checkpoints").is_dir() for folder in (self.run_dir, self.home) if folder):
            try:
                load_model(start)
            except InputError as error:
                raise InputError(f"training.start_from: {error}") from None


def run(
    config: Path,  # the experiment's YAML file; this and the following as of `train.main.train`
    overrides: Sequence[str] = (),
    run_dir: Path | None = None,
    home: Path | None = None,
    lock_wait_s: float = locks.WAIT_S,
    force: bool = False,
) -> None:
    """Trains what is left of a configuration's stages, and finishes the network as the configuration says. Collective.

    Raises:
        InputError: As of `train.main.train`, as the following.
        WorkError
        Stopped
    """
    experiment = load_connected(config, overrides)
    with reduction.together():
        stages = stages_of(config, overrides, experiment, run_dir, home)
        done = [stage.number for stage in stages if len(stages) > 1 and stage.is_done()]
    done = reduction.gather_json(done)[0]  # the others may not see the run directories
    left = [stage for stage in stages if stage.number not in done]
    console = Console(quiet=reduction.rank() != 0, markup=False)
    with reduction.together():
        if reduction.rank() == 0 and left:
            left[0].check_start()
        for line in expected(left, reduction.size()) if len(stages) > 1 else ():
            console.print(line, highlight=False, soft_wrap=True)
    for stage in left:
        train(config, stage.overrides, stage.run_dir, False, stage.home, lock_wait_s, force)
    with reduction.together():
        if reduction.rank() == 0 and stages[-1].experiment.finish:
            model = finish(stages[-1], console)
            console.print(f"the model, for --checkpoint: {model}", highlight=False, soft_wrap=True)


def stages_of(
    config: Path, overrides: Sequence[str], experiment: Experiment, run_dir: Path | None, home: Path | None = None
) -> list[Stage]:
    """Returns a configuration's jobs. Raises InputError if one is not valid.

    A stage that `overrides` choose is the only one, and has its run directory and its start as in the whole recipe,
    unless `run_dir` and `overrides` say otherwise.

    Args:
        experiment: The configuration with `overrides`.
    """
    given = {key.strip(): value for key, _, value in (override.partition("=") for override in overrides)}
    chosen, count = int(given.get("stage", 0)), 1 + len(experiment.stages)
    whole = Path("runs") / experiment.name if chosen or not run_dir else run_dir
    stages: list[Stage] = []
    for number in [chosen] if chosen else range(1, count + 1):
        part, own = Path("stages", str(number)) if number < count else Path(), [f"stage={number}", *overrides]
        if number > 1 and "training.start_from" not in {*experiment.stages[number - 2], *(given if chosen else ())}:
            own.append(f"training.start_from={whole / 'stages' / str(number - 1)}")
        folder = run_dir if chosen and run_dir else whole / part
        stages.append(Stage(number, own, load(config, own), folder, home / part if home and not chosen else home))
    return stages


def expected(stages: Sequence[Stage], ranks: int) -> Iterator[str]:
    """Yields a line about each stage, and one about all: how long they take, as `--dry-run` estimates it.

    The samples of stages that share a folder are counted once, with the first of them.
    """
    total, counted = 0.0, dict[Path, Samples]()
    for stage in stages:
        directory = stage.experiment.data.directory
        samples = counted.get(directory) or count_samples(stage.experiment, ranks)
        counted[directory] = samples._replace(simulation=None)
        found = forecast(stage.experiment, ranks, samples)
        simulation_s = found["simulation"]["seconds"] if found["simulation"] else 0.0
        total += simulation_s + found["seconds"]
        yield (
            f"stage {stage.number}, {stage.run_dir}: {duration(simulation_s)} to simulate, {found['steps']} steps on "
            f"{plural(found['train_samples'], 'sample')} in {duration(found['seconds'])}"
        )
    yield f"what is left: {duration(total)}, without waiting for data, evaluation and calibration"


def finish(stage: Stage, console: Console) -> Path:
    """Calibrates and packs the network of a stage, as far as that is not done; returns the model's folder."""
    settings, weights = stage.experiment.finish, load_model(stage.run_dir).weights
    assert settings
    step, calibration = checkpoint.read_header(weights)["step"], stage.run_dir / CALIBRATION
    module = registry.part(stage.experiment.training.task, "calibrate")
    if module and not (calibration.is_file() and read_json(calibration).get("step") == step):
        with telemetry.counter(console, "calibration, samples") as count:
            module.calibrate(stage.run_dir, None, settings.simulated, count, settings.outside)
    model = stage.run_dir / "model" / stage.experiment.name
    if model.exists() and checkpoint.read_header(model / "weights.npz")["step"] != step:
        shutil.rmtree(model)
    if not model.exists():
        with telemetry.counter(console, "card, measurements") as count:
            pack(stage.run_dir, model, count)
    return model
