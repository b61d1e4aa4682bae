"""Which rank is named: by rules alone, by watchdogs in simulated time, on sockets, and in a job
with a stopped rank.
"""

import socket
import time
from itertools import count, pairwise

import launch
import pytest
import thread_ranks
from simulated_network import Network

from train.ranks.datagrams import FAILED, LEFT, SIZE
from train.ranks.single import SingleProcess
from train.ranks.stalls import (
    IDLE,
    READING,
    STEPPING,
    WRITING,
    RankState,
    describe,
    most_telling,
    suspects,
)
from train.ranks.watchdog import SPARE_DATAGRAMS
from train.ranks.watching import watch

# ---- Rules


def test_the_silent_rank_is_named_before_the_one_behind():
    states = {
        0: RankState(5, STEPPING, 90, 100),
        1: RankState(5, STEPPING, 90, 92),
        2: RankState(5, READING, 88, 100),
    }
    assert suspects(states, 100, 4) == [1]
    text = "stalled: rank 1 on b (silent since 8 s, is in step 5 since 10 s)"
    assert describe(states, ["a", "b", "c"], 100, 4) == text


def test_one_that_others_wait_for_in_a_collective_is_named():
    states = {
        0: RankState(5, STEPPING, 90, 100),
        1: RankState(5, STEPPING, 91, 100),
        2: RankState(5, READING, 60, 99),
    }
    assert (
        describe(states, ["a", "b", "c"], 100, 4)
        == "stalled: rank 2 on c (reads the samples of step 5 since 40 s)"
    )
    states[2] = RankState(4, WRITING, 60, 99)
    assert "rank 2 on c (writes its results after step 4 since 40 s)" in describe(
        states, ["a", "b", "c"], 100, 4
    )


def test_nobody_is_blamed_where_all_stand_alike():
    states = {rank: RankState(7, STEPPING, 90, 99) for rank in range(3)}
    assert suspects(states, 100, 4) == []
    assert (
        describe(states, ["a"] * 5, 100, 4)
        == "every rank that is heard (of 3 of 5 ranks) is in step 7 since 10 s"
    )
    assert describe({0: states[0]}, ["a"], 100, 4) == "rank 0 is in step 7 since 10 s"


def test_of_many_some_are_named_and_all_counted():
    states = {rank: RankState(7, STEPPING, 90, 99 if rank < 3 else 80) for rank in range(30)}
    text = describe(states, ["a"] * 30, 100, 4)
    assert "rank 3 on a" in text
    assert text.endswith("and 19 more")


def test_of_many_the_silent_are_told_of_first_then_those_behind_and_one_of_the_foremost():
    states = {rank: RankState(7, STEPPING, 90, 99) for rank in range(30)}
    assert most_telling(states, 100, 4, 30) == list(range(30))
    states[20], states[21] = RankState(7, STEPPING, 90, 80), RankState(7, STEPPING, 90, 70)
    states[22], states[23] = RankState(7, READING, 90, 99), RankState(6, WRITING, 90, 99)
    states[24] = RankState(8, READING, 90, 99)
    assert most_telling(states, 100, 4, 6) == [21, 20, 23, 22, 0, 24]
    assert suspects({rank: states[rank] for rank in (23, 22, 0, 24)}, 100, 4) == [23]


# ---- In simulated time


@pytest.fixture
def network():
    return Network()


@pytest.fixture
def pair(network):
    """(watchdogs of rank 0 and 1, the messages that each would end with); a stall of 0.1 s warns,
    of 1 s ends.
    """
    (first, second), messages = network.watchdogs(2, 0.1)
    network.advance_until(lambda: first.others and second.others)
    return (first, second), messages


def test_rank_0_names_the_rank_that_stays_behind(network, pair, capsys):
    (first, second), messages = pair
    second.enter(3, READING)
    first.enter(3, STEPPING)
    network.advance_until(lambda: messages[0])
    assert messages[0][0].startswith(
        "error: stalled: rank 1 on b (reads the samples of step 3 since "
    )
    assert "warning: stalled: rank 1 on b" in capsys.readouterr().err
    assert not messages[1]  # its turn would come later


def test_a_rank_without_a_sign_of_life_is_named_by_the_other(network, pair):
    (first, _), messages = pair
    first.close()  # rank 0 answers no more
    network.advance_until(lambda: messages[1])
    assert messages[1][0].startswith("error: stalled: rank 0 on a (silent since ")


def test_ranks_may_take_their_time_outside_of_steps(network, pair):
    (first, second), messages = pair
    first.enter(3, IDLE)
    second.enter(2, IDLE)
    network.advance(60)
    assert messages == [[], []]


