"""Datagrams of the watchdog: what a rank accepts, and from whom."""

import math
from collections import Counter

import pytest

from train.ranks.datagrams import (
    FAILED,
    KEY_BYTES,
    LARGEST_SIZE,
    LEFT,
    MOST_RELAYED,
    SIZE,
    Codec,
    Datagram,
    Relayed,
    Tree,
    watch_tree,
)
from train.ranks.stalls import IDLE, READING, STEPPING, WRITING

KEY = bytes(range(KEY_BYTES))


@pytest.mark.parametrize("content", [READING, STEPPING, WRITING, IDLE, LEFT, FAILED])
def test_a_datagram_is_read_as_it_was_sent(content):
    data = Codec(KEY, 3, 5).encode(0, 2**40, content)
    assert len(data) == SIZE
    assert Codec(KEY, 0, 5).decode(data) == Datagram(3, 0, 1, 2**40, content)


def test_what_is_relayed_arrives_in_one_packet():
    relayed = tuple(
        Relayed(rank % 5, 2**40 + rank, STEPPING, 0.5 * rank, 2.0) for rank in range(MOST_RELAYED)
    )
    data = Codec(KEY, 1, 5).encode(0, 7, STEPPING, relayed)
    assert len(data) == LARGEST_SIZE <= 1500 - 28  # Ethernet's less the headers of IP and UDP
    assert Codec(KEY, 0, 5).decode(data) == Datagram(1, 0, 1, 7, STEPPING, relayed)
    assert (
        Codec(KEY, 0, 5).decode(Codec(KEY, 1, 5).encode(0, 7, STEPPING, [*relayed, relayed[0]]))
        is None
    )
    for nonsense in (relayed[0]._replace(rank=5), relayed[0]._replace(phase=LEFT)):
        assert Codec(KEY, 0, 5).decode(Codec(KEY, 1, 5).encode(0, 7, STEPPING, [nonsense])) is None


def test_every_changed_bit_is_noticed():
    data = Codec(KEY, 1, 2).encode(0, 7, STEPPING)
    receiver = Codec(KEY, 0, 2)
    for bit in range(8 * SIZE):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert receiver.decode(bytes(changed)) is None
    assert receiver.decode(data)


@pytest.mark.parametrize("length", [0, 1, SIZE - 1, SIZE + 1, 60000])
def test_another_size_is_dropped(length):
    data = Codec(KEY, 1, 2).encode(0, 7, STEPPING)
    assert Codec(KEY, 0, 2).decode((data + bytes(60000))[:length]) is None


def test_each_datagram_counts_once_and_none_after_a_later_one():
    sender = Codec(KEY, 1, 2)
    receiver = Codec(KEY, 0, 2)
    first, second, third = (sender.encode(0, step, STEPPING) for step in (1, 2, 3))
    assert receiver.decode(second)
    assert receiver.decode(second) is None
    assert receiver.decode(first) is None
    assert receiver.decode(third)


@pytest.mark.parametrize(
    ("key", "sender", "receiver"),
    [(bytes(KEY_BYTES), 1, 0), (KEY, 1, 2), (KEY, 0, 0), (KEY, 5, 0), (KEY, 2**32 - 1, 0)],
    ids=[
        "another key",
        "for another rank",
        "from itself",
        "from no rank of the job",
        "from no rank at all",
    ],
)
def test_datagrams_of_other_jobs_and_for_other_ranks_are_dropped(key, sender, receiver):
    assert Codec(KEY, 0, 5).decode(Codec(key, sender, 2**32).encode(receiver, 1, STEPPING)) is None


def test_a_content_that_means_nothing_is_dropped():
    assert Codec(KEY, 0, 2).decode(Codec(KEY, 1, 2).encode(0, 1, FAILED + 1)) is None


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 16, 17, 100, 1021])
@pytest.mark.parametrize("radix", [1, 2, 3, 4, 8, 32])
def test_every_rank_is_in_the_tree_once_and_sends_at_most_radix_and_one_messages(ranks, radix):
    tree = Tree(ranks, radix)
    assert tree.parent(0) is None
    assert sorted(child for rank in range(ranks) for child in tree.children(rank)) == list(
        range(1, ranks)
    )
    for rank in range(ranks):
        for child in tree.children(rank):
            assert tree.parent(child) == rank
        above = tree.ancestors(rank)
        assert above[-1:] == [0][: bool(rank)]
        assert above == sorted(above, reverse=True)
    up = [(rank, tree.parent(rank)) for rank in range(1, ranks)]
    messages = up + [(parent, child) for child, parent in up]
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
