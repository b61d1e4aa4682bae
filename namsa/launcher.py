"""This process's rank, the number of ranks, and its share of the machine, as the launcher's environment has them."""

import os
from collections.abc import Mapping
from pathlib import Path

from namsa.errors import InputError

# Innermost first: mpirun within a Slurm job inherits Slurm's variables, which then describe its own daemons.
_LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMIX_RANK", "JSM_NAMESPACE_SIZE"),
)
_ON_THIS_MACHINE = (
    ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_LOCALID", "SLURM_TASKS_PER_NODE"),
)


def rank_and_size(
    rank: int | None = None, size: int | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[int, int]:
    """`rank` and `size` where given, else those of Horovod, Open MPI, jsrun, MPICH, Slurm or PMIx, else (0, 1).

    Raises InputError where one of the two is missing or they do not go together.
    """
    if rank is not None or size is not None:
        if rank is None or size is None:
            raise InputError(
                "one of --rank and --size is missing: give both, or neither to take them from the launcher"
            )
        return _checked(rank, size, "--rank and --size")
    for rank_name, size_name in _LAUNCHERS:
        if rank_name not in environment or (rank_name == "SLURM_PROCID" and _in_batch_script(environment)):
            continue
        if size_name not in environment:
            raise InputError(f"{rank_name} is set and {size_name} is not: give --rank and --size")
        return _checked(_integer(environment, rank_name), _integer(environment, size_name), f"{rank_name}, {size_name}")
    return 0, 1


def local_rank_and_size(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """This process's number among its launcher's on this machine, and how many they are; (0, 1) where nothing says."""
    for rank_name, size_name in _ON_THIS_MACHINE:
        if {rank_name, size_name} <= environment.keys() and not _in_batch_script(environment):
            # Slurm writes 4(x2),3 for two nodes of four and one of three: more than are here only make shares smaller.
            sizes = [part.partition("(")[0] for part in environment[size_name].split(",")]
            if environment[rank_name].isdigit() and all(part.isdigit() for part in sizes):
                return int(environment[rank_name]), max(1, *map(int, sizes))
    return 0, 1


def share_of_cores(available: set[int], cores: int, local_rank: int, local_size: int) -> set[int]:
    """The cores for one of `local_size` ranks that may run on `available` of a node's `cores`.

    A launcher that binds ranks gives each a set of its own, which together fit the node; one that does not gives all
    ranks the same set, which is then cut into equal runs. More ranks than cores share.
    """
    if len(available) * local_size <= cores or local_size > len(available):
        return available
    each = len(available) // local_size
    return set(sorted(available)[local_rank * each : (local_rank + 1) * each])


def visible_gpus(environment: str | None, nodes: int) -> list[str]:
    """CUDA's names for the GPUs this process may use: what CUDA_VISIBLE_DEVICES says, else each device node."""
    return [str(index) for index in range(nodes)] if environment is None else environment.split(",")


def claim(local_rank: int, local_size: int) -> str:
    """Binds this process to its share of the machine, before anything starts a thread pool or a GPU; says what it is.

    Thread pools size themselves by the bound cores. A launcher may show a rank one GPU of the node, or all of them.
    """
    cores = share_of_cores(os.sched_getaffinity(0), os.cpu_count() or 1, local_rank, local_size)
    os.sched_setaffinity(0, cores)
    names = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), len(list(Path("/dev").glob("nvidia[0-9]*"))))
    if not names:
        return f"{len(cores)} CPU core{'s' if len(cores) > 1 else ''}"
    os.environ["CUDA_VISIBLE_DEVICES"] = names[min(local_rank, len(names) - 1)]  # CuPy has no other switch that holds
    return f"GPU {os.environ['CUDA_VISIBLE_DEVICES']}"


def _in_batch_script(environment: Mapping[str, str]) -> bool:
    """Whether Slurm runs this outside srun: there, too, SLURM_PROCID is 0, and one share would be all that is done."""
    return "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" not in environment


def _integer(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise InputError(f"{name} is {environment[name]!r}, not a number: give --rank and --size") from None


def _checked(rank: int, size: int, source: str) -> tuple[int, int]:
    if not 0 <= rank < size:
        raise InputError(f"rank {rank} of {size} ({source}): the rank must be 0 or more and below the size")
    return rank, size
