"""The rehearsal of rank 0 at emulated numbers of ranks."""

import json

import pytest
import rehearse
from rehearsal import watchdog


@pytest.mark.slow
def test_the_watchdog_of_27600_ranks_says_nothing_false_and_names_the_one_that_is_silent():
    rehearsal = watchdog.rehearse(27_600, seconds=2.0, warning_s=5.0)
    assert (rehearsal["false warnings"], rehearsal["dead rank named"]) == (0, "yes")


@pytest.mark.slow
def test_what_rank_0_does_grows_no_faster_than_the_number_of_ranks(capsys, monkeypatch):
    parts = ["start", "agreement", "signal", "preflight", "checkpoint"]
    monkeypatch.setattr(
        "sys.argv", ["rehearse.py", "--json", "--ranks", "6", "1536", "--parts", *parts]
    )
    rehearse.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["too_fast"] == []
    assert result["results"]["start: nodes and configuration agreed"]["1536"]["nodes"] == 256
    preflight = result["results"]["preflight: reports of all ranks"]["1536"]
    assert (preflight["faults"], preflight["most in a folder"], preflight["read by rank 0"]) == (
        0,
        78,
        79,
    )
