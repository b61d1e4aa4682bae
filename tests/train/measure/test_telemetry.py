import io
import json
import math
import resource

import pytest
import tensorflow as tf
from rich.console import Console
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from namsa.base.errors import WorkError
from train.measure.telemetry import epoch_display, epoch_line, recorder

NUMBERS = (
    "loss",
    "huber",
    "l2",
    "delta",
    "lr",
    "loss_scale",
    "grad_norm",
    "step_s",
    "data_s",
    "comm_s",
    "samples_per_s",
)


def row(step, epoch=0, **more):
    return {"step": step, "epoch": epoch} | dict.fromkeys(NUMBERS, 0.5) | more


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_a_step_and_events(tmp_path):
    with recorder(tmp_path, 0) as record:
        record(row(1))
        assert lines(tmp_path / "metrics.jsonl") == [row(1)]  # there while the job runs
        record(row(2, loss=math.inf, grad_norm=math.nan))
    assert lines(tmp_path / "metrics.jsonl")[1] == row(2, loss=None, grad_norm=None)
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"rate/grad_norm" in events.read_bytes()


def test_tensorboard_groups_numbers_and_has_the_score_of_a_validation(tmp_path):
    with recorder(tmp_path, 0) as record:
        record(row(1, memory_mib=9.0))
        record.validated({"step": 1, "epoch": 1, "samples": 3, "huber": 0.25, "ssim": None})
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert set(board.Tags()["tensors"]) == {
        *(f"loss/{name}" for name in ("loss", "huber", "l2", "delta", "loss_scale")),
        *(f"rate/{name}" for name in ("lr", "grad_norm", "samples_per_s")),
        *(f"time/{name}" for name in ("step_s", "data_s", "comm_s")),
        "machine/memory_mib",
        "score/huber",
    }
    assert tf.make_ndarray(board.Tensors("score/huber")[0].tensor_proto).item() == 0.25


def test_resuming_forgets_steps_after_the_checkpoint_and_a_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for done, steps, loss in ((0, range(1, 8), 1.0), (5, range(6, 9), 2.0)):
        with recorder(tmp_path, done) as record:
            for step in steps:
                record(row(step, loss=loss))
        path.write_text(path.read_text() + '{"step": 8, "ep' * (done == 0))
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    shown = []
    for event in board.Tensors("loss/loss"):
        shown.append((event.step, tf.make_ndarray(event.tensor_proto).item()))
    assert shown == [(line["step"], line["loss"]) for line in lines(path)]
    assert shown == [(step, 1.0 if step <= 5 else 2.0) for step in range(1, 9)]
    with recorder(tmp_path, 0) as record:  # a fresh run in a used directory
        record(row(1))
    assert lines(path) == [row(1)]


@pytest.mark.parametrize(("end", "left"), [(math.inf, ["8 s", "4 s", None]), (5, ["2 s", None])])
def test_away_from_a_terminal_an_epoch_is_one_plain_line_with_the_time_that_is_left(end, left):
    """A job that is resumed after its first epoch, steps of two seconds."""
    out = io.StringIO()
    seconds = 0.0
    console = Console(file=out, width=200, get_time=lambda: seconds)
    with epoch_display(console, epochs=4, steps=2, terms=("huber",), end=end) as show:
        for step in range(3, int(min(end, 8)) + 1):
            seconds += 2.0
            show(row(step, epoch=(step - 1) // 2, loss=float(step)), step % 2 == 0 or step == end)
    starts = ("epoch 2/4  loss 3.5 ", "epoch 3/4  loss 5", "epoch 4/4  loss 7.5 ")
    for line, start, time in zip(
        out.getvalue().splitlines(), starts[: len(left)], left, strict=True
    ):
        assert line.startswith(start)
        assert line.endswith(f", {time} left") if time else "left" not in line


def test_an_epochs_line_weighs_rates_by_time():
    rows = [
        row(1, step_s=3.0, samples_per_s=1.0, data_s=1.0, comm_s=0.0),
        row(2, step_s=1.0, samples_per_s=5.0),
    ]
    assert "2.0 samples/s  4.0 s (38% waiting for data, 12% for ranks)" in epoch_line(
        rows, 1, "huber"
    )
    assert epoch_line(rows, 1, "huber").count("\n") == 0
    local = [values | {"sync_s": 0.5} for values in rows]
    assert "(38% waiting for data, 12% for ranks, 25% to synchronise)" in epoch_line(
        local, 1, "huber"
    )


@pytest.mark.parametrize("name", ["metrics.jsonl", "tensorboard"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_planted_link_is_not_followed(name, exists, tmp_path):
    run_dir = tmp_path / "run"
    elsewhere = tmp_path / "elsewhere"
    run_dir.mkdir()
    if exists and name == "tensorboard":
        elsewhere.mkdir()
    (run_dir / name).symlink_to(elsewhere)
    if name == "metrics.jsonl" and exists:
        elsewhere.write_text("mine\n")
        with recorder(run_dir, 0) as record:  # the link itself has given way to a file
            record(row(1))
        assert elsewhere.read_text() == "mine\n"
        assert not (run_dir / name).is_symlink()
        return
    with pytest.raises(WorkError, match="link"), recorder(run_dir, 0) as record:
        record(row(1))
    assert not elsewhere.exists() or not any(elsewhere.iterdir())


@pytest.mark.parametrize(("largest_bytes", "name"), [(2_000, "tfevents"), (100, r"metrics\.jsonl")])
def test_a_full_disk_is_one_error_that_names_the_file(largest_bytes, name, tmp_path):
    """Nothing is left to be written when files are closed, which would be another error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_bytes, hard))
    try:
        with pytest.raises(WorkError, match=f"cannot write .*{name}.*: File too large"):
            record_steps(tmp_path, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def record_steps(run_dir, count):
    with recorder(run_dir, 0) as record:
        for step in range(count):
            record(row(step))
