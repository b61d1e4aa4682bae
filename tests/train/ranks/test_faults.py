"""Two ranks with one at fault: one message, an exit code that says whose fault it is, and an end
everywhere.
"""

import json
import socket

import launch
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    out = tmp_path_factory.mktemp("faults")
    launch.script("faults.py", out)
    return json.loads((out / "faults.json").read_text())


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        (
            "another network",
            2,
            "was made differently:\n  network.growth: was 4, is 5\n",
        ),
        ("no configuration", 2, "error: cannot read the configuration"),
        ("on fire", 1, "error: the disk is on fire"),
        ("other configuration", 2, "error: the configuration's hash is "),
        ("other samples", 2, "error: the digest of the samples' ids is "),
        ("too few", 2, "error: 8 training samples are too few for 2 ranks with batches of 5"),
        ("unwritable", 1, "error: cannot make /proc/run: No such file or directory"),
        (
            "not finite",
            1,
            "error: training diverged at step 1: loss nan (rank 1's, of 2), gradient norm nan; "
            "lower ",
        ),
        ("no space", 1, "No space left on device (the newest before it: step-000000004.npz)"),
    ],
)
def test_one_rank_says_what_is_at_fault_and_all_end(outcomes, fault, code, message):
    assert outcomes[fault]["codes"] == [code, code], outcomes[fault]["out"]
    errors = []
    for line in outcomes[fault]["out"].splitlines():
        if line.startswith("error:"):
            errors.append(line)
    assert len(errors) == 1, outcomes[fault]["out"]
    assert message in outcomes[fault]["out"][outcomes[fault]["out"].index(errors[0]) :]
    assert "Traceback" not in outcomes[fault]["out"]


def test_a_rank_that_is_killed_is_named_by_the_other(outcomes):
    assert outcomes["killed"]["codes"] == [1, -9]
    errors = []
    for line in outcomes["killed"]["out"].splitlines():
        if line.startswith("error:"):
            errors.append(line)
    assert len(errors) == 1, outcomes["killed"]["out"]
    assert errors[0].startswith(f"error: died: rank 1 on {socket.gethostname()} (silent since ")
    assert (
        "in step " in errors[0] or "of step " in errors[0] or "after step " in errors[0]
    )  # by its last sign


def test_a_full_disk_leaves_the_checkpoints_before(outcomes):
    assert outcomes["left"] == ["step-000000003.npz", "step-000000004.npz"]


def test_a_signal_to_one_rank_stops_all_after_the_same_step(outcomes):
    assert outcomes["stopped"]["codes"] == [130, 130], outcomes["stopped"]["out"]
    assert outcomes["steps"] == 6  # the wish travels with the numbers of the step after
    assert outcomes["checkpoints"][-1] == "step-000000006.npz"
    (message,) = [
        line
        for line in outcomes["stopped"]["out"].splitlines()
        if "stopped" in line and "results in" not in line
    ]
    assert message == (
        "stopped by a signal to another rank after step 6, its checkpoint is written: run again "
        "to continue"
    )


def test_a_signal_to_a_rank_that_waits_for_a_sample_stops_all_before_it(outcomes):
    assert outcomes["late"]["codes"] == [130, 130], outcomes["late"]["out"]
    assert (
        "stopped by a signal to another rank after step 12, its checkpoint is written"
        in outcomes["late"]["out"]
    )
    assert outcomes["late checkpoints"][-1] == "step-000000012.npz"
    assert outcomes["late validations"] == 1  # of the epoch that is over


def test_fewer_ranks_go_on_within_the_epoch(outcomes):
    assert outcomes["fewer ranks"]["codes"] == [0], outcomes["fewer ranks"]["out"]
    text = (
        "resumed after step 6, 1 whole epochs and 4 samples of the next; a run of 2 ranks "
        "continues with 1"
    )
    assert text in outcomes["fewer ranks"]["out"]
    rows = outcomes["rows"]
    assert [row["step"] for row in rows] == list(
        range(1, 19)
    )  # 4 + 2 steps of two samples, then 4 + 8 of one
    assert [row["epoch"] for row in rows] == [0] * 4 + [1] * 6 + [2] * 8
    assert rows[6]["lr"] == pytest.approx(1e-3)
