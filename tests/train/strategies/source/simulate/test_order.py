"""The order of draws and uses: the same whatever happens, each sample as often as stated, each draw on one rank."""

from collections import Counter
from dataclasses import replace

import pytest

from train.strategies.source.simulate.order import Order

ORDER = Order(7, share=0, shares=1, epochs=3, specimens=5, per_specimen=3, window=6, reuse=4)  # blocks of 6, 6 and 3


def uses(order, epoch, start=0):
    return [order.use(epoch, place) for place in range(start, order.uses)]


def test_a_block_is_used_so_often_each_time_in_another_order_before_the_next_one():
    taken = uses(ORDER, 1)
    assert Counter(taken) == {((1, sample), turn): 1 for sample in range(15) for turn in range(4)}
    for start, size, turns in ((0, 6, 4), (24, 6, 4), (48, 3, 4)):
        orders = [tuple(key[1] for key, _ in taken[start + size * turn :][:size]) for turn in range(turns)]
        assert {frozenset(each) for each in orders} == {frozenset(range(start // 4, start // 4 + size))}
        assert len(set(orders)) > 1
    assert uses(ORDER, 2) != [((2, key[1]), turn) for key, turn in taken]


@pytest.mark.parametrize("done", [0, 1, 17, 23, 24, 45, 59, 60])
def test_a_resumed_job_takes_the_rest_and_knows_what_it_still_needs(done):
    resumed = replace(ORDER, first=(1, done))
    rest = uses(ORDER, 1)[done:]
    assert uses(resumed, 1, done) == rest
    left = Counter(key for key, _ in rest)
    assert {sample: resumed.uses_left((1, sample)) for sample in range(15)} == {
        sample: left[1, sample] for sample in range(15)
    }
    for block in range(3):
        inside = [sample for sample in range(15) if sample // 6 == block and left[1, sample]]
        assert resumed.used_samples(resumed.block((1, 6 * block))) == len(inside)
    drawn = [draw for draw in ORDER.draws() if draw[1][0] > 1 or (draw[1][0] == 1 and any(
        left[1, draw[1][1] + index] for index in range(3)
    ))]  # fmt: skip
    assert list(resumed.draws()) == drawn


@pytest.mark.parametrize("shares", [1, 2, 5])
def test_ranks_and_epochs_share_no_draw(shares):
    drawn = Counter(
        number for share in range(shares) for number, _ in replace(ORDER, share=share, shares=shares).draws()
    )
    assert set(drawn.values()) == {1}
    assert len(drawn) == 3 * (5 // shares) * shares
    assert max(drawn) < 15
