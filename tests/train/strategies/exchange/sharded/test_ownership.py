import pytest

from train.strategies.exchange.sharded.ownership import balanced_owners, joined_groups, wire_bytes


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_no_rank_owns_more_than_its_share_and_one_variable(ranks):
    sizes = [5, 900, 30, 30, 4000, 2, 1, 700, 650, 1000, 12]
    owners = balanced_owners(sizes, ranks)
    loads = [sum(size for size, owner in zip(sizes, owners, strict=True) if owner == rank) for rank in range(ranks)]
    assert sum(loads) == sum(sizes)
    assert 0 < min(loads) <= max(loads) <= sum(sizes) / ranks + max(sizes)


def test_equal_variables_are_dealt_out_in_order():
    assert balanced_owners([7] * 6, 3) == (0, 1, 2, 0, 1, 2)


def test_each_value_travels_to_its_owner_and_back_from_it():
    assert wire_bytes([100, 10], [2, 4], ranks=4) == 3 * (100 * (4 + 2) + 10 * (4 + 4))
    assert wire_bytes([100, 10], [1, 4], ranks=2, gradient_bytes=2) == 100 * (2 + 1) + 10 * (2 + 4)
    assert wire_bytes([100], [4], ranks=1) == 0


@pytest.mark.parametrize(
    ("groups", "joined"),
    [
        ([[3, 2], [1, 0]], [[3, 2], [1, 0]]),
        ([[3], [1], [2], [0]], [[3, 1, 2, 0]]),  # what is left after the last whole group goes with it
        ([[0], [1], [2], [3]], [[0, 1], [2, 3]]),
        ([[0, 1, 2, 3]], [[0, 1, 2, 3]]),
    ],
)
def test_groups_are_joined_until_every_rank_owns_a_part(groups, joined):
    assert joined_groups(groups, (0, 1, 0, 1), 2) == joined
