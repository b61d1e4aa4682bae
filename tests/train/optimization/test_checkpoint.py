import json
import threading

import keras
import numpy as np
import pytest

from fcdensenet.config import NetworkConfig
from namsa.base.errors import InputError, WorkError
from train.experiment.sections import Checkpoints
from train.optimization.checkpoint import (
    CheckpointSchedule,
    TrainingPosition,
    background_writer,
    copied,
    read,
    restore,
    save,
)

NETWORK = NetworkConfig(input_shape=(2, 8, 8), layers=(1, 1, 1))


def variables(offset=0.0):
    named = {
        "kernel": np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(offset),
        "scale": np.asarray(2.0 + offset, np.float32),
        "seed": np.array([2**40, 7 + int(offset)], np.int64),
    }
    return [
        keras.Variable(value, name=name, dtype=value.dtype.name) for name, value in named.items()
    ]


def values(group):
    return [variable.numpy() for variable in group]


def test_moments_of_further_ranks_lie_behind_the_variables(tmp_path):
    others = [np.arange(5, dtype=np.float32), np.arange(5, 10, dtype=np.float32)]
    save(tmp_path, TrainingPosition(7, 1, 0, 3), variables(), NETWORK, keep=1, others=others)
    taken = [np.zeros(1)]
    assert restore([tmp_path], variables(), NETWORK, taken).position.ranks == 3
    np.testing.assert_array_equal(taken, others)
    # by a job that has no use for them
    assert restore([tmp_path], variables(), NETWORK).position.step == 7
    save(tmp_path, TrainingPosition(8), variables(), NETWORK, keep=1)
    assert restore([tmp_path], variables(), NETWORK, taken).position.step == 8
    assert taken == []


