"""Horovod behind one door: ranks, collectives and the reduction of gradients. Nothing else imports it.

Every rank must call the same collectives in the same order, so none stands under a condition that depends on the rank.
Objects travel as JSON, never as pickles.
"""

import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from namsa.errors import InputError
from namsa.launcher import rank_and_size
from train.experiment.sections import Reduction
from train.ranks import signals

Tensor = Any

rank, size = hvd.rank, hvd.size
local_rank, local_size = hvd.local_rank, hvd.local_size
stop = hvd.shutdown


def start(config: Reduction) -> None:
    """Connects the ranks that the launcher started; a process without a launcher is rank 0 of 1.

    Raises InputError where the launcher is one that this build of Horovod does not understand.

    Horovod reads its settings here, once. Autotuning stays off: it would change groups under a running job. So does
    Horovod's own end to a stall: ranks may wait an hour for one that still simulates; see `train.ranks.watchdog`.
    """
    settings = {
        "CACHE_CAPACITY": config.cache_capacity,
        "FUSION_THRESHOLD": config.fusion_threshold_mib * 2**20,
        "CYCLE_TIME": config.cycle_time_ms,
        "DISABLE_GROUP_FUSION": int(config.groups > 0),  # or several groups that wait become one, of any size
        "HIERARCHICAL_ALLREDUCE": int(config.hierarchical),
        "STALL_CHECK_TIME_SECONDS": config.stall_warning_s,
    }
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in settings.items()})
    hvd.init()
    launched_rank, launched = rank_and_size()
    if hvd.size() != launched:  # every process would train by itself, into one and the same run directory
        fault = InputError(
            f"the launcher started {launched} ranks, and Horovod sees {hvd.size()}: it was built without MPI, which "
            "jsrun, srun and mpirun need; use horovodrun, or build it again with mpicxx on PATH (see namsa doctor)"
        )
        raise fault if launched_rank == 0 else ended_elsewhere(_exit_code(fault))
    if config.hierarchical and hvd.size() > 1 and not (hvd.nccl_built() and hvd.mpi_enabled()):  # ignored otherwise
        raise alike(
            InputError(
                "training.reduction.hierarchical needs Horovod built with NCCL and started by MPI (see namsa doctor): "
                "leave it out"
            )
        )


# ---- Agreement ------------------------------------------------------------------------------------------------------


