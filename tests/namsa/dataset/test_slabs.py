"""Tiles: what is stored comes back, a slab is read and verified alone, and the kernel counts what
it takes.
"""

import fake_samples
import numpy as np
import pytest
from kernel_counts import evict, read_counts

from namsa import WorkError
from namsa.base.errors import InputError
from namsa.config.simulation import SimulationConfig
from namsa.dataset import listing, lmdb_structure, records
from namsa.dataset.merge import merge
from namsa.dataset.repair import repair
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path
from namsa.dataset.slabs import SlabReader
from namsa.dataset.tiles import Slab
from namsa.dataset.verify import verify

RASTER = (16, 64, 24, 40)
WAYS = 4
ALONG = {
    0: (4, 1, 1, 1),
    1: (1, 4, 1, 1),
    2: (1, 1, 4, 1),
    3: (1, 1, 1, 4),
}  # tiles for parts of an axis
GRIDS = [*ALONG.values(), (2, 4, 3, 5), (4, 4, 1, 1), (1, 1, 8, 8), (1, 1, 1, 1)]


def sample():
    return fake_samples.raster_sample(RASTER)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """(folder, plain records by dtype) of a dataset with one sample by each grid of tiles, and one
    without tiles.
    """
    folder = tmp_path_factory.mktemp("tiles")
    original = sample()
    plain = {
        dtype: records.decode(records.encode(original, dtype)) for dtype in ("float16", "float32")
    }
    with ShardWriter(shard_path(folder, 0)) as writer:
        for index, tiles in enumerate(GRIDS):
            dtype = "float32" if index % 2 else "float16"
            writer.put(
                f"{dtype}-{'-'.join(map(str, tiles))}", records.encode(original, dtype, tiles)
            )
        writer.put("float16-plain", records.encode(original))
    return folder, plain


def name_of(dataset, tiles):
    return next(
        sample_id
        for sample_id in dataset.ids
        if sample_id.endswith("-" + "-".join(map(str, tiles)))
    )


def test_patterns_in_tiles_are_those_of_a_plain_record(stored):
    folder, plain = stored
    with Dataset(folder) as dataset:
        for tiles in GRIDS:
            sample_id = name_of(dataset, tiles)
            expected = plain[sample_id.split("-")[0]]
            record = dataset.read(sample_id)
            for name in ("cbed", "density", "projected_potential", "positions_angstrom"):
                np.testing.assert_array_equal(getattr(record, name), getattr(expected, name))
            assert record.provenance == expected.provenance


@pytest.mark.parametrize("axis", range(4))
def test_a_slab_is_the_part_of_the_patterns_from_every_kind_of_record(stored, axis):
    folder, plain = stored
    size = RASTER[axis] // 4
    with Dataset(folder) as dataset, SlabReader(dataset) as reader:
        for sample_id in dataset.ids:
            expected = plain[sample_id.split("-")[0]].cbed.reshape(RASTER)
            for requested in (
                Slab(axis, 0, size),
                Slab(axis, 2 * size, 3 * size),
                Slab(axis, 0, RASTER[axis]),
            ):
                slab = reader.read(sample_id, requested)
                np.testing.assert_array_equal(slab.patterns, expected[requested.index])
                np.testing.assert_array_equal(slab.density, plain["float16"].density)
                assert slab.raster == RASTER
        held_ids = []
        for sample_id in dataset.ids:
            if reader.has(sample_id, Slab(axis, 0, size)):
                held_ids.append(sample_id)
        assert name_of(dataset, ALONG[axis]) in held_ids
        assert "float16-plain" not in held_ids


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("both", [False, True])
def test_the_kernel_counts_a_part_and_one_percent(stored, axis, both):
    folder, _ = stored
    tiles = ALONG[axis] if not both else (4, 4, 1, 1) if axis < 2 else (1, 1, 8, 8)
    shard = shard_path(folder, 0)
    size = RASTER[axis] // WAYS
    with Dataset(folder) as dataset:
        sample_id = name_of(dataset, tiles)
        record_bytes = lmdb_structure.locations(shard)[sample_id][1]
        for part in range(WAYS):
            with SlabReader(dataset) as reader:
                reader._locate(sample_id)  # reads the shard's keys, once for all samples
                evict(shard)
                with read_counts() as counts:
                    reader.read(sample_id, Slab(axis, part * size, (part + 1) * size))
            assert counts["asked"] < 1.01 * record_bytes / WAYS, counts
            if tiles == ALONG[axis] and counts["fetched"]:  # nothing where the folder is in memory
                assert counts["fetched"] < 1.01 * record_bytes / WAYS + 4 * 4096, (
                    counts
                )  # pages at the ends of three reads


