"""No changed bit of a file that namsa has written changes a number in silence."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from namsa import InputError, WorkError
from namsa.io import hdf5, seal
from namsa.io.block_digests import BLOCK_BYTES, MAGIC, BlockDigests
from namsa.io.calibration import CalibrationOverrides
from namsa.io.hdf5 import write_file
from namsa.io.reading import open_patterns
from namsa.io.safe_hdf5 import Hdf5File, SealedHdf5File, open_hdf5

PATTERNS = np.random.default_rng(1).random((6, 8, 32, 32), np.float32)  # 196,608 bytes
KNOWN = CalibrationOverrides(
    energy_ev=200e3, semiangle_mrad=20.0, scan_step_angstrom=(0.4, 0.4), pixel_mrad=(1.0, 1.0)
)
FLIPS = 150


def write(path, *, with_digests=True, **options):
    with write_file(path, with_digests=with_digests) as (file, _):
        file.attrs["number"] = 1.5
        file["positions"] = np.arange(12.0)
        file.create_dataset("scan", data=PATTERNS, **options)
    return path


def numbers(path):
    """All numbers of a file as namsa reads them."""
    with open_hdf5(path) as file:
        root = file.find("/")
        return (
            file.find("scan")[:].tobytes(),
            file.find("positions")[:].tobytes(),
            root.attribute("number"),
            sorted(root.children()),
        )


def flipped(path, place, bit=0):
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": (1, 8, 32, 32)}])
@pytest.mark.parametrize("own_key", [True, False], ids=["sealed", "of another user"])
def test_single_flips_are_noticed_or_change_no_number(tmp_path, monkeypatch, options, own_key):
    path = write(tmp_path / "a.h5", **options)
    if not own_key:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    intact = path.read_bytes()
    expected = numbers(path)
    places = np.random.default_rng(2).integers(0, len(intact), FLIPS if own_key else 20)
    noticed = 0
    for place in places.tolist():
        flipped(path, place, place % 8)
        try:
            assert numbers(path) == expected, place
        except InputError:
            noticed += 1
        path.write_bytes(intact)
    assert noticed > 0.9 * len(places)


def test_what_makes_a_block_raw_is_that_hdf5_interprets_none_of_it(tmp_path):
    path = write(tmp_path / "a.h5")
    with h5py.File(path) as file:
        ((first_byte, length),) = seal.data_spans(file)
    with BlockDigests.of(path) as digests:
        raw = np.flatnonzero(digests._is_raw) * BLOCK_BYTES
    assert len(raw) == length // BLOCK_BYTES - 1
    assert (raw >= first_byte).all()
    assert (raw + BLOCK_BYTES <= first_byte + length).all()


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": (1, 8, 32, 32)}])
def test_a_lazy_scan_compares_the_blocks_that_it_reads(tmp_path, options):
    path = write(tmp_path / "a.h5", **options)
    with BlockDigests.of(path) as digests:
        block = int(np.flatnonzero(digests._is_raw)[-1])
    flipped(path, (block + 1) * BLOCK_BYTES - 1)
    with open_patterns(path, KNOWN) as scan:
        np.testing.assert_array_equal(scan.read(slice(0, 1), slice(0, 8)), PATTERNS[:1])
        with pytest.raises(
            WorkError, match=r"a\.h5 from scan row 1 on: bytes \d+ to \d+ are not those that namsa"
        ):
            scan.read(slice(1, 6), slice(0, 8))


def test_files_without_digests_and_files_that_others_have_changed_are_read(tmp_path):
    expected = numbers(write(tmp_path / "new.h5"))
    assert numbers(write(tmp_path / "old.h5", with_digests=False)) == expected
    with h5py.File(tmp_path / "new.h5", "r+") as file:
        file["positions"][0] = 7.0
        file["more"] = "text"
    assert MAGIC not in (tmp_path / "new.h5").read_bytes()
    assert numbers(tmp_path / "new.h5")[3] == ["more", "positions", "scan"]


def test_images_have_digests_too(tmp_path):
    from namsa.base.pixels import PixelGrid

    path = tmp_path / "density.h5"
    image = np.arange(2**16, dtype=np.float32).reshape(256, 256)
    grid = PixelGrid((0.5, 0.4), (0.0, 0.0))
    hdf5.write_images(path, "reconstruction", {"density": (image, "e/Å²")}, grid, {"of": "a test"})
    with h5py.File(path) as file:
        first_byte = file["reconstruction/density/data"].id.get_offset()
    flipped(path, first_byte + image.nbytes // 2)
    with (
        open_hdf5(path) as file,
        pytest.raises(InputError, match="are not those that namsa wrote: copy the file again"),
    ):
        file.find("/reconstruction/density/data")[:]


@pytest.mark.parametrize("kind", [SealedHdf5File, Hdf5File])
@pytest.mark.parametrize("with_digests", [True, False])
def test_a_file_that_is_cut_after_it_was_opened_is_an_error(
    tmp_path, monkeypatch, kind, with_digests
):
    path = write(tmp_path / "a.h5", with_digests=with_digests)
    if kind is Hdf5File:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    with open_hdf5(path) as file:
        assert type(file) is kind
    with open_patterns(path, KNOWN) as scan:
        np.testing.assert_array_equal(scan.read(slice(0, 1), slice(0, 8)), PATTERNS[:1])
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(
            WorkError, match=r"from scan row 5 on: it has become shorter since it was opened"
        ):
            scan.read(slice(5, 6), slice(0, 8))


def test_a_file_beside_the_first_that_is_cut_is_an_error(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["scan"] = PATTERNS
    with h5py.File(tmp_path / "master.h5", "w") as file:
        file["scan"] = h5py.ExternalLink("data.h5", "/scan")
    with open_hdf5(Path(tmp_path / "master.h5")) as file:
        scan = file.find("scan")
        os.truncate(tmp_path / "data.h5", 5000)
        with pytest.raises(InputError, match=r"data\.h5: it has become shorter"):
            scan[:]
