"""The only module that imports Horovod: ranks and collectives.

Horovod exchanges tensors of TensorFlow. A single rank, which exchanges nothing, works without both: under JAX, too.
Every rank must call the same collectives in the same order, so no collective is under a condition that depends on the
rank. Objects are sent as JSON, never as pickles. This module satisfies `train.ranks.protocol.Ranks`.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from namsa import installation
from namsa.arrays import Tensor
from namsa.errors import InputError
from namsa.launcher import rank_and_size

from ..execution import backend
from ..experiment.exchange import Allreduce
from ..experiment.sections import Training
from . import signals

Members = tuple[int, ...]  # ranks, in order
hvd: Any = None  # horovod.tensorflow, once `start` has found that ranks exchange something
_process_sets: dict[Members, Any] = {}  # of some of the ranks, as `start` declared them to Horovod


def rank() -> int:
    """Returns the number of this rank, from 0."""
    return hvd.rank() if hvd else 0


def size() -> int:
    """Returns the number of ranks."""
    return hvd.size() if hvd else 1


def local_rank() -> int:
    """Returns the number of this rank on its node, from 0."""
    return hvd.local_rank() if hvd else 0


def local_size() -> int:
    """Returns the number of ranks on this node."""
    return hvd.local_size() if hvd else 1


def versions() -> dict[str, str]:
    """Returns the version of Horovod, if it is used."""
    return {"horovod": version("horovod")} if hvd else {}


def stop() -> None:
    """Disconnects this rank."""
    if hvd:
        hvd.shutdown()


def start(training: Training | None = None) -> None:
    """Connects the ranks that the launcher started. A process without a launcher is rank 0 of 1.

    Horovod reads its settings here, once. Autotuning stays off because it would change the groups of a running job.
    Horovod's own shutdown after a stall stays off, too: ranks may wait an hour for one that still simulates; see
    `train.ranks.watchdog`.

    Args:
        training: The section training; `None` for its defaults.

    Raises:
        InputError: If Horovod is needed, and is not there or not for JAX, or if its build does not support the
            launcher, or hierarchical reduction.
    """
    training = training or Training(epochs=1)
    config, exchange, ways = training.ranks, training.exchange, training.split.ways
    launched_rank, launched = rank_and_size()
    _load_horovod(training, launched, launched_rank)
    if hvd is None:
        return
    settings = {
        "CACHE_CAPACITY": config.cache_capacity,
        "FUSION_THRESHOLD": config.fusion_threshold_mib * 2**20,
        "CYCLE_TIME": config.cycle_time_ms,
        "STALL_CHECK_TIME_SECONDS": config.stall_warning_s,
        **exchange.horovod_settings(),
    }
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in settings.items()})
    # All ranks have a process set anyway. Those that form no groups of `ways` are refused later.
    divided = [tuple(range(at, at + ways)) for at in range(0, launched, ways) if launched % ways == 0]
    groups = [members for members in [*divided, *exchange.process_sets(launched)] if 1 < len(members) < launched]
    _process_sets.clear()
    _process_sets.update({members: hvd.ProcessSet(list(members)) for members in groups})
    hvd.init(process_sets=list(_process_sets.values()))
    if hvd.size() != launched:  # every process would train alone, all of them into one run directory
        fault = InputError(
            f"the launcher started {launched} ranks, and Horovod sees {hvd.size()}: it was built without MPI, which "
            "jsrun, srun and mpirun need; use horovodrun, or build it again with mpicxx on PATH (see namsa doctor)"
        )
        raise fault if launched_rank == 0 else silent_exit(_exit_code(fault))
    hierarchical = settings["HIERARCHICAL_ALLREDUCE"] and hvd.size() > 1
    if hierarchical and not (hvd.nccl_built() and hvd.mpi_enabled()):  # Horovod ignores it
        raise reported_once(
            InputError(
                "training.exchange.hierarchical needs Horovod built with NCCL and started by MPI (see namsa doctor): "
                "leave it out"
            )
        )


def _load_horovod(training: Training, launched: int, launched_rank: int) -> None:
    """Sets `hvd`, where several ranks, or a strategy of their exchange, need it."""
    global hvd  # noqa: PLW0603 - a process has one Horovod, and loading it takes a second
    if launched > 1:
        what, remedy = f"{launched} ranks need", "start one process, in which JAX uses all devices of the machine"
    elif training.split.ways > 1:
        what, remedy = f"training.split.ways {training.split.ways} needs", "set it to 1"
    elif not isinstance(training.exchange, Allreduce):
        what, remedy = f"training.exchange.kind {training.exchange.model_dump()['kind']} needs", "set it to allreduce"
    else:
        return
    fault = None
    if backend.name() == "jax":
        fault = f"{what} Horovod, which exchanges no tensors of JAX: {remedy}, or compute with KERAS_BACKEND=tensorflow"
    elif find_spec("horovod") is None:
        fault = f"{what} Horovod, which is not installed: {installation.command('horovod')}"
    if fault:
        raise InputError(fault) if launched_rank == 0 else silent_exit(_exit_code(InputError(fault)))
    import horovod.tensorflow

    hvd = horovod.tensorflow


# ---- Agreement ------------------------------------------------------------------------------------------------------


def gather_json(value: Any) -> list[Any]:
    """Returns the `value`, of any JSON type, of every rank, in the order of ranks."""
    if hvd is None:
        return [json.loads(json.dumps(value))]
    import tensorflow as tf

    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    with tf.device("/CPU:0"):
        lengths = hvd.allgather(tf.constant([len(text)]), name="json_lengths").numpy()
        joined = hvd.allgather(tf.constant(text), name="json_text").numpy().tobytes()
    ends = np.cumsum(lengths)
    return [json.loads(joined[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def check_same(value: Any, name: str) -> None:
    """Raises InputError on every rank if the `value`, which a message calls by its name, differs between them."""
    values = gather_json(value)
    for other, other_value in enumerate(values):
        if other_value != values[0]:
            fault = f"{name} is {values[0]} on rank 0 and {other_value} on rank {other}: start all ranks alike"
            raise reported_once(InputError(fault))


def silent_exit(code: int) -> SystemExit:
    """Returns the exception that ends this rank without a message because another rank fails and reports the reason.

    A launcher ends all ranks as soon as one has ended. The pause lets the failing rank end first.
    """
    signals.ignore()
    time.sleep(1)
    return SystemExit(code)


def reported_once(error: BaseException) -> BaseException:
    """Returns what each rank raises for an `error` that all ranks meet at the same place: only rank 0 reports it."""
    return error if rank() == 0 else silent_exit(_exit_code(error))


@contextmanager
def together() -> Iterator[None]:
    """Runs each rank's own work, without collectives, that ends the job on all ranks if it fails on one.

    The first rank that failed raises its error, the others end without a message. The end of the context is a barrier.
    """
    failure: BaseException | None = None
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        failure = error
    codes = gather_json(_exit_code(failure))
    if any(codes):
        first = next(index for index, code in enumerate(codes) if code)
        raise failure if failure is not None and first == rank() else silent_exit(codes[first])


def _exit_code(error: BaseException | None) -> int:
    """Returns the exit code of the command that ends with `error`."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 0 if error is None else 2 if isinstance(error, InputError) else 1


