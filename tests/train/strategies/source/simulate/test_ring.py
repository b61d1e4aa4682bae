"""Draws in an order that is the same whatever happens, and the ring that holds them: bounded bytes,
no endless wait.
"""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from synthetic import dataset

from namsa.base.errors import WorkError
from namsa.dataset import records
from train.input.source import NoMoreSamples
from train.strategies.source.simulate.order import Order
from train.strategies.source.simulate.ring import Ring

ORDER = Order(7, share=0, shares=1, epochs=2, specimens=12, per_specimen=2, window=6, reuse=3)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Entries and records of 24 samples."""
    source, entries = dataset(24)
    return [(entry, bytearray(source.encoded[entry.id])) for entry in entries]


def fill(ring, stored, keys):
    for key in keys:
        entry, content = stored[key[1]]
        if ring.admit(key, len(content)):
            ring.put(key, entry, content)


def test_samples_in_any_order_stay_within_the_bytes_and_are_used_as_often_as_stated(stored):
    size = len(stored[0][1])
    used = Counter()
    ring = Ring(ORDER, 8 * size)
    keys = []
    for epoch in range(2):
        for sample in range(24):
            keys.append((epoch, sample))
    workers = [
        keys[worker::4] for worker in range(4)
    ]  # each in order, as a simulator's, and all at different speeds

    def work(worker):
        for at, key in enumerate(workers[worker]):
            time.sleep(1e-4 * ((at * (worker + 1)) % 7))
            fill(ring, stored, [key])

    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(work, worker) for worker in range(4)]
        for epoch in range(2):
            ring.begin_epoch(epoch)
            for place in range(ORDER.uses):
                key, _ = ORDER.use(epoch, place)
                entry = ring.take(key)
                with ring.view(entry.id) as record:
                    wanted = records.decode(stored[key[1]][1])
                    np.testing.assert_array_equal(record.cbed, wanted.cbed)
                used[key] += 1
        for future in made:
            future.result()
    assert set(used.values()) == {3}
    assert len(used) == 48
    assert 6 * size <= ring.most_bytes <= 8 * size
    assert ring.bytes == 0


def test_a_window_that_does_not_fit_is_an_error_and_not_a_wait(stored):
    ring = Ring(ORDER, 4 * len(stored[0][1]))
    with pytest.raises(
        WorkError,
        match=r"memory_gib is .*, which 4 samples of a window of 6 fill, .* raise it, or lowe",
    ):
        fill(ring, stored, [(0, sample) for sample in range(6)])


def test_what_is_left_over_of_an_epoch_makes_room_and_late_samples_of_it_are_not_kept(stored):
    ring = Ring(ORDER, 7 * len(stored[0][1]))
    fill(ring, stored, [(0, sample) for sample in range(6)])
    ring.begin_epoch(1)
    assert ring.bytes == 0
    assert not ring.admit((0, 7), 1)
    fill(ring, stored, [(1, sample) for sample in range(6)])
    assert ring.take((1, 5)).id == stored[5][0].id


def test_readers_are_released_and_learn_of_a_failure(stored):
    ring = Ring(ORDER, 7 * len(stored[0][1]))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ring.take, (0, 0))
        while not ring._waiting:
            time.sleep(0.001)
        ring.release()
        assert isinstance(waiting.exception(), NoMoreSamples)
        ring.begin_epoch(0)
        waiting = pool.submit(ring.take, (0, 0))
        threading.Timer(0.01, ring.fail, [WorkError("the simulator is gone")]).start()
        with pytest.raises(WorkError, match="the simulator is gone"):
            waiting.result(10)
    assert ring.waited_s() > 0


BLOCKS = Order(
    7, share=0, shares=1, epochs=3, specimens=5, per_specimen=3, window=6, reuse=4
)  # blocks of 6, 6 and 3


def uses(order, epoch, start=0):
    return [order.use(epoch, place) for place in range(start, order.uses)]


def test_a_block_is_used_so_often_each_time_in_another_order_before_the_next_one():
    taken = uses(BLOCKS, 1)
    assert Counter(taken) == {((1, sample), turn): 1 for sample in range(15) for turn in range(4)}
    for start, size, turns in ((0, 6, 4), (24, 6, 4), (48, 3, 4)):
        orders = []
        for turn in range(turns):
            orders.append(tuple(key[1] for key, _ in taken[start + size * turn :][:size]))
        assert {frozenset(order) for order in orders} == {
            frozenset(range(start // 4, start // 4 + size))
        }
        assert len(set(orders)) > 1
    assert uses(BLOCKS, 2) != [((2, key[1]), turn) for key, turn in taken]


@pytest.mark.parametrize("done", [0, 1, 17, 23, 24, 45, 59, 60])
def test_a_resumed_job_takes_the_rest_and_knows_what_it_still_needs(done):
    resumed = replace(BLOCKS, first=(1, done))
    rest = uses(BLOCKS, 1)[done:]
    assert uses(resumed, 1, done) == rest
    left = Counter(key for key, _ in rest)
    assert {sample: resumed.uses_left((1, sample)) for sample in range(15)} == {
        sample: left[1, sample] for sample in range(15)
    }
    for block in range(3):
        inside = []
        for sample in range(15):
            if sample // 6 == block and left[1, sample]:
                inside.append(sample)
        assert resumed.used_samples(resumed.block((1, 6 * block))) == len(inside)
    drawn = [draw for draw in BLOCKS.draws() if draw[1][0] > 1 or (draw[1][0] == 1 and any(
        left[1, draw[1][1] + index] for index in range(3)
    ))]  # fmt: skip
    assert list(resumed.draws()) == drawn


@pytest.mark.parametrize("shares", [1, 2, 5])
def test_ranks_and_epochs_share_no_draw(shares):
    drawn = Counter(
        draw
        for share in range(shares)
        for draw, _ in replace(BLOCKS, share=share, shares=shares).draws()
    )
    assert set(drawn.values()) == {1}
    assert len(drawn) == 3 * (5 // shares) * shares
    assert max(drawn) < 15
