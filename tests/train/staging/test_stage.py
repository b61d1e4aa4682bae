"""Staging of a dataset from a shared folder to the nodes' folders, with threads as ranks, and once
with Horovod.
"""

import json
import os
import shutil
from collections import Counter

import fake_samples
import launch
import numpy as np
import pytest
import thread_ranks
from staged_files import NODES, files, stage_all, totals

from namsa.base.errors import InputError, WorkError
from namsa.dataset import listing
from namsa.dataset.shards import shard_path
from train.staging import copies, pieces, stage
from train.staging.copies import FileState


@pytest.fixture
def produce(monkeypatch):
    monkeypatch.setattr(listing, "select_materials", lambda *_, **__: fake_samples.MATERIALS)
    return fake_samples.produce


@pytest.fixture
def dataset(tmp_path, produce):
    """12 samples in three shards, of which the last two are the larger. Small pieces make many of
    them.
    """
    for rank in range(3):
        produce(tmp_path / "shared", rank, 3)
    (tmp_path / "shared" / "failed-00001.jsonl").touch()
    return tmp_path / "shared"


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "_SMALLEST_PIECE", 1000)
    monkeypatch.setattr(pieces, "_LARGEST_PIECE", 1000)


def size_of(directory):
    return sum(map(len, files(directory).values()))


# ---- Where bytes go


def test_every_node_gets_the_dataset_and_every_byte_is_read_once(dataset, tmp_path):
    result = stage_all(dataset, tmp_path)
    size = size_of(dataset)
    assert result[0]["bytes"] == size
    moved = totals(result)
    assert (moved["read"], moved["written"], moved["sent"]) == (size, 2 * size, moved["received"])
    assert size < moved["sent"] < 1.1 * size  # and digests
    read = [row["read"] for row in result[0]["ranks"]]
    assert max(read) < 1.3 * size / 5
    for members in NODES:  # what all ranks read is written on a node by its ranks alike
        written = [result[0]["ranks"][rank]["written"] for rank in members]
        assert max(written) - min(written) <= 2000
    for node in ("node0", "node1"):
        assert files(tmp_path / node) == files(dataset)
    assert fake_samples.contents(tmp_path / "node1") == fake_samples.contents(dataset)


def test_a_partition_has_each_shard_on_the_node_of_its_rank(dataset, tmp_path):
    shutil.copy(
        shard_path(dataset, 2), shard_path(dataset, 5)
    )  # of a job of more ranks: 5 mod 5 is rank 0
    moved = totals(stage_all(dataset, tmp_path, everywhere=False))
    shards = []
    for node in ("node0", "node1"):
        shards.append({path.name[6:11] for path in (tmp_path / node).glob("shard-*")})
    assert shards == [{"00000", "00001", "00005"}, {"00002"}]
    assert moved["read"] == size_of(dataset)
    assert moved["sent"] < 0.1 * moved["read"]  # the list, and digests


def test_samples_that_other_nodes_hold_are_not_made_again(dataset, tmp_path, produce):
    stage_all(dataset, tmp_path, nodes=[[0], [1]], everywhere=False)
    for rank in (0, 1):
        done = produce(tmp_path / f"node{rank}", rank, 2)
        assert (done["written"], done["present"]) == (0, 6)
    shutil.rmtree(tmp_path / "node1")
    assert produce(tmp_path / "node1", 1, 2)["written"] == 6


@pytest.mark.parametrize("nodes", [[[0]], [[0, 1, 2]], [[0], [1], [2]], [[0, 3], [1, 2]]])
def test_any_ranks_on_any_nodes(dataset, tmp_path, nodes):
    totals(stage_all(dataset, tmp_path, nodes=nodes))
    for node in range(len(nodes)):
        assert files(tmp_path / f"node{node}") == files(dataset)


# ---- Again


def test_what_is_there_is_not_read_again(dataset, tmp_path):
    stage_all(dataset, tmp_path)
    assert totals(stage_all(dataset, tmp_path)) == {
        "read": 0,
        "sent": 0,
        "received": 0,
        "written": 0,
    }
    lost = shard_path(tmp_path / "node1", 1)
    size = lost.stat().st_size
    lost.unlink()
    moved = totals(stage_all(dataset, tmp_path))
    assert (moved["read"], moved["written"]) == (size, size)
    assert files(tmp_path / "node1") == files(dataset)


