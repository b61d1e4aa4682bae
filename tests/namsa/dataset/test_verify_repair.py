"""Verify finds what is bad. Repair moves it aside as it is, and the next run makes the dataset
whole.
"""

import errno
import json
import os
import shutil
from pathlib import Path

import fake_samples
import pytest
from crashes import killed
from fake_samples import change_a_bit, contents, ids_of, simulate

from namsa import WorkError
from namsa.cli import parser as cli
from namsa.dataset.records import encode
from namsa.dataset.repair import repair
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path
from namsa.dataset.verify import verify

pytestmark = pytest.mark.usefixtures("fake_materials")


def produce(directory, rank=0, size=1):
    return fake_samples.produce(directory, rank, size, simulate=large)


def large(config, material, entry):
    """Half of the records have pages of their own, half lie among the keys."""
    sample = simulate(config, material, entry)
    sample.provenance["padding"] = "." * (entry.seed % 2 * 9000)
    return sample


@pytest.fixture
def dataset(tmp_path):
    for rank in (0, 1):
        produce(tmp_path / "data", rank, 2)
    return tmp_path / "data"


@pytest.fixture
def undisturbed(dataset):
    return contents(dataset)


def bytes_of(path):
    return {file.name: file.read_bytes() for file in path.iterdir() if file.suffix == ".lmdb"}


def test_a_sound_dataset_is_left_alone(dataset, undisturbed):
    before = bytes_of(dataset)
    assert repair(dataset) == {"quarantine": None, "shards": []}
    assert bytes_of(dataset) == before
    assert not list(dataset.glob("quarantine*"))


def test_a_bad_record_goes_aside_and_is_made_again(dataset, undisturbed):
    path = shard_path(dataset, 1)
    bad = ids_of(path)[2]
    change_a_bit(path, bad)
    assert verify(dataset) == SOUND | {"corrupt": [bad]}
    before = bytes_of(dataset)

    result = repair(dataset)
    quarantine = dataset / "quarantine-0"
    assert result == {
        "quarantine": str(quarantine),
        "shards": [{"shard": path.name, "damaged": False, "moved": [bad], "kept": 5}],
    }
    assert json.loads((quarantine / "list.json").read_text()) == result["shards"]
    assert (quarantine / path.name).read_bytes() == before[path.name]  # moved, not changed
    assert bytes_of(dataset)["shard-00000.lmdb"] == before["shard-00000.lmdb"]
    assert contents(dataset) == {k: v for k, v in undisturbed.items() if k != bad}
    assert (verify(dataset)["corrupt"], verify(dataset)["missing"]) == ([], [bad])
    assert not [file.name for file in dataset.iterdir() if file.name.startswith(".")]

    assert produce(dataset)["written"] == 1
    assert contents(dataset) == undisturbed
    assert repair(dataset)["shards"] == []


@pytest.mark.parametrize("left", [0.9, 0.5, 0.1])
def test_of_a_file_cut_short_the_whole_records_are_kept(dataset, undisturbed, left):
    path = shard_path(dataset, 0)
    os.truncate(path, int(left * path.stat().st_size))
    (result,) = repair(dataset)["shards"]
    assert result["damaged"]
    assert result["kept"] < 6
    assert result["kept"] > 6 * left - 3
    assert len(contents(dataset)) == 6 + result["kept"]
    assert contents(dataset).items() <= undisturbed.items()
    produce(dataset)
    assert contents(dataset) == undisturbed


@pytest.mark.parametrize("page", [0, 1])
def test_with_its_first_pages_gone_a_file_still_gives_its_records(dataset, undisturbed, page):
    path = shard_path(dataset, 0)
    content = bytearray(path.read_bytes())
    content[4096 * page : 4096 * (page + 1)] = bytes(4096)
    path.write_bytes(content)
    assert repair(dataset)["shards"] == [
        {"shard": path.name, "damaged": True, "moved": [], "kept": 6}
    ]
    assert contents(dataset) == undisturbed


