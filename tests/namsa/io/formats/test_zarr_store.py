"""Zarr 2 and 3 and HyperSpy's zspy: what they hold, and what of their metadata is refused before
Zarr sees it.
"""

import bz2
import json
import os
import shutil
import zlib

import numcodecs
import numpy as np
import pytest
import zarr
from measured_files import assert_reads, assert_refused, patterns, scan_of

import namsa
from namsa import InputError, WorkError
from namsa.base.pixels import UNITS

WHOLE = (slice(0, 3), slice(0, 4))


def write(store, version, name="a/data", data=None, **options):
    data = patterns() if data is None else data
    group = zarr.open_group(store, mode="w", zarr_format=version)
    array = group.create_array(
        name, shape=data.shape, chunks=(1, 2, *data.shape[2:]), dtype=data.dtype, **options
    )
    array[...] = data
    return group


@pytest.mark.parametrize(
    ("version", "options"),
    [
        (2, {}),  # Blosc
        (3, {}),  # Zstandard
        (3, {"compressors": zarr.codecs.BloscCodec()}),
        (
            3,
            {
                "compressors": zarr.codecs.BloscCodec(),
                "chunk_key_encoding": {"name": "v2", "separator": "."},
            },
        ),
        (3, {"shards": (3, 4, 6, 8)}),
        (2, {"compressors": None}),
        (3, {"compressors": None}),
    ],
)
def test_folders_and_archives_of_both_versions(tmp_path, version, options):
    data = patterns()
    write(str(tmp_path / "a.zarr"), version, **options)
    archive = zarr.storage.ZipStore(tmp_path / "a.zip", mode="w")
    write(archive, version, **options)
    archive.close()
    known = {
        "format": "Zarr",
        "dtype": np.uint16,
        "chunk": (3, 4) if "shards" in options else (1, 2),
    }
    for name in ("a.zarr", "a.zip"):
        assert_reads(tmp_path / name, data, known)


@pytest.mark.parametrize("version", [2, 3])
def test_zspy_has_axes_and_a_beam(tmp_path, version):
    group = write(str(tmp_path / "a.zspy"), version, "Experiments/scan/data")["Experiments/scan"]
    axes = [("nm", 0.5, 0.0), ("nm", 0.4, 0.7), ("mrad", 0.3, -0.9), ("mrad", 0.2, -0.8)]
    for index, (units, scale, offset) in enumerate(axes):
        group.create_group(f"axis-{index}").attrs.update(
            {"units": units, "scale": scale, "offset": offset}
        )
    group.create_group("metadata/Signal").attrs["quantity"] = UNITS["cbed"]
    microscope = group.create_group("metadata/Acquisition_instrument/TEM")
    microscope.attrs.update({"beam_energy": 200.0, "convergence_angle": 21.0})
    known = {
        "scan_step_angstrom": (5.0, 4.0),
        "scan_origin_angstrom": (0.0, 7.0),
        "normalised": True,
    }
    known |= {
        "pixel_mrad": (0.3, 0.2),
        "centre_pixels": (3.0, 4.0),
        "energy_ev": 200e3,
        "semiangle_mrad": 21.0,
    }
    assert_reads(tmp_path / "a.zspy", patterns(), known)


def test_the_array_is_the_only_one_of_four_axes_or_the_one_that_is_named(tmp_path):
    group = write(str(tmp_path / "a.zarr"), 3)
    group.create_array("image", data=np.zeros((3, 4)))
    with namsa.read(tmp_path / "a.zarr") as recording:
        assert recording.metadata["dataset"] == "a/data"
    group.create_array("b", data=patterns() + 1)
    assert_refused(
        "several arrays of 4 axes: choose one with --dataset: a/data, b", tmp_path / "a.zarr"
    )
    np.testing.assert_array_equal(scan_of(tmp_path / "a.zarr", dataset="b"), patterns() + 1)
    for name in ("none", "../a.zarr/b", "a"):
        assert_refused("has no array", tmp_path / "a.zarr", dataset=name)


def test_a_stack_of_frames_needs_its_scan(tmp_path):
    zarr.open_group(str(tmp_path / "a.zarr"), mode="w").create_array(
        "x", data=patterns().reshape(12, 6, 8)
    )
    assert_refused("give --scan-shape", tmp_path / "a.zarr")
    np.testing.assert_array_equal(scan_of(tmp_path / "a.zarr", scan_shape="3x4"), patterns())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "|O", "filters": [{"id": "pickle"}]}, "holds no plain numbers"),
        ({"filters": [{"id": "pickle", "protocol": 5}]}, "is packed by pickle"),
        ({"compressor": {"id": "own"}}, "is packed by own"),
        ({"filters": "pickle"}, "is packed by pickle"),
        ({"chunks": [2**20, 2**20, 6, 8]}, "has chunks of"),
        ({"chunks": [0, 1, 1, 1]}, "has chunks of the shape"),
        ({"chunks": None}, "has chunks of the shape"),
        ({"shape": [3, 4, 6, "8"]}, "has the shape"),
        ({"shape": [3, 4, 6, -8]}, "has the shape"),
        ({"dtype": [["a", "<u2"]]}, "holds no plain numbers"),
        ({"order": 7}, "as Zarr"),
        ({"zarr_format": 99}, "as Zarr"),
        ("{", "not JSON|JSON"),
        ("[]", "no JSON object"),
        (b"\xff", "no UTF-8"),
    ],
)
def test_odd_metadata_are_one_line(tmp_path, changes, message):
    write(str(tmp_path / "a.zarr"), 2)
    path = tmp_path / "a.zarr" / "a" / "data" / ".zarray"
    if isinstance(changes, dict):
        changes = json.dumps(json.loads(path.read_text()) | changes)
    path.write_bytes(changes if isinstance(changes, bytes) else changes.encode())
    assert_refused(message, tmp_path / "a.zarr")


