"""This process's rank, the number of ranks and its share of the machine, read from the launcher's
environment.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import psutil

from namsa.base.errors import InputError
from namsa.base.text import plural

# (rank, size) variables of each launcher, the innermost first: mpirun within a Slurm job inherits
# Slurm's variables, which then describe Slurm's own daemons.
_RANK_VARIABLES = (
    ("NAMSA_RANK", "NAMSA_RANKS"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMIX_RANK", "JSM_NAMESPACE_SIZE"),
)
# The same for the ranks on this machine.
_LOCAL_RANK_VARIABLES = (
    ("NAMSA_RANK", "NAMSA_RANKS"),  # --processes starts all of them on this machine
    ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_LOCALID", "SLURM_TASKS_PER_NODE"),
)


def rank_and_size(
    rank: int | None = None, size: int | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[int, int]:
    """Returns this process's rank and the number of ranks. Both or none are given.

    Explicit values win. Without them, the variables of --processes, Horovod, Open MPI, jsrun,
    MPICH, Slurm and PMIx are tried in this order. A process without a launcher is rank 0 of 1.

    Raises:
        InputError: If only one of the two is known, or the rank is not in `[0, size)`.
    """
    if rank is not None or size is not None:
        if rank is None or size is None:
            raise InputError(
                "one of --rank and --size is missing: give both, or neither to take them from the "
                "launcher"
            )
        return _validated(rank, size, "--rank and --size")
    for rank_name, size_name in _RANK_VARIABLES:
        if rank_name not in environment or (
            rank_name == "SLURM_PROCID" and _in_batch_script(environment)
        ):
            continue
        if size_name not in environment:
            raise InputError(f"{rank_name} is set and {size_name} is not: give --rank and --size")
        source = f"{rank_name}, {size_name}"
        return _validated(
            _integer(environment, rank_name), _integer(environment, size_name), source
        )
    return 0, 1


def local_rank_and_size(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Returns this process's rank among those on this machine and their number; (0, 1) if no
    variable tells.
    """
    for rank_name, size_name in _LOCAL_RANK_VARIABLES:
        if {rank_name, size_name} <= environment.keys() and not _in_batch_script(environment):
            # Slurm writes 4(x2),3 for two nodes of four tasks and one of three. The largest number
            # is safe on every node: it only makes shares smaller.
            sizes = [size.partition("(")[0] for size in environment[size_name].split(",")]
            if environment[rank_name].isdigit() and all(size.isdigit() for size in sizes):
                return int(environment[rank_name]), max(1, *map(int, sizes))
    return 0, 1


def started_here(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether --processes has started this rank and all others, on this machine."""
    return "NAMSA_RANK" in environment


def usable_cores() -> set[int]:
    """Returns the cores that this process may run on; a batch system can bind it to fewer than the
    machine has.
    """
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    process = psutil.Process()  # Windows binds processes, macOS does not
    return set(
        process.cpu_affinity() if hasattr(process, "cpu_affinity") else range(os.cpu_count() or 1)
    )


def share_of_cores(available: set[int], cores: int, local_rank: int, local_size: int) -> set[int]:
    """Returns the cores that one rank of this machine should run on, of those that it may run on
    now.

    A launcher that binds ranks gives each its own set, and the sets together fit the machine. Such
    a set is kept. A launcher that does not bind gives all ranks the same set, which is divided into
    equal runs here. If there are more ranks than cores, the ranks share them.
    """
    if len(available) * local_size <= cores or local_size > len(available):
        return available
    cores_per_rank = len(available) // local_size
    return set(sorted(available)[local_rank * cores_per_rank : (local_rank + 1) * cores_per_rank])


def visible_gpus(cuda_visible_devices: str | None, device_nodes: int) -> list[str]:
    """Returns CUDA's names for the GPUs that this process may use: those of CUDA_VISIBLE_DEVICES if
    set, else all.
    """
    if cuda_visible_devices is None:
        return [str(index) for index in range(device_nodes)]
    return cuda_visible_devices.split(",")


def bind_to_cores(local_rank: int, local_size: int) -> set[int]:
    """Binds this process to its share of the machine's cores, which it returns."""
    cores = share_of_cores(usable_cores(), os.cpu_count() or 1, local_rank, local_size)
    if hasattr(os, "sched_setaffinity"):  # elsewhere the system places the threads
        os.sched_setaffinity(0, cores)
    return cores


def bind_to_share(local_rank: int, local_size: int) -> str:
    """Binds this process to its share of the machine's cores and to one GPU if there is any.

    Call it before anything starts a thread pool or a GPU: thread pools size themselves by the bound
    cores. A launcher may show a rank one GPU of the node or all of them.

    Returns:
        The share as text: "GPU 0" or "8 CPU cores".
    """
    cores = bind_to_cores(local_rank, local_size)
    device_nodes = len(list(Path("/dev").glob("nvidia[0-9]*")))
    names = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), device_nodes)
    if not names:
        return plural(len(cores), "CPU core")
    # CuPy has no other setting that holds for the whole process.
    os.environ["CUDA_VISIBLE_DEVICES"] = names[min(local_rank, len(names) - 1)]
    return f"GPU {os.environ['CUDA_VISIBLE_DEVICES']}"


def _in_batch_script(environment: Mapping[str, str]) -> bool:
    """Whether this runs in a Slurm batch script outside srun.

    There, too, SLURM_PROCID is 0 and SLURM_NTASKS may be large, but this one process must do the
    work of all ranks.
    """
    return "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" not in environment


def _integer(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise InputError(
            f"{name} is {environment[name]!r}, not a number: give --rank and --size"
        ) from None


def _validated(rank: int, size: int, source: str) -> tuple[int, int]:
    if not 0 <= rank < size:
        raise InputError(
            f"rank {rank} of {size} ({source}): the rank must be 0 or more and below the size"
        )
    return rank, size
