"""Shards: what was committed stays whatever happens to the writer, and a damaged file is an error
and no crash.
"""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
import numpy as np
import pytest
from fake_samples import change_a_bit, contents, ids_of, sample

from namsa import InputError, WorkError
from namsa.dataset.records import encode
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, Shard, shard_path

fork = multiprocessing.get_context("fork")
RECORD = encode(sample())


def fill(directory: Path, rank: int = 0, count: int = 5, **provenance) -> Path:
    path = shard_path(directory, rank)
    with ShardWriter(path) as writer:
        for seed in range(count):
            writer.put(f"s{rank}-{seed}", encode(sample(seed, **provenance)))
    return path


def test_a_dataset_is_all_its_shards(tmp_path):
    fill(tmp_path, 0, 3)
    fill(tmp_path, 12, 2)
    with Dataset(tmp_path) as dataset:
        assert dataset.ids == ("s0-0", "s0-1", "s0-2", "s12-0", "s12-1")
        assert len(dataset) == 5
        assert "s12-1" in dataset
        assert "s12-2" not in dataset
        assert dataset.config_hash == "0123456789abcdef"
        assert dataset.read("s12-1").sample().cbed.shape == (6, 5, 7)
        with pytest.raises(InputError, match="no sample 's12-2' among the 5"):
            dataset.read("s12-2")


def test_a_view_is_of_the_file_and_a_read_is_a_copy(tmp_path):
    fill(tmp_path)
    with Dataset(tmp_path) as dataset:
        copied = dataset.read("s0-1")
        with dataset.view("s0-1") as record:
            assert not record.cbed.flags.writeable
            assert (record.cbed == copied.cbed).all()
    assert copied.cbed.flags.owndata


def test_commits_come_every_few_samples_and_at_the_end(tmp_path):
    path = shard_path(tmp_path, 0)
    with fork.Pool(1) as another_process, ShardWriter(path, samples_per_commit=2) as writer:
        for index, committed in enumerate([0, 2, 2, 4, 4]):
            writer.put(str(index), RECORD)
            assert len(another_process.apply(ids_of, (path,))) == committed
    assert ids_of(path) == ("0", "1", "2", "3", "4")


def test_the_map_grows_as_needed(tmp_path):
    path = shard_path(tmp_path, 0)
    with ShardWriter(path, samples_per_commit=7, map_size=2**15) as writer:
        for index in range(50):
            writer.put(f"{index:03d}", RECORD)
    assert path.stat().st_size > 4 * 2**15
    assert len(ids_of(path)) == 50


def test_the_first_of_two_records_of_one_id_stays(tmp_path):
    fill(tmp_path)
    before = contents(tmp_path)
    with ShardWriter(shard_path(tmp_path, 0)) as writer:
        writer.put("s0-1", encode(sample(99)))
    assert contents(tmp_path) == before


def test_threads_and_forks_read_what_one_thread_reads(tmp_path):
    fill(tmp_path, 0, 20)
    fill(tmp_path, 1, 20)
    with Dataset(tmp_path) as dataset:
        expected = {sample_id: dataset.read(sample_id).cbed.tobytes() for sample_id in dataset.ids}

        def read(sample_id: str) -> bool:
            return dataset.read(sample_id).cbed.tobytes() == expected[sample_id]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, list(dataset.ids) * 20))
        child = fork.Process(target=lambda: os._exit(0 if all(map(read, dataset.ids)) else 1))
        child.start()
        child.join(20)
        assert child.exitcode == 0


def write_many(path: Path, started) -> None:
    with ShardWriter(path) as writer:
        for seed in range(400):
            writer.put(f"{seed:05d}", encode(sample(seed)))
            if seed == 5:
                started.set()


@pytest.mark.slow
def test_a_shard_can_be_read_while_another_process_writes_it(tmp_path):
    path = shard_path(tmp_path, 0)
    started = fork.Event()
    fill(tmp_path, 0, 3)
    writer = fork.Process(target=write_many, args=(path, started))
    writer.start()
    assert started.wait(20)
    count = 0
    while writer.is_alive():
        with Shard(path) as shard:
            assert len(shard.ids) >= count
            count = len(shard.ids)
            for sample_id in shard.ids:
                with shard.view(sample_id):
                    pass
    writer.join()
    assert writer.exitcode == 0
    assert len(ids_of(path)) == 403


def hold_a_snapshot(path: Path, pipe) -> None:
    pipe.recv()
    with (
        lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env,
        env.begin() as transaction,
    ):
        pipe.send("begun")
        pipe.recv()
        pipe.send([key.decode() for key in transaction.cursor().iternext(values=False)])


