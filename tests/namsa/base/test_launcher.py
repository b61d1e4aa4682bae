"""Rank, size and share of the machine from every launcher's environment."""

import os

import pytest

from namsa import InputError
from namsa.base.launcher import local_rank_and_size, rank_and_size, share_of_cores, visible_gpus

LAUNCHED = (
    {"HOROVOD_RANK": "2", "HOROVOD_SIZE": "5", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
    {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "5", "PMIX_RANK": "2"},
    {"JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_SIZE": "5", "PMIX_RANK": "2"},
    {"PMIX_RANK": "2", "JSM_NAMESPACE_SIZE": "5"},
    {"PMI_RANK": "2", "PMI_SIZE": "5"},
    {"SLURM_PROCID": "2", "SLURM_NTASKS": "5", "PMIX_RANK": "2"},
    {"SLURM_PROCID": "2", "SLURM_NTASKS": "5", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
    # mpirun within a Slurm job: Slurm's variables describe its daemons
    {
        "OMPI_COMM_WORLD_RANK": "2",
        "OMPI_COMM_WORLD_SIZE": "5",
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "10",
    },
)


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        *(((), environment, (2, 5)) for environment in LAUNCHED),
        ((), {}, (0, 1)),
        ((), {"SLURM_NTASKS": "8"}, (0, 1)),
        # A batch script outside srun, which Slurm calls the first of many.
        ((), {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 1)),
        ((1, 3), {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "5"}, (1, 3)),
    ],
)
def test_rank_and_size_are_the_callers_or_come_from_the_launchers_variables(
    given, environment, expected
):
    assert rank_and_size(*given, environment=environment) == expected


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        ((1, None), {}, "give both"),
        ((None, 2), {}, "give both"),
        ((2, 2), {}, "rank 2 of 2"),
        ((-1, 2), {}, "rank -1 of 2"),
        ((0, 0), {}, "rank 0 of 0"),
        ((), {"HOROVOD_RANK": "5", "HOROVOD_SIZE": "5"}, "rank 5 of 5 .HOROVOD_RANK"),
        ((), {"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is not"),
        ((), {"PMIX_RANK": "0"}, "JSM_NAMESPACE_SIZE is not.*--size"),
        ((), {"SLURM_PROCID": "one", "SLURM_NTASKS": "2"}, "SLURM_PROCID is 'one', not a number"),
    ],
)
def test_inconsistent_ranks_and_sizes_are_refused(arguments, environment, message):
    with pytest.raises(InputError, match=message):
        rank_and_size(*arguments, environment=environment)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "4", "SLURM_LOCALID": "0"}, (1, 4)),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "6"}, (3, 6)),
        ({"JSM_NAMESPACE_LOCAL_RANK": "5", "JSM_NAMESPACE_LOCAL_SIZE": "6"}, (5, 6)),
        ({"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}, (0, 2)),
        (
            {
                "SLURM_LOCALID": "2",
                "SLURM_TASKS_PER_NODE": "4(x2),3",
                "SLURM_STEP_ID": "0",
                "SLURM_JOB_ID": "7",
            },
            (2, 4),
        ),
        (
            {"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "4(x2)", "SLURM_JOB_ID": "7"},
            (0, 1),
        ),  # the batch script
        ({"SLURM_LOCALID": "two", "SLURM_TASKS_PER_NODE": "4"}, (0, 1)),
        ({"SLURM_LOCALID": "2"}, (0, 1)),
    ],
)
def test_local_rank_and_size(environment, expected):
    assert local_rank_and_size(environment) == expected


@pytest.mark.parametrize(
    ("affinity", "cores", "rank", "ranks", "share"),
    [
        *((set(range(16)), 16, rank, 4, set(range(4 * rank, 4 * rank + 4))) for rank in range(4)),
        (set(range(7)), 7, 2, 3, {4, 5}),
        ({7, 8, 9}, 42, 1, 6, {7, 8, 9}),  # bound by its launcher
        (set(range(8)), 8, 0, 1, set(range(8))),
        (os.sched_getaffinity(0), os.cpu_count() or 1, 0, 1, os.sched_getaffinity(0)),
        ({0, 1}, 2, 5, 6, {0, 1}),  # more ranks than cores
    ],
)
def test_unbound_ranks_divide_the_node_into_equal_runs_of_cores(
    affinity, cores, rank, ranks, share
):
    assert share_of_cores(affinity, cores, rank, ranks) == share


@pytest.mark.parametrize(
    ("environment", "nodes", "names"),
    [
        (None, 0, []),
        (None, 3, ["0", "1", "2"]),
        ("2,5", 8, ["2", "5"]),
        ("GPU-8a", 1, ["GPU-8a"]),
        ("", 4, [""]),
    ],
)
def test_visible_gpus_are_those_of_the_environment_or_all(environment, nodes, names):
    assert visible_gpus(environment, nodes) == names
