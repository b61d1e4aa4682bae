"""`train scaling`: the curve of a configuration, its tables, picture and JSON; and costs that are
fitted.
"""

import json
from pathlib import Path

import pytest
from needs_kind import needs
from paths import CONFIGS

from fcdensenet.count import count
from namsa.base.errors import InputError
from train.__main__ import main
from train.experiment.experiment import load
from train.scaling.fit import fit
from train.scaling.rank_counts import rank_counts
from train.scaling.report import measured_compute_s, report
from train.scaling.strategy import SUMMIT

PAPER = CONFIGS / "paper.yaml"


def test_rank_counts() -> None:
    assert rank_counts("1..100", SUMMIT) == [1, 2, 4, 6, 12, 24, 48, 96, 100]
    assert rank_counts("2,5", SUMMIT) == [2, 5]
    for text in ("0..4", "4..1", "many", "", "3,0"):
        with pytest.raises(InputError, match="--ranks"):
            rank_counts(text, SUMMIT)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["scaling", str(PAPER), "--ranks", "1..27600", "--samples", "200000"]
    assert main([*arguments, "--json", "--out", str(tmp_path / "scaling.png")]) == 0
    written = json.loads(capsys.readouterr().out)
    assert {"name", "kind", "published", "model", "fitted", "met", "network"} <= written[
        "published"
    ][0].keys()
    assert written["curve"][-1]["ranks"] == 27600
    assert written["curve"][-1]["steps_per_epoch"] == 200000 // 27600
    assert written["recommended"]["efficiency"] >= 0.9
    assert written["compute_from"] == "rate"
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "Ask for up to" in shown
    assert "FLOP/s" in shown


def test_flop_per_s_over_ranks() -> None:
    """One rank of Summit sustains and peaks as published; more ranks do so times the efficiency."""
    curve = report(PAPER, ranks="1,6144").curve
    assert curve[0]["flop_per_s"] == pytest.approx(59.67e12)
    assert curve[0]["peak_flop_per_s"] == pytest.approx(83.92e12)
    for key in ("flop_per_s", "peak_flop_per_s"):
        assert curve[1][key] == pytest.approx(6144 * curve[1]["efficiency"] * curve[0][key])


def test_the_peak_is_left_out_where_the_convolutions_time_is_not_known(tmp_path: Path) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text("name: mine\nsustained_flop_per_s: 1.0e+14\n")
    row = report(PAPER, ranks="1", machine=machine).curve[0]
    assert row["flop_per_s"] == pytest.approx(1e14)
    assert "peak_flop_per_s" not in row
    steps = []
    for step in range(1, 5):
        steps.append(json.dumps({"step": step, "step_s": 0.5, "data_s": 0.0, "comm_s": 0.0}))
    (tmp_path / "metrics.jsonl").write_text("\n".join(steps) + "\n")
    assert "peak_flop_per_s" not in report(PAPER, ranks="1", run_dir=tmp_path).curve[0]
    machine.write_text("name: mine\nconvolution_flop_per_s: 2.0e+14\n")
    row = report(PAPER, ranks="1", machine=machine, run_dir=tmp_path).curve[0]
    assert row["flop_per_s"] == pytest.approx(51.509e12 / 0.5, rel=1e-4)
    assert row["peak_flop_per_s"] == pytest.approx(2e14)


def test_accumulation_takes_more_samples_and_more_time_per_step() -> None:
    one, four = (
        report(PAPER, [f"training.accumulate={batches}"], ranks="6144", samples=200_000).curve[0]
        for batches in (1, 4)
    )
    assert four["reduced_bytes"] == one["reduced_bytes"]
    assert four["step_s"] > 3.8 * one["step_s"]
    assert four["samples_per_s"] == pytest.approx(4 * 6144 / four["step_s"])
    assert four["flop_per_s"] == pytest.approx(one["flop_per_s"], rel=0.02)
    assert four["steps_per_epoch"] == 200_000 // (4 * 6144)