def test_what_a_reader_without_a_lock_sees_stays_as_it_is(tmp_path):
    path = fill(tmp_path, 0, 300)
    before = ids_of(path)
    here, other_end = fork.Pipe()
    reader = fork.Process(target=hold_a_snapshot, args=(path, other_end))
    reader.start()
    with ShardWriter(path) as writer:
        writer.put("one", RECORD)
        here.send("begin")
        assert here.recv() == "begun"
        for index in range(50):
            writer.put(f"more-{index}", RECORD)
        here.send("go on")
        assert here.poll(20)
        assert here.recv() == sorted([*before, "one"])
    reader.join()


def write_in_turn(path: Path, opened) -> None:
    assert opened.wait(20)
    for turn in range(10):
        with ShardWriter(path) as writer:
            for index in range(10):
                writer.put(f"{turn}-{index}", RECORD)


def test_a_view_stays_good_when_its_context_is_left_and_others_write(tmp_path):
    path = fill(tmp_path, 0, 20)
    opened = fork.Event()
    writer = fork.Process(target=write_in_turn, args=(path, opened))
    writer.start()  # before the shard is open: a process can have it open only once
    with Shard(path) as shard:
        views = []
        for sample_id in shard.ids:
            with shard.view(sample_id) as record:
                views.append((record, record.copy()))
        opened.set()
        writer.join()
        assert writer.exitcode == 0
        for record, copied in views:
            for name in ("cbed", "density", "projected_potential", "positions_angstrom"):
                np.testing.assert_array_equal(getattr(record, name), getattr(copied, name))


@pytest.mark.parametrize(
    "left", [lambda size: size - 1, lambda size: size // 2, lambda size: 9000, lambda size: 100]
)
def test_a_shard_cut_short_is_an_error_that_names_it(tmp_path, left):
    path = fill(tmp_path)
    with ShardWriter(
        path
    ) as writer:  # pages given up before hold the keys now, and the file ends with this record
        writer.put("last", RECORD)
    assert RECORD[-200:] in path.read_bytes()[-4096:]
    os.truncate(path, left(path.stat().st_size))
    with pytest.raises(WorkError, match=r"shard-00000\.lmdb is damaged .*namsa repair"):
        Dataset(tmp_path)


@pytest.mark.parametrize(
    ("place", "damage"), [(10, b"\x01"), (12, b"\xff\xff"), (12, b"\x10\0"), (16, b"\xff" * 40)]
)
def test_a_damaged_page_is_an_error_and_no_crash(tmp_path, place, damage):
    path = fill(tmp_path, 0, 60)
    content = bytearray(path.read_bytes())
    keys = content.rindex(b"s0-1") // 4096 * 4096  # the page that holds them in the last commit
    content[keys + place : keys + place + len(damage)] = damage
    path.write_bytes(content)
    child = fork.Process(target=read_or_refuse, args=(path,))
    child.start()
    child.join(20)
    assert child.exitcode == 3  # refused, and no signal's number


def read_or_refuse(path: Path) -> None:
    try:
        with Shard(path) as shard:
            for sample_id in shard.ids:
                with shard.view(sample_id):
                    pass
    except WorkError:
        os._exit(3)


def test_a_changed_record_is_named_with_its_shard(tmp_path):
    path = fill(tmp_path)
    change_a_bit(path, "s0-2")
    with Dataset(tmp_path) as dataset:
        with pytest.raises(WorkError, match=r"s0-2 in .*shard-00000\.lmdb: .*checksum"):
            dataset.read("s0-2")
        dataset.read("s0-1")


def test_places_that_cannot_be_written_or_read_are_named(tmp_path):
    with pytest.raises(WorkError, match=r"cannot write .*nowhere.*No such file"):
        ShardWriter(tmp_path / "nowhere" / "shard-00000.lmdb")
    (tmp_path / "folder").mkdir()
    with pytest.raises(WorkError, match=r"cannot read .*Is a directory"):
        ShardWriter(tmp_path / "folder")
    with pytest.raises(InputError, match=r"no dataset at .*nowhere.*namsa dataset"):
        Dataset(tmp_path / "nowhere")


def test_an_empty_directory_is_a_dataset_without_samples(tmp_path):
    shard_path(tmp_path, 0).touch()  # a writer was killed before its first write
    with Dataset(tmp_path) as dataset:
        assert (len(dataset), dataset.ids, dataset.config_hash) == (0, (), None)


def test_a_shard_open_twice_is_an_error_and_closing_lets_it_be_opened_again(tmp_path):
    path = fill(tmp_path)
    with Dataset(tmp_path):
        with pytest.raises(WorkError, match="already open in this process"):
            Dataset(tmp_path)
        with pytest.raises(WorkError, match="already open in this process"):
            ShardWriter(path)
    with Dataset(tmp_path) as dataset:
        assert len(dataset) == 5


def test_only_lmdb_stands_between_a_record_and_the_disk(tmp_path):
    path = fill(tmp_path, count=1)
    with (
        lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env,
        env.begin() as transaction,
    ):
        assert transaction.get(b"s0-0") == encode(sample(0))
