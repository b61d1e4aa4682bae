import io

from namsa.cli.stage_log import StageLog


class Clock:
    def __init__(self) -> None:
        self.time_s = 0.0

    def __call__(self) -> float:
        return self.time_s


def test_a_log_has_a_line_in_ten_seconds_with_the_time_left() -> None:
    log = io.StringIO()
    clock = Clock()
    stages = StageLog(log, clock)
    for done in range(31):
        clock.time_s = float(done)
        stages("patterns", done, 40)
    assert log.getvalue().splitlines() == [
        "patterns: 10 of 40 (25%), 30 s left",
        "patterns: 20 of 40 (50%), 20 s left",
        "patterns: 30 of 40 (75%), 10 s left",
    ]


def test_a_stage_of_unknown_length_and_a_late_stage_have_lines() -> None:
    log = io.StringIO()
    clock = Clock()
    stages = StageLog(log, clock)
    clock.time_s = 11
    stages("samples", 3, None)
    clock.time_s = 25
    stages("potential", 0, 4)
    assert log.getvalue().splitlines() == ["samples: 3", "potential: 0 of 4 (0%)"]


def test_short_work_writes_nothing() -> None:
    log = io.StringIO()
    stages = StageLog(log, Clock())
    for done in range(1000):
        stages("patterns", done, 1000)
    assert not log.getvalue()
