"""This process's rank and the number of ranks, as the launcher's environment has them."""

import os
from collections.abc import Mapping

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
