"""Ranks connected by Horovod. No other module imports it.

Horovod exchanges tensors of TensorFlow, and reads its settings once, from the environment.
"""

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import horovod.tensorflow as hvd
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from namsa.base.arrays import Array, Tensor
from namsa.base.errors import InputError

from ..experiment.sections import Training
from .buffers import in_one_buffer
from .ending import exit_code, exit_without_message
from .interface import Bytes, Members, RankEngine

if TYPE_CHECKING:
    import keras


class HorovodRanks(RankEngine):
    """The ranks that Horovod connects. The methods are those of `RankEngine`.

    Args:
        process_sets: Horovod's handle of each group of some of the ranks.
    """

    def __init__(self, process_sets: Mapping[Members, "hvd.ProcessSet"] | None = None) -> None:
        self._process_sets = process_sets or {}

    def rank(self) -> int:
        return int(hvd.rank())

    def size(self) -> int:
        return int(hvd.size())

    def local_rank(self) -> int:
        return int(hvd.local_rank())

    def local_size(self) -> int:
        return int(hvd.local_size())

    def host(self) -> str:
        return os.environ.get("HOROVOD_HOSTNAME") or platform.node()

    def versions(self) -> dict[str, str]:
        return {"horovod": version("horovod")}

    def stop(self, code: int = 0) -> None:
        hvd.shutdown()

    # ---- Between steps

    def gather_json(self, value: object, /) -> list[Any]:
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        lengths = self._gather(tf.constant([len(text)]), "json_lengths")
        joined = self._gather(tf.constant(text), "json_text").tobytes()
        values = []
        end = 0
        for length in lengths:
            start = end
            end = start + int(length)
            values.append(json.loads(joined[start:end]))
        return values

    def _gather(self, tensor: Tensor, name: str) -> Array:
        """Returns the tensors of all ranks, joined along the first axis."""
        with tf.device("/CPU:0"):
            joined: Array = hvd.allgather(tensor, name=name).numpy()
        return joined

    def total(self, array: npt.NDArray[np.float64], /) -> npt.NDArray[np.float64]:
        with tf.device("/CPU:0"):
            total: npt.NDArray[np.float64] = hvd.allreduce(
                tf.constant(array), op=hvd.Sum, name="total"
            ).numpy()
        return total

    def minimum(self, value: int) -> int:
        with tf.device("/CPU:0"):
            return int(hvd.allreduce(tf.constant(value, tf.int64), op=hvd.Min, name="lowest"))

    def exchange_bytes(self, outgoing: Sequence[Bytes], /) -> list[Bytes]:
        lengths = tf.constant([len(message) for message in outgoing], tf.int32)
        with tf.device("/CPU:0"):
            joined, received = hvd.alltoall(
                tf.constant(np.concatenate(outgoing)), splits=lengths, name="exchange"
            )
        return np.split(joined.numpy(), np.cumsum(received.numpy())[:-1])

    def lost_another_rank(self, error: Exception, /) -> bool:
        """See `Ranks`. Horovod gives this reason only in the message."""
        return isinstance(error, tf.errors.OpError) and "Horovod has been shut down" in (
            error.message or ""
        )

    @contextmanager
    def timeline(self, path: Path) -> Iterator[None]:
        """See `RankEngine`. The environment has HOROVOD_TIMELINE=DYNAMIC when Horovod starts."""
        hvd.start_timeline(str(path))
        try:
            yield
        finally:
            hvd.stop_timeline()

    # ---- Variables, between steps

    def broadcast(self, variables: Sequence["keras.Variable"]) -> None:
        def assign(values: Sequence[tf.Variable]) -> None:
            for value in values:
                value.assign(hvd.broadcast(value, root_rank=0))

        # Horovod's own function uses AutoGraph, which leaves files.
        tf.function(assign, autograph=False)([variable.value for variable in variables])

    def average(self, variables: Sequence["keras.Variable"]) -> None:
        floats = [variable for variable in variables if "float" in variable.dtype]
        if not floats:
            return
        means = hvd.grouped_allreduce(
            [variable.value for variable in floats], op=hvd.Average, name="average"
        )
        for variable, mean in zip(floats, means, strict=True):
            variable.assign(mean)

    # ---- Tensors, in a step

    def reduce(
        self, tensors: Sequence[Tensor], name: str, average: bool = False, members: Members = ()
    ) -> list[Tensor]:
        """See `RankEngine`. A group may have one tensor: if groups are not fused, Horovod fuses all
        tensors that are in no group.
        """
        means: list[Tensor] = hvd.grouped_allreduce(
            list(tensors),
            op=hvd.Average if average else hvd.Sum,
            name=name,
            ignore_name_scope=True,
            process_set=self._process_set(members),
        )
        return means

    def all_to_all(self, flat: Tensor, splits: Tensor, name: str, members: Members = ()) -> Tensor:
        received, _ = hvd.alltoall(
            flat,
            splits=splits,
            name=name,
            ignore_name_scope=True,
            process_set=self._process_set(members),
        )
        return received

    def to_all(self, message: Tensor, name: str) -> Tensor:
        ranks = self.size()
        copies = tf.concat([message] * ranks, 0)
        return self.all_to_all(copies, tf.repeat(tf.size(message), ranks), name)

    def average_in_one_message(self, tensors: Sequence[Tensor], name: str) -> list[Tensor]:
        if self.size() == 1:
            return list(tensors)
        return in_one_buffer(tensors, lambda flat: self.reduce([flat], name, average=True)[0])

    def _process_set(self, members: Members) -> "hvd.ProcessSet":
        if len(members) in (0, self.size()):
            return hvd.global_process_set
        return self._process_sets[members]


