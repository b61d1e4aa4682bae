"""HDF5 files whose chunks are tiles: slabs have the bits of the records, and the kernel counts what
they take.
"""

import json
import math
import shutil
import sys
from types import SimpleNamespace

import fake_samples
import h5py
import numpy as np
import pytest
from kernel_counts import evict, read_counts

from namsa import InputError, WorkError
from namsa.cli.parser import main
from namsa.dataset import records, slab_file
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path
from namsa.dataset.slab_file import header_digest, write_slab_file
from namsa.dataset.slab_file_reader import SlabFile, driver_options
from namsa.dataset.slabs import SlabReader
from namsa.dataset.tiles import Slab

RASTER = (32, 64, 24, 40)
SMALL = (2, 4, 6, 8)
GRIDS = [(2, 1, 3, 4), (1, 1, 2, 1), (1, 4, 1, 2), (1, 1, 1, 1)]


def write(folder, *encoded):
    folder.mkdir(exist_ok=True)
    with ShardWriter(shard_path(folder, 0)) as writer:
        for index, record in enumerate(encoded):
            writer.put(f"sample-{index}", record)
    return folder


def encode(tiles, dtype="float16", raster=SMALL, seed=0):
    return records.encode(fake_samples.raster_sample(raster, seed), dtype, tiles)