def test_everything_comes_back_bit_for_bit(tmp_path):
    written = variables(0.1)
    path = save(tmp_path, TrainingPosition(12, 3, 7, 4), written, NETWORK, keep=3)
    fresh = variables()
    assert restore([tmp_path], fresh, NETWORK).position == TrainingPosition(12, 3, 7, 4)
    for a, b in zip(values(fresh), values(written), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert path.name == "step-000000012.npz"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_what_is_written_behind_the_training_is_the_state_before_it(tmp_path):
    trained = variables()
    go_on = threading.Event()
    with background_writer() as writer:
        state = copied(trained)
        writer.start(
            lambda: (go_on.wait(10), save(tmp_path, TrainingPosition(3), state, NETWORK, keep=3))
        )
        trained[0].assign(np.zeros((2, 3)))  # the next step, while the file is not yet there
        assert not list(tmp_path.iterdir())
        go_on.set()
    fresh = variables(9.0)
    assert restore([tmp_path], fresh, NETWORK).position.step == 3
    for restored, expected in zip(values(fresh), values(variables()), strict=True):
        np.testing.assert_array_equal(restored, expected)


def test_a_write_that_failed_behind_the_training_ends_it_at_the_next_step_or_checkpoint_or_at_the_end():  # noqa: E501
    def full_disk():
        raise WorkError("disk full")

    with background_writer() as writer:
        writer.start(full_disk)
        with pytest.raises(WorkError, match="disk full"):
            writer.start(lambda: None)
    with background_writer() as writer:
        writer.start(full_disk)
        writer._pool.shutdown()  # the write has ended
        with pytest.raises(WorkError, match="disk full"):
            writer.check()
    with pytest.raises(WorkError, match="disk full"), background_writer() as writer:
        writer.start(full_disk)


def test_keeps_the_newest(tmp_path):
    for step in (5, 10, 15, 1000):
        save(tmp_path, TrainingPosition(step, step // 5), variables(step), NETWORK, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "step-000000015.npz",
        "step-000001000.npz",
    ]
    fresh = variables()
    assert restore([tmp_path], fresh, NETWORK).position.step == 1000
    assert float(fresh[1].numpy()) == 1002


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_broken_newest_falls_back_with_a_warning(tmp_path, capsys, damage):
    save(tmp_path, TrainingPosition(5, 1), variables(5), NETWORK, keep=3)
    newest = save(tmp_path, TrainingPosition(10, 2), variables(10), NETWORK, keep=3)
    raw = bytearray(newest.read_bytes())
    at = raw.index(variables(10)[0].numpy().tobytes())
    raw[at + 3] ^= 4
    newest.write_bytes({"cut": raw[: len(raw) // 2], "flip": raw, "empty": b""}[damage])
    fresh = variables()
    assert restore([tmp_path], fresh, NETWORK).position == TrainingPosition(5, 1)
    assert float(fresh[1].numpy()) == 7
    assert "step-000000010.npz is broken" in capsys.readouterr().err


def test_an_array_that_does_not_match_the_digest_is_broken(tmp_path):
    path = save(tmp_path, TrainingPosition(5, 1), variables(), NETWORK, keep=3)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["00001"] = np.asarray(3.0, np.float32)
    np.savez(path, **arrays)  # a whole zip, whose sums all match
    with pytest.raises(WorkError, match="every checkpoint"):
        restore([tmp_path], variables(), NETWORK)


def test_an_option_that_is_newer_than_a_checkpoint_has_its_default_there(tmp_path):
    class Newer(NetworkConfig):
        option: int = 1

    save(tmp_path, TrainingPosition(1), variables(), NETWORK, keep=1)
    shape = NETWORK.model_dump(include={"input_shape", "layers"})
    assert restore([tmp_path], variables(), Newer(**shape)).position.step == 1
    with pytest.raises(InputError, match="option 1, the configuration says 2"):
        restore([tmp_path], variables(), Newer(**shape, option=2))


def test_another_network_is_refused_by_name(tmp_path):
    path = save(tmp_path, TrainingPosition(5, 1), variables(), NETWORK, keep=3)
    with pytest.raises(InputError, match=r"growth 256, the configuration says 12"):
        restore([tmp_path], variables(), NETWORK.model_copy(update={"growth": 12}))
    other = variables()
    other[1] = keras.Variable(np.zeros(4, np.float32), name="scale")
    with pytest.raises(InputError, match=r"scale float32\[\] where the job has scale float32\[4\]"):
        restore([tmp_path], other, NETWORK)
    with pytest.raises(InputError, match="3 variables, the job has 2"):
        restore([tmp_path], variables()[:2], NETWORK)
    with np.load(path) as file:
        assert json.loads(file["header"].tobytes())["network"]["growth"] == 256


def test_a_checkpoint_of_another_format_is_refused_by_name(tmp_path):
    path = save(tmp_path, TrainingPosition(5, 1), variables(1), NETWORK, keep=3)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes()) | {"format": "train-checkpoint-1"}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(
        ValueError, match="its format is train-checkpoint-1, not train-checkpoint-2"
    ):
        read(path)


def test_the_newest_whole_one_of_two_places(tmp_path):
    near = tmp_path / "near"
    far = tmp_path / "far"
    for place in (near, far):
        save(place, TrainingPosition(5, 1), variables(5), NETWORK, keep=3)
    save(far, TrainingPosition(10, 2), variables(10), NETWORK, keep=3)
    assert restore([near, far], variables(), NETWORK).position.step == 10
    save(near, TrainingPosition(10, 2), variables(10), NETWORK, keep=3).write_bytes(b"")
    assert restore([near, far], variables(), NETWORK).position.step == 10


def test_a_part_that_a_kill_left_is_removed(tmp_path):
    (tmp_path / ".step-000000003.npz.part").write_text("part")
    save(tmp_path, TrainingPosition(5, 1), variables(), NETWORK, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000005.npz"]


def test_due_by_epochs_steps_and_seconds(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    schedule = CheckpointSchedule(Checkpoints(every_epochs=2, every_steps=3, every_seconds=60))
    assert [schedule.due_within_epoch(TrainingPosition(step)) for step in (1, 2, 3, 4)] == [
        False,
        False,
        True,
        False,
    ]
    assert [schedule.due_after_epoch(TrainingPosition(4, epoch)) for epoch in (1, 2)] == [
        False,
        True,
    ]
    now[0] += 61
    assert schedule.due_within_epoch(TrainingPosition(4))
    schedule.record_written()
    assert not schedule.due_within_epoch(TrainingPosition(4))
    assert not CheckpointSchedule(Checkpoints()).due_within_epoch(TrainingPosition(10**6))


def test_an_unwritable_place_is_a_work_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        WorkError,
        match=r"cannot make .*checkpoints: Not a directory \(the newest before it: none\)",
    ):
        save(
            tmp_path / "file" / "checkpoints", TrainingPosition(1, 1), variables(), NETWORK, keep=1
        )
