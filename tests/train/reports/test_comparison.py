"""Finished runs beside each other: speed-ups of an epoch and of learning, as Yoginath et al. (2019)
define them.
"""

import json

import numpy as np
import pytest
import yaml
from paths import CONFIGS

from namsa.base.errors import InputError
from train.__main__ import main
from train.reports.comparison import compare, read_run
from train.reports.runs import read_steps


def write_run(folder, ranks, epoch_s, losses, term="huber", errors=(), score="error", batch=2):
    """Writes a run with two steps per epoch, and half of another epoch."""
    folder.mkdir(parents=True)
    training = {"batch_size": batch}
    (folder / "config.yaml").write_text(yaml.safe_dump({"training": training}))
    lines = []
    for epoch, (seconds, loss) in enumerate([*zip(epoch_s, losses, strict=True), (1.0, 0.0)]):
        row = {
            "epoch": epoch,
            "step_s": seconds / 2,
            term: loss,
            "samples_per_s": ranks * batch / (seconds / 2),
        }
        steps = range(len(lines) + 1, len(lines) + (3 if epoch < len(losses) else 2))
        lines += [json.dumps({"step": step} | row) for step in steps]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    rows = []
    for epoch, error in errors:
        rows.append(json.dumps({"step": 2 * epoch, "epoch": epoch, "samples": 3, score: error}))
    if rows:
        (folder / "validation.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def test_a_run_is_read_epoch_by_epoch(tmp_path):
    run = read_run(write_run(tmp_path / "a", 3, [5.0, 4.0], [2.0, 1.0]), "huber")
    assert (run.run, run.ranks, run.epoch_s) == ("a", 3, [5.0, 4.0])
    assert (run.measure, run.errors) == ("training huber", [(1, 2.0), (2, 1.0)])


@pytest.mark.parametrize("term", ["huber", "cross_entropy", "rmse", "mse"])
def test_a_run_of_any_task_is_read_by_its_loss_or_its_validations(tmp_path, term):
    folder = write_run(tmp_path / "a", 1, [5.0, 4.0], [2.0, 1.0], term)
    assert read_run(folder, "error").measure == f"training {term}"
    folder = write_run(tmp_path / "b", 1, [5.0, 4.0], [2.0, 1.0], term, [(2, 0.3)])
    run = read_run(folder, "error")
    assert (run.measure, run.errors) == ("validation error", [(2, 0.3)])


def test_ranks_that_divide_samples_and_batches_that_accumulate_are_counted(tmp_path):
    folder = write_run(tmp_path / "a", 3, [5.0, 4.0], [2.0, 1.0], batch=4)
    settings = {"batch_size": 2, "accumulate": 2, "split": {"ways": 2}}
    (folder / "config.yaml").write_text(yaml.safe_dump({"training": settings}))
    assert read_run(folder, "huber").ranks == 6


def test_a_run_that_was_killed_and_went_on_is_read_as_if_left_alone(tmp_path):
    uninterrupted, killed = (
        write_run(tmp_path / name / "a", 3, [5.0, 4.0], [2.0, 1.0]) for name in ("whole", "killed")
    )
    lines = (killed / "metrics.jsonl").read_text().splitlines()
    skipped = json.dumps(json.loads(lines[1]) | {"huber": None, "step_s": 9.0})
    (killed / "metrics.jsonl").write_text(
        "\n".join([lines[0], skipped, *lines[1:]]) + '\n{"step": 6, "ep'
    )
    assert read_run(killed, "huber") == read_run(uninterrupted, "huber")
    (killed / "metrics.jsonl").write_text(
        "\n".join([*lines[:2], skipped, ""])
    )  # the last row of a step counts
    np.testing.assert_array_equal(
        read_steps(killed / "metrics.jsonl", ("step", "huber"))["huber"], [2, np.nan]
    )


def test_speed_ups_are_those_of_the_paper_with_the_plain_sums_beside_them(tmp_path):
    one = read_run(write_run(tmp_path / "one", 1, [10.0, 8.0, 8.0], [3.0, 1.5, 0.5]), "huber")
    four = read_run(
        write_run(tmp_path / "four", 4, [3.0, 2.0, 2.0, 2.0], [4.0, 3.0, 2.0, 1.0]), "huber"
    )
    comparison = compare([four, one])
    assert comparison["thresholds"] == [1.0]  # the lowest that both reached
    first, second = comparison["runs"]
    assert (first["ranks"], first["epoch_speedup"]) == (1, 1)
    assert second["epoch_speedup"] == pytest.approx(8 / 2)
    assert second["efficiency"] == pytest.approx(1)
    (serial,) = first["learning"]
    (parallel,) = second["learning"]
    assert (serial["epochs"], parallel["epochs"]) == (3, 4)
    assert serial["learning_speedup"] == serial["learning_speedup_summed"] == 1
    # (τ_s N_s) / (τ_p N_p), without the slow first epochs
    assert parallel["learning_speedup"] == pytest.approx((8 * 3) / (2 * 4))
    summed = (10 + 8 + 8) / (3 + 2 + 2 + 2)
    assert parallel["learning_speedup_summed"] == pytest.approx(summed)


def test_thresholds_that_a_run_does_not_reach_are_left_open(tmp_path):
    errors = {1: [(1, 0.5), (2, 0.15), (3, 0.05)], 2: [(1, 0.6), (2, 0.3), (3, 0.18)]}
    runs = []
    for ranks, rows in errors.items():
        folder = write_run(
            tmp_path / str(ranks), ranks, [6.0 / ranks] * 3, [1.0] * 3, "cross_entropy", rows
        )
        runs.append(read_run(folder, "error"))
    comparison = compare(runs, [0.2, 0.1])
    above, below = comparison["runs"][1]["learning"]
    assert above["epochs"] == 3
    assert above["learning_speedup"] == pytest.approx((6 * 2) / (3 * 3))
    assert below["epochs"] is below["learning_speedup"] is below["seconds_summed"] is None


def test_runs_of_other_measures_are_not_compared(tmp_path):
    folders = [
        write_run(tmp_path / "a", 1, [1.0], [1.0], "cross_entropy", [(1, 0.5)]),
        write_run(tmp_path / "b", 2, [1.0], [1.0], "cross_entropy"),
    ]
    runs = [read_run(folder, "error") for folder in folders]
    with pytest.raises(InputError, match="a has validation error and run b training cross_entropy"):
        compare(runs)


def test_command_compares_a_task_by_its_validations(tmp_path, capsys):
    settings = (CONFIGS / "classify.yaml").read_text(encoding="utf-8")
    runs = []
    for ranks in (1, 2):
        folder = write_run(
            tmp_path / f"run-{ranks}",
            ranks,
            [8.0 / ranks] * 2,
            [2.0, 1.0],
            "cross_entropy",
            [(1, 0.3), (2, 0.1 * ranks)],
            batch=16,
        )
        (folder / "config.yaml").write_text(settings)
        runs.append(str(folder))
    command = ["scaling", "--compare", *runs, "--threshold", "0.2", "0.1"]
    assert main([*command, "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison["measure"] == "validation error"
    reached = []
    for run in comparison["runs"]:
        reached.append([row["epochs"] for row in run["learning"]])
    assert reached == [[2, 2], [2, None]]
    assert main(command) == 0
    page = capsys.readouterr().out
    assert "Until the validation error is 0.1" in page
    assert "not reached" in page
    assert "learning speed-up by sums" in " ".join(page.split())  # no column is cut


def test_what_cannot_be_compared_is_said_in_a_line(tmp_path, capsys):
    with pytest.raises(InputError, match="no whole epoch"):
        read_run(tmp_path, "huber")
    assert main(["scaling"]) == 2
    assert main(["scaling", "--compare", str(tmp_path)]) == 2
    assert main(["scaling", "configs/quickstart.yaml", "--threshold", "0.1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.mark.parametrize("command", [["threshold"], ["transfer", "--gigabytes-per-s", "1"]])
def test_a_run_whose_weights_do_not_travel_is_refused_with_the_one_that_is_needed(
    command, tmp_path, capsys
):
    run = write_run(tmp_path / "run", 1, [1.0], [2.0])
    assert main([*command, str(run)]) == 2
    assert "has no transfer.jsonl: give the directory of a run with training.exchange of kind" in (
        capsys.readouterr().err
    )
