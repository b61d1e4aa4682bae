"""The factory: each missing sample is simulated once, to the same bits by any rank, after any
interruption.
"""

import json
import multiprocessing
import shutil
import sys
import time
from unittest.mock import MagicMock

import fake_samples
import lmdb
import pytest
from fake_samples import MATERIALS, config, contents, sample, simulate

from namsa import InputError, WorkError
from namsa.dataset import disk_space, factory, manifest, shard_writer
from namsa.dataset.entries import build_entries
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path, shard_paths
from namsa.dataset.sharing import shuffled
from namsa.dataset.simulate_entry import simulate_entry

pytestmark = pytest.mark.usefixtures("fake_materials")
fork = multiprocessing.get_context("fork")


def produce(directory, rank=0, size=1, *, config=None, **options):
    return fake_samples.produce(directory, rank, size, settings=config, **options)


@pytest.fixture
def undisturbed(tmp_path):
    produce(tmp_path / "undisturbed")
    return contents(tmp_path / "undisturbed")


def test_one_rank_makes_everything_once_beside_its_configuration_and_touches_nothing_again(
    tmp_path,
):
    reported = []
    summary = produce(tmp_path, on_sample=lambda done, total: reported.append((done, total)))
    assert summary | {"seconds": 0, "bytes": 0} == {
        "rank": 0, "size": 1, "written": 12, "present": 0, "skipped": 0, "failed": 0,
        "remaining": 0,
        "seconds": 0, "bytes": 0, "time_limit_reached": False, "disk_full": False,
    }  # fmt: skip
    assert summary["bytes"] > 12 * 1000
    assert reported == [(done, 12) for done in range(1, 13)]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {path.name for path in before} == {
        "manifest.jsonl", "config.yaml", "shard-00000.lmdb", "shard-00000.lmdb-lock",
    }  # fmt: skip
    again = produce(tmp_path, simulate=None)
    assert (again["written"], again["present"], again["bytes"]) == (0, 12, 0)
    produce(tmp_path, 1, 2)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert "energy_ev: 200000.0" in (tmp_path / "config.yaml").read_text()
    with Dataset(tmp_path) as dataset:
        assert dataset.config_hash == config().samples_hash()
        assert dataset.read(dataset.ids[0]).cbed.shape == sample().cbed.shape


@pytest.mark.parametrize("size", [2, 5, 13])
def test_ranks_together_make_what_one_makes(tmp_path, undisturbed, size):
    summaries = [produce(tmp_path, rank, size) for rank in range(size)]
    assert contents(tmp_path) == undisturbed
    assert sum(summary["written"] for summary in summaries) == 12


def test_another_number_of_ranks_goes_on_where_the_first_stopped(tmp_path, undisturbed):
    produce(tmp_path, 0, 3)
    produce(tmp_path, 1, 3, limit=1)
    summaries = [produce(tmp_path, rank, 2) for rank in range(2)]
    assert sum(summary["present"] for summary in summaries) == 5
    assert sum(summary["written"] for summary in summaries) == 7
    assert contents(tmp_path) == undisturbed


def test_an_interrupt_keeps_what_was_made(tmp_path, undisturbed):
    simulated = []

    def interrupted(config, material, entry):
        if len(simulated) == 5:
            raise KeyboardInterrupt
        simulated.append(entry.id)
        return simulate(config, material, entry)

    with pytest.raises(KeyboardInterrupt):
        produce(tmp_path, simulate=interrupted, config=config(data={"samples_per_commit": 100}))
    assert contents(tmp_path) == {sample_id: undisturbed[sample_id] for sample_id in simulated}


def test_limits_stop_between_samples(tmp_path):
    assert produce(tmp_path, limit=3)["written"] == 3
    summary = produce(tmp_path, limit=2)
    assert (summary["present"], summary["written"], summary["remaining"]) == (3, 2, 7)
    assert not summary["time_limit_reached"]
    summary = produce(tmp_path, time_limit_s=0)
    assert (summary["present"], summary["written"], summary["remaining"]) == (5, 0, 7)
    assert summary["time_limit_reached"]
    summary = produce(tmp_path, time_limit_s=1000)
    assert (summary["written"], summary["time_limit_reached"]) == (7, False)


def test_a_sample_that_fails_is_recorded_and_neither_replaced_nor_tried_again(
    tmp_path, undisturbed
):
    tried = []

    def fails_for_iron(config, material, entry):
        tried.append(entry.id)
        sample = simulate(config, material, entry)
        if material.name == "Fe-bcc" and "001" in entry.id:
            raise InputError(f"iron will not do: {entry.id}")
        if material.name == "Fe-bcc":
            sample.density[0, 0] = float("nan")
        return sample

    summary = produce(tmp_path, simulate=fails_for_iron)
    assert (summary["written"], summary["failed"], summary["remaining"]) == (8, 4, 0)
    assert contents(tmp_path) == {
        sample_id: d for sample_id, d in undisturbed.items() if "Fe" not in sample_id
    }
    lines = [
        json.loads(line) for line in (tmp_path / "failed-00000.jsonl").read_text().splitlines()
    ]
    assert {line["id"] for line in lines} == {
        sample_id for sample_id in undisturbed if "Fe" in sample_id
    }
    broken = []
    for line in lines:
        if "001" not in line["id"]:
            broken.append(line["reason"])
    assert broken == ["the sample's density holds numbers that are not finite"] * 2
    for line in lines:
        if "001" in line["id"]:
            assert line["reason"] == f"iron will not do: {line['id']}"

    tried.clear()
    summary = produce(tmp_path, simulate=fails_for_iron)
    assert (summary["written"], summary["present"], summary["failed"]) == (0, 8, 4)
    assert not tried
    (tmp_path / "failed-00000.jsonl").unlink()
    assert produce(tmp_path)["written"] == 4
    assert contents(tmp_path) == undisturbed


