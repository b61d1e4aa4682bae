"""Samples divided over four ranks, as two groups of two, against one rank that knows of no parts."""

import json

import launch
import numpy as np
import pytest
import split_ranks

from train.experiment.sections import Reduction, SampleSplit, Training
from train.ranks import reduction
from train.ranks.split import rank_split

RANKS, WAYS = 4, 2
TOLERANCE = {"float16": 2e-3}  # as between two networks of float16 whose sums have another order


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    out = tmp_path_factory.mktemp("split_ranks")
    ended = launch.horovodrun("tests/support/split_ranks.py", out, WAYS, ranks=RANKS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return out, [json.loads((out / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", split_ranks.CASES)
def test_two_groups_of_two_parts_train_as_whole_samples(together, name):
    reduction.start(Reduction())
    wanted, rows, _ = split_ranks.train(name, WAYS, RANKS // WAYS)
    with np.load(together[0] / f"{name}.npz") as file:
        for path, array in wanted.items():
            if array.dtype == np.float32:
                np.testing.assert_allclose(file[path], array, atol=TOLERANCE.get(name, 2e-6), err_msg=path)
    for found in together[1]:
        np.testing.assert_allclose(found["rows"][name], rows, rtol=5e3 * TOLERANCE.get(name, 2e-6))


@pytest.mark.slow
def test_all_ranks_have_the_same_state_and_a_second_run_the_same_bits(together):
    for name in together[1][0]["digests"]:
        assert len({found["digests"][name] for found in together[1]}) == 1, name
    assert {found["again"] for found in together[1]} == {together[1][0]["digests"]["pooled"]}


@pytest.mark.slow
def test_in_float64_weights_are_equal_to_rounding(together):
    assert max(found["float64"] for found in together[1]) < 1e-12


@pytest.mark.slow
def test_messages_have_the_bytes_that_the_count_states(together):
    assert all(found["names"] for found in together[1])
    sent, bytes_per_part, messages, exchanges = zip(*(found["bytes"] for found in together[1]), strict=True)
    assert sent == tuple(size // 2 for size in bytes_per_part)  # each of two parts has one neighbour
    assert messages == exchanges


def test_ranks_that_do_not_form_groups_are_refused():
    process_set = reduction.start(Reduction(), ways=2)
    with pytest.raises(Exception, match=r"split.ways is 2, and 1 rank do not form groups.*start a multiple of 2 ranks"):
        rank_split(SampleSplit(ways=2), process_set)


@pytest.mark.parametrize("choice", [{"lag": 1}, {"synchronise": 4}])
def test_a_split_needs_gradients_of_the_same_step(choice):
    with pytest.raises(ValueError, match="split.ways 2 needs weights that are the same on all parts"):
        Training.model_validate({"epochs": 1, "reduction": choice, "split": {"ways": 2}})