def lost_another_rank(error: Exception) -> bool:
    """Returns whether a collective failed because another rank has ended. Horovod tells it only in the message."""
    if hvd is None:
        return False
    import tensorflow as tf

    return isinstance(error, tf.errors.OpError) and "Horovod has been shut down" in error.message


@contextmanager
def timeline(path: Path) -> Iterator[None]:
    """Records Horovod's timeline in a file of rank 0, for which HOROVOD_TIMELINE must be DYNAMIC at `start`."""
    hvd.start_timeline(str(path))
    try:
        yield
    finally:
        hvd.stop_timeline()


# ---- Numbers and variables ------------------------------------------------------------------------------------------


def minimum(value: int) -> int:
    """Returns the smallest `value` of all ranks."""
    if hvd is None:
        return value
    import tensorflow as tf

    with tf.device("/CPU:0"):
        return int(hvd.allreduce(tf.constant(value, tf.int64), op=hvd.Min, name="lowest"))


def total(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the sum of every rank's `array`, the same bits on all ranks."""
    if hvd is None:
        return array
    import tensorflow as tf

    with tf.device("/CPU:0"):
        return hvd.allreduce(tf.constant(array), op=hvd.Sum, name="total").numpy()


def broadcast_state(model: keras.Model, others: Sequence[Any]) -> None:
    """Copies rank 0's weights and other variables to every rank.

    The seeds of dropout are copied, too, and then made different on each rank: with equal seeds, all ranks would drop
    the same feature maps. Ranks that have the same maps, of one sample, keep equal ones.

    Args:
        others: Keras variables beside it: moments, counters, the loss scale.
    """
    if size() == 1:
        return
    import tensorflow as tf

    def broadcast(variables: Sequence[tf.Variable]) -> None:  # Horovod's own uses AutoGraph, which leaves files
        for variable in variables:
            variable.assign(hvd.broadcast(variable, root_rank=0))

    tf.function(broadcast, autograph=False)([variable.value for variable in [*model.variables, *others]])
    shared = [layer for layer in model.layers if getattr(layer, "copies", 1) > 1]
    copies = {id(layer.seed_generator.state): layer.copies for layer in shared}
    for variable in model.variables:
        if variable.name == "seed_generator_state":
            variable.assign_add([rank() // copies.get(id(variable), 1), 0])


def average(variables: Sequence[Any]) -> None:
    """Sets every rank's Keras `variables` to their mean over the ranks. Integers (counters, seeds) are left alone."""
    variables = [variable for variable in variables if "float" in variable.dtype]
    if variables:
        means = hvd.grouped_allreduce([variable.value for variable in variables], op=hvd.Average, name="average")
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)


# ---- Nodes and bytes ------------------------------------------------------------------------------------------------


def nodes() -> list[list[int]]:
    """Returns the ranks of each node, in order. A node is a host, named by Horovod's launcher or by the system."""
    ranks: dict[str, list[int]] = {}
    for number, host in enumerate(gather_json(os.environ.get("HOROVOD_HOSTNAME") or platform.node())):
        ranks.setdefault(host, []).append(number)
    return list(ranks.values())


def exchange(outgoing: Sequence[npt.NDArray[np.uint8]]) -> list[npt.NDArray[np.uint8]]:
    """Sends bytes from every rank to every rank; returns what each rank sends to this one, in the order of ranks.

    All bytes are in memory at once, and Horovod counts them with 32 bits: send a few tens of MiB at a time.
    """
    if hvd is None:
        return list(outgoing)
    import tensorflow as tf

    lengths = tf.constant([len(message) for message in outgoing], tf.int32)
    with tf.device("/CPU:0"):
        joined, received = hvd.alltoall(tf.constant(np.concatenate(outgoing)), splits=lengths, name="exchange")
    return np.split(joined.numpy(), np.cumsum(received.numpy())[:-1])


def all_to_all(flat: Tensor, splits: Tensor, name: str, members: Members = ()) -> Tensor:
    """Sends numbers from every rank to every other. Call it inside a tf.function.

    Args:
        flat: What this rank sends, in the order of ranks.
        splits: Number of values for each rank, int32.
        name: The same on all ranks, and unique in a step.
        members: The ranks, one of the groups that `start` took; all without it.

    Returns:
        What each rank sends to this one, in the order of ranks.
    """
    among = _process_set(members)
    return hvd.alltoall(flat, splits=splits, name=name, ignore_name_scope=True, process_set=among)[0]


def to_all(message: Tensor, name: str) -> Tensor:
    """Returns the messages of all ranks, each of any length, in their order. Call it inside a tf.function."""
    import tensorflow as tf

    ranks = hvd.size()
    return all_to_all(tf.concat([message] * ranks, 0), tf.repeat(tf.size(message), ranks), name)


# ---- Sums and means in a step ---------------------------------------------------------------------------------------


def reduce(tensors: Sequence[Tensor], name: str, average: bool = False, members: Members = ()) -> list[Tensor]:
    """Returns the sums or means of a group of tensors of one type over ranks. Call it inside a tf.function.

    Horovod waits until all of them are ready on all these ranks. A group may have one tensor: if groups are not fused,
    Horovod fuses all tensors that are in no group.
    """
    op = hvd.Average if average else hvd.Sum
    return hvd.grouped_allreduce(
        list(tensors), op=op, name=name, ignore_name_scope=True, process_set=_process_set(members)
    )


def in_one_buffer(tensors: Sequence[Tensor], work: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Joins tensors of one type, and returns the parts of what `work` makes of the one axis of values.

    It costs a copy into the buffer and one out of it.
    """
    import tensorflow as tf

    flat = work(tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0))
    parts = tf.split(flat, [tensor.shape.num_elements() for tensor in tensors])
    return [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def average_in_one_message(tensors: Sequence[Tensor], name: str) -> list[Tensor]:
    """Returns the mean over the ranks of float32 `tensors`. Call it inside a tf.function."""
    if size() == 1:
        return list(tensors)
    return in_one_buffer(tensors, lambda flat: reduce([flat], name, average=True)[0])


def _process_set(members: Members) -> Any:
    return hvd.global_process_set if len(members) in (0, hvd.size()) else _process_sets[members]
