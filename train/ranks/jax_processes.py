"""Processes connected by JAX. With `train.optimization.jax_step`, the only module that sends by it.

`jax.distributed` makes the devices of all processes those of one program. What the processes agree
on between steps is bytes, which a compiled function gathers: by NCCL or RCCL between GPUs, by Gloo
between processors. The gradients of a step are exchanged inside the compiled step itself.

The processes have the same seeds of dropout: a step is one computation on the batch of all of them,
as that of one process with as many devices.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import numpy as np
import numpy.typing as npt
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from namsa.base.arrays import Array, Tensor
from namsa.base.errors import InputError
from namsa.base.launcher import bind_to_cores, local_rank_and_size, visible_gpus

from . import coordination_service
from .coordinator import coordinator_address
from .interface import Bytes, Members, RankEngine

if TYPE_CHECKING:
    import keras

# Ranks may wait an hour for one that simulates; the watchdog finds one that stalls.
COLLECTIVE_TIMEOUT_S = 30 * 24 * 3600
CONNECTION_TIMEOUT_S = 300
# after which a process of a GPU counts as lost; Gloo tells that of a processor at once
HEARTBEAT_TIMEOUT_S = 15
# of the service that JAX starts in process 0, which none uses: any free port of this host alone
UNUSED_ADDRESS = "127.0.0.1:0"
SMALLEST_MESSAGE = 256  # bytes; messages are padded to powers of two, of which few are compiled
EXCHANGE_BYTES = 4 * 2**20  # that a process sends to all others at once
BROADCAST_BYTES = 64 * 2**20
# of messages of the libraries that exchange, when another process has ended
LOST = ("Gloo", "NCCL", "RCCL", "heartbeat", "coordination service", "Socket closed")


class JaxProcesses(RankEngine):
    """The processes that JAX connects. The methods are those of `RankEngine`."""

    def __init__(self) -> None:
        first_devices: dict[int, jax.Device] = {}
        for device in jax.devices():
            first_devices.setdefault(device.process_index, device)
        devices = [first_devices[process] for process in range(jax.process_count())]
        self._device = first_devices[jax.process_index()]
        mesh = Mesh(np.array(devices), ("process",))
        self._each = NamedSharding(mesh, PartitionSpec("process"))
        self._all = NamedSharding(mesh, PartitionSpec())
        everywhere = partial(jax.jit, out_shardings=self._all)
        self._gathered = everywhere(lambda rows: rows)
        self._sum = everywhere(lambda rows: jnp.sum(rows, axis=0, dtype=rows.dtype))
        self._transposed = jax.jit(lambda rows: jnp.swapaxes(rows, 0, 1), out_shardings=self._each)

    def rank(self) -> int:
        return int(jax.process_index())

    def size(self) -> int:
        return int(jax.process_count())

    def local_rank(self) -> int:
        return local_rank_and_size()[0]

    def local_size(self) -> int:
        return local_rank_and_size()[1]

    def versions(self) -> dict[str, str]:
        return {}

    def stop(self, code: int = 0) -> None:
        """Ends this process, after all others have come here if it ends well.

        JAX's own end waits for processes of which one may have failed.
        """
        if code == 0:
            try:
                self.gather_json(None)
            except Exception as error:
                if not self.lost_another_rank(error):
                    raise
                code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    # ---- Between steps

    def gather_json(self, value: object, /) -> list[Any]:
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        lengths = self._gather(np.array([len(text)], np.uint32))[:, 0]
        padded = np.zeros(_padded_length(int(lengths.max())), np.uint8)
        padded[: len(text)] = text
        values = []
        for row, length in zip(self._gather(padded), lengths, strict=True):
            values.append(json.loads(row[:length].tobytes()))
        return values

    def _gather(self, row: Array) -> Array:
        """Returns the rows of all processes, of one shape and a type of at most 32 bits."""
        return np.asarray(self._gathered(self._row_of_job(row)))

    def _row_of_job(self, row: Array) -> Tensor:
        """Returns the rows of all processes as one array, of which each has its own."""
        shape = (self.size(), *row.shape)
        local_row = jax.device_put(row[None], self._device)
        return jax.make_array_from_single_device_arrays(shape, self._each, [local_row])

    def total(self, array: npt.NDArray[np.float64], /) -> npt.NDArray[np.float64]:
        """See `Ranks`. Devices have no float64: they send its bytes."""
        if not array.size:
            return array
        flat = np.ascontiguousarray(array, np.float64).reshape(-1)
        rows = self._gather(flat.view(np.uint8))
        total: npt.NDArray[np.float64] = rows.view(np.float64).sum(axis=0).reshape(array.shape)
        return total

    def minimum(self, value: int) -> int:
        return int(self._gather(np.array([value], np.int64).view(np.uint8)).view(np.int64).min())

    def exchange_bytes(self, outgoing: Sequence[Bytes], /) -> list[Bytes]:
        lengths = self._gather(np.array([len(message) for message in outgoing], np.uint32))
        incoming = lengths[:, self.rank()]
        longest = int(lengths.max())
        chunk = min(_padded_length(longest), max(1, EXCHANGE_BYTES // self.size()))
        received: list[list[Bytes]] = [[] for _ in outgoing]
        for start in range(0, longest, chunk):
            rows = np.zeros((self.size(), chunk), np.uint8)
            for row, message in zip(rows, outgoing, strict=True):
                block = message[start : start + chunk]
                row[: len(block)] = block
            arrived = self._transposed(self._row_of_job(rows)).addressable_data(0)[0]
            for parts, row in zip(received, np.asarray(arrived), strict=True):
                parts.append(row)
        messages = []
        for parts, length in zip(received, incoming, strict=True):
            joined = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
            messages.append(joined[:length])
        return messages

    def lost_another_rank(self, error: Exception, /) -> bool:
        """See `Ranks`. JAX gives the reason only in the message of a general exception."""
        general = isinstance(error, ValueError | RuntimeError)
        return general and any(name in str(error) for name in LOST)

    def timeline(self, path: Path) -> AbstractContextManager[None]:
        return nullcontext()  # XLA's profile of a step has its messages

    # ---- Variables, between steps

    def broadcast(self, variables: Sequence["keras.Variable"]) -> None:
        for variable in variables:
            value = np.asarray(variable.value)
            words = np.frombuffer(_padded_words(value), np.uint32)
            if self.rank():
                words = np.zeros_like(words)
            parts = []
            step = BROADCAST_BYTES // words.itemsize
            for start in range(0, len(words), step):
                row = self._row_of_job(words[start : start + step])
                parts.append(np.asarray(self._sum(row)))  # the others add zeros to rank 0's bits
            if parts:
                data = np.concatenate(parts).tobytes()[: value.nbytes]
                variable.assign(np.frombuffer(data, value.dtype).reshape(value.shape))

    def average(self, variables: Sequence["keras.Variable"]) -> None:
        for variable in variables:
            if "float" in variable.dtype:
                total = self._sum(self._row_of_job(np.asarray(variable.value)))
                variable.assign(np.asarray(total) / self.size())

    def broadcast_state(self, model: "keras.Model", others: Sequence["keras.Variable"]) -> None:
        """See `RankEngine`. The seeds of dropout stay equal; see the module."""
        self.broadcast([*model.variables, *others])

    # ---- Tensors, in a step

    def reduce(
        self, tensors: Sequence[Tensor], name: str, average: bool = False, members: Members = ()
    ) -> list[Tensor]:
        _refuse(name)

    def all_to_all(self, flat: Tensor, splits: Tensor, name: str, members: Members = ()) -> Tensor:
        _refuse(name)

    def to_all(self, message: Tensor, name: str) -> Tensor:
        _refuse(name)

    def average_in_one_message(self, tensors: Sequence[Tensor], name: str) -> list[Tensor]:
        _refuse(name)


def connect(launched_rank: int, launched: int) -> JaxProcesses:
    """Connects the processes that a launcher started, before JAX computes anything.

    Args:
        launched_rank: This process's number, by the launcher.
        launched: Number of processes, by the launcher.

    Raises:
        InputError: If a node has fewer GPUs than processes, or the processes have different numbers
            of devices.
    """
    local_rank, local_size = local_rank_and_size()
    bind_to_cores(local_rank, local_size)
    gpus = _gpus()
    _add_flag(f"--xla_cpu_collective_timeout_seconds={COLLECTIVE_TIMEOUT_S}")
    # By default, JAX takes SIGTERM for itself.
    jax.config.update("jax_enable_preemption_service", False)
    if not gpus:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    address = coordinator_address(launched)
    if launched_rank == 0:
        # By default, the service ends a process when another has failed: where Gloo tells of it,
        # this rank ends with its own message.
        port = int(address.rpartition(":")[2])
        coordination_service.start(port, launched, HEARTBEAT_TIMEOUT_S, recoverable=not gpus)
    with _without_output():
        jax.distributed.initialize(
            address,
            launched,
            launched_rank,
            coordinator_bind_address=UNUSED_ADDRESS,
            local_device_ids=device_share(gpus, local_rank, local_size),
            cluster_detection_method="deactivate",
            initialization_timeout=CONNECTION_TIMEOUT_S,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
        )
        processes = JaxProcesses()
        counts = processes.gather_json(len(jax.local_devices()))
    if len(set(counts)) > 1:
        error = InputError(
            f"the processes have {counts} devices of JAX, by rank: give each the same number"
        )
        raise processes.reported_once(error)
    return processes


def device_share(gpus: int, local_rank: int, local_size: int) -> list[int] | None:
    """Returns the numbers of the GPUs of this process, an equal share of its node's; `None` for all
    that it sees.

    A launcher may show each process its own alone.
    """
    if gpus <= 1 or local_size == 1:
        return None
    if gpus < local_size:
        raise InputError(
            f"{local_size} processes on a node with {gpus} GPUs: start at most {gpus} per node"
        )
    share = gpus // local_size
    return list(range(local_rank * share, (local_rank + 1) * share))


def _gpus() -> int:
    """Returns the number of GPUs that this process sees; 0 if JAX is to compute on processors."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return 0
    nvidia = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if nvidia:
        return len(visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), nvidia))
    if not Path("/dev/kfd").exists():
        return 0
    amd = len(list(Path("/dev/dri").glob("renderD*")))
    chosen = os.environ.get("ROCR_VISIBLE_DEVICES", os.environ.get("HIP_VISIBLE_DEVICES"))
    return len(visible_gpus(chosen, amd))


def _add_flag(flag: str) -> None:
    """Adds one of XLA's flags, unless the environment sets it. JAX reads them when it starts."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flag.partition("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


@contextmanager
def _without_output() -> Iterator[None]:
    """Leaves out what C++ code writes in the context: Gloo writes lines of its own to stdout, which
    may be JSON that a program reads.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        os.dup2(null, 2)
        yield
    finally:
        os.close(null)
        for index, copy in enumerate(kept, start=1):
            os.dup2(copy, index)
            os.close(copy)


def _padded_length(length: int) -> int:
    return max(SMALLEST_MESSAGE, 1 << max(0, length - 1).bit_length())


def _padded_words(value: Array) -> bytes:
    """Returns the bytes of an array, and zeros up to a multiple of four."""
    data = value.tobytes()
    return data + bytes(-len(data) % 4)


def _refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name}: under JAX the compiled step exchanges what it needs")