def test_garbage_and_lies_in_a_file_do_no_harm(dataset, undisturbed):
    path = shard_path(dataset, 0)
    content = bytearray(path.read_bytes())
    magic = b"NAMSA4D\n"
    places = []
    place = -1
    while (place := content.find(magic, place + 1)) >= 0:
        places.append(place)
    for index, place in enumerate(places[::2]):  # headers that lie about length, shape, type
        content[place + 12 + index % 3 * 20 : place + 16 + index % 3 * 20] = b"\xff\xff\xff\x7f"
    path.write_bytes(bytes(4096) + magic + content[4096:] + magic)
    (result,) = repair(dataset)["shards"]
    assert result["damaged"]
    assert contents(dataset).items() <= undisturbed.items()
    produce(dataset)
    assert contents(dataset) == undisturbed


def test_samples_of_another_configuration_go_aside(dataset, undisturbed):
    with ShardWriter(shard_path(dataset, 0)) as writer:
        writer.put("stray", encode(fake_samples.sample(config_hash="another", id="stray")))
    assert verify(dataset)["corrupt"] == ["stray"]
    assert repair(dataset)["shards"] == [
        {"shard": "shard-00000.lmdb", "damaged": False, "moved": ["stray"], "kept": 6}
    ]
    assert contents(dataset) == undisturbed


def test_a_second_repair_takes_another_folder_and_one_cut_off_begins_anew(
    dataset, undisturbed, monkeypatch
):
    for shard_number in (0, 1):
        path = shard_path(dataset, shard_number)
        change_a_bit(path, ids_of(path)[0])
        if shard_number:
            (dataset / ".shard-00001.lmdb.repaired").write_bytes(
                b"left by a repair that was killed"
            )
        assert repair(dataset)["quarantine"] == str(dataset / f"quarantine-{shard_number}")
    produce(dataset)
    assert contents(dataset) == undisturbed


@pytest.mark.slow
def test_killed_at_any_point_a_repair_loses_nothing_and_goes_on(dataset, undisturbed, tmp_path):
    path = shard_path(dataset, 1)
    bad = ids_of(path)[2]
    change_a_bit(path, bad)
    damaged = path.read_bytes()
    expected = {}
    for k, v in undisturbed.items():
        if k != bad:
            expected[k] = v
    kill_point = 0
    again = True
    while again:
        kill_point += 3  # all of them take long; before and after a call come in turn
        copy = shutil.copytree(dataset, tmp_path / f"copy-{kill_point}")
        again = killed(repair, copy, number=kill_point)
        assert verify(copy)["corrupt"] in ([bad], [])
        kept = [file.read_bytes() for file in copy.glob("**/shard-00001.lmdb")]
        assert damaged in kept  # in its place, or aside, or both
        repair(copy)
        assert contents(copy) == expected
        assert damaged in [file.read_bytes() for file in copy.glob("quarantine-*/shard-00001.lmdb")]
        produce(copy)
        assert contents(copy) == undisturbed
        shutil.rmtree(copy)
    assert kill_point > 20


