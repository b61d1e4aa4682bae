"""Continuation: what a run was made of is compared with what would continue it.

The configuration is compared before samples are simulated, as are the shapes of the weights to
start from. The samples are compared when the state is restored.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.identity import Difference
from namsa.dataset import manifest

from ..apply.models import load_model
from ..experiment import continuation
from ..experiment.continuation import SAMPLES, START
from ..experiment.experiment import Experiment
from ..networks import count
from ..optimization import checkpoint
from ..optimization.origin import Origin, origin_of
from ..ranks.connection import engine
from .connect import Job
from .run_directory import RunDirectory
from .share import JobData

NO_FITTING_KERNEL = (
    "set network.layers, growth and first_filters to those of the network to start from, or "
    "training.start_from to null"
)


def check_continuation(job: Job, run: RunDirectory) -> None:
    """Checks that the configuration can continue the run, or begin it. Collective.

    Raises:
        InputError: If the run's checkpoints are of another training, or the weights to start from
            are missing or do not fit.
    """
    with engine().local_work():
        if job.rank == 0 and not job.evaluate_only:
            check_run(job.experiment, run.folders)


def check_run(experiment: Experiment, folders: Sequence[Path]) -> None:
    """Checks a configuration against a run directory and its home. See `check_continuation`.

    Raises InputError.
    """
    newest = checkpoint.newest_header([folder / "checkpoints" for folder in folders])
    if newest:
        path, header = newest
        compare(experiment, path, origin_of(header), None)
    elif experiment.training.start_from:
        check_start(experiment)


def compare(
    experiment: Experiment, path: Path, origin: Origin | None, samples: Mapping[str, object] | None
) -> tuple[list[Difference], list[Difference]]:
    """Returns the changes to report, and those without effect, between a checkpoint and a job.

    Args:
        path: The checkpoint.
        origin: What made it; of a checkpoint without it, the run's config.yaml is taken.
        samples: The samples of the job; `None` before they are shared out.

    Raises:
        InputError: If the job cannot continue from the checkpoint.
    """
    folder = path.parent.parent
    before = origin.identity if origin else continuation.earlier_configuration(folder)
    if before is None:
        return [], []
    differences = continuation.compare(before, experiment, samples)
    if origin:
        differences += _differences_of_start(experiment, origin)
    return continuation.check(folder, differences)


def _differences_of_start(experiment: Experiment, origin: Origin) -> list[Difference]:
    """Returns whether a run would start from other weights now than those that it started from.

    Weights that are gone are no difference: a run that has begun does not need them.
    """
    start = experiment.training.start_from
    now = "random weights"
    if start is not None:
        try:
            digest = checkpoint.read_header(load_model(start).weights)["digest"]
        except (InputError, *checkpoint.BROKEN):
            return []
        now = f"weights {digest}"
    weights_before = f"weights {origin.start}" if origin.start else "random weights"
    return [Difference(START, weights_before, now)] if weights_before != now else []


def samples_of(data: JobData) -> dict[str, object]:
    """Returns what of a job's samples is compared."""
    header = manifest.read_header(data.experiment.data.directory)
    return {
        "list": header["config_hash"],
        "values": header["samples_hash"],
        "trained_on": data.samples,
    }


def identity_of(data: JobData) -> dict[str, object]:
    """Returns what a job's weights are made of, for its checkpoints."""
    return {**continuation.configuration_of(data.experiment), SAMPLES: samples_of(data)}


def check_start(experiment: Experiment) -> None:
    """Checks the weights to start from.

    Raises:
        InputError: If they are missing or broken, or no convolution of theirs has the name and the
            shape of one of the network.
    """
    start = experiment.training.start_from
    assert start
    try:
        weights = load_model(start).weights
        header, arrays = checkpoint.read(weights)
    except (InputError, *checkpoint.BROKEN) as error:
        raise InputError(f"training.start_from: {error}") from None
    shapes = {name: array.shape for name, array in zip(header["variables"], arrays, strict=True)}
    for layer in count(experiment.network).layers:
        if layer.is_convolution and shapes.get(f"{layer.name}/kernel") == layer.kernel_shape:
            return
    raise InputError(f"no convolution of {weights} fits this network: {NO_FITTING_KERNEL}")
