"""Network: it is built, and takes its state from a checkpoint or from the weights to start from."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import keras
import numpy as np

from namsa.config.loading import dump_yaml
from namsa.errors import InputError
from namsa.files import write_text_atomic

from ..apply.models import load_model
from ..optimization import checkpoint
from ..optimization.checkpoint import TrainingPosition
from ..optimization.optimizers import Assembly, assemble
from ..ranks import reduction
from .connect import Job
from .run_directory import RunDirectory
from .share import Data


@dataclass
class TrainingState:
    """A network that is trained, and how far."""

    assembly: Assembly  # the network, its optimizer and what a step keeps
    position: TrainingPosition  # how far the job has come


def restore(job: Job, run: RunDirectory, data: Data) -> TrainingState:
    """Returns the network, in the state in which the job begins or continues. Collective.

    1. Rank 0 reads the newest checkpoint of this run directory or of its home that is not broken.
    2. Without a checkpoint, the state is the initial weights of the configuration's seed, or of another network.
    3. Every rank takes rank 0's state, but draws its own dropout. What an exchange leaves each rank for itself returns.

    Raises:
        InputError: If a checkpoint is of another network, or if there is none to evaluate.
    """
    experiment, training = data.experiment, data.experiment.training
    with reduction.together():
        assembly = assemble(
            experiment.network, experiment.seed, training, job.ranks, data.task.objective, job.split, job.rank
        )
    model, exchange = assembly.model, assembly.exchange
    state, position = exchange.blank_state(), TrainingPosition()
    of_ranks: list[np.ndarray] = []  # on rank 0, what the ranks after it keep for themselves
    with reduction.together():
        if job.rank == 0:
            directories = [run.checkpoints, *([run.home / "checkpoints"] if run.home else [])]
            position = checkpoint.restore(directories, state, experiment.network, of_ranks)
            if job.evaluate_only and not position.step:
                raise InputError(f"{run.checkpoints} holds no checkpoint to evaluate: train first")
            if training.start_from and not position.step:
                initial = load_model(training.start_from)
                others = take_weights(initial.weights, model.variables)
                count, listed = len(model.variables), f"{', '.join(others[:4])}{', ...' * (len(others) > 4)}"
                left = f"; at random: {listed}" if others else ""
                run.log_line(f"{count - len(others)} of {count} variables start from {initial.weights}{left}")
            if not job.evaluate_only:  # only now: the checkpoint fits it
                write_text_atomic(run.path / "config.yaml", dump_yaml(experiment))
    position = TrainingPosition(**reduction.gather_json(asdict(position))[0])
    lost = exchange.restore(state, of_ranks, position.step > 0)
    if position.step:
        run.log_line(checkpoint.resumption_line(position, job.groups, lost))
    return TrainingState(assembly, position)


def take_weights(path: Path, variables: Sequence[keras.Variable]) -> list[str]:
    """Sets the variables that a file of weights has in the same shape; the others stay as they are.

    The networks may differ in their input channels, as those for two microscopes do, and in their output. Returns the
    paths of the variables that were not set.

    Raises:
        InputError: If the file is broken, or if no convolution of it fits.
    """
    try:
        header, arrays = checkpoint.read(path)
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {path} to start from: {error}") from None
    stored = dict(zip(header["variables"], arrays, strict=True))
    fitting = {v.path: v for v in variables if v.path in stored and stored[v.path].shape == tuple(v.shape)}
    if not any(len(variable.shape) == 4 for variable in fitting.values()):
        raise InputError(
            f"no convolution of {path} fits this network: set network.layers, growth and first_filters to those of "
            "the network to start from, or training.start_from to null"
        )
    for name, variable in fitting.items():
        variable.assign(np.asarray(stored[name], np.float32))
    return [variable.path for variable in variables if variable.path not in fitting]
