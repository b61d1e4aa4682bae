"""Rank and size from every launcher's environment."""

import pytest

from namsa import InputError
from namsa.launcher import rank_and_size


@pytest.mark.parametrize(
    "environment",
    [
        {"HOROVOD_RANK": "2", "HOROVOD_SIZE": "5", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
        {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "5", "PMIX_RANK": "2"},
        {"JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_SIZE": "5", "PMIX_RANK": "2"},
        {"PMIX_RANK": "2", "JSM_NAMESPACE_SIZE": "5"},
        {"PMI_RANK": "2", "PMI_SIZE": "5"},
        {"SLURM_PROCID": "2", "SLURM_NTASKS": "5", "PMIX_RANK": "2"},
        {"SLURM_PROCID": "2", "SLURM_NTASKS": "5", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
        # mpirun inside a Slurm job: Slurm's variables are those of its daemons
        {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "5", "SLURM_PROCID": "0", "SLURM_NTASKS": "10"},
    ],
)
def test_launchers(environment):
    assert rank_and_size(environment=environment) == (2, 5)


@pytest.mark.parametrize("environment", [{}, {"SLURM_NTASKS": "8"}])
def test_without_a_launcher_there_is_one_rank(environment):
    assert rank_and_size(environment=environment) == (0, 1)


def test_a_batch_script_outside_srun_is_one_rank_although_slurm_calls_it_the_first_of_many():
    assert rank_and_size(environment={"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) == (0, 1)


def test_given_numbers_win_over_the_environment():
    assert rank_and_size(1, 3, {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "5"}) == (1, 3)


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
def test_what_does_not_go_together_is_refused(arguments, environment, message):
    with pytest.raises(InputError, match=message):
        rank_and_size(*arguments, environment=environment)