@needs("local_sgd")
def test_local_sgd_is_shown_with_its_block_and_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    every = ["training.exchange={kind: local_sgd, synchronise: 8, average_moments: true}"]
    quickstart = CONFIGS / "quickstart.yaml"
    result = report(quickstart, every, ranks="1,12", samples=1200)
    assert result.synchronisation is not None
    weights = count(load(quickstart).network).trainable_parameters
    assert result.synchronisation.block_bytes == 4 * 3 * weights
    alone, together = result.curve
    assert "synchronisation_s" not in alone
    assert together["steps_between"] == pytest.approx(
        50 / 7
    )  # 1,200 samples of batches of 2 on 12 ranks
    synchronisation_s = together["steps_between"] * (together["step_s"] - result.compute_s)
    assert together["synchronisation_s"] == pytest.approx(synchronisation_s)
    assert together["reduced_bytes"] == pytest.approx(result.synchronisation.block_bytes / (50 / 7))
    assert report(quickstart, ranks="1").synchronisation is None
    words = []
    for override in every:
        for word in ("--set", override):
            words.append(word)
    assert main(["scaling", str(quickstart), "--ranks", "1,12", *words]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "(weights and moments) after every 8 steps and at the end of each epoch" in shown


def test_hours_end_with_the_last_step() -> None:
    row = report(PAPER, ranks="768").curve[0]  # of 2,000 steps
    assert row["hours"] == pytest.approx(2000 * row["step_s"] / 3600)
    row = report(PAPER, ["training.epochs=100"], ranks="768", samples=7680).curve[0]
    held_s = 12 * 220_417_793 / 5e9 / 100  # the copy of the state, at every tenth epoch of 10 steps
    assert row["checkpoint_s"] == pytest.approx(held_s, rel=1e-3)
    assert row["hours"] == pytest.approx(100 * 10 * (row["step_s"] + held_s) / 3600, rel=1e-3)


def test_a_run_tells_how_long_a_step_computes(tmp_path: Path) -> None:
    row = {"step_s": 0.9, "data_s": 0.1, "comm_s": 0.3}
    lines = []
    for step, s in enumerate((9.0, 0.9, 0.9, 0.9), start=1):
        lines.append(json.dumps(row | {"step": step, "step_s": s}))
    (tmp_path / "metrics.jsonl").write_text(
        "\n".join(lines) + '\n{"step": 5, "step'
    )  # still being written
    assert measured_compute_s(tmp_path) == pytest.approx(0.5)
    with pytest.raises(InputError, match="metrics.jsonl"):
        measured_compute_s(tmp_path / "nothing")


def test_bad_input_is_said_in_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["scaling", str(PAPER), "--ranks", "none"]) == 2
    machine = tmp_path / "machine.yaml"
    machine.write_text("jiter: 0.1\n")
    assert main(["scaling", str(PAPER), "--machine", str(machine)]) == 2
    assert main(["scaling", str(PAPER), "--out", "scaling.csv"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "jitter" in lines[1]
    assert lines[2] == "error: --out scaling.csv is for a picture: end it in .png, .svg, .pdf"


CYCLE_S = 30e-6
MESSAGE_S = 2e-6
ANNOUNCEMENT_S = 0.5e-6


def output(path, counts=(2, 4, 8, 16, 32), wrong_at=()):
    """Output of the benchmark for a coordinator that follows the law, except at the rank counts
    `wrong_at`.
    """
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
    wrong = []
    for row in costs["rows"]:
        if row["ranks"] == 4:
            wrong.append(row)
    for row in wrong:
        assert row["model_s"] == pytest.approx(row["measured_s"] / 2)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="rank counts"):
        fit(output(tmp_path / "two.txt", counts=(2, 4)))
    (tmp_path / "other.txt").write_text("{}")
    with pytest.raises(InputError, match=r"reduction\.py"):
        fit(tmp_path / "other.txt")


def test_command_shows_the_check(tmp_path, capsys):
    measured = str(output(tmp_path / "reduction.txt"))
    assert (
        main(["scaling", "configs/paper.yaml", "--ranks", "6", "--measured", measured, "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["measured"]["announcement_s"] == pytest.approx(
        ANNOUNCEMENT_S
    )
    assert main(["scaling", "configs/paper.yaml", "--ranks", "6", "--measured", measured]) == 0
    assert "0.5 µs" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted((PAPER.parent / "machines").glob("*.yaml")))
def test_machines_that_are_shipped_scale_the_paper(path: Path) -> None:
    curve = report(PAPER, ranks="8,512", machine=path).curve
    assert curve[0]["efficiency"] > curve[1]["efficiency"] > 0.9
    text = path.read_text()
    for line in text.splitlines():  # every number has its source, or is assumed
        if ":" in line and not line.startswith(("#", "name")):
            assert "#" in line or text.splitlines()[text.splitlines().index(line) - 1][0] == "#"