def test_a_failure_that_a_crash_cut_short_is_tried_again_and_those_after_it_are_kept(tmp_path):
    def fails(config, material, entry):
        raise InputError("no")

    for folder in ("tried", "kept"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "failed-00000.jsonl").write_text('{"id": "Fe-bcc-001-20A", "rea')
    assert produce(tmp_path / "tried")["written"] == 12
    assert produce(tmp_path / "kept", simulate=fails, limit=1)["failed"] == 1
    assert produce(tmp_path / "kept", simulate=fails)["failed"] == 12
    assert len((tmp_path / "kept/failed-00000.jsonl").read_text().splitlines()) == 13
    assert produce(tmp_path / "kept", simulate=None)["failed"] == 12


def test_what_memory_did_not_suffice_for_is_tried_again(tmp_path, undisturbed):
    def too_large(config, material, entry):
        if material.name == "Fe-bcc":
            raise MemoryError("Unable to allocate 1 TiB")
        return simulate(config, material, entry)

    summary = produce(tmp_path, simulate=too_large)
    assert (summary["written"], summary["failed"], summary["remaining"]) == (8, 4, 0)
    assert (
        "out of memory: Unable to allocate 1 TiB" in (tmp_path / "failed-00000.jsonl").read_text()
    )
    summary = produce(tmp_path)
    assert (summary["written"], summary["present"], summary["failed"]) == (4, 8, 0)
    assert contents(tmp_path) == undisturbed


SMALL = {
    "simulation": {"grid_shape": [48, 54]},
    "scan": {"shape": [5, 6]},
    "specimen": {
        "zone_axes": [[0, 0, 1], [0, 1, 1]],
        "thickness_angstrom": [8],
        "lateral_angstrom": [4, 5],
    },
}


def test_the_size_and_a_disk_that_will_be_full_are_foreseen(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_space, "SAMPLED", 8)
    usage = shutil.disk_usage(tmp_path)
    real = config(**SMALL)
    expected = disk_space.expected_bytes(
        real, {m.name: m for m in MATERIALS}, shuffled(build_entries(real, MATERIALS))
    )
    assert produce(tmp_path / "real", config=real, simulate=simulate_entry)["written"] == 6
    assert shard_path(tmp_path / "real", 0).stat().st_size - 4 * 4096 == pytest.approx(
        expected, rel=0.05
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=round(1.1 * expected)))
    assert produce(tmp_path / "enough", config=real, limit=3)["written"] == 3
    with pytest.raises(WorkError, match=r"GB free.*each of 2 ranks here.*--time-limit"):
        produce(tmp_path / "for two", config=real, local_size=2)
    assert not shard_paths(tmp_path / "for two")
    assert (
        produce(tmp_path / "for two", 0, 2, config=real, local_size=2)["remaining"] == 0
    )  # half of it each
    with pytest.warns(UserWarning, match="may be full before the time is over"):
        assert (
            produce(tmp_path / "short", config=real, local_size=2, time_limit_s=1000)["written"]
            == 6
        )


def test_in_the_same_time_more_ranks_make_more_samples_and_none_twice(tmp_path, monkeypatch):
    axes = []
    for v in range(6):
        for w in range(6):
            axes.append((1, v, w))
    many = config(specimen={"zone_axes": axes, "thickness_angstrom": [8]})
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def takes_a_second(config, material, entry):
        clock[0] += 1.0
        return simulate(config, material, entry)

    for size in (1, 2, 5):
        directory = tmp_path / str(size)
        box = {"config": many, "simulate": takes_a_second, "time_limit_s": 7.5}
        assert [produce(directory, rank, size, **box)["written"] for rank in range(size)] == [
            8
        ] * size
        assert len(contents(directory)) == 8 * size


def test_a_clock_that_jumps_changes_nothing(tmp_path, undisturbed, monkeypatch):
    jumps = iter([1e9, 3e9, 5.0, -7.0] * 10_000)
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * next(jumps)))
    summary = produce(tmp_path, time_limit_s=60)
    assert (summary["written"], summary["time_limit_reached"]) == (12, False)
    assert 0 <= summary["seconds"] < 60
    assert contents(tmp_path) == undisturbed


def test_errors_of_the_program_itself_are_not_taken_for_failed_samples(tmp_path):
    def buggy(config, material, entry):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        produce(tmp_path, simulate=buggy)
    assert not list(tmp_path.glob("failed*"))


