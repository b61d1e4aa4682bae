"""Network: it is built, and takes its state from a checkpoint or from the weights to start from."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import keras
import numpy as np

from namsa.base.errors import InputError
from namsa.base.files import write_text_atomic
from namsa.config.loading import dump_yaml

from ..apply.learnt import learnt_materials
from ..apply.models import load_model
from ..optimization import checkpoint
from ..optimization.checkpoint import RestoredState, TrainingPosition
from ..optimization.checkpoint_fit import Header
from ..optimization.optimizers import Assembly, assemble
from ..optimization.origin import (
    NOT_KNOWN,
    LearntMaterials,
    Origin,
    origin_of,
)
from ..ranks.connection import engine
from .connect import Job
from .continuation import NO_FITTING_KERNEL, compare, identity_of, samples_of
from .run_directory import RunDirectory
from .share import JobData

MOST_NAMED = 4  # variables that a message names
LEAST_KERNEL_AXES = 4  # of a convolution's kernel


@dataclass
class TrainingState:
    """A network that is trained, and how far."""

    assembly: Assembly  # the network, its optimizer and what a step keeps
    position: TrainingPosition  # how far the job has come
    origin: Origin  # what made its weights


def restore(job: Job, run: RunDirectory, data: JobData) -> TrainingState:
    """Returns the network, in the state in which the job begins or continues. Collective.

    1. Rank 0 reads the newest checkpoint of this run directory or of its home that is not broken.
    2. Without a checkpoint, the state is the initial weights of the configuration's seed, or of
      another network.
    3. Every rank takes rank 0's state, but draws its own dropout. What an exchange leaves each rank
      for itself returns.

    Raises:
        InputError: If a checkpoint is of another network, or if there is none to evaluate.
    """
    experiment = data.experiment
    training = data.experiment.training
    with engine().local_work():
        assembly = assemble(
            experiment.network,
            experiment.seed,
            training,
            job.ranks,
            data.task.objective,
            job.split,
            job.rank,
        )
    exchange = assembly.exchange
    state = exchange.blank_state()
    of_ranks: list[np.ndarray] = []  # on rank 0, what the ranks after it keep for themselves
    stored: Header = {}
    with engine().local_work():
        if job.rank == 0:
            folders = [folder / "checkpoints" for folder in run.folders]
            restored = checkpoint.restore(folders, state, experiment.network, of_ranks)
            if job.evaluate_only and not restored.position.step:
                raise InputError(f"{run.checkpoints} holds no checkpoint to evaluate: train first")
            origin = _origin(job, run, data, restored, assembly)
            if not job.evaluate_only:  # only now: the checkpoint fits it
                write_text_atomic(run.path / "config.yaml", dump_yaml(experiment))
            stored = {"position": asdict(restored.position), "origin": origin.to_json()}
    stored = engine().gather_json(stored)[0]
    position = TrainingPosition(**stored["position"])
    lost = exchange.restore(state, of_ranks, position.step > 0)
    if position.step:
        run.log_line(checkpoint.resumption_line(position, job.groups, lost))
    begun_with = origin_of(stored)
    assert begun_with
    return TrainingState(assembly, position, begun_with)


def _origin(
    job: Job, run: RunDirectory, data: JobData, restored: RestoredState, assembly: Assembly
) -> Origin:
    """Returns what made the weights with which rank 0 begins. Reports what has changed.

    Raises:
        InputError: If the checkpoint is of another training, or weights to start from do not fit.
    """
    identity = identity_of(data)
    earlier = restored.origin
    start = data.experiment.training.start_from
    if restored.path is None:
        if start is None:
            return Origin(identity, learnt=LearntMaterials())
        return _started(run, start, identity, assembly)
    if not job.evaluate_only:
        _report_changes(run, data, restored)
    if earlier is None:
        return Origin(identity, learnt=NOT_KNOWN)
    return replace(earlier, identity=identity)


def _report_changes(run: RunDirectory, data: JobData, restored: RestoredState) -> None:
    """Prints a line for each value that differs from the run's before. Raises InputError if it
    cannot be continued with them.
    """
    assert restored.path
    reported, without_effect = compare(
        data.experiment, restored.path, restored.origin, samples_of(data)
    )
    for difference in reported:
        run.log_line(f"changed since step {restored.position.step}: {difference}")
    if without_effect:
        keys = ", ".join(difference.key for difference in without_effect)
        run.log_line(f"changed without effect on what is learnt: {keys}")


def _started(
    run: RunDirectory, start: str, identity: dict[str, object], assembly: Assembly
) -> Origin:
    """Sets the weights to start from, and returns the origin of a training that begins so."""
    variables = assembly.model.variables
    model = load_model(start)
    weights = model.weights
    header, left_out = take_weights(weights, variables)
    line = f"{len(variables) - len(left_out)} of {len(variables)} variables start from {weights}"
    if left_out:
        dots = ", ..." if len(left_out) > MOST_NAMED else ""
        line += f"; at random: {', '.join(left_out[:MOST_NAMED])}{dots}"
    run.log_line(line)
    return Origin(identity, header["digest"], learnt_materials(model))


def take_weights(path: Path, variables: Sequence[keras.Variable]) -> tuple[Header, list[str]]:
    """Sets the variables that a file of weights has in the same shape; the others stay as they are.

    The networks may differ in their input channels, as those for two microscopes do, and in their
    output.

    Returns:
        The header of the file, and the paths of the variables that were not set.

    Raises:
        InputError: If the file is broken, or if no convolution of it fits.
    """
    try:
        header, arrays = checkpoint.read(path)
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {path} to start from: {error}") from None
    stored = dict(zip(header["variables"], arrays, strict=True))
    left_out = []
    kernels = 0  # convolutions that are set
    for variable in variables:
        array = stored.get(variable.path)
        if array is None or array.shape != tuple(variable.shape):
            left_out.append(variable.path)
            continue
        variable.assign(np.asarray(array, np.float32))
        kernels += array.ndim >= LEAST_KERNEL_AXES
    if not kernels:
        raise InputError(f"no convolution of {path} fits this network: {NO_FITTING_KERNEL}")
    return header, left_out
