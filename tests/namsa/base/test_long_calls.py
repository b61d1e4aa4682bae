"""A stage that takes long says so once, by the speed of its first part."""

import pytest

from namsa.base import long_calls
from namsa.base.long_calls import StageTimer


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until a test moves it."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(long_calls, "time", made)
    return made


def test_a_long_stage_says_once_how_long_it_takes(clock):
    timer = StageTimer()
    clock.now = 1.0  # too early to tell
    assert timer.note("windows", 1, 400) is None
    clock.now = 4.0
    assert timer.note("windows", 10, 400) == "windows: 10 of 400 took 4 s, about 2.6 min left"
    clock.now = 8.0
    assert timer.note("windows", 20, 400) is None


def test_a_short_stage_and_one_that_is_done_say_nothing(clock):
    clock.now = 0.0
    for done, total in ((0, 400), (399, 400), (400, 400)):
        timer = StageTimer()
        clock.now += 3.0
        assert timer.note("windows", done, total) is None