def test_codecs_within_shards_are_checked(tmp_path):
    write(str(tmp_path / "a.zarr"), 3, shards=(3, 4, 6, 8))
    path = tmp_path / "a.zarr" / "a" / "data" / "zarr.json"
    path.write_text(path.read_text().replace('"zstd"', '"pickle"'))
    assert_refused("is packed by pickle", tmp_path / "a.zarr")
    write(str(tmp_path / "a.zarr"), 3, shards=(3, 4, 6, 8), compressors=zarr.codecs.BloscCodec())
    assert_refused("packed by blosc within shards", tmp_path / "a.zarr")


def test_damaged_chunks_are_one_line(tmp_path):
    write(str(tmp_path / "a.zarr"), 2)
    chunk = tmp_path / "a.zarr" / "a" / "data" / "1.0.0.0"
    intact = chunk.read_bytes()
    for damaged in (
        intact[:-3],
        intact[:10],
        intact + b"x",
        intact[:4] + b"\xff\xff\xff\x7f" + intact[8:],
        b"",
    ):
        chunk.write_bytes(damaged)
        with namsa.read(tmp_path / "a.zarr") as recording:
            np.testing.assert_array_equal(recording.read(slice(0, 1), slice(0, 4)), patterns()[:1])
            with pytest.raises(
                WorkError, match=r"cannot read .*a\.zarr, it is damaged: .*1\.0\.0\.0 has"
            ):
                recording.read(slice(1, 2), slice(0, 4))
    write(str(tmp_path / "c.zarr"), 3)  # of Zstandard
    chunk = tmp_path / "c.zarr" / "a" / "data" / "c" / "1" / "0" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with (
        namsa.read(tmp_path / "c.zarr") as recording,
        pytest.raises(WorkError, match="it is damaged"),
    ):
        recording.read(slice(1, 2), slice(0, 4))
    shutil.make_archive(str(tmp_path / "b"), "zip", tmp_path / "a.zarr")
    data = (tmp_path / "b.zip").read_bytes()
    (tmp_path / "b.zip").write_bytes(data[:-30])
    assert_refused("as an archive", tmp_path / "b.zip")


def test_without_the_package_the_line_names_what_brings_it(tmp_path, monkeypatch):
    write(str(tmp_path / "a.zarr"), 3)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert_refused(r"needs the package zarr: pip install namsa\[formats\]", tmp_path / "a.zarr")


# ---- Hostile stores
# -------------------------------------------------------------------------------------------------


def array_folder(tmp_path, version=2, **options):
    """Returns the folder of an array, whose chunks and metadata may be changed."""
    write(str(tmp_path / "a.zarr"), version, **options)
    return tmp_path / "a.zarr" / "a" / "data"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (numcodecs.BZ2(), lambda: bz2.compress(bytes(2**24)) * 40),  # 0.7 GB from 2 kB
        (numcodecs.Zstd(), lambda: numcodecs.Zstd().encode(np.zeros(2**30, np.uint8))),
        (numcodecs.Zlib(), lambda: zlib.compress(bytes(2**27))),
    ],
    ids=["bz2", "zstd", "zlib"],
)
def test_a_chunk_that_unpacks_to_all_memory_is_one_line(tmp_path, codec, bomb):
    (array_folder(tmp_path, compressors=codec) / "1.0.0.0").write_bytes(bomb())
    with namsa.read(tmp_path / "a.zarr") as recording:
        np.testing.assert_array_equal(recording.read(slice(0, 1), slice(0, 4)), patterns()[:1])
        with pytest.raises(WorkError, match="it is damaged"):
            recording.read(*WHOLE)


@pytest.mark.parametrize("name", ["1.0.0.0", ".zattrs", ".zarray"])
def test_pipes_and_links_out_of_the_store_are_refused(tmp_path, name):
    folder = array_folder(tmp_path)
    outside = tmp_path / "outside"
    outside.write_text("{}")

    def read():
        with namsa.read(tmp_path / "a.zarr", dataset="a/data") as recording:
            recording.read(*WHOLE)

    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises((InputError, WorkError), match="it is a pipe or a device"):
        read()
    (folder / name).unlink()
    (folder / name).symlink_to(outside)
    with pytest.raises((InputError, WorkError), match="out of the store"):
        read()


@pytest.mark.parametrize("version", [2, 3])
def test_an_extent_that_the_store_cannot_hold_is_refused(tmp_path, version):
    folder = array_folder(tmp_path, version)
    path = folder / (".zarray" if version == 2 else "zarr.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"shape": [10**6, 10**6, 6, 8]}))
    assert_refused("declares 96000000000000 bytes, of which the store holds", tmp_path / "a.zarr")
