"""Two ranks against one, and against each other."""

import math

import launch
import numpy as np
import pytest
import timelines
import two_ranks

from train.ranks import reduction

pytestmark = pytest.mark.slow

# ---- Two ranks, started once ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    out = tmp_path_factory.mktemp("two_ranks")
    return out, launch.on_ranks("two_ranks.py", out)[0]


def test_collectives(together):
    for rank, found in enumerate(together[1]):
        assert found["ranks"] == [rank, 2]
        assert found["gathered"] == [{"rank": 0, "text": "Å"}, {"rank": 1, "text": "ÅÅÅÅ"}]
        assert found["lowest"] == 6
        assert found["total"] == [0.2, 1.0]


def test_a_failure_is_told_by_one_rank_and_ends_all(together):
    first, second = together[1]
    for found in (first, second):
        assert found["same"] is None
        assert found["failed on none"] is None
    assert first["differs"] == ["InputError", "the number is 0 on rank 0 and 1 on rank 1: start all ranks alike"]
    assert second["differs"] == ["SystemExit", "2"]
    assert (first["failed on 1"], second["failed on 1"]) == (["SystemExit", "2"], ["InputError", "bad"])
    assert (first["failed on both"], second["failed on both"]) == (["WorkError", "zero"], ["SystemExit", "1"])


@pytest.mark.parametrize(("name", "tolerance"), [("grouped", 2e-6), ("single", 2e-6), ("fp16", 2e-3)])
def test_two_ranks_are_one_with_twice_the_batch(together, name, tolerance):
    out, (first, second) = together
    assert first[f"{name} digest"] == second[f"{name} digest"]
    assert first["huber"] == second["huber"]
    reduction.start()
    alone, numbers, _ = two_ranks.train(two_ranks.training(), two_ranks.plain_model(seed=0), two_ranks.pairs())
    with np.load(out / f"{name}.npz") as file:
        for weight, wanted in zip(file.values(), alone, strict=True):
            np.testing.assert_allclose(weight, wanted, atol=tolerance)
    np.testing.assert_allclose(first["huber"][name], [number[0] for number in numbers], rtol=1e3 * tolerance)


def test_groups_change_no_bit(together):
    """Of two ranks: with more, a ring's order of summation depends on where a gradient lies in the buffer."""
    digests = {together[1][0][f"{name} digest"] for name in ("single", "grouped", "layers", "contiguous")}
    assert len(digests) == 1


def test_complete_groups_are_fused_and_never_split(together):
    operations = timelines.data_operations(*timelines.read(together[0] / "timeline.json"))
    groups = [{f"grad_g{number}_{member}of2" for member in (1, 2)} for number in range(two_ranks.GROUPS)]
    for operation in operations:
        assert operation == set().union(*(group for group in groups if group <= operation))
    assert sum(len(operation) for operation in operations) == two_ranks.STEPS * 2 * two_ranks.GROUPS
    assert len(operations) < two_ranks.STEPS * two_ranks.GROUPS


def test_a_float16_sum_that_overflows_is_infinite_on_both_ranks(together):
    for found in together[1]:
        assert found["overflow"] == [[math.inf, 1.0], [0.0, 0.0]]


def test_an_infinity_on_one_rank_is_skipped_by_both(together):
    first, second = (found["poisoned"] for found in together[1])
    assert first == second
    assert first["scales"] == [1024, 1024, 1024, 512, 512]
    assert first["iterations"] == two_ranks.STEPS - 1
    assert first["finite"]


def test_waiting_for_a_late_rank_is_communication(together):
    punctual, late = (found["comm_s"] for found in together[1])
    assert punctual[3] == pytest.approx(0.5, abs=0.2)
    assert late[3] < 0.2


def test_ranks_share_weights_and_moments_but_not_dropout(together):
    first, second = (found["whole network"] for found in together[1])
    assert first["weights"] == second["weights"]
    assert first["moments"] == second["moments"]
    assert first["statistics"] == second["statistics"]
    for ours, theirs in zip(first["generators"], second["generators"], strict=True):
        assert theirs == [ours[0] + 1, ours[1]]
        assert ours[1] == 3