def gather_json(value: Any) -> list[Any]:
    """Every rank's `value`, any JSON type, in the order of ranks."""
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    with tf.device("/CPU:0"):
        lengths = hvd.allgather(tf.constant([len(text)]), name="json_lengths").numpy()
        joined = hvd.allgather(tf.constant(text), name="json_text").numpy().tobytes()
    ends = np.cumsum(lengths)
    return [json.loads(joined[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def check_same(value: Any, what: str) -> None:
    """Raises InputError on every rank where ranks disagree about `value`, any JSON type."""
    values = gather_json(value)
    for other, theirs in enumerate(values):
        if theirs != values[0]:
            fault = f"{what} is {values[0]} on rank 0 and {theirs} on rank {other}: start all ranks alike"
            raise alike(InputError(fault))


def ended_elsewhere(code: int) -> SystemExit:
    """What a rank raises to end, in silence, because another one fails and says why.

    A launcher ends all ranks as soon as one has ended; the pause lets the failing one be the first.
    """
    signals.ignore()
    time.sleep(1)
    return SystemExit(code)


def alike(error: BaseException) -> BaseException:
    """What to raise where every rank meets the same `error` at the same place: rank 0 says it."""
    return error if rank() == 0 else ended_elsewhere(_exit_code(error))


@contextmanager
def together() -> Iterator[None]:
    """Work of each rank by itself, with no collective in it, that ends on all ranks if it fails on one.

    The first rank that failed raises its error, the others end in silence. It is a barrier too.
    """
    failure: BaseException | None = None
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        failure = error
    codes = gather_json(_exit_code(failure))
    if any(codes):
        first = next(index for index, code in enumerate(codes) if code)
        raise failure if failure is not None and first == rank() else ended_elsewhere(codes[first])


def _exit_code(error: BaseException | None) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 0 if error is None else 2 if isinstance(error, InputError) else 1


def lost_another_rank(error: Exception) -> bool:
    """Whether a collective failed because another rank left; the text is all that Horovod gives."""
    return isinstance(error, tf.errors.OpError) and "Horovod has been shut down" in error.message


# ---- Numbers and variables ------------------------------------------------------------------------------------------


def lowest(value: int) -> int:
    """The smallest `value` of any rank."""
    with tf.device("/CPU:0"):
        return int(hvd.allreduce(tf.constant(value, tf.int64), op=hvd.Min, name="lowest"))


def total(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The sum of every rank's `array`, float64, the same bits on all ranks."""
    with tf.device("/CPU:0"):
        return hvd.allreduce(tf.constant(array), op=hvd.Sum, name="total").numpy()


def broadcast_state(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, waiting: Sequence[keras.Variable] = ()
) -> None:
    """Rank 0's weights, moments, counters, loss scale and `waiting` gradients on every rank.

    Rank 0's dropout, too, but with a seed of the rank's own: with one for all, every rank would drop the same maps.
    """
    state = [*model.variables, *optimizer.variables, *waiting]
    hvd.broadcast_variables([variable.value for variable in state], root_rank=0)
    for variable in model.variables:
        if variable.name == "seed_generator_state":
            variable.assign_add([rank(), 0])


def average(variables: Sequence[Any]) -> None:
    """The mean over the ranks in every rank's Keras `variables`; what is no float (counters, seeds) stays."""
    variables = [variable for variable in variables if "float" in variable.dtype]
    if variables:
        means = hvd.grouped_allreduce([variable.value for variable in variables], op=hvd.Average, name="average")
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)


def due(config: Reduction, step: int, last: bool) -> bool:
    """Whether the ranks of local SGD become one after `step` of the job, `last` in its epoch or not."""
    every = config.synchronise
    return config.local and (last or (isinstance(every, int) and step % every == 0))


def synchronise(variables: Sequence[Any], numbers: Sequence[float]) -> list[float]:
    """Makes the floats among `variables`, weights and moments, their mean over the ranks; returns that of `numbers`.

    Moments are averaged with the weights (Yu et al. 2019): all ranks are then equal, and rank 0's state is the job's.
    """
    average(variables)
    return [float(number) for number in total(np.array(numbers, np.float64)) / size()]


# ---- Nodes and bytes ------------------------------------------------------------------------------------------------


def nodes() -> list[list[int]]:
    """The ranks of each node, in order; a node is a host, by the name that Horovod's launcher or the system has."""
    hosts = gather_json(os.environ.get("HOROVOD_HOSTNAME") or platform.node())
    return [[rank for rank, host in enumerate(hosts) if host == name] for name in dict.fromkeys(hosts)]


def exchange(outgoing: Sequence[npt.NDArray[np.uint8]]) -> list[npt.NDArray[np.uint8]]:
    """What every rank has for this one, in the order of ranks, where `outgoing` is what this one has for each.

    All of it lies in memory at once, and counts of bytes are 32 bits on the way: send a few tens of MiB at a time.
    """
    lengths = tf.constant([len(each) for each in outgoing], tf.int32)
    with tf.device("/CPU:0"):
        joined, received = hvd.alltoall(tf.constant(np.concatenate(outgoing)), splits=lengths, name="exchange")
    return np.split(joined.numpy(), np.cumsum(received.numpy())[:-1])


# ---- Gradients ------------------------------------------------------------------------------------------------------


def average_gradients(gradients: Sequence[Tensor], groups: Sequence[Sequence[int]], config: Reduction) -> list[Tensor]:
    """The mean over the ranks of float32 `gradients`, group by group, to be called inside a tf.function.

    Names are short and fixed: requests carry them, and thousands of ranks send them to one. In float16 the division
    comes before the sum, which then cannot overflow where no rank's gradient does.
    """
    ranks, mean = hvd.size(), list(gradients)
    if ranks == 1 or config.local:
        return mean
    fp16 = config.compression == "fp16"
    wire = [tf.cast(g / ranks, tf.float16) for g in mean] if fp16 else mean
    op = hvd.Sum if fp16 else hvd.Average
    reduce = _as_one_buffer if config.contiguous else _as_a_group
    for number, group in enumerate(groups):
        reduced = reduce([wire[index] for index in group], op, f"grad_g{number}")
        for index, tensor in zip(group, reduced, strict=True):
            mean[index] = tf.cast(tensor, tf.float32)
    return mean


def _as_a_group(tensors: Sequence[Tensor], op: Any, name: str) -> list[Tensor]:
    """Horovod reduces all `tensors` or, as long as one is missing on some rank, none."""
    if len(tensors) == 1:
        return [hvd.allreduce(tensors[0], op=op, name=name, ignore_name_scope=True)]
    return hvd.grouped_allreduce(list(tensors), op=op, name=name, ignore_name_scope=True)


def _as_one_buffer(tensors: Sequence[Tensor], op: Any, name: str) -> list[Tensor]:
    """One request and one message for all `tensors`, for a copy into the buffer and one out of it."""
    flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
    flat = hvd.allreduce(flat, op=op, name=name, ignore_name_scope=True)
    parts = tf.split(flat, [tensor.shape.num_elements() for tensor in tensors])
    return [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def average_together(tensors: Sequence[Tensor], name: str) -> list[Tensor]:
    """The mean over the ranks of float32 `tensors`, in one message, inside a tf.function."""
    return list(tensors) if hvd.size() == 1 else _as_one_buffer(tensors, hvd.Average, name)


def waiting(weights: Sequence[Any], config: Reduction) -> list[keras.Variable]:
    """For `lag` 1, what keeps one step's gradients for the next: one of each weight's shape, and their loss scale.

    They are zero before the first step, which so moves no weight. They are each rank's own and part of the job's state:
    `average` makes them the same on all ranks, and an average of equal ones is what they are.
    """
    if not config.lag:
        return []
    shapes = [(weight.path.replace("/", "_"), weight.shape) for weight in weights] + [("loss_scale", ())]
    return [
        keras.Variable(
            np.full(shape, float(name == "loss_scale")), dtype="float32", trainable=False, name=f"waiting_{name}"
        )
        for name, shape in shapes
    ]


def delayed(gradients: Sequence[Tensor], scale: Tensor, waiting: Sequence[Any]) -> list[Tensor]:
    """The gradients in `waiting`, brought from their loss scale to `scale`, while `gradients` take their place.

    They depend on nothing that this step computes: their reduction hides behind all of it.
    """
    previous = [tf.identity(variable.value) for variable in waiting]
    for variable, now in zip(waiting, [*gradients, scale], strict=True):
        variable.assign(now)
    return [gradient * (scale / previous[-1]) for gradient in previous[:-1]]
