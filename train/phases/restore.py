"""Network: it is built, and takes its state from a checkpoint or from the weights to start from."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from namsa.config.loading import dump_yaml
from namsa.errors import InputError
from namsa.files import write_text_atomic

from ..apply.models import load_model
from ..optimization import checkpoint, local_sgd, own_moments
from ..optimization.assembly import Assembly, assemble
from ..optimization.checkpoint import TrainingPosition
from ..optimization.initial_weights import take_weights
from ..ranks import reduction
from .connect import Job
from .run_directory import RunDirectory
from .share import Data


@dataclass
class TrainingState:
    """A network that is trained, and how far.

    Attributes:
        assembly: The network, its optimizer and what a step keeps.
        own: Moments that this rank keeps for itself.
        position: How far the job has come.
    """

    assembly: Assembly
    own: Sequence[object]
    position: TrainingPosition


def restore(job: Job, run: RunDirectory, data: Data) -> TrainingState:
    """Returns the network, in the state in which the job begins or continues. Collective.

    1. Rank 0 reads the newest checkpoint of this run directory or of its home that is not broken.
    2. Without a checkpoint, the state is the initial weights of the configuration's seed, or of another network.
    3. Every rank takes rank 0's state, but draws its own dropout, and with local SGD may have its own moments.

    Raises:
        InputError: If a checkpoint is of another network, or if there is none to evaluate.
    """
    experiment, training = data.experiment, data.experiment.training
    with reduction.together():
        assembly = assemble(
            experiment.network, experiment.seed, training, job.ranks, data.task.objective, job.split, job.rank
        )
    model, optimizer, buffers, _, state, shards = assembly
    own = local_sgd.own(optimizer, training.reduction)
    moments_of_others: list[np.ndarray] = []  # on rank 0, those of the ranks after it
    whole, position = shards.blank() if shards else state, TrainingPosition()
    with reduction.together():
        if job.rank == 0:
            directories = [run.checkpoints, *([run.home / "checkpoints"] if run.home else [])]
            position = checkpoint.restore(directories, whole, experiment.network, moments_of_others)
            if job.evaluate_only and not position.step:
                raise InputError(f"{run.checkpoints} holds no checkpoint to evaluate: train first")
            if training.start_from and not position.step:
                initial = load_model(training.start_from)
                others = take_weights(initial.weights, model.variables)
                run.log_line(_start_line(initial.weights, len(model.variables), others))
            write_text_atomic(run.path / "config.yaml", dump_yaml(experiment))  # only now: the checkpoint fits it
    position = TrainingPosition(**reduction.gather_json(asdict(position))[0])
    reduction.broadcast_state(model, shards or optimizer, buffers)
    kept_moments = own_moments.distribute(own, moments_of_others)
    if shards and position.step:
        shards.hand_out(whole)
    elif shards:
        shards.begin()
    if position.step:
        run.log_line(checkpoint.resumption_line(position, job.groups, bool(own) and not kept_moments))
    return TrainingState(assembly, own, position)


def _start_line(weights: Path, count: int, others: Sequence[str]) -> str:
    """Says how many variables start from another network's, and which do not."""
    left = f"; at random: {', '.join(others[:4])}{', ...' if len(others) > 4 else ''}" if others else ""
    return f"{count - len(others)} of {count} variables start from {weights}{left}"