def test_one_that_died_is_named_after_a_collective_failed(network, pair):
    (first, second), _ = pair
    second.enter(7, STEPPING)
    network.advance_until(lambda: first.others[1].step == 7)
    second.close()
    assert first.describe_lost_rank().startswith(
        "died: rank 1 on b (silent since 0 s, is in step 7 since "
    )


def test_one_that_says_why_it_failed_is_not_called_dead(network, pair):
    (first, second), _ = pair
    second.close(FAILED)
    network.advance_until(lambda: first.failed)
    assert first.describe_lost_rank() is None


def test_rank_0_that_says_why_it_failed_is_not_called_dead(network, pair):
    (first, second), _ = pair
    network.advance_until(lambda: 1 in first.child_addresses)
    first.close(FAILED)
    network.advance_until(lambda: second.failed)
    assert second.describe_lost_rank() is None


def test_all_ranks_hear_that_one_of_them_fails(network):
    watchdogs, _ = network.watchdogs(7, 60)
    network.advance_until(lambda: 6 in watchdogs[0].others)
    watchdogs[6].close(FAILED)
    network.advance_until(lambda: all(watchdog.failed for watchdog in watchdogs[:6]))


def test_one_that_left_is_not_missed(network, pair):
    (first, second), messages = pair
    second.close(LEFT)
    network.advance_until(lambda: not first.others)
    network.advance(60)
    assert not messages[0]


def test_a_process_that_was_stopped_blames_no_other(network, pair):
    (first, _), messages = pair
    first.clock.now += 5  # rank 0 does not run, and hears nothing
    network.advance(6)
    assert messages[0] == []
    assert messages[1][0].startswith("error: stalled: rank 0 on a (silent since ")


def test_replayed_datagrams_are_dropped(network, pair):
    """Who reads the network can repeat a datagram, but cannot keep a dead rank alive, nor take rank
    0's place.
    """
    (first, second), messages = pair
    second.enter(3, STEPPING)
    first.enter(3, STEPPING)
    network.advance_until(lambda: first.others[1].step == 3)
    stranger = network.node()
    recorded = second.codec.encode(0, 3, STEPPING)
    stranger.sendto(recorded, first.socket.address)  # arrives once, as from rank 1
    second.close()
    while not messages[0]:
        stranger.sendto(recorded, first.socket.address)
        network.advance(0.01)
    assert "rank 1 on b (silent since " in messages[0][0]


def test_an_answer_that_comes_from_elsewhere_does_not_move_rank_0(network, pair):
    (first, second), messages = pair
    network.advance_until(lambda: second.answering == first.socket.address)
    network.node().sendto(first.codec.encode(1, 5, STEPPING), second.socket.address)
    network.advance(0.5)
    assert second.answering == first.socket.address
    assert messages == [[], []]


@pytest.fixture
def tree(network):
    """(watchdogs of seven ranks in a tree of radix 2, their messages); a stall of 0.2 s warns, of 2
    s ends.
    """
    watchdogs, messages = network.watchdogs(7, 0.2, radix=2)
    network.advance_until(
        lambda: (
            len(watchdogs[0].others) == 6
            and all(0 in watchdog.others for watchdog in watchdogs[1:])
        )
    )
    return watchdogs, messages


def test_in_a_tree_rank_0_knows_all_ranks_though_each_sends_at_most_radix_and_one_datagrams(
    network, tree
):
    watchdogs, messages = tree
    assert set(watchdogs[2].others) == {0, 5, 6}
    assert set(watchdogs[5].others) == {0, 2}
    watchdogs[6].enter(3, READING)
    for watchdog in watchdogs[:6]:
        watchdog.enter(3, STEPPING)
    began = network.now
    before = [watchdog.codec._sent for watchdog in watchdogs]
    network.advance_until(lambda: messages[0])
    rounds = (network.now - began) / 0.05 + 2
    assert messages[0][0].startswith(
        "error: stalled: rank 6 on g (reads the samples of step 3 since "
    )
    for watchdog, sent in zip(watchdogs, before, strict=True):
        neighbours = len(watchdog.tree.children(watchdog.rank)) + (watchdog.rank > 0)
        assert watchdog.codec._sent - sent <= neighbours * rounds


def test_in_a_tree_a_dead_rank_is_named_and_not_those_that_it_spoke_for(network, tree):
    watchdogs, messages = tree
    watchdogs[1].close()
    network.advance_until(lambda: messages[0])
    assert messages[0][0].startswith("error: stalled: rank 1 on b (silent since ")
    assert "rank 3" not in messages[0][0]
    assert "rank 4" not in messages[0][0]
    assert not messages[6]


