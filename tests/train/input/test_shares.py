"""Shares of ranks in an epoch, and work in threads that comes in order."""

import threading

import pytest
from synthetic import dataset

from train.input.readahead import ahead
from train.input.selection import epoch_share, limit


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order_and_no_more_is_begun_than_may_wait(threads):
    begun = []
    taken = []

    def work(item):
        begun.append(item)
        assert item < len(taken) + 1 + 4
        return -item

    for result in ahead(work, range(20), threads, waiting=4):
        taken.append(result)
    assert taken == [-item for item in range(20)]
    assert sorted(begun) == list(range(20))


def test_an_error_comes_in_its_turn():
    def work(item):
        if item == 2:
            raise OSError("unreadable")
        return item

    results = ahead(work, range(9), 2, 3)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(OSError, match="unreadable"):
        next(results)


def test_closing_leaves_no_thread_at_work():
    begun = []
    go_on = threading.Event()

    def work(item):
        begun.append(item)
        assert go_on.wait(10)
        return item

    results = ahead(work, range(100), 2, 8)
    threading.Timer(0.1, go_on.set).start()
    next(results)
    results.close()
    done = len(begun)
    assert done <= 9
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


def test_shares_cover_an_epoch_once_in_an_order_of_its_own():
    entries = dataset(13)[1]
    shares = [epoch_share(entries, 7, 2, rank, 3, 4) for rank in range(3)]
    ids = []
    for share in shares:
        for entry in share:
            ids.append(entry.id)
    assert [len(share) for share in shares] == [4, 4, 4]
    assert len(set(ids)) == 12
    assert shares[1] == epoch_share(entries, 7, 2, 1, 3, 4)
    assert shares[1] != epoch_share(entries, 7, 3, 1, 3, 4)
    assert shares[1] != epoch_share(entries, 8, 2, 1, 3, 4)
    left_out = set()
    for epoch in range(12):
        taken = set()
        for rank in range(3):
            for entry in epoch_share(entries, 7, epoch, rank, 3, 4):
                taken.add(entry.id)
        left_out |= {entry.id for entry in entries} - taken
    assert len(left_out) > 3


def test_fewer_samples_are_among_more_in_their_order():
    _, entries = dataset(12)
    chosen = [limit(entries, count) for count in (3, 6, 12, None)]
    assert [len(subset) for subset in chosen] == [3, 6, 12, 12]
    assert {entry.id for entry in chosen[0]} < {entry.id for entry in chosen[1]}
    for subset in chosen:
        assert subset == [entry for entry in entries if entry in subset]
    assert chosen[0] == limit(entries[::-1], 3)[::-1]  # whatever the order of the list
    assert chosen[1] not in (entries[:6], entries[6:])


def test_two_ranks_take_together_what_one_takes_alone():
    entries = dataset(8)[1]
    alone = epoch_share(entries, 1, 0, 0, 1, 8)
    first, second = (epoch_share(entries, 1, 0, rank, 2, 4) for rank in (0, 1))
    assert [entry for pair in zip(first, second, strict=True) for entry in pair] == alone


def test_ranks_that_take_over_an_epoch_take_what_is_left_of_it():
    entries = list("abcdefghijklm")
    before = [
        epoch_share(entries, 3, 1, rank, 2, 6) for rank in range(2)
    ]  # two ranks, batches of two, one step
    taken = []
    for share in before:
        taken.extend(share[:2])
    after = [epoch_share(entries, 3, 1, rank, 3, 3, len(taken)) for rank in range(3)]
    left = []
    for share in after:
        left.extend(share)
    assert len(left) == 9
    assert not set(taken) & set(left)
    assert set(taken) | set(left) == set(entries)
    again = [epoch_share(entries, 3, 1, rank, 2, 4, len(taken)) for rank in range(2)]
    assert again == [share[2:] for share in before]