def test_a_shard_of_other_samples_is_copied_again_whatever_its_size_and_time(
    dataset, tmp_path, produce
):
    stage_all(dataset, tmp_path)
    for rank in range(3):
        produce(tmp_path / "other", rank, 3, simulate=fake_samples.simulate_otherwise)
    fake_samples.replace_shard(shard_path(dataset, 1), shard_path(tmp_path / "other", 1))
    moved = totals(stage_all(dataset, tmp_path))
    assert moved["read"] == shard_path(dataset, 1).stat().st_size
    for node in ("node0", "node1"):
        assert fake_samples.contents(tmp_path / node) == fake_samples.contents(dataset)


def test_a_shard_that_was_touched_is_not_copied_again(dataset, tmp_path):
    stage_all(dataset, tmp_path)
    os.utime(shard_path(dataset, 1), ns=(0, 0))
    assert totals(stage_all(dataset, tmp_path))["read"] == 0


def test_a_shard_without_a_note_is_a_copy_by_its_contents_alone(dataset, tmp_path, produce):
    stage_all(dataset, tmp_path)
    path = shard_path(tmp_path / "node1", 1)
    path.with_name(f".{path.name}.copied").unlink()
    assert totals(stage_all(dataset, tmp_path))["read"] == 0
    for rank in range(3):
        produce(tmp_path / "other", rank, 3, simulate=fake_samples.simulate_otherwise)
    fake_samples.replace_shard(path, shard_path(tmp_path / "other", 1))
    assert "is no copy of shard-00001.lmdb" in fault(stage_all(dataset, tmp_path), InputError)


def test_notes_of_earlier_versions_have_size_and_time_alone(dataset, tmp_path):
    stage_all(dataset, tmp_path)
    for note in tmp_path.glob("node*/.*.copied"):
        content = json.loads(note.read_text())
        del content["contents"]
        note.write_text(json.dumps(content))
    assert totals(stage_all(dataset, tmp_path))["read"] == 0


def test_killed_in_a_round_no_file_is_there_by_half(dataset, tmp_path, monkeypatch):
    write = pieces._write
    count = Counter()

    def dies(path, piece, data):
        count["pieces"] += 1
        if count["pieces"] > 60:
            raise WorkError("killed")
        return write(path, piece, data)

    monkeypatch.setattr(pieces, "_write", dies)
    outcomes = stage_all(dataset, tmp_path)
    assert sum(isinstance(outcome, WorkError) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, thread_ranks.Ended) for outcome in outcomes) == 4
    monkeypatch.setattr(pieces, "_write", write)
    expected = files(dataset)
    for node in ("node0", "node1"):
        present = files(tmp_path / node)
        assert set(present) < set(expected)
        for name, body in present.items():
            assert expected[name] == body
    assert size_of(tmp_path / "node0")
    moved = totals(stage_all(dataset, tmp_path))
    assert moved["read"] < size_of(dataset)
    assert files(tmp_path / "node0") == files(tmp_path / "node1") == expected
    assert not list(tmp_path.glob("node*/.*.part"))


def test_a_newer_source_replaces_an_untouched_copy(dataset, tmp_path):
    stage_all(dataset, tmp_path)
    shutil.copy(shard_path(dataset, 0), shard_path(dataset, 1))
    totals(stage_all(dataset, tmp_path))
    assert files(tmp_path / "node1") == files(dataset)


@pytest.mark.parametrize("damage", ["longer", "flipped", "foreign"])
def test_a_file_that_is_no_copy_is_never_replaced(dataset, tmp_path, damage):
    path = shard_path(tmp_path / "node1", 1)
    if damage == "foreign":
        path.parent.mkdir()
        path.write_bytes(b"mine")
    else:
        stage_all(dataset, tmp_path)
        body = bytearray(path.read_bytes())
        body[50] ^= 1
        path.write_bytes(bytes(body) if damage == "flipped" else path.read_bytes() + b"more")
    before = path.read_bytes()
    outcomes = stage_all(dataset, tmp_path)
    faults = []
    for outcome in outcomes:
        if isinstance(outcome, InputError):
            faults.append(str(outcome))
    assert len(faults) == 1
    assert "no copy of shard-00001.lmdb" in faults[0]
    assert path.read_bytes() == before


# ---- Faults: one rank reports, all end


def fault(outcomes, kind):
    for outcome in outcomes:
        assert isinstance(outcome, Exception), outcomes
    own_faults = []
    for outcome in outcomes:
        if not isinstance(outcome, thread_ranks.Ended):
            own_faults.append(outcome)
    assert [type(outcome) for outcome in own_faults] == [kind]
    return str(own_faults[0])


def test_no_dataset(tmp_path):
    assert "there is no dataset at" in fault(stage_all(tmp_path / "nothing", tmp_path), InputError)