def test_damage_is_noticed_in_the_slab_that_has_it_and_only_there(stored, tmp_path):
    size = RASTER[2] // 4
    good = records.encode(sample(), "float16", ALONG[2])
    header = records.header_bytes(good[: records.PREFIX_BYTES])
    tile = 2 * np.prod(RASTER) // 4
    places = {
        "header": 40,
        "tile 2": records.aligned(header) + 2 * tile + 17,
        "density": records.aligned(header) + 4 * tile + 5,
    }
    with ShardWriter(shard_path(tmp_path, 0)) as writer:
        for name, place in places.items():
            bad = bytearray(good)
            bad[place] ^= 4
            writer.put(name.replace(" ", "-"), bad)

    def read(part, sample_id):
        with Dataset(tmp_path) as dataset, SlabReader(dataset) as reader:
            return reader.read(sample_id, Slab(2, part * size, (part + 1) * size))

    read(1, "tile-2")
    with pytest.raises(
        WorkError,
        match="tile-2 in .*shard-00000.lmdb: the record is damaged, .*tiles 2 to 2 is wrong",
    ):
        read(2, "tile-2")
    with pytest.raises(WorkError, match="checksum of its density is wrong"):
        read(0, "density")
    with pytest.raises(WorkError, match="checksum of the record's header does not match"):
        read(0, "header")
    for name in places:
        with (
            Dataset(tmp_path) as dataset,
            pytest.raises(WorkError, match="checksum does not match"),
        ):
            dataset.read(name.replace(" ", "-"))


@pytest.mark.parametrize(
    "change",
    [
        {"tiles": [3, 1, 1, 1]},
        {"tiles": [0, 1, 1, 1]},
        {"tiles": [1, 1, 1]},
        {"raster": [64, 16, 40, 24]},
        {"raster": None},
        {"digests": []},
        {"digests": [1, 2, 3, 4]},
    ],
)
def test_headers_with_other_tiles_than_namsa_writes_are_refused(change):
    header = records.decode(records.encode(sample(), "float16", (4, 1, 1, 1))).header
    header["arrays"]["cbed"] |= change
    with pytest.raises(
        WorkError, match="the record is damaged: its header has .*(tiles|raster|digests)"
    ):
        records.parse_header(records._header_bytes(header))


def tiles_in(dataset):
    """Whether records of a dataset have tiles."""
    return {
        "tiles" in dataset.read(sample_id).header["arrays"]["cbed"] for sample_id in dataset.ids
    }


def test_a_dataset_of_tiles_is_made_verified_repaired_and_merged(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "select_materials", lambda *_, **__: fake_samples.MATERIALS)
    config = fake_samples.config()
    tiled = config.model_copy(
        update={"data": config.data.model_copy(update={"tiles": (2, 3, 1, 7)})}
    )
    first = tmp_path / "first"
    second = tmp_path / "second"
    fake_samples.produce(first, settings=config, limit=2)
    fake_samples.produce(second, settings=tiled)
    with Dataset(second) as dataset:
        damaged = dataset.ids[0]
        sample_count = len(dataset)
        assert tiles_in(dataset) == {True}
    plain = tmp_path / "plain"
    fake_samples.produce(plain, settings=config)
    with Dataset(plain) as a, Dataset(second) as b:
        for sample_id in a.ids:
            np.testing.assert_array_equal(a.read(sample_id).cbed, b.read(sample_id).cbed)
    fake_samples.produce(first, settings=tiled)  # goes on with tiles
    with Dataset(first) as dataset:
        assert tiles_in(dataset) == {False, True}
    assert verify(first)["corrupt"] == verify(second)["corrupt"] == []
    shard = shard_path(second, 0)
    start, size = lmdb_structure.locations(shard)[damaged]
    with shard.open("r+b") as file:
        file.seek(start + size - 100)
        file.write(bytes(60))
    assert verify(second)["corrupt"] == [damaged]
    repair(second)
    assert verify(second)["corrupt"] == []
    merged = tmp_path / "merged"
    assert merge([second], merged)["copied"] == sample_count - 1
    assert verify(merged)["corrupt"] == []


def test_tiles_that_do_not_divide_the_patterns_are_refused_with_what_does():
    with pytest.raises(
        InputError, match="5 tiles along detector y do not divide its 24: set data.tiles to 4 there"
    ):
        records.encode(sample(), tiles=(1, 1, 5, 1))
    tree = {
        "simulation": {"grid_shape": [8, 10]},
        "scan": {"shape": [2, 3]},
        "data": {"tiles": [2, 1, 1, 3]},
    }
    with pytest.raises(
        ValueError, match="3 tiles along detector x do not divide its 10: set data.tiles to 2 there"
    ):
        SimulationConfig.model_validate(tree)
