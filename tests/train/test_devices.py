import os

import pytest

from train.devices import share_of_cores, visible_gpus


def test_ranks_that_nobody_bound_cut_the_node_into_equal_runs():
    shares = [share_of_cores(set(range(16)), 16, rank, 4) for rank in range(4)]
    assert shares == [set(range(4 * rank, 4 * rank + 4)) for rank in range(4)]
    assert share_of_cores(set(range(7)), 7, 2, 3) == {4, 5}


def test_a_rank_that_its_launcher_bound_keeps_its_cores():
    assert share_of_cores({7, 8, 9}, 42, 1, 6) == {7, 8, 9}
    assert share_of_cores(set(range(8)), 8, 0, 1) == set(range(8))


def test_more_ranks_than_cores_share_them():
    assert share_of_cores({0, 1}, 2, 5, 6) == {0, 1}


@pytest.mark.parametrize(
    ("environment", "nodes", "names"),
    [(None, 0, []), (None, 3, ["0", "1", "2"]), ("2,5", 8, ["2", "5"]), ("GPU-8a", 1, ["GPU-8a"]), ("", 4, [""])],
)
def test_gpus_are_those_of_the_environment_or_all(environment, nodes, names):
    assert visible_gpus(environment, nodes) == names


def test_binding_is_what_the_system_says():
    assert share_of_cores(os.sched_getaffinity(0), os.cpu_count() or 1, 0, 1) == os.sched_getaffinity(0)
