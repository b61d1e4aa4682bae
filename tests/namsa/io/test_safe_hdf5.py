"""HDF5 files that are damaged or made to do harm end in one InputError; those with a seal are
opened in place.
"""

import os
import struct
import time
import zlib
from dataclasses import replace
from functools import partial

import h5py
import numpy as np
import pytest

from namsa import InputError
from namsa.base.pixels import PixelGrid
from namsa.io import confined_library, hdf5, hdf5_process, safe_hdf5, seal
from namsa.io.calibration import CalibrationOverrides
from namsa.io.confined_library import DamagedFileError
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.reading import open_patterns
from namsa.io.safe_hdf5 import Hdf5File, SealedHdf5File, open_hdf5

SHAPE = (2, 3, 4, 5)
COMPLETE = CalibrationOverrides(
    energy_ev=200e3, semiangle_mrad=20.0, scan_step_angstrom=(0.4, 0.4), pixel_mrad=(1.0, 1.0)
)


@pytest.fixture
def path(tmp_path):
    """A file with a scan, links to it, attributes and small datasets."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/scan"] = np.arange(120, dtype=">u2").reshape(SHAPE)
        file["soft"] = h5py.SoftLink("/a")
        file["a/again"] = h5py.SoftLink("scan")
        file["circle"] = h5py.SoftLink("/circle")
        file["to"], file["fro"] = h5py.SoftLink("/fro/x"), h5py.SoftLink("/to/x")
        file["a/nowhere"] = h5py.SoftLink("/none")
        file["a/up"] = file["/"]  # a hard link in a circle
        file["outside"] = h5py.ExternalLink("/etc/passwd", "/")
        attributes = file["a"].attrs
        attributes["number"], attributes["text"], attributes["bytes"] = 1.5, "Å", b"mrad"
        attributes["one"], attributes["list"], attributes["many"] = [2], [1.0, 2.0], np.zeros(1000)
        attributes["empty"], attributes["complex"] = h5py.Empty("f"), 1j
        attributes["pair"] = np.zeros((), "f4,i4")
        file["flag"], file["words"], file["image"] = True, "words", np.zeros((9, 9))
        file["strings"] = ["a", "b"]
    return tmp_path / "x.h5"


def test_parts_of_a_dataset_are_read(path, monkeypatch):
    expected = np.arange(120).reshape(SHAPE)
    with open_hdf5(path) as file:
        scan = file.find("a/scan")
        assert (scan.name, scan.shape, scan.dtype, scan.chunks) == (
            "/a/scan",
            SHAPE,
            np.dtype(">u2"),
            None,
        )
        np.testing.assert_array_equal(scan[:], expected)
        np.testing.assert_array_equal(scan[1:2, -2:, :, 3:99], expected[1:2, -2:, :, 3:99])
        assert scan[2:].shape == (0, 3, 4, 5)
        assert scan.parent.name == "/a"
    monkeypatch.setattr(confined_library, "SHARED_BYTES", 37)  # larger parts are read in pieces
    with open_hdf5(path) as file:
        np.testing.assert_array_equal(file.find("a/scan")[:], expected)


def test_links_inside_of_the_file_are_followed(path):
    with open_hdf5(path) as file:
        assert file.find("soft/again").name == "/a/scan"
        assert file.find("a/up/a/up/a").name == "/a/up/a/up/a"
        assert file.find("a/nowhere") is file.find("none") is file.find("a/scan/below") is None
        assert file.scans() == (["/a/scan"], [])


@pytest.mark.parametrize("name", ["circle", "to", "a/up/fro"])
def test_links_in_a_circle_are_refused(path, name):
    with (
        open_hdf5(path) as file,
        pytest.raises(InputError, match=f"x.h5: {name} leads through more than 16 links"),
    ):
        file.find(name)


def test_external_links_are_refused_by_name(path):
    for name in ("outside", "outside/below"):
        with (
            open_hdf5(path) as file,
            pytest.raises(InputError, match="/outside is an external link to /etc/passwd"),
        ):
            file.find(name)


def test_attributes_and_small_datasets_are_numbers_text_or_lists(path):
    with open_hdf5(path) as file:
        group = file.find("a")
        names = (
            "number",
            "text",
            "bytes",
            "one",
            "list",
            "many",
            "empty",
            "complex",
            "pair",
            "none",
        )
        values = [1.5, "Å", "mrad", [2], [1.0, 2.0], None, None, None, None, None]
        assert [group.attribute(name) for name in names] == values
        assert isinstance(file.find("flag"), Hdf5Dataset)
        values = {name: file.find(name).value() for name in ("flag", "words", "image", "strings")}
        assert values == {"flag": True, "words": "words", "image": None, "strings": ["a", "b"]}
        assert not file.find("words").is_numeric
        with pytest.raises(InputError, match=r"x\.h5: /strings holds no plain numbers"):
            file.find("strings")[:]
        assert "a" in Hdf5Group(file, "/").children()
        assert Hdf5Group(file, "/").groups_with("text") == ["a"]
        assert Hdf5Group(file, "/").groups_with("none") == []


def virtual(file, path, source):
    layout = h5py.VirtualLayout(SHAPE, "u2")
    layout[...] = h5py.VirtualSource(source, "scan", SHAPE)
    file.create_virtual_dataset("scan", layout)


def external(file, path):
    (path / "data").write_bytes(bytes(240))
    file.create_dataset("scan", SHAPE, "u2", external=[(str(path / "data"), 0, 240)])


ELSEWHERE = r"x.h5.*scan is a virtual dataset, whose data are elsewhere"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        *((partial(virtual, source=source), ELSEWHERE) for source in (".", "x.h5", "other.h5")),
        (external, "/scan has its data in other files"),
        (lambda file, path: file.update(scan=h5py.Empty("f4")), "/scan is empty"),
    ],
)
def test_datasets_whose_data_are_elsewhere_or_none_are_refused(tmp_path, write, message):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        write(file, tmp_path)
    for overrides in (COMPLETE, replace(COMPLETE, dataset="scan")):
        with pytest.raises(InputError, match=message):
            open_patterns(tmp_path / "x.h5", overrides).__enter__()


def test_no_file_but_the_one_can_be_opened(path, monkeypatch):
    """The limit on open files holds where a check would not."""
    monkeypatch.setattr(safe_hdf5.Hdf5File, "SCRIPT", str(path.with_name("leaky.py")))
    source = (safe_hdf5.Path(hdf5_process.__spec__.origin)).read_text()
    method = "\n    @contextmanager\n    def _may_open("
    call = f'\n    def children(self, path):\n        return [open("/etc/passwd").read()]\n{method}'
    assert method in source
    path.with_name("leaky.py").write_text(source.replace(method, call, 1))
    with open_hdf5(path) as file, pytest.raises(DamagedFileError, match="Too many open files"):
        file.find("/").children()


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        (
            (10**6, 10**6, 8, 8),
            {"chunks": (4, 4, 8, 8)},
            "declares 64000000000000 bytes, of which the file holds 0",
        ),
        ((10**5, 10**5, 8, 8), {}, "declares 640000000000 bytes, of which the file holds 0"),
        (
            (64, 64, 640, 640),
            {"chunks": (64, 64, 640, 640), "maxshape": (None,) * 4},
            "has chunks of 1677721600 bytes",
        ),
        (
            (0, 4, 5, 6),
            {"chunks": (4, 4, 5, 6), "maxshape": (None,) * 4},
            r"its shape is \(0, 4, 5, 6\)",
        ),
    ],
)
def test_extents_that_the_file_cannot_hold_are_refused(tmp_path, shape, options, message):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("scan", shape, "u1", **options)
    with (
        pytest.raises(InputError, match=message),
        open_patterns(tmp_path / "x.h5", replace(COMPLETE, dataset="scan")),
    ):
        pass


def test_a_chunk_that_unpacks_to_more_than_it_declares_is_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("scan", SHAPE, "u1", chunks=SHAPE, compression="gzip")
        packer = zlib.compressobj(1)
        bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(2**10)) + packer.flush()
        data.id.write_direct_chunk((0, 0, 0, 0), bomb)
    started = time.monotonic()
    with open_hdf5(tmp_path / "x.h5") as file, pytest.raises(DamagedFileError, match=r"x\.h5"):
        file.find("scan")[:]
    assert time.monotonic() - started < 30


def test_a_crash_of_the_library_is_one_line(path, monkeypatch):
    """The process is replaced by ones that crash, loop, exhaust the memory, or say nothing."""
    for body, message in (
        ("os.kill(os.getpid(), 11)", r"x\.h5 as HDF5: the HDF5 library crashed \(SIGSEGV\)"),
        (
            "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
            "did not answer|ran longer than",
        ),
        ("sys.exit(3)", "the HDF5 library ended"),
        ("print('{}')", "the HDF5 library did not answer"),
        ("", r"did not answer within 0\.5 s"),
    ):
        monkeypatch.setattr(confined_library, "SECONDS", confined_library.SECONDS if body else 0.5)
        script = path.with_name("script.py")
        script.write_text(
            f"import os, resource, sys\nsys.stdin.readline()\n{body}\nsys.stdin.read()"
        )
        monkeypatch.setattr(safe_hdf5.Hdf5File, "SCRIPT", str(script))
        with pytest.raises(DamagedFileError, match=message), open_hdf5(path):
            pass


def test_the_process_ends_with_the_file(path):
    with open_hdf5(path) as file:
        child = file._process.pid
        assert os.path.exists(f"/proc/{child}")
    assert not os.path.exists(f"/proc/{child}")


# ---- Seals

IMAGE = np.arange(40 * 60, dtype=np.float32).reshape(40, 60)
GRID = PixelGrid((0.5, 0.4), (0.0, 0.0))


@pytest.fixture
def sealed(tmp_path):
    path = tmp_path / "images.h5"
    hdf5.write_images(path, "scan", {"density": (IMAGE, "e/Å²")}, GRID, {"of": "a test"})
    return path


def opened_as(path):
    with open_hdf5(path) as file:
        np.testing.assert_array_equal(file.find("/scan/density/data")[:], IMAGE)
        return type(file)


def test_a_file_of_ones_own_is_opened_in_place_and_by_hdf5_as_ever(sealed, monkeypatch):
    monkeypatch.setattr(confined_library.subprocess, "Popen", None)  # no process is started
    assert opened_as(sealed) is SealedHdf5File
    with h5py.File(sealed) as file:
        np.testing.assert_array_equal(file["scan/density/data"], IMAGE)


def test_any_change_of_what_hdf5_interprets_breaks_the_seal(sealed):
    intact = sealed.read_bytes()
    ((first_byte, length),) = seal.data_spans(h5py.File(sealed))
    assert length == IMAGE.nbytes
    outside = [
        *range(0, first_byte, 97),
        *range(first_byte + length, len(intact), 97),
        len(intact) - 1,
    ]
    for place in outside:
        sealed.write_bytes(intact[:place] + bytes([intact[place] ^ 1]) + intact[place + 1 :])
        assert not seal.is_sealed(sealed), place
    for changed in (intact[:-60], intact + b"\0", intact[:-100] + intact[-99:], b"", intact[-52:]):
        sealed.write_bytes(changed)
        assert not seal.is_sealed(sealed)
    sealed.write_bytes(intact)
    assert seal.is_sealed(sealed)


def test_a_seal_of_another_user_does_not_count(sealed, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    assert opened_as(sealed) is Hdf5File  # there is no key
    hdf5.write_images(tmp_path / "theirs.h5", "scan", {"density": (IMAGE, "e/Å²")}, GRID, {})
    assert opened_as(tmp_path / "theirs.h5") is SealedHdf5File
    assert opened_as(sealed) is Hdf5File
    (tmp_path / "other/namsa/seal.key").chmod(0o644)  # others can read it
    assert opened_as(tmp_path / "theirs.h5") is Hdf5File


def test_a_file_is_written_where_no_key_can_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    hdf5.write_images(tmp_path / "a.h5", "scan", {"density": (IMAGE, "e/Å²")}, GRID, {})
    assert opened_as(tmp_path / "a.h5") is Hdf5File


def test_a_table_of_spans_asks_for_no_more_than_a_seal_covers(sealed):
    """Spans that overlap, or that leave out little of a large file, are refused before the file is
    read.
    """
    tail = struct.pack("<I32s8s", 2, bytes(32), seal.MAGIC)
    for spans in ((0, 2**40, 5, 2**40), (10, 5, 0, 5), (2**63, 2**63, 0, 0)):
        with sealed.open("wb") as file:
            os.truncate(file.fileno(), 2**35)  # a hole
            file.seek(2**35)
            file.write(struct.pack("<QQQQ", *spans) + tail)
        assert not seal.is_sealed(sealed)


def test_compressed_data_are_covered(tmp_path):
    """Their filters interpret them."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("packed", data=IMAGE, compression="gzip")
        file.create_dataset("plain", data=IMAGE)
        assert [length for _, length in seal.data_spans(file)] == [IMAGE.nbytes]
