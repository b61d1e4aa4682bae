"""Each node's own random samples, with threads as ranks."""

import fake_samples
import pytest
import thread_ranks
import tiny

from namsa.base.errors import DifferentError, InputError, WorkError
from namsa.config.loading import validate
from namsa.dataset import listing, lmdb_structure, manifest, other_nodes
from namsa.dataset.shards import Dataset, Shard, shard_path, shard_paths
from train.experiment.experiment import Experiment
from train.staging import pieces
from train.strategies.source.drawn import source as drawn_samples

NODES = [[0, 1], [2, 3, 4]]
SPLIT = {"train": 0.7, "dev": 0.3, "test": 0}  # one of the three materials is held out


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """12 samples in three shards, of which some are held out. Small pieces make many of them."""
    monkeypatch.setattr(listing, "select_materials", lambda *_, **__: fake_samples.MATERIALS)
    monkeypatch.setattr(pieces, "_SMALLEST_PIECE", 1000)
    monkeypatch.setattr(pieces, "_LARGEST_PIECE", 1000)
    for rank in range(3):
        fake_samples.produce(
            tmp_path / "shared", rank, 3, settings=fake_samples.config(split=SPLIT)
        )
    return tmp_path / "shared"


def folder(tmp_path, rank):
    return tmp_path / f"node{int(rank >= 2)}"


def stage(source, tmp_path, samples=5, seed=7):
    return thread_ranks.run(
        NODES,
        lambda rank: drawn_samples.stage(
            source, folder(tmp_path, rank.rank()), rank, samples, seed
        ),
    )


def splits(directory):
    return {entry.id: entry.split for entry in manifest.read(directory)}


def moved(results, key):
    for result in results:
        assert result[0] == results[0][0], results
    return sum(row[key] for row in results[0][0]["ranks"])


def test_records_are_found_in_the_file_where_lmdb_reads_them(dataset):
    count = 0
    for path in shard_paths(dataset):
        data = path.read_bytes()
        with Shard(path) as shard:
            places = lmdb_structure.locations(path)
            assert tuple(places) == shard.ids
            for sample_id, (start, size) in places.items():
                assert data[start : start + size] == shard.read_bytes(sample_id)
                count += 1
    assert count == 12


def test_each_node_gets_its_draw_and_its_part_of_the_held_out_samples(dataset, tmp_path):
    results = stage(dataset, tmp_path)
    split_of = splits(dataset)
    original = fake_samples.contents(dataset)
    training = sorted(sample_id for sample_id, split in split_of.items() if split == "train")
    held_out = set(split_of) - set(training)
    assert held_out
    ids = [results[0][1], results[2][1]]
    assert [results[rank][1] for rank in (1, 3, 4)] == [ids[0], ids[1], ids[1]]
    assert ids[0] & held_out | ids[1] & held_out == held_out
    assert not ids[0] & ids[1] & held_out
    for node in (0, 1):
        drawn = ids[node] - held_out
        assert sorted(drawn) == drawn_samples.draw(training, 5, 7, node)
        assert len(drawn) == 5
        assert fake_samples.contents(tmp_path / f"node{node}") == {
            name: original[name] for name in ids[node]
        }
        header = manifest.read_header(tmp_path / f"node{node}")
        elsewhere = other_nodes.read_ids(tmp_path / f"node{node}", header["samples_hash"])
        assert elsewhere == set(split_of) - ids[node]
        assert not list((tmp_path / f"node{node}").glob(".*.part"))
    assert drawn_samples.draw(training, 5, 7, 0) != drawn_samples.draw(training, 5, 7, 1)
    assert drawn_samples.draw(training, 5, 7, 0) != drawn_samples.draw(training, 5, 8, 0)
    assert results[0][0]["drawn"]["different"] == len((ids[0] | ids[1]) - held_out)


def test_each_byte_is_read_once_also_if_both_nodes_need_it(dataset, tmp_path):
    results = stage(dataset, tmp_path)
    sizes = {}
    for path in shard_paths(dataset):
        sizes |= {
            sample_id: size for sample_id, (_, size) in lmdb_structure.locations(path).items()
        }
    files = sum(
        path.stat().st_size for path in dataset.iterdir() if path.suffix in (".jsonl", ".yaml")
    )
    ids = [results[0][1], results[2][1]]
    assert ids[0] & ids[1]
    assert (
        moved(results, "read")
        == files + sum(sizes[name] for name in ids[0] | ids[1])
        == results[0][0]["bytes"]
    )
    assert moved(results, "written") == 2 * files + sum(
        sizes[name] for rank_ids in ids for name in rank_ids
    )


def test_again_the_same_samples_are_there_and_nothing_is_read(dataset, tmp_path):
    first = stage(dataset, tmp_path)
    again = stage(dataset, tmp_path)
    assert [result[1] for result in again] == [result[1] for result in first]
    assert again[0][0]["drawn"] == first[0][0]["drawn"]
    assert moved(again, "read") == 0
    other = stage(
        dataset, tmp_path, seed=8
    )  # what is there of another draw stays, and is not read again
    assert other[0][1] != first[0][1]
    assert 0 < moved(other, "read") < first[0][0]["bytes"]
    with Dataset(tmp_path / "node0") as here:
        assert set(here.ids) == first[0][1] | other[0][1]


def fault(results, kind):
    own_faults = []
    for result in results:
        if not isinstance(result, thread_ranks.Ended):
            own_faults.append(result)
    assert {type(result) for result in own_faults} == {kind}, results
    return str(own_faults[0])


def test_more_samples_than_there_are_is_refused(dataset, tmp_path):
    count = sum(split == "train" for split in splits(dataset).values())
    message = fault(stage(dataset, tmp_path, samples=count + 1), InputError)
    assert (
        f"data.source.samples is {count + 1}, and data.source.folder has {count} training samples: "
        "lower" in message
    )


def test_a_record_that_is_damaged_at_its_origin_is_not_added(dataset, tmp_path):
    path = shard_path(dataset, 1)
    sample_id, (start, size) = next(iter(lmdb_structure.locations(path).items()))
    data = bytearray(path.read_bytes())
    data[start + size - 1] ^= 1
    path.write_bytes(data)
    count = sum(split == "train" for split in splits(dataset).values())
    assert f"{sample_id} in shard-00001.lmdb: " in fault(
        stage(dataset, tmp_path, samples=count), WorkError
    )


def test_a_draw_needs_a_dataset_to_draw_from():
    with pytest.raises(
        InputError, match=r"data.source.folder: a value is needed; folder is: the dataset, on"
    ):
        validate(
            Experiment,
            tiny.CONFIG | {"data": {"source": {"kind": "drawn", "samples": 4}}},
            "config",
        )


def test_samples_of_the_same_ids_and_other_values_are_refused(dataset, tmp_path):
    stage(dataset, tmp_path)
    settings = fake_samples.config(split=SPLIT)
    for rank in range(3):
        fake_samples.produce(
            tmp_path / "other",
            rank,
            3,
            settings=settings,
            simulate=fake_samples.simulate_otherwise,
        )
        fake_samples.replace_shard(shard_path(dataset, rank), shard_path(tmp_path / "other", rank))
    errors = []
    for outcome in stage(dataset, tmp_path):
        if isinstance(outcome, DifferentError):
            errors.append(outcome)
    assert len(errors) == 1
    lines = str(errors[0]).splitlines()
    assert "other samples" in lines[0]
    assert "was made differently" in lines[0]
    assert 2 < len(lines) <= drawn_samples.MOST_SHOWN + 2
    assert lines[1].strip().split(":")[0] in splits(dataset)
    assert lines[-1].startswith("remove ")
