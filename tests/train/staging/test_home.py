"""Samples that ranks add to a dataset, and files of a run, return home."""

import os

import fake_samples
import pytest
from staged_files import folder, stage_all, totals

from namsa.base.errors import WorkError
from namsa.dataset import listing, manifest
from namsa.dataset.shards import Dataset, shard_path
from train.staging import pieces
from train.staging.copies import fetch_run, keep_dataset, keep_run


@pytest.fixture
def produce(monkeypatch):
    monkeypatch.setattr(listing, "select_materials", lambda *_, **__: fake_samples.MATERIALS)
    return fake_samples.produce


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "_SMALLEST_PIECE", 1000)
    monkeypatch.setattr(pieces, "_LARGEST_PIECE", 1000)


def test_what_ranks_add_returns_home_and_comes_again_to_other_ranks(tmp_path, produce):
    home = tmp_path / "home"
    for rank in range(4):
        produce(tmp_path / f"first{rank // 2}", rank, 4, limit=2)
    copied = [keep_dataset(tmp_path / f"first{rank // 2}", home, rank) for rank in range(4)]
    assert [summary["files"] for summary in copied] == [3, 1, 1, 1]
    again = [keep_dataset(tmp_path / f"first{rank // 2}", home, rank) for rank in range(4)]
    assert [summary["files"] for summary in again] == [0] * 4

    nodes = [[0, 1], [2]]
    totals(stage_all(home, tmp_path, nodes, everywhere=False))
    produced = [produce(folder(tmp_path, rank, nodes), rank, 3) for rank in range(3)]
    assert (
        sum(summary["present"] for summary in produced),
        sum(summary["written"] for summary in produced),
    ) == (8, 4)
    for rank in range(3):
        keep_dataset(folder(tmp_path, rank, nodes), home, rank)
    with Dataset(home) as at_home:
        assert len(at_home) == 12
    assert len(manifest.read(home)) == 12
    totals(stage_all(home, tmp_path, nodes, everywhere=False))  # where it is already


def test_a_file_at_home_that_another_job_has_written_stays(tmp_path, produce):
    for job in ("one", "other"):
        produce(tmp_path / job, 0, 2, limit=1 + (job == "one"))
    keep_dataset(tmp_path / "one", tmp_path / "home", 0)
    before = shard_path(tmp_path / "home", 0).read_bytes()
    with pytest.raises(WorkError, match="is not what .* was made from"):
        keep_dataset(tmp_path / "other", tmp_path / "home", 0)
    assert shard_path(tmp_path / "home", 0).read_bytes() == before


def test_a_shard_at_home_of_the_same_size_and_time_is_not_taken_for_a_copy(tmp_path, produce):
    produce(tmp_path / "one")
    keep_dataset(tmp_path / "one", tmp_path / "home", 0)
    assert keep_dataset(tmp_path / "one", tmp_path / "home", 0)["files"] == 0
    produce(tmp_path / "other", simulate=fake_samples.simulate_otherwise)
    kept = shard_path(tmp_path / "home", 0)
    fake_samples.replace_shard(kept, shard_path(tmp_path / "other", 0))
    with pytest.raises(WorkError, match="is not what .* was made from"):
        keep_dataset(tmp_path / "one", tmp_path / "home", 0)


def test_a_file_of_a_run_is_brought_home_though_size_and_time_are_the_same(tmp_path):
    local = run_directory(tmp_path / "local", 1)
    home = tmp_path / "home"
    keep_run(local, home)
    path = local / "metrics.jsonl"
    status = path.stat()
    path.write_text("enil\n")
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    keep_run(local, home)
    assert (home / "metrics.jsonl").read_text() == "enil\n"


def run_directory(path, steps):
    (path / "checkpoints").mkdir(parents=True, exist_ok=True)
    (path / "metrics.jsonl").write_text("line\n" * steps)
    (path / "checkpoints" / f"step-{steps:09d}.npz").write_text(f"state {steps}")
    return path


def test_a_run_directory_goes_home_and_comes_back(tmp_path):
    local = run_directory(tmp_path / "local", 1)
    home = tmp_path / "home"
    keep_run(local, home)
    keep_run(run_directory(local, 2), home)
    (local / "checkpoints" / "step-000000001.npz").unlink()
    keep_run(local, home)
    other = tmp_path / "other"
    fetch_run(home, other)
    for place in (home, other):
        assert [path.name for path in (place / "checkpoints").iterdir()] == ["step-000000002.npz"]
        assert (place / "metrics.jsonl").read_text() == "line\n" * 2
    fetch_run(home, run_directory(other, 3))
    assert (other / "metrics.jsonl").read_text() == "line\n" * 3
    fetch_run(None, other)
    keep_run(other, None)
