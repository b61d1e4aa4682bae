"""Shares that the ranks keep: their own samples in every epoch, in another order."""

import synthetic
from divided_samples import experiment

from train.input.source import TrainingSet
from train.ranks.single import SingleProcess
from train.strategies.source.fixed.section import Fixed
from train.strategies.source.fixed.source import FixedShareSource

EPOCHS = 4
SHARES = 3
SAMPLES = 25


def ids(epoch, share, count=SAMPLES, taken=0, seed=5):
    """The samples of an epoch that a share takes."""
    job = experiment("detector", "y").model_copy(update={"seed": seed})
    entries = synthetic.dataset(SAMPLES)[1]
    return [
        entry.id
        for entry in FixedShareSource(Fixed(), job).epoch_entries(
            entries, epoch, share, SHARES, count, taken
        )
    ]


def test_a_share_is_the_same_in_all_epochs_and_its_order_is_not():
    listed = [entry.id for entry in synthetic.dataset(SAMPLES)[1]]
    for share in range(SHARES):
        orders = [ids(epoch, share) for epoch in range(EPOCHS)]
        for order in orders:
            assert sorted(order) == sorted(listed[share::SHARES])
        assert len({tuple(order) for order in orders}) == EPOCHS
        assert orders == [ids(epoch, share) for epoch in range(EPOCHS)]
        assert orders[0] != ids(0, share, seed=6)


def test_what_is_left_of_an_epoch_is_the_rest_of_its_order():
    for share in range(SHARES):
        epoch_ids = ids(2, share, count=3)
        assert ids(2, share, count=2, taken=SHARES) == epoch_ids[1:]


def test_a_job_that_goes_on_with_another_number_of_ranks_says_that_shares_are_new():
    source = FixedShareSource(Fixed(), experiment("scan", "y").model_copy(update={"seed": 5}))
    lines = []
    for before in (0, 1, 4):
        lines.append(source.open(TrainingSet(None, [], (1, 0), SingleProcess(), None, before)))
    same = "every rank has its own samples in all epochs"
    assert lines == [same, same, f"{same}, other ones than those of the 4 ranks before"]