def connect(training: Training, launched_rank: int, launched: int) -> HorovodRanks:
    """Connects the ranks that a launcher started.

    Autotuning stays off because it would change the groups of a running job. Horovod's own shutdown
    after a stall stays off, too: ranks may wait an hour for one that still simulates; see
    `train.ranks.watchdog`.

    Args:
        launched_rank: This rank's number, by the launcher.
        launched: Number of ranks, by the launcher.

    Raises:
        InputError: If Horovod's build does not support the launcher, or hierarchical reduction.
    """
    settings = _settings(training)
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in settings.items()})
    groups = _groups(training, launched)
    process_sets = {members: hvd.ProcessSet(list(members)) for members in groups}
    hvd.init(process_sets=list(process_sets.values()))
    # every process would train alone, all of them into one run directory
    if hvd.size() != launched:
        error = InputError(
            f"the launcher started {launched} ranks, and Horovod sees {hvd.size()}: it was built "
            "without MPI, which jsrun, srun and mpirun need; use horovodrun, or build it again "
            "with mpicxx on PATH (see namsa doctor)"
        )
        if launched_rank == 0:
            raise error
        raise exit_without_message(exit_code(error))
    ranks = HorovodRanks(process_sets)
    hierarchical = settings["HIERARCHICAL_ALLREDUCE"] and hvd.size() > 1
    if hierarchical and not (hvd.nccl_built() and hvd.mpi_enabled()):  # Horovod ignores it
        raise ranks.reported_once(
            InputError(
                "training.exchange.hierarchical needs Horovod built with NCCL and started by MPI "
                "(see namsa doctor): leave it out"
            )
        )
    return ranks


def _settings(training: Training) -> dict[str, float]:
    """Returns Horovod's settings, by their names in the environment without the prefix."""
    ranks = training.ranks
    return {
        "CACHE_CAPACITY": ranks.cache_capacity,
        "FUSION_THRESHOLD": ranks.fusion_threshold_mib * 2**20,
        "CYCLE_TIME": ranks.cycle_time_ms,
        "STALL_CHECK_TIME_SECONDS": ranks.stall_warning_s,
        **training.exchange.horovod_settings(),
    }


def _groups(training: Training, launched: int) -> list[Members]:
    """Returns the groups of some of the ranks that exchange among themselves."""
    ways = training.split.ranks
    groups: list[Members] = []
    # Ranks that form no groups of so many are refused later.
    if launched % ways == 0:
        for first_rank in range(0, launched, ways):
            groups.append(tuple(range(first_rank, first_rank + ways)))
    groups.extend(training.exchange.process_sets(launched))
    return [members for members in groups if 1 < len(members) < launched]
