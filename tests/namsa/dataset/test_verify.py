"""Verifying: every record's checksum, every entry of the manifest."""

import os

import pytest
from fake_samples import MATERIALS, config, produce, simulate

from namsa import WorkError
from namsa.dataset import manifest
from namsa.dataset.records import encode
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path
from namsa.dataset.sharing import share
from namsa.dataset.verify import verify

SOUND = {
    "samples": 12, "corrupt": [], "missing": [], "repeated": [], "skipped": 0, "failed": 0, "failures": {}
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("fake_materials")


@pytest.fixture
def dataset(tmp_path):
    for rank in (0, 1):
        produce(tmp_path, rank, 2)
    return tmp_path


@pytest.mark.parametrize("place", [0.0, 0.01, 0.2, 0.5, 0.9, 0.9999])
def test_one_changed_bit_is_found(dataset, place):
    entry = share(manifest.read(dataset), 1, 2)[3]
    (material,) = (material for material in MATERIALS if material.name == entry.material)
    record = bytes(encode(simulate(config(), material, entry)))
    path = shard_path(dataset, 1)
    whole = bytearray(path.read_bytes())
    whole[whole.index(record) + int(place * len(record))] ^= 1
    path.write_bytes(whole)
    assert verify(dataset) == SOUND | {"corrupt": [entry.id]}


def test_a_shard_that_cannot_be_read_is_named_and_its_samples_are_missing(dataset):
    path = shard_path(dataset, 0)
    os.truncate(path, path.stat().st_size // 2)
    lost = {entry.id for entry in share(manifest.read(dataset), 0, 2)}
    result = verify(dataset)
    assert (result["samples"], result["corrupt"]) == (6, ["shard-00000.lmdb"])
    assert result["missing"] == [entry.id for entry in manifest.read(dataset) if entry.id in lost]


def test_missing_and_failed_are_told_apart(tmp_path):
    def fails(config, material, entry):
        if entry.id == "Si-diamond-001-20A":
            raise WorkError("no")
        return simulate(config, material, entry)

    produce(tmp_path, simulate=fails)
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
