"""A recipe, top to bottom: the stages of a configuration one after the other, then the network's
calibration and card.

Each stage is a job of its own (`train.main`) with a run directory of its own, and starts from the
weights of the stage before. The last one's is that of the recipe, the others are in its folder
`stages`. What is done is not done again, unless what it follows from has changed: that is refused.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from namsa.base import locks
from namsa.base.console import output_console
from namsa.base.errors import InputError
from namsa.base.text import duration, plural

from .apply.models import load_model
from .experiment.functions import allow_functions
from .main import train
from .measure import telemetry
from .optimization import checkpoint
from .optimization.checkpoint_fit import Header
from .pack import PACKED_FROM, is_packed, pack
from .phases.connect import load_connected
from .phases.stages import Stage, left_to_train, not_needed, stages_of
from .ranks.connection import engine
from .scaling.forecast import Samples, count_samples, forecast
from .tasks import registry

__all__ = ["expected", "finish", "run", "stages_of"]


def run(
    config: Path,  # the experiment's YAML file; this and the following as of `train.main.train`
    overrides: Sequence[str] = (),
    run_dir: Path | None = None,
    home: Path | None = None,
    lock_wait_s: float = locks.WAIT_S,
    force: bool = False,
) -> None:
    """Trains what is left of a configuration's stages, and finishes the network as the
    configuration says. Collective.

    Raises:
        InputError: As of `train.main.train`, as the following.
        WorkError
        Stopped
    """
    experiment = load_connected(config, overrides)
    allow_functions(experiment)
    console = output_console(quiet=engine().rank() != 0)
    numbers: list[int] = []
    with engine().local_work():
        stages = stages_of(config, overrides, experiment, run_dir, home)
        if engine().rank() == 0:  # the others may not see the run directories
            for stage in stages:
                stage.check()
            left = left_to_train(stages)
            if left:
                left[0].check_start()
            numbers = [stage.number for stage in left]
    numbers = engine().gather_json(numbers)[0]
    left = [stage for stage in stages if stage.number in numbers]
    with engine().local_work():
        if len(stages) > 1:
            for line in [*not_needed(stages, left), *expected(left, engine().size())]:
                console.print(line, highlight=False, soft_wrap=True)
    for stage in left:
        train(config, stage.overrides, stage.run_dir, False, stage.home, lock_wait_s, force)
    with engine().local_work():
        if engine().rank() == 0 and stages[-1].experiment.finish:
            model = finish(stages[-1], console)
            console.print(f"the model, for --checkpoint: {model}", highlight=False, soft_wrap=True)


def expected(stages: Sequence[Stage], ranks: int) -> Iterator[str]:
    """Yields a line about each stage, and one about all: how long they take, as `--dry-run`
    estimates it.

    The samples of stages that share a folder are counted once, with the first of them.
    """
    total = 0.0
    counted = dict[Path, Samples]()
    for stage in stages:
        directory = stage.experiment.data.directory
        samples = counted.get(directory) or count_samples(stage.experiment, ranks)
        counted[directory] = samples._replace(simulation=None)
        estimate = forecast(stage.experiment, ranks, samples)
        simulation_s = 0.0
        if estimate["simulation"]:
            simulation_s = estimate["simulation"]["seconds"]
        total += simulation_s + estimate["seconds"]
        yield (
            f"stage {stage.number}, {stage.run_dir}: {duration(simulation_s)} to simulate, "
            f"{estimate['steps']} steps on {plural(estimate['train_samples'], 'sample')} in "
            f"{duration(estimate['seconds'])}"
        )
    yield f"what is left: {duration(total)}, without waiting for data, evaluation and calibration"


def finish(stage: Stage, console: Console) -> Path:
    """Calibrates and packs the network of a stage, as far as that is not done.

    Returns:
        The model's folder.
    """
    model = stage.model_folder
    packed = stage.packed_header()
    if stage.newest_checkpoint() is None and packed:
        return model
    _calibrate(stage, console)
    if packed is None or not _is_current(stage, packed, console):
        shutil.rmtree(model, ignore_errors=True)
        with telemetry.counter(console, "card, measurements") as count:
            pack(stage.run_dir, model, count)
    return model


def _calibrate(stage: Stage, console: Console) -> None:
    """Calibrates the network of a stage, if its task has a calibration and it is not that of the
    weights, samples and settings.
    """
    settings = stage.experiment.finish
    assert settings
    module = registry.part(stage.experiment.training.task, "calibrate")
    if module is None:
        return
    with telemetry.counter(console, "calibration, samples") as count:
        module.ensure_calibrated(stage.run_dir, settings.simulated, settings.outside, count)


def _is_current(stage: Stage, packed: Header, console: Console) -> bool:
    """Returns whether the packed model of a stage is that of its state.

    Args:
        packed: Header of its weights.
    """
    try:
        if is_packed(stage.run_dir, stage.model_folder):
            return True
    except InputError as error:
        console.print(f"packed again: {error}", highlight=False, soft_wrap=True)
        return False
    weights = checkpoint.read_header(load_model(stage.run_dir).weights)  # of earlier versions
    if PACKED_FROM in packed:
        return bool(packed[PACKED_FROM] == weights["digest"])
    return bool(packed.get("step") == weights["step"])
