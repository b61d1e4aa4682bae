"""Files with an intact seal are opened in place; all others in the process with limits."""

import os
import struct

import h5py
import numpy as np
import pytest

from namsa.io import hdf5, safe_hdf5, seal
from namsa.io.safe_hdf5 import Hdf5File, SealedHdf5File, open_hdf5
from namsa.pixels import PixelGrid

IMAGE = np.arange(40 * 60, dtype=np.float32).reshape(40, 60)
GRID = PixelGrid((0.5, 0.4), (0.0, 0.0))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "images.h5"
    hdf5.write_images(path, "scan", {"density": (IMAGE, "e/Å²")}, GRID, {"of": "a test"})
    return path


def opened_as(path):
    with open_hdf5(path) as file:
        np.testing.assert_array_equal(file.find("/scan/density/data")[:], IMAGE)
        return type(file)


def test_a_file_of_ones_own_is_opened_in_place_and_by_hdf5_as_ever(path, monkeypatch):
    monkeypatch.setattr(safe_hdf5.subprocess, "Popen", None)  # no process is started
    assert opened_as(path) is SealedHdf5File
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["scan/density/data"], IMAGE)


def test_any_change_of_what_hdf5_interprets_breaks_the_seal(path):
    whole = path.read_bytes()
    ((first, length),) = seal.data_spans(h5py.File(path))
    assert length == IMAGE.nbytes
    outside = [*range(0, first, 97), *range(first + length, len(whole), 97), len(whole) - 1]
    for place in outside:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not seal.is_sealed(path), place
    for changed in (whole[:-60], whole + b"\0", whole[:-100] + whole[-99:], b"", whole[-52:]):
        path.write_bytes(changed)
        assert not seal.is_sealed(path)
    path.write_bytes(whole)
    assert seal.is_sealed(path)


def test_a_seal_of_another_user_does_not_count(path, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    assert opened_as(path) is Hdf5File  # there is no key
    hdf5.write_images(tmp_path / "theirs.h5", "scan", {"density": (IMAGE, "e/Å²")}, GRID, {})
    assert opened_as(tmp_path / "theirs.h5") is SealedHdf5File
    assert opened_as(path) is Hdf5File
    (tmp_path / "other/namsa/seal.key").chmod(0o644)  # others can read it
    assert opened_as(tmp_path / "theirs.h5") is Hdf5File


def test_a_file_is_written_where_no_key_can_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    hdf5.write_images(tmp_path / "a.h5", "scan", {"density": (IMAGE, "e/Å²")}, GRID, {})
    assert opened_as(tmp_path / "a.h5") is Hdf5File


def test_a_table_of_spans_asks_for_no_more_than_a_seal_covers(path):
    """Spans that overlap, or that leave out little of a large file, are refused before the file is read."""
    tail = struct.pack("<I32s8s", 2, bytes(32), seal.MAGIC)
    for spans in ((0, 2**40, 5, 2**40), (10, 5, 0, 5), (2**63, 2**63, 0, 0)):
        with path.open("wb") as file:
            os.truncate(file.fileno(), 2**35)  # a hole
            file.seek(2**35)
            file.write(struct.pack("<QQQQ", *spans) + tail)
        assert not seal.is_sealed(path)


def test_compressed_data_are_covered(tmp_path):
    """Their filters interpret them."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("packed", data=IMAGE, compression="gzip")
        file.create_dataset("plain", data=IMAGE)
        assert [length for _, length in seal.data_spans(file)] == [IMAGE.nbytes]
