"""The coordinator's costs, fitted to measurements."""

import json

import pytest

from namsa.errors import InputError
from train.__main__ import main
from train.scaling.fit import fit

CYCLE_S, MESSAGE_S, ANNOUNCEMENT_S = 30e-6, 2e-6, 0.5e-6


def output(path, counts=(2, 4, 8, 16, 32), wrong_at=()):
    """Output of the benchmark for a coordinator that follows the law, except at the rank counts `wrong_at`."""
    results = []
    for ranks in counts:
        arms = {}
        for arm, cycles in (("neither", 8.0 + ranks / 8), ("groups", 15.0), ("both", 0.0)):
            law = CYCLE_S * cycles + ranks * (MESSAGE_S * cycles + ANNOUNCEMENT_S * 200)
            seconds = law * (2 if ranks in wrong_at else 1)
            arms[arm] = {"gather_calls": cycles, "control_ns": seconds * 1e9}
        results.append({"workload": "small", "ranks": ranks, "arms": arms})
    path.write_text("a table\n" + json.dumps({"ratio": 1, "results": results}) + "\n")
    return path


def test_costs_are_found_and_hold_where_they_were_not_fitted(tmp_path):
    costs = fit(output(tmp_path / "reduction.txt"))
    assert costs["cycle_s"] == pytest.approx(CYCLE_S)
    assert costs["message_s"] == pytest.approx(MESSAGE_S)
    assert costs["announcement_s"] == pytest.approx(ANNOUNCEMENT_S)
    assert {row["ranks"] for row in costs["rows"] if not row["fitted"]} == {4, 16}
    assert {row["arm"] for row in costs["rows"]} == {"neither", "groups"}
    for row in costs["rows"]:
        assert row["model_s"] == pytest.approx(row["measured_s"])


def test_what_is_left_out_does_not_fit_itself(tmp_path):
    costs = fit(output(tmp_path / "reduction.txt", wrong_at=(4,)))
    assert costs["announcement_s"] == pytest.approx(ANNOUNCEMENT_S)
    wrong = [row for row in costs["rows"] if row["ranks"] == 4]
    assert all(row["model_s"] == pytest.approx(row["measured_s"] / 2) for row in wrong)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="rank counts"):
        fit(output(tmp_path / "two.txt", counts=(2, 4)))
    (tmp_path / "other.txt").write_text("{}")
    with pytest.raises(InputError, match=r"reduction\.py"):
        fit(tmp_path / "other.txt")


def test_command_shows_the_check(tmp_path, capsys):
    measured = str(output(tmp_path / "reduction.txt"))
    assert main(["scaling", "configs/paper.yaml", "--ranks", "6", "--measured", measured, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"]["announcement_s"] == pytest.approx(ANNOUNCEMENT_S)
    assert main(["scaling", "configs/paper.yaml", "--ranks", "6", "--measured", measured]) == 0
    assert "0.5 µs" in capsys.readouterr().out
