"""Parts of a job at pretended numbers of ranks."""

from rehearsal import watchdog


def test_the_watchdog_of_27600_ranks_says_nothing_false_and_names_the_one_that_is_silent():
    found = watchdog.rehearse(27_600, seconds=2.0, warning_s=5.0)
    assert (found["false warnings"], found["dead rank named"]) == (0, "yes")
