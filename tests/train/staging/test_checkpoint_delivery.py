import keras
import numpy as np
import pytest

from fcdensenet.config import NetworkConfig
from namsa.base.errors import WorkError
from train.measure import rows
from train.optimization.checkpoint import TrainingPosition, restore, save
from train.staging import copies
from train.staging.checkpoint_delivery import background_delivery, deliver

NETWORK = NetworkConfig(input_shape=(2, 8, 8), layers=(1, 1, 1))


def checkpoint(run_dir, step, keep=9):
    run_dir.mkdir(exist_ok=True)
    (run_dir / "config.yaml").write_text("name: x\n")
    (run_dir / "metrics.jsonl").write_text(
        "".join(f'{{"step": {n}}}\n' for n in range(1, step + 1)) + '{"torn'
    )
    variables = [keras.Variable(np.full(3, step, np.float32), name="w")]
    return save(run_dir / "checkpoints", TrainingPosition(step), variables, NETWORK, keep)


def checkpoints(directory):
    return [path.name for path in sorted((directory / "checkpoints").iterdir())]


def test_checkpoints_get_home_with_the_metrics_up_to_them(tmp_path):
    run_dir = tmp_path / "local"
    home = tmp_path / "home"
    with background_delivery(run_dir, home, keep=2) as send:
        for step in (1, 2, 3):
            send(checkpoint(run_dir, step))
    assert checkpoints(home)[-1] == "step-000000003.npz"
    assert len(checkpoints(home)) <= 2
    assert (home / "metrics.jsonl").read_text().splitlines() == [
        '{"step": 1}',
        '{"step": 2}',
        '{"step": 3}',
    ]
    fresh = [keras.Variable(np.zeros(3, np.float32), name="w")]
    assert restore([tmp_path / "lost", home / "checkpoints"], fresh, NETWORK).position.step == 3
    np.testing.assert_array_equal(fresh[0].numpy(), 3)


def test_old_ones_are_removed_at_home(tmp_path):
    run_dir = tmp_path / "local"
    home = tmp_path / "home"
    for step in (1, 2, 3):
        deliver(checkpoint(run_dir, step), run_dir, home, keep=2)
    assert checkpoints(home) == ["step-000000002.npz", "step-000000003.npz"]


def test_without_a_home_nothing_is_carried(tmp_path):
    with background_delivery(tmp_path / "local", None, keep=2) as send:
        send(checkpoint(tmp_path / "local", 1))
    assert [path.name for path in tmp_path.iterdir()] == ["local"]


def test_a_failure_is_a_warning_while_another_follows(tmp_path, monkeypatch, capsys):
    run_dir = tmp_path / "local"
    home = tmp_path / "home"
    copy_file = copies.copy_file
    first = checkpoint(run_dir, 1)
    second = checkpoint(run_dir, 2)

    def full_once(path, copied):
        if path == first:
            raise WorkError("no space")
        copy_file(path, copied)

    monkeypatch.setattr(copies, "copy_file", full_once)
    failure = pytest.raises(
        WorkError, match="has not reached .*home and is only in .*local: no space"
    )
    with failure, background_delivery(run_dir, home, keep=2) as send:
        send(first)
    assert "warning: step-000000001.npz has not reached" in capsys.readouterr().err
    with background_delivery(run_dir, home, keep=2) as send:
        send(first)
        send(second)
    assert checkpoints(home) == ["step-000000002.npz"]


def test_a_copy_that_reads_otherwise_is_no_checkpoint(tmp_path, monkeypatch):
    run_dir = tmp_path / "local"
    home = tmp_path / "home"
    path = checkpoint(run_dir, 1)

    def flipped(path, copied):
        raw = bytearray(path.read_bytes())
        raw[raw.index(np.full(3, 1, np.float32).tobytes())] ^= 1
        copied.write_bytes(raw)

    monkeypatch.setattr(copies, "copy_file", flipped)
    with pytest.raises(WorkError, match="its copy is broken"):
        deliver(path, run_dir, home, keep=2)
    assert checkpoints(home) == []


def test_what_went_wrong_meanwhile_is_raised_first(tmp_path, monkeypatch):
    def never(path, copied):
        raise WorkError("no space")

    monkeypatch.setattr(copies, "copy_file", never)
    meanwhile = pytest.raises(ZeroDivisionError)
    with meanwhile, background_delivery(tmp_path / "local", tmp_path / "home", keep=2) as send:
        send(checkpoint(tmp_path / "local", 1))
        raise ZeroDivisionError


@pytest.mark.parametrize("name", ["validation.jsonl", "transfer.jsonl"])
def test_rows_are_not_added_to_a_planted_link(name, tmp_path):
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkError, match="is a link or no regular file: remove it"):
        rows.append(tmp_path / name, {"step": 1})
    assert not (tmp_path / "elsewhere").exists()


def test_a_copy_is_not_written_through_a_planted_link(tmp_path):
    checkpoint_file = tmp_path / "own"
    other = tmp_path / "other"
    checkpoint_file.write_text("new")
    other.write_text("of somebody else")
    copies.partial_path(tmp_path / "copy").symlink_to(other)
    copies.copy_file(checkpoint_file, tmp_path / "copy")
    assert other.read_text() == "of somebody else"
    assert (tmp_path / "copy").read_text() == "new"
    assert not (tmp_path / "copy").is_symlink()
