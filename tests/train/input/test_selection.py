"""Each rank's share of an epoch, and the choice of fewer samples."""

from synthetic import dataset

from train.input.selection import epoch_share, limit


def test_shares_cover_an_epoch_once_in_an_order_of_its_own():
    entries = dataset(13)[1]
    shares = [epoch_share(entries, 7, 2, rank, 3, 4) for rank in range(3)]
    ids = [entry.id for share in shares for entry in share]
    assert [len(share) for share in shares] == [4, 4, 4]
    assert len(set(ids)) == 12
    assert shares[1] == epoch_share(entries, 7, 2, 1, 3, 4)
    assert shares[1] != epoch_share(entries, 7, 3, 1, 3, 4)
    assert shares[1] != epoch_share(entries, 8, 2, 1, 3, 4)
    left_out = set()
    for epoch in range(12):
        taken = {entry.id for rank in range(3) for entry in epoch_share(entries, 7, epoch, rank, 3, 4)}
        left_out |= {entry.id for entry in entries} - taken
    assert len(left_out) > 3


def test_fewer_samples_are_among_more_in_their_order():
    _, entries = dataset(12)
    chosen = [limit(entries, count) for count in (3, 6, 12, None)]
    assert [len(each) for each in chosen] == [3, 6, 12, 12]
    assert {entry.id for entry in chosen[0]} < {entry.id for entry in chosen[1]}
    for each in chosen:
        assert each == [entry for entry in entries if entry in each]
    assert chosen[0] == limit(entries[::-1], 3)[::-1]  # whatever the order of the list
    assert chosen[1] not in (entries[:6], entries[6:])


def test_two_ranks_take_together_what_one_takes_alone():
    entries = dataset(8)[1]
    alone = epoch_share(entries, 1, 0, 0, 1, 8)
    first, second = (epoch_share(entries, 1, 0, rank, 2, 4) for rank in (0, 1))
    assert [entry for pair in zip(first, second, strict=True) for entry in pair] == alone


def test_ranks_that_take_over_an_epoch_take_what_is_left_of_it():
    entries = list("abcdefghijklm")
    before = [epoch_share(entries, 3, 1, rank, 2, 6) for rank in range(2)]  # two ranks, batches of two, one step
    taken = [entry for share in before for entry in share[:2]]
    after = [epoch_share(entries, 3, 1, rank, 3, 3, len(taken)) for rank in range(3)]
    left = [entry for share in after for entry in share]
    assert len(left) == 9
    assert not set(taken) & set(left)
    assert set(taken) | set(left) == set(entries)
    again = [epoch_share(entries, 3, 1, rank, 2, 4, len(taken)) for rank in range(2)]
    assert again == [share[2:] for share in before]
