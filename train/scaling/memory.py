"""The memory that a rank of a job takes on the device that trains it: a sum of parts, from the
configuration alone.

Maps, gradients and workspace are those of the moment of a step at which they are largest
(`fcdensenet.step_memory`). The parts beside them are there in every step. On processors the sum was
compared with what TensorFlow's allocator counts (`scripts/bench/step_memory.py`). No GPU has been
compared: there, what CUDA and its libraries load is assumed.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Literal, NamedTuple

from fcdensenet.step_memory import step_peak

from ..experiment.experiment import Experiment
from ..experiment.sections import Training
from ..input.readahead import read_ahead_bytes
from ..networks import count_part

CUDA_BYTES = 2**30  # assumed: CUDA's context, and what cuDNN and NCCL load and take
GPUS_GIB = {"V100 of 16 GB": 16, "V100 of 32 GB": 32}
MOST_SAMPLES = 4096  # of a batch, that is looked for


class StepMemory(NamedTuple):
    """Memory of a rank on its device at the moment of a step at which it is largest, bytes."""

    weights: int  # float32, and copies in the type of the computation
    moments: int  # of the optimizer
    gradients: int  # of weights; sums over the batches of an update, too
    maps: int  # the batch, what the forward pass keeps, and gradients of maps
    workspace: int  # of an operation
    read_ahead: int  # batches that wait, and the arithmetic that makes one
    communication: int  # messages, and Horovod's buffer
    libraries: int  # of a GPU


def in_words(parts: Mapping[str, int]) -> str:
    """Returns the sum of a `StepMemory`, as a mapping, and its parts."""
    given = ", ".join(
        f"{name.replace('_', ' ')} {_size(size)}" for name, size in parts.items() if size
    )
    return f"{_size(sum(parts.values()))}: {given}"


def _size(size: int) -> str:
    if size >= 1e9:
        return f"{size / 1e9:.3g} GB"
    return f"{size / 1e6:.3g} MB"


def step_memory(
    experiment: Experiment, ranks: int, on_gpu: bool, batch_size: int | None = None
) -> StepMemory:
    """Returns the memory of a step that a GPU computes, or a processor."""
    training = experiment.training
    batch_size = batch_size or training.batch_size
    network = count_part(experiment.network, training.split, training.recompute)
    dtype = stored_type(training)
    float16 = training.precision.compute == "mixed_float16"
    peak = step_peak(
        network,
        dtype,
        batch_size * experiment.images_per_sample(),
        columns=float16 and not on_gpu,
        scaled=float16 or training.optimizer.lars != "none",
        penalised=training.loss.l2 > 0,
    )
    weights = network.gradient_bytes("float32")
    weights_float16 = network.gradient_bytes("float16")
    messages = 0
    if ranks > 1:
        messages = weights + training.ranks.fusion_threshold_mib * 2**20
        if training.exchange.sends_float16:
            messages += 2 * weights_float16
    gradients = peak.gradients
    if training.accumulate > 1:
        gradients += weights
    return StepMemory(
        weights=weights + weights_float16 if dtype == "float16" else weights,
        moments=training.optimizer.moments * weights,
        gradients=gradients,
        maps=peak.maps,
        workspace=peak.workspace,
        read_ahead=read_ahead_bytes(experiment, batch_size),
        communication=messages,
        libraries=CUDA_BYTES if on_gpu else 0,
    )


def largest_batch(experiment: Experiment, ranks: int, gpu_gib: float) -> int:
    """Returns the most samples of a batch that a GPU holds; 0 if it does not hold one."""

    def needed(batch_size: int) -> int:
        return sum(step_memory(experiment, ranks, True, batch_size))

    return bisect_right(range(1, MOST_SAMPLES + 1), gpu_gib * 2**30, key=needed)


def stored_type(training: Training) -> Literal["float16", "float32"]:
    """Returns the type whose size maps have. bfloat16 takes as much as float16."""
    if training.precision.compute == "float32":
        return "float32"
    return "float16"