def test_in_a_tree_rank_0_learns_why_a_leaf_ends(network, tree):
    watchdogs, _ = tree
    watchdogs[5].close(LEFT)
    network.advance_until(lambda: 5 not in watchdogs[0].others)
    watchdogs[6].enter(7, STEPPING)
    network.advance_until(lambda: watchdogs[0].others[6].step == 7)
    watchdogs[6].close()
    assert watchdogs[0].describe_lost_rank().startswith("died: rank 6 on g (silent since ")
    watchdogs[3].close(FAILED)
    network.advance_until(lambda: watchdogs[0].failed)


def test_the_datagrams_of_a_parents_children_are_spread_over_an_interval(network):
    watchdogs, _ = network.watchdogs(101, 60)
    for watchdog in watchdogs:
        watchdog._run = lambda: None
        watchdog.start()
    ends = sorted(
        (watchdog.interval_ended - network.now) % watchdog.interval_s for watchdog in watchdogs[1:]
    )
    assert max(after - before for before, after in pairwise(ends)) < 0.05 * watchdogs[0].interval_s


def flood(watchdogs):
    """Strangers send the watchdogs more datagrams than they can read; returns a function that ends
    that.
    """
    numbers = count()

    def datagram():
        datagram_number = next(numbers)
        return bytes([datagram_number % 256]) * (SIZE if datagram_number % 3 else 1000)

    for watchdog in watchdogs:
        watchdog.socket.flood = datagram

    def end():
        for watchdog in watchdogs:
            watchdog.socket.flood = None

    return end


def test_a_flood_neither_ends_nor_slows_a_job(network, pair, capsys):
    (first, second), messages = pair
    checked = [0]
    decode = first.codec.decode
    first.codec.decode = lambda data: (checked.__setitem__(0, checked[0] + 1), decode(data))[1]
    end_flood = flood(pair[0])
    network.advance_until(lambda: first.flooded)
    began = network.now
    before = checked[0]
    network.advance(20)  # the limit of a silent rank is 1 s
    intervals = (network.now - began) / first.interval_s + 1
    assert messages == [[], []]
    assert checked[0] - before <= intervals * (SPARE_DATAGRAMS + 8)
    text = (
        "warning: the watchdog of rank 0 on a gets more datagrams than its job sends: while that "
        "lasts, silent"
    )
    assert capsys.readouterr().err.count(text) == 1
    end_flood()
    heard = first.others[1].heard
    network.advance_until(
        lambda: first.others[1].heard > heard + 0.2
    )  # the ranks hear each other again
    second.close()
    network.advance_until(lambda: messages[0])
    assert "rank 1 on b (silent since " in messages[0][0]


def test_a_job_that_stalls_ends_though_a_flood_hides_its_other_ranks(network):
    watchdogs, messages = network.watchdogs(2, 0.1)
    flood(watchdogs)
    network.advance_until(lambda: watchdogs[0].flooded)
    watchdogs[0].enter(3, STEPPING)
    network.advance_until(lambda: messages[0])
    assert " in step 3 since " in messages[0][0]


# ---- On sockets


def test_ranks_hear_each_other():
    def others(rank):
        with watch(rank, 60) as watchdog:
            until = time.monotonic() + 20
            while not watchdog.others:
                assert time.monotonic() < until
                time.sleep(0.02)
            heard = set(watchdog.others)
            rank.gather_json(None)  # until then no rank leaves
        return heard

    assert thread_ranks.run([[0, 1]], others) == [{1}, {0}]


def test_steps_are_told_as_batches_are_taken():
    with watch(SingleProcess(), 60) as watchdog:
        steps = []
        for _ in watchdog.follow(iter("ab"), 5):
            steps.append((watchdog.state.step, watchdog.state.phase))
    assert steps == [(5, STEPPING), (6, STEPPING)]
    assert (watchdog.state.step, watchdog.state.phase) == (7, READING)


# ---- A job

STOPS = """
import os, signal, sys, time
import numpy as np
from train.ranks import connection, stalls
from train.ranks.connection import engine
from train.ranks.watching import watch

connection.start()
with watch(engine(), 0.6) as own:
    for step in range(1, 100):
        own.enter(step, stalls.READING)
        if (engine().rank(), step) == (1, 5):
            os.kill(os.getpid(), signal.SIGSTOP)
        own.enter(step, stalls.STEPPING)
        engine().total(np.ones(3))
"""


@pytest.mark.slow
def test_a_stopped_rank_is_named_and_ends_the_job(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(STOPS)
    ended = launch.horovodrun(
        script, timeout=300
    )  # the job itself ends in half a minute on an idle machine
    assert ended.returncode == 1
    assert f"error: stalled: rank 1 on {socket.gethostname()} (silent since" in ended.stderr
