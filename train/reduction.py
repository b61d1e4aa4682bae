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
from train.config import Reduction

Tensor = Any

rank, size = hvd.rank, hvd.size
local_rank, local_size = hvd.local_rank, hvd.local_size
stop = hvd.shutdown


def start(config: Reduction) -> None:
    """Connects the ranks that the launcher started; a process without a launcher is rank 0 of 1.

    Raises InputError where the launcher is one that this build of Horovod does not understand.

    Horovod reads its settings here, once. Autotuning stays off: it would change groups under a running job. So does
    Horovod's own end to a stall: ranks may wait an hour for one that still simulates; see `train.watchdog`.
    """
    settings = {
        "CACHE_CAPACITY": config.cache_capacity,
        "FUSION_THRESHOLD": config.fusion_threshold_mib * 2**20,
        "CYCLE_TIME": config.cycle_time_ms,
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
    time.sleep(1)
    return SystemExit(code)


def alike(error: Exception) -> BaseException:
    """What to raise where every rank meets the same `error` at the same place: rank 0 says it."""
    return error if rank() == 0 else ended_elsewhere(_exit_code(error))


@contextmanager
def together() -> Iterator[None]:
    """Work of each rank by itself, with no collective in it, that ends on all ranks if it fails on one.

    The first rank that failed raises its error, the others end in silence. It is a barrier too.
    """
    failure = None
    try:
        yield
    except Exception as error:
        failure = error
    codes = gather_json(_exit_code(failure))
    if any(codes):
        first = next(index for index, code in enumerate(codes) if code)
        raise failure if failure is not None and first == rank() else ended_elsewhere(codes[first])


def _exit_code(error: Exception | None) -> int:
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


def broadcast_state(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    """Rank 0's weights, moments, counters and loss scale on every rank, and its dropout with seeds of the rank's own.

    A generator's state is (seed, draws); with one seed all ranks would drop the same maps.
    """
    hvd.broadcast_variables([variable.value for variable in [*model.variables, *optimizer.variables]], root_rank=0)
    for variable in model.variables:
        if variable.name == "seed_generator_state":
            variable.assign_add([rank(), 0])


def average(variables: Sequence[Any]) -> None:
    """The mean over the ranks in every rank's Keras `variables`, float32."""
    if variables:
        means = hvd.grouped_allreduce([variable.value for variable in variables], op=hvd.Average, name="average")
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)


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


def backward_groups(sizes: Sequence[int], groups: int) -> list[list[int]]:
    """Indices 0 ... n−1 cut, from the last to the first, into at most `groups` runs of about equal bytes.

    Backpropagation finishes the last layers' gradients first: the first run can travel while the rest is computed.
    """
    runs: list[list[int]] = [[] for _ in range(groups)]
    whole, before = sum(sizes), 0
    for index in reversed(range(len(sizes))):
        middle = before + sizes[index] / 2
        runs[min(groups - 1, int(groups * middle / whole))].append(index)
        before += sizes[index]
    return [run for run in runs if run]


def average_gradients(gradients: Sequence[Tensor], config: Reduction) -> list[Tensor]:
    """The mean over the ranks of float32 `gradients`, to be called inside a tf.function.

    Names are short and fixed: requests carry them, and thousands of ranks send them to one. In float16 the division
    comes before the sum, which then cannot overflow where no rank's gradient does.
    """
    ranks, mean = hvd.size(), list(gradients)
    if ranks == 1:
        return mean
    fp16 = config.compression == "fp16"
    wire = [tf.cast(g / ranks, tf.float16) for g in mean] if fp16 else mean
    op = hvd.Sum if fp16 else hvd.Average
    sizes = [g.dtype.size * g.shape.num_elements() for g in wire]
    groups = backward_groups(sizes, config.groups) if config.groups else [[i] for i in reversed(range(len(wire)))]
    for number, group in enumerate(groups):
        name = f"grad_g{number}"
        reduced = hvd.grouped_allreduce([wire[i] for i in group], op=op, name=name, ignore_name_scope=True)
        for index, tensor in zip(group, reduced, strict=True):
            mean[index] = tf.cast(tensor, tf.float32)
    return mean


def average_scalar(value: Tensor, name: str) -> Tensor:
    """The mean over the ranks of a scalar, inside a tf.function."""
    return value if hvd.size() == 1 else hvd.allreduce(value, op=hvd.Average, name=name, ignore_name_scope=True)
