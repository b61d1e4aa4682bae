"""Which rank is named: by rules alone, by two watchdogs in one process, and by a job whose rank is stopped."""

import socket
import sys
import time

import launch
import pytest

from train.ranks.watchdog import READING, RESTING, STEPPING, WRITING, Sign, Watchdog, suspects, verdict, watch


class Alone:
    def rank(self):
        return 0

    def size(self):
        return 1

    def gather_json(self, value):
        return [value]


# ---- Rules ----------------------------------------------------------------------------------------------------------


def test_the_silent_rank_is_named_before_the_one_behind():
    signs = {0: Sign(5, STEPPING, 90, 100), 1: Sign(5, STEPPING, 90, 92), 2: Sign(5, READING, 88, 100)}
    assert suspects(signs, 100, 4) == [1]
    assert verdict(signs, ["a", "b", "c"], 100, 4) == "stalled: rank 1 on b (silent since 8 s, is in step 5 since 10 s)"


def test_one_that_others_wait_for_in_a_collective_is_named():
    signs = {0: Sign(5, STEPPING, 90, 100), 1: Sign(5, STEPPING, 91, 100), 2: Sign(5, READING, 60, 99)}
    assert verdict(signs, ["a", "b", "c"], 100, 4) == "stalled: rank 2 on c (reads the samples of step 5 since 40 s)"
    signs[2] = Sign(4, WRITING, 60, 99)
    assert "rank 2 on c (writes what it knows after step 4 since 40 s)" in verdict(signs, ["a", "b", "c"], 100, 4)


def test_nobody_is_blamed_where_all_stand_alike():
    signs = {rank: Sign(7, STEPPING, 90, 99) for rank in range(3)}
    assert suspects(signs, 100, 4) == []
    assert verdict(signs, ["a"] * 5, 100, 4) == "every rank that is heard (of 3 of 5 ranks) is in step 7 since 10 s"
    assert verdict({0: signs[0]}, ["a"], 100, 4) == "rank 0 is in step 7 since 10 s"


def test_of_many_some_are_named_and_all_counted():
    signs = {rank: Sign(7, STEPPING, 90, 99 if rank < 3 else 80) for rank in range(30)}
    text = verdict(signs, ["a"] * 30, 100, 4)
    assert "rank 3 on a" in text
    assert text.endswith("and 19 more")


# ---- In one process -------------------------------------------------------------------------------------------------


@pytest.fixture
def pair():
    """(dogs of rank 0 and 1, what each wanted to end with); a stall of 0.1 s warns, of 1 s ends."""
    doors = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    doors[0].bind(("127.0.0.1", 0))
    said = [[], []]
    address = [doors[0].getsockname()]
    dogs = [
        Watchdog(rank, ["a", "b"], doors[rank], address, "token", 0.1, end=said[rank].append, interval_s=0.02)
        for rank in range(2)
    ]
    yield dogs, said
    for dog, door in zip(dogs, doors, strict=True):
        dog.close()
        door.close()


def wait_for(condition, limit_s=20.0):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_rank_0_names_the_rank_that_stays_behind(pair, capsys):
    (first, second), said = pair
    second.beat(3, READING)
    first.beat(3, STEPPING)
    wait_for(lambda: said[0])
    assert said[0][0].startswith("error: stalled: rank 1 on b (reads the samples of step 3 since ")
    assert "warning: stalled: rank 1 on b" in capsys.readouterr().err
    assert not said[1]  # its turn would come later


def test_a_rank_without_a_sign_of_life_is_named_by_the_other(pair):
    (first, second), said = pair
    wait_for(lambda: first.others and second.others)
    first.close()  # rank 0 answers no more
    wait_for(lambda: said[1])
    assert said[1][0].startswith("error: stalled: rank 0 on a (silent since ")


def test_ranks_may_take_their_time_outside_of_steps(pair):
    (first, second), said = pair
    first.beat(3, RESTING)
    second.beat(2, RESTING)
    time.sleep(1.5)
    assert said == [[], []]


def test_one_that_died_is_named_after_a_collective_failed(pair):
    (first, second), _ = pair
    second.beat(7, STEPPING)
    wait_for(lambda: first.others and first.others[1].step == 7)
    second.close()
    assert first.dead().startswith("died: rank 1 on b (silent since 0 s, is in step 7 since ")


def test_one_that_says_why_it_failed_is_not_called_dead(pair):
    (first, second), _ = pair
    wait_for(lambda: first.others)
    second.close({"failed": True})
    wait_for(lambda: first.failed)
    assert first.dead() is None


def test_one_that_left_is_not_missed(pair):
    (first, second), said = pair
    wait_for(lambda: first.others)
    second.close({"left": True})
    wait_for(lambda: not first.others)
    assert not said[0]


def test_strangers_are_passed_over(pair):
    first, second = pair[0]
    for text in (b"\xff", b"[]", b'{"token": "other", "rank": 9}', b'{"token": "token", "rank": "x"}'):
        second.door.sendto(text, first.door.getsockname())
    wait_for(lambda: first.others)
    time.sleep(0.3)
    assert set(first.others) == {1}


def test_steps_are_told_as_batches_are_taken():
    with watch(Alone(), 60) as dog:
        steps = [(dog.me.step, dog.me.phase) for _ in dog.over(iter("ab"), 5)]
    assert steps == [(5, STEPPING), (6, STEPPING)]
    assert (dog.me.step, dog.me.phase) == (7, READING)


def test_the_process_ends_though_its_main_thread_hangs():
    code = (
        "import time\nfrom types import SimpleNamespace as Object\nfrom train.ranks import watchdog\n"
        "alone = Object(rank=lambda: 0, size=lambda: 1, gather_json=lambda value: [value])\n"
        "with watchdog.watch(alone, 0.1) as dog:\n"
        "    dog.beat(17, watchdog.STEPPING)\n"
        "    time.sleep(60)\n"
    )
    ended = launch.run(sys.executable, "-c", code, timeout=50)
    assert ended.returncode == 1
    assert "error: rank 0 is in step 17 since " in ended.stderr


# ---- A job ----------------------------------------------------------------------------------------------------------

STOPS = """
import os, signal, sys, time
import numpy as np
from train import reduction, watchdog
from train.config import Reduction

reduction.start(Reduction())
with watchdog.watch(reduction, 1.0) as dog:
    for step in range(1, 100):
        dog.beat(step, watchdog.READING)
        if (reduction.rank(), step) == (1, 5):
            os.kill(os.getpid(), signal.SIGSTOP)
        dog.beat(step, watchdog.STEPPING)
        reduction.total(np.ones(3))
"""


@pytest.mark.slow
def test_a_stopped_rank_is_named_and_ends_the_job(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(STOPS)
    ended = launch.horovodrun(script, timeout=300)  # the job itself ends in half a minute on an idle machine
    assert ended.returncode == 1
    assert f"error: stalled: rank 1 on {socket.gethostname()} (silent since" in ended.stderr