def test_skipped_entries_are_counted_and_not_simulated(tmp_path):
    summary = produce(
        tmp_path, config=config(specimen={"thickness_angstrom": [10, 200], "max_atoms": 1000})
    )
    assert summary["skipped"] >= 1
    assert summary["skipped"] + summary["written"] == 6


def test_a_directory_of_other_samples_is_refused_without_a_manifest_too(tmp_path):
    produce(tmp_path)
    other = config(microscope={"energy_ev": 100e3})
    (tmp_path / "manifest.jsonl").unlink()
    with pytest.raises(InputError, match="directory of its own") as error:
        produce(tmp_path, config=other)
    assert config().samples_hash() in str(error.value)
    assert other.samples_hash() in str(error.value)


def test_a_run_with_a_time_limit_ends_where_the_disk_is_nearly_full_and_says_so(
    tmp_path, monkeypatch
):
    """Of a job that goes on with training, as from a full burst buffer: its checkpoints need some
    room, too.
    """
    usage = shutil.disk_usage(tmp_path)
    size = produce(tmp_path / "one", limit=1)["bytes"]

    def disk(path):
        written = sum(shard.stat().st_size for shard in tmp_path.glob("all/shard-*.lmdb"))
        return usage._replace(total=200 * size, free=14 * size - written)

    monkeypatch.setattr(shutil, "disk_usage", disk)
    summary = produce(tmp_path / "all", time_limit_s=1000)
    assert summary["disk_full"]
    assert not summary["time_limit_reached"]
    assert summary["written"] == len(contents(tmp_path / "all")) > 0
    assert summary["remaining"] == 12 - summary["written"] > 0


def test_a_disk_that_is_full_all_the_same_ends_only_a_run_without_a_time_limit(
    tmp_path, monkeypatch
):
    def full(writer):
        if writer._pending and len(commits) == 2:
            lost = len(writer._pending)
            writer._pending = []
            raise shard_writer._cannot_write(
                tmp_path, lmdb.DiskError("mdb_txn_commit: No space left on device"), lost
            )
        commits.extend([1] * bool(writer._pending))
        commit(writer)

    commits = []
    commit = ShardWriter.commit
    monkeypatch.setattr(ShardWriter, "commit", full)
    real = config(data={"samples_per_commit": 2})
    summary = produce(tmp_path, config=real, time_limit_s=1000)
    assert (summary["written"], summary["disk_full"], summary["remaining"]) == (4, True, 8)
    assert len(contents(tmp_path)) == 4
    with pytest.raises(WorkError, match="No space left"):
        produce(tmp_path, config=real)
    assert not list(tmp_path.glob("failed*"))


def test_storing_waits_for_no_more_than_one_sample(tmp_path, monkeypatch):
    """Memory is bounded: with a slow disk, at most one finished sample waits while one is
    stored.
    """
    simulated = []
    stored = []
    ahead = []
    original = ShardWriter.put

    def slow_put(self, sample_id, record):
        time.sleep(0.01)
        original(self, sample_id, record)
        stored.append(sample_id)

    def fast(config, material, entry):
        ahead.append(len(simulated) - len(stored))
        simulated.append(entry.id)
        return simulate(config, material, entry)

    monkeypatch.setattr(ShardWriter, "put", slow_put)
    produce(tmp_path, simulate=fast)
    assert max(ahead) == 1
    assert stored == simulated


def test_after_a_simulation_the_memory_of_a_gpu_is_free_for_training(tmp_path, monkeypatch):
    cupy = MagicMock()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    produce(tmp_path, limit=1)
    cupy.get_default_memory_pool().free_all_blocks.assert_called_once()


@pytest.mark.parametrize("refused", ["by the task", "full disk", "memory"])
def test_what_is_refused_before_the_first_sample_leaves_no_folder_behind(
    tmp_path, monkeypatch, refused
):
    """The configuration that the remedy leads to is another one, and finds nothing."""
    real = config(**SMALL)

    def check(entries):
        if refused == "by the task":
            raise InputError(refused)

    monkeypatch.setattr(disk_space, "SAMPLED", 8)
    limits = factory.RunLimits(memory_bytes=1000 if refused == "memory" else None)
    if refused == "full disk":
        full = shutil.disk_usage(tmp_path)._replace(free=10)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises((InputError, WorkError), match="by the task|GB free|GB are available"):
        factory.produce(real, tmp_path / "own", limits=limits, check=check)
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())


def test_a_given_manifest_is_copied_after_the_checks(tmp_path):
    produce(tmp_path / "given", limit=0)
    given = config()
    given = given.model_copy(
        update={"data": given.data.model_copy(update={"manifest_from": tmp_path / "given"})}
    )

    def check(entries):
        raise InputError("too few materials")

    with pytest.raises(InputError, match="too few materials"):
        produce(tmp_path / "own", config=given, check=check)
    assert not (tmp_path / "own").exists()
    produce(tmp_path / "own", config=given, limit=0)
    written = (tmp_path / "own" / manifest.FILE_NAME).read_bytes()
    assert written == (tmp_path / "given" / manifest.FILE_NAME).read_bytes()
