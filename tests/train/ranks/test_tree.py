"""The tree in which ranks pass messages on: each rank is reached once, over few ranks, with few messages."""

import math
from collections import Counter

import pytest

from train.ranks.datagrams import Tree, watch_tree


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 16, 17, 100, 1021])
@pytest.mark.parametrize("radix", [1, 2, 3, 4, 8, 32])
def test_every_rank_is_in_the_tree_once_and_sends_at_most_radix_and_one_messages(ranks, radix):
    tree = Tree(ranks, radix)
    assert tree.parent(0) is None
    assert sorted(child for rank in range(ranks) for child in tree.children(rank)) == list(range(1, ranks))
    for rank in range(ranks):
        assert all(tree.parent(child) == rank for child in tree.children(rank))
        above = tree.ancestors(rank)
        assert above[-1:] == [0][: bool(rank)]
        assert above == sorted(above, reverse=True)
    messages = tree.round()
    assert len(set(messages)) == len(messages) == 2 * (ranks - 1)
    for end in (0, 1):  # what a rank sends, and what it receives
        assert max(Counter(pair[end] for pair in messages).values(), default=0) <= radix + 1
    if radix > 1:
        assert tree.depth() <= math.log(max(ranks, 1), radix) + 1
    assert tree.depth() == max((len(tree.ancestors(rank)) for rank in range(ranks)), default=0)


def test_the_papers_ranks_are_few_messages_apart():
    assert [Tree(27_360, radix).depth() for radix in (2, 4, 8, 32)] == [14, 8, 5, 3]


@pytest.mark.parametrize("ranks", [1, 2, 40])
def test_without_a_radix_all_ranks_are_children_of_rank_0(ranks):
    tree = watch_tree(ranks, 0)
    assert list(tree.children(0)) == list(range(1, ranks))
    assert tree.depth() == min(1, ranks - 1)
    assert watch_tree(40, 3) == Tree(40, 3)


@pytest.mark.parametrize(("ranks", "depth"), [(256, 1), (257, 2), (1536, 3), (27_600, 3)])
def test_without_a_radix_many_ranks_form_a_tree_that_overruns_none(ranks, depth):
    tree = watch_tree(ranks, 0)
    assert tree.depth() == depth
    assert max(len(tree.children(rank)) for rank in range(ranks)) == (255 if depth == 1 else 32)
