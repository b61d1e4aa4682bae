"""Reading and comparison of runs."""

import json

import numpy as np
import pytest

from namsa.errors import InputError
from train.__main__ import main
from train.reports.runs import compare, read_run, read_steps


def write(folder, ranks, epoch_s, huber, batch=2):
    """Writes a run with two steps per epoch, and half of another epoch."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"training: {{batch_size: {batch}}}\n")
    lines = []
    for epoch, (seconds, loss) in enumerate([*zip(epoch_s, huber, strict=True), (1.0, 0.0)]):
        row = {"epoch": epoch, "step_s": seconds / 2, "huber": loss, "samples_per_s": ranks * batch / (seconds / 2)}
        steps = range(len(lines) + 1, len(lines) + (3 if epoch < len(huber) else 2))
        lines += [json.dumps({"step": step} | row) for step in steps]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_run_is_read_epoch_by_epoch(tmp_path):
    epochs = read_run(write(tmp_path / "a", 3, [5.0, 4.0], [2.0, 1.0]))
    assert epochs == {"run": "a", "ranks": 3, "epoch_s": [5.0, 4.0], "huber": [2.0, 1.0]}


def test_a_run_that_was_killed_and_went_on_is_read_as_if_left_alone(tmp_path):
    whole, killed = (write(tmp_path / name / "a", 3, [5.0, 4.0], [2.0, 1.0]) for name in ("whole", "killed"))
    lines = (killed / "metrics.jsonl").read_text().splitlines()
    skipped = json.dumps(json.loads(lines[1]) | {"huber": None, "step_s": 9.0})
    (killed / "metrics.jsonl").write_text("\n".join([lines[0], skipped, *lines[1:]]) + '\n{"step": 6, "ep')
    assert read_run(killed) == read_run(whole)
    (killed / "metrics.jsonl").write_text("\n".join([*lines[:2], skipped, ""]))  # the last row of a step counts
    np.testing.assert_array_equal(read_steps(killed / "metrics.jsonl", ("step", "huber"))["huber"], [2, np.nan])


def test_speed_ups_of_an_epoch_and_of_learning(tmp_path):
    one = read_run(write(tmp_path / "one", 1, [10.0, 8.0, 8.0], [3.0, 1.5, 0.5]))
    four = read_run(write(tmp_path / "four", 4, [3.0, 2.0, 2.0, 2.0], [4.0, 3.0, 2.0, 1.0]))
    comparison = compare([four, one])
    assert comparison["target_huber"] == 1.0
    first, second = comparison["runs"]
    assert (first["ranks"], first["epoch_speedup"], first["learning_speedup"]) == (1, 1, 1)
    assert second["epoch_speedup"] == pytest.approx(8 / 2)
    assert second["efficiency"] == pytest.approx(1)
    assert (first["epochs_to_target"], second["epochs_to_target"]) == (3, 4)
    assert second["learning_speedup"] == pytest.approx((10 + 8 + 8) / (3 + 2 + 2 + 2))


def test_command(tmp_path, capsys):
    runs = [str(write(tmp_path / f"r{ranks}", ranks, [8.0 / ranks] * 2, [2.0, 1.0])) for ranks in (1, 2)]
    assert main(["scaling", "--compare", *runs, "--json"]) == 0
    assert [run["ranks"] for run in json.loads(capsys.readouterr().out)["runs"]] == [1, 2]
    assert main(["scaling", "--compare", *runs]) == 0
    assert "efficiency" in capsys.readouterr().out


def test_what_cannot_be_compared_is_said_in_a_line(tmp_path, capsys):
    with pytest.raises(InputError, match="no whole epoch"):
        read_run(tmp_path)
    assert main(["scaling"]) == 2
    assert main(["scaling", "--compare", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