def export(folder):
    with Dataset(folder) as dataset:
        write_slab_file(folder / "slabs.h5", dataset)
    return folder / "slabs.h5"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A file of three samples in six tiles."""
    return export(
        write(
            tmp_path_factory.mktemp("good"), *(encode((1, 1, 2, 4), seed=seed) for seed in range(3))
        )
    )


@pytest.fixture
def path(good, tmp_path):
    """A copy of it to change."""
    return shutil.copy(good, tmp_path / "changed.h5")


@pytest.mark.parametrize("tiles", GRIDS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_slabs_have_the_bits_of_those_of_the_records(tmp_path, tiles, dtype):
    folder = write(tmp_path / "data", *(encode(tiles, dtype, seed=seed) for seed in range(2)))
    path = export(folder)
    with Dataset(folder) as dataset, SlabReader(dataset) as records_reader, SlabFile(path) as file:
        assert file.config_hash == dataset.config_hash == "0123456789abcdef"
        assert list(file.scales) == list(dataset.ids)
        for axis, size in enumerate(file.layout.tiling.tile):
            for start in range(0, SMALL[axis], size):
                slab = Slab(axis, start, start + size)
                for sample_id in dataset.ids:
                    assert file.has(sample_id, slab)
                    expected = records_reader.read(sample_id, slab)
                    stored = file.read(sample_id, slab)
                    assert (stored.raster, stored.scale) == (expected.raster, expected.scale)
                    assert stored.patterns.dtype == expected.patterns.dtype == dtype
                    np.testing.assert_array_equal(stored.patterns, expected.patterns)
                    np.testing.assert_array_equal(stored.density, expected.density)
        assert not file.has("sample-2", slab)
        assert not file.has("sample-0", Slab(0, 0, 1)) or tiles[0] == 2


@pytest.mark.parametrize("axis", range(4))
def test_the_kernel_counts_a_part_and_one_percent(tmp_path, axis):
    tiles = tuple(8 if index == axis else 1 for index in range(4))
    path = export(write(tmp_path / "data", encode(tiles, raster=RASTER)))
    density = 4 * RASTER[2] * RASTER[3]
    record_bytes = 2 * math.prod(RASTER) + density  # 3.9 MB
    for ways in (2, 4, 8):
        size = RASTER[axis] // ways
        for part in {0, ways - 1}:
            with SlabFile(path) as file:
                evict(path)
                with read_counts() as counts:
                    file.read("sample-0", Slab(axis, part * size, (part + 1) * size))
            # digests of the tiles and of the density
            wanted = (record_bytes - density) // ways + density + 9 * 16
            assert wanted <= counts["asked"] < wanted + 64  # the counter itself is read, too
            assert counts["asked"] < 1.01 * record_bytes / ways
            assert counts["fetched"] < wanted + 6 * 4096  # pages at both ends of three reads


def test_a_flipped_byte_is_noticed_in_its_tile_and_named(path):
    with h5py.File(path) as file:
        place = file["patterns"].id.get_chunk_info_by_coord((1, 0, 0, 3, 4)).byte_offset
        density = file["density"].id.get_chunk_info_by_coord((2, 0, 0)).byte_offset
    with path.open("r+b") as file:
        for at in (place + 17, density + 5):
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 4]))
    lower = Slab(2, 0, 3)
    upper = Slab(2, 3, 6)
    with SlabFile(path) as file:
        file.read("sample-1", lower)
        file.read("sample-1", upper, check=False)
        with pytest.raises(
            WorkError,
            match="sample-1 in .*changed.h5: the file is damaged, the checksum of tile 6 is",
        ):
            file.read("sample-1", upper)
        with pytest.raises(
            WorkError,
            match="sample-2 in .* the checksum of its density is wrong: write it again with",
        ):
            file.read("sample-2", lower)
        with pytest.raises(InputError, match="has no tiles of sample-0 from 1 to 3"):
            file.read("sample-0", Slab(2, 1, 3))


def replaced(name, **how):
    def change(file):
        values = file[name][()]
        del file[name]
        file.create_dataset(name, data=values, **how)

    return change


def reheaded(**changes):
    def change(file):
        header = json.dumps(json.loads(file.attrs["slabs"]) | changes)
        file.attrs["slabs"], file.attrs["slabs_digest"] = header, header_digest(header)

    return change


def virtual(file):
    del file["density"]
    layout = h5py.VirtualLayout((3, 6, 8), "<f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "density", (3, 6, 8))
    file.create_virtual_dataset("density", layout)


def linked(file):
    file.move("density", "other")
    file["density"] = h5py.SoftLink("/other")


def outside(file):
    del file["density"]
    file["density"] = h5py.ExternalLink("/etc/passwd", "/density")


def foreign(file):
    del file.attrs["slabs"]


def damaged(file):
    file.attrs["slabs"] = file.attrs["slabs"].replace("sample-1", "sample-7")


TILES = (1, 2, 4, 3, 2)
CASES = [
    (foreign, "holds no samples in tiles: write it again with namsa export DATASET --tiles"),
    (damaged, "the checksum of its attribute slabs is wrong"),
    (reheaded(version=2), "has format version 2, this namsa reads 1"),
    (reheaded(tiles=[1, 1, 2]), "its attribute slabs: .* write it again"),
    (reheaded(scales={"../up": 1.0}), "its attribute slabs: .* write it again"),
    (reheaded(scales={"a": 0.0, "b": 1.0, "c": 1.0}), "its attribute slabs: .* write it again"),
    (
        reheaded(scales={"a": 1.0}),
        r"/patterns has shape \(3, 2, 4, 6, 8\) .* not those of 1 samples",
    ),
    (
        reheaded(tiles=[1, 1, 1, 8]),
        r"its chunks are \(1, 2, 4, 3, 2\), its tiles \(1, 2, 4, 6, 1\)",
    ),
    (reheaded(tiles=[1, 1, 8, 1]), "8 tiles along detector y do not divide its 6"),
    (replaced("patterns"), "its chunks are None"),
    (replaced("patterns", chunks=TILES, dtype="<f8"), "/patterns has shape .* and type float64"),
    (replaced("patterns", chunks=TILES, compression="gzip"), "/patterns is compressed"),
    (replaced("density", dtype=">f4"), "/density has shape .* and type >f4"),
    (replaced("digests", dtype="<u2"), "/digests has shape .* and type uint16"),
    (virtual, "/density is a virtual dataset"),
    (linked, "has no array density of its own"),
    (outside, "external link"),
]


@pytest.mark.parametrize(("change", "message"), CASES)
def test_files_that_namsa_does_not_write_or_that_are_cut_off_are_refused(path, change, message):
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(InputError, match=message):
        SlabFile(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError, match="cannot read .*changed.h5 as HDF5"):
        SlabFile(path)


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        ([], "the dataset holds no samples"),
        (
            [encode((1, 1, 2, 1)), encode(None)],
            "sample-1 in .*shard-00000.lmdb has no tiles: .* again with data.tiles",
        ),
        (
            [encode((1, 1, 2, 1)), encode((1, 1, 1, 2))],
            r"sample-0 has <f2 patterns \[2, 4, 6, 8\] in tiles \[1, 1, 2, 1\] .* sample-1 has "
            r".*\[1, 1, 1, 2\]",
        ),
        ([encode((1, 1, 2, 1)), encode((1, 1, 2, 1), "float32")], "sample-1 has <f4 patterns"),
    ],
)
def test_datasets_that_do_not_fit_into_a_file_are_refused(tmp_path, encoded, message):
    folder = write(tmp_path / "data", *encoded)
    with Dataset(folder) as dataset, pytest.raises(InputError, match=message):
        write_slab_file(tmp_path / "x.h5", dataset)
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_tiles_larger_than_chunks_may_be_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(slab_file, "CHUNK_BYTES", 383)
    message = "tiles have 384 bytes, at most 383: simulate with more data.tiles"
    with (
        Dataset(write(tmp_path / "data", encode((1, 1, 2, 1)))) as dataset,
        pytest.raises(InputError, match=message),
    ):
        write_slab_file(tmp_path / "x.h5", dataset)


def test_a_damaged_record_leaves_no_file(tmp_path):
    bad = encode((1, 1, 2, 1))
    bad[-9] ^= 1
    with (
        Dataset(write(tmp_path / "data", encode((1, 1, 2, 1)), bad)) as dataset,
        pytest.raises(WorkError),
    ):
        write_slab_file(tmp_path / "x.h5", dataset)
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_the_command_writes_the_file(tmp_path, capsys, monkeypatch):
    folder = write(tmp_path / "data", encode((1, 1, 2, 1)))
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(folder), "--tiles", "--out", "x.h5"]) == 0
    assert capsys.readouterr().out.startswith("x.h5: 1 sample, 0 failed")
    SlabFile(tmp_path / "x.h5").close()
    for more in (["--compression", "gzip"], ["--to", "zspy"]):
        assert main(["export", str(folder), "--tiles", "--out", "y.h5", *more]) == 2
        assert (
            "--tiles writes a dataset uncompressed: leave out --to and --compression"
            in capsys.readouterr().err
        )


@pytest.mark.parametrize(
    ("mpi", "world", "threads", "driver"),
    [(False, 4, 3, None), (True, 1, 3, None), (True, 4, 2, None), (True, 4, 3, "mpio")],
)
def test_mpi_io_is_chosen_where_the_ranks_are_those_of_mpi(
    monkeypatch, mpi, world, threads, driver
):
    communicator = SimpleNamespace(Get_size=lambda: world)
    module = SimpleNamespace(
        COMM_WORLD=communicator, Query_thread=lambda: threads, THREAD_MULTIPLE=3
    )
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", module)
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=module, __path__=[]))
    monkeypatch.setattr(h5py, "get_config", lambda: SimpleNamespace(mpi=mpi))
    options = driver_options(4)
    assert options.get("driver") == driver
    assert options.get("comm") is (communicator if driver else None)
    assert "driver" not in driver_options(1)