def test_one_folder_for_two_nodes(dataset, tmp_path):
    outcomes = thread_ranks.run(NODES, lambda rank: stage.stage(dataset, tmp_path / "one", rank))
    assert "is one folder for 2 nodes" in fault(outcomes, InputError)
    assert not list((tmp_path / "one").iterdir())


def test_no_space(dataset, tmp_path, monkeypatch):
    usage = shutil._ntuple_diskusage(2**31, 2**31 - 2**20 // 4, 2**20 // 4)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(
        stage, "list_files", lambda source: [FileState("shard-00000.lmdb", 3 * 2**29, 0)]
    )
    assert "has 0.00 GiB free, and staging needs 1.50 GiB" in fault(
        stage_all(dataset, tmp_path), WorkError
    )


def test_a_target_that_cannot_be_written(dataset, tmp_path):
    (tmp_path / "node1").write_text("a file")
    assert "cannot write into" in fault(stage_all(dataset, tmp_path), WorkError)


@pytest.mark.parametrize("change", ["gone", "shorter", "touched"])
def test_a_source_that_changes_meanwhile(dataset, tmp_path, monkeypatch, change):
    list_files = stage.list_files

    def then_changes(source):
        listed = list_files(source)
        path = shard_path(source, 2)
        if change == "gone":
            path.unlink()
        elif change == "shorter":
            os.truncate(path, path.stat().st_size - 4096)
        else:
            os.utime(path, ns=(0, 0))
        return listed

    monkeypatch.setattr(stage, "list_files", then_changes)
    message = fault(stage_all(dataset, tmp_path), WorkError)
    assert ("No such file" if change == "gone" else "has changed while it was staged") in message
    assert not shard_path(tmp_path / "node0", 2).exists()


def test_a_byte_that_flips_on_the_way(dataset, tmp_path, monkeypatch):
    exchange_bytes = thread_ranks.Rank.exchange_bytes

    def flips(self, outgoing):
        arrived = exchange_bytes(self, outgoing)
        if self.rank() == 3 and len(arrived[0]) > 600:
            arrived[0][500] ^= 4
        return arrived

    monkeypatch.setattr(thread_ranks.Rank, "exchange_bytes", flips)
    assert "arrived damaged from rank 0" in fault(stage_all(dataset, tmp_path), WorkError)


# ---- Home again


# ---- Horovod's ranks


@pytest.mark.slow
def test_four_ranks_on_two_nodes(dataset, tmp_path):
    """Two names of this machine are two nodes; each stages into a folder of its own name."""
    with shard_path(dataset, 3).open("wb") as file:  # no shard, but bytes enough for several rounds
        file.write(np.random.default_rng(0).bytes(5_000_001))
    worker = (
        "import os, sys, json\nfrom pathlib import Path\n"
        "from train.ranks import connection\nfrom train.staging.stage import stage\n"
        "engine = connection.start()\n"
        "to = Path(sys.argv[2]) / os.environ['HOROVOD_HOSTNAME']\n"
        "staged = stage(Path(sys.argv[1]), to, engine)\n"
        "(to / f'.{engine.rank()}.json').write_text(json.dumps(staged))\nconnection.stop()\n"
    )
    hosts = ["-H", "localhost:2,127.0.0.1:2"]
    done = launch.horovodrun(
        "-c", worker, dataset, tmp_path / "to", ranks=4, timeout=120, more=hosts
    )
    assert done.returncode == 0, done.stdout + done.stderr
    nodes = [tmp_path / "to" / name for name in ("localhost", "127.0.0.1")]
    assert [files(node) for node in nodes] == [files(dataset)] * 2
    staged = [json.loads((nodes[rank // 2] / f".{rank}.json").read_text()) for rank in range(4)]
    moved = totals(staged)
    assert moved["read"] == moved["written"] / 2 == staged[0]["bytes"]
    assert [row["node"] for row in staged[0]["ranks"]] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "null",
        "[]",
        '{"size": 1}',
        '{"size": 1, "mtime_ns": 1, "piece_bytes": 0, "digest": "x"}',
    ],
)
def test_a_note_that_cannot_be_read_is_none(tmp_path, text):
    (tmp_path / ".x.copied").write_text(text)
    assert copies.read_note(tmp_path / "x") is None


def test_a_folder_in_place_of_a_file_is_refused(dataset, tmp_path):
    (dataset / "failed-00007.jsonl").symlink_to("/nowhere")
    with pytest.raises(
        InputError, match=r"failed-00007\.jsonl is a folder or a link to nothing.*remove it"
    ):
        stage.list_files(dataset)