def test_a_repair_that_fails_leaves_the_folder_as_it_was(dataset, monkeypatch):
    path = shard_path(dataset, 0)
    os.truncate(path, path.stat().st_size // 2)
    before = {file.name for file in dataset.iterdir()}

    def full(self, records):
        raise WorkError("cannot write: No space left on device")

    monkeypatch.setattr(ShardWriter, "put_many", full)
    with pytest.raises(WorkError, match="No space left"):
        repair(dataset)
    assert {file.name for file in dataset.iterdir()} - {f"{path.name}-lock"} == before - {
        f"{path.name}-lock"
    }


def test_a_repair_without_hard_links_copies_the_damaged_shard(dataset, undisturbed, monkeypatch):
    path = shard_path(dataset, 1)
    bad = ids_of(path)[2]
    change_a_bit(path, bad)
    damaged = path.read_bytes()

    def refuse(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    repair(dataset)
    assert (dataset / "quarantine-0" / path.name).read_bytes() == damaged
    assert contents(dataset) == {k: v for k, v in undisturbed.items() if k != bad}
    assert not [file.name for file in dataset.iterdir() if file.name.startswith(".")]


def test_a_repair_that_cannot_move_a_shard_leaves_no_repaired_one(dataset, monkeypatch):
    path = shard_path(dataset, 1)
    change_a_bit(path, ids_of(path)[2])
    damaged = path.read_bytes()

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(WorkError, match="cannot move .*: No space left"):
        repair(dataset)
    assert path.read_bytes() == damaged
    assert not list(dataset.glob(".*.repaired"))


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_a_second_name_of_a_shard_moves_aside(dataset, undisturbed, link):
    second = shard_path(dataset, 5)
    getattr(second, link)(shard_path(dataset, 1).absolute())
    with pytest.raises(WorkError, match=f"link to shard-00001.lmdb.*namsa repair {dataset}"):
        Dataset(dataset)
    assert verify(dataset)["corrupt"] == [second.name]
    (shard,) = repair(dataset)["shards"]
    assert (shard["shard"], shard["kept"]) == (second.name, 0)
    assert (verify(dataset)["corrupt"], verify(dataset)["repeated"]) == ([], [])
    assert contents(dataset) == undisturbed


def test_verify_names_the_command_that_leaves_one_of_each_repeated_record(
    dataset, tmp_path, capsys
):
    shutil.copy(shard_path(dataset, 1), shard_path(dataset, 5))
    assert cli.main(["verify", str(dataset)]) == 0
    assert f"`namsa merge {dataset} --out NEW` copies each sample once" in capsys.readouterr().err
    assert cli.main(["merge", str(dataset), "--out", str(tmp_path / "new")]) == 0
    assert verify(tmp_path / "new")["repeated"] == []


def test_a_folder_in_the_way_of_the_repaired_shard_is_named_with_the_remedy(dataset):
    shard_path(dataset, 1).write_bytes(b"x" * 10_000)
    (dataset / ".shard-00001.lmdb.repaired").mkdir()
    with pytest.raises(WorkError, match="shard-00001.lmdb.repaired.*: remove it, and repair again"):
        repair(dataset)
    (dataset / ".shard-00001.lmdb.repaired").rmdir()
    repair(dataset)
    assert verify(dataset)["corrupt"] == []


# ---- Verifying

SOUND = {
    "samples": 12, "corrupt": [], "missing": [], "repeated": [], "skipped": 0, "failed": 0,
    "failures": {}
}  # fmt: skip


def test_missing_and_failed_are_told_apart(tmp_path):
    def fails(config, material, entry):
        if entry.id == "Si-diamond-001-20A":
            raise WorkError("no")
        return simulate(config, material, entry)

    fake_samples.produce(tmp_path, simulate=fails)
    failures = {"Si-diamond-001-20A": "no"}
    assert verify(tmp_path) == SOUND | {"samples": 11, "failed": 1, "failures": failures}
    shard_path(tmp_path, 0).unlink()
    result = verify(tmp_path)
    assert (result["samples"], result["failed"], len(result["missing"])) == (0, 1, 11)


def test_a_record_in_two_shards_is_listed_and_under_another_samples_id_found(dataset):
    with Dataset(dataset) as data:
        sample_id = data.ids[4]
        record = data.read_bytes(sample_id)
    with ShardWriter(shard_path(dataset, 7)) as writer:
        writer.put(sample_id, record)
    assert verify(dataset) == SOUND | {"repeated": [sample_id]}
    with ShardWriter(shard_path(dataset, 7)) as writer:
        writer.put("other", record)
    assert verify(dataset)["corrupt"] == ["other"]
