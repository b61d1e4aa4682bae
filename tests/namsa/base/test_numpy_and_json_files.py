"""NumPy's files and JSON of unknown origin: plain values come back, all else is one InputError of
one line.
"""

import io
import json
import warnings
import zipfile

import numpy as np
import pytest

from namsa.base.errors import InputError
from namsa.base.json_files import parse_json, read_json, read_json_lines
from namsa.base.numpy_files import read_npy, read_npz

ARRAYS = {
    "matrix": np.arange(6.0).reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(12, dtype=">i4").reshape(3, 4)),
    "text": np.array("µ and more"),
    "empty": np.empty((0, 2), np.float32),
}
LARGEST = 2**20


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_plain_arrays_come_back_and_those_of_an_archive_by_name(tmp_path, save):
    save(tmp_path / "a.npz", **ARRAYS)
    read = read_npz(tmp_path / "a.npz", largest_bytes=LARGEST)
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.save(tmp_path / "a.npy", array)
        for loaded in (read[name], read_npy(tmp_path / "a.npy", largest_bytes=LARGEST)):
            assert (loaded.dtype, loaded.shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(loaded, array)


def npy(header: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    """Returns a file with any header."""
    text = header.encode() + b"\n"
    return (
        b"\x93NUMPY"
        + version
        + len(text).to_bytes(4 if version[0] > 1 else 2, "little")
        + text
        + data
    )


def saved(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


HOSTILE = {
    "text": b"1, 2\n",
    "nothing": b"",
    "half of a magic": b"\x93NUM",
    "a later version": npy("{}", version=b"\x09\0"),
    "names in UTF-8": npy(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", bytes(8), b"\3\0"
    ),
    "objects": saved(np.array([{}, 1], dtype=object)),
    "objects in a record": saved(np.array([(1, "a")], dtype=[("a", int), ("b", object)])),
    "a terabyte": npy(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (137438953472,)}", bytes(64)
    ),
    "beyond 64 bits": npy(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999999999999, 2)}"
    ),
    "a negative length": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", bytes(8)),
    "values of no bytes": npy(
        "{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,)}"
    ),
    "nothing in a huge shape": npy(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 10**30)}"
    ),
    "half": saved(np.arange(100.0))[:500],
    "more than declared": saved(np.arange(100.0)) + b"\0",
    "nested": npy("[" * 5000),
    "code": npy("__import__('os').system('touch /tmp/namsa-evil')"),
    "null": npy("{'descr': '\0', 'fortran_order': False, 'shape': (1,)}"),
    "no descr": npy("{'fortran_order': False, 'shape': (1,)}"),
    "a shape that is text": npy("{'descr': '<f8', 'fortran_order': False, 'shape': 'x'}"),
    "an open bracket": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,"),
    "a long header": npy(" " * 60_000),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_plain_array_is_refused_by_name(tmp_path, content):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", content)
    for read, name in ((read_npy, "a.npy"), (read_npz, "a.npz")):
        with pytest.raises(InputError, match=name) as caught:
            read(tmp_path / name, largest_bytes=LARGEST)
        assert len(str(caught.value)) < 700
        assert "\n" not in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(200_000))
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(200_000))
    assert (tmp_path / "a.npz").stat().st_size < 10_000
    for read, name in ((read_npy, "a.npy"), (read_npz, "a.npz")):
        with pytest.raises(InputError, match="more than 1 MiB"):
            read(tmp_path / name, largest_bytes=LARGEST)


def test_damaged_archives_are_refused_whatever_byte_is_wrong(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **{name: np.repeat(array, 3) for name, array in ARRAYS.items()})
    intact = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        content = bytearray(intact)
        for place in rng.integers(len(intact), size=rng.integers(1, 4)):
            content[place] = rng.integers(256)
        path.write_bytes(content if rng.random() < 0.7 else content[: rng.integers(len(content))])
        try:
            read_npz(path, largest_bytes=LARGEST)
        except InputError:
            refused += 1
    assert refused > 300


def test_an_archive_that_is_encrypted_or_packed_otherwise_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", saved(np.zeros(3)))
    with pytest.raises(InputError, match="does not pack"):
        read_npz(path, largest_bytes=LARGEST)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", saved(np.zeros(3)))
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="encrypted"):
        read_npz(path, largest_bytes=LARGEST)


@pytest.mark.parametrize("shape", ["(0, 9223372036854775807, 9223372036854775807)", "(True, 5)"])
def test_a_shape_that_no_array_has_is_refused(tmp_path, shape):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
    (tmp_path / "x.npy").write_bytes(npy(header, bytes(40 if "5)" in shape else 0)))
    with pytest.raises(InputError, match="declares the shape"):
        read_npy(tmp_path / "x.npy", largest_bytes=2**20)


@pytest.mark.parametrize(
    "names", [("a.npy", "a"), ("a.npy", "a.npy"), [f"{index}.npy" for index in range(20_001)]]
)
def test_two_arrays_of_one_name_and_too_many_are_refused(tmp_path, names):
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        warnings.simplefilter("ignore")
        for name in names:
            archive.writestr(name, b"")
    with pytest.raises(InputError, match="two of one name, or more than 20000"):
        read_npz(tmp_path / "x.npz", largest_bytes=2**20)


# ---- JSON


def test_values_are_those_of_json(tmp_path):
    value = {"a": [1, -2.5, None, True, "Å \U0001f600"], "b": {"c": [[]]}, "d": 2**63}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(value))
    assert read_json(path) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON.*line 1, column 1"),
        ('{"a": 1,\n "b"}', "line 2"),
        ("NaN", "NaN is not a finite"),
        ("[-Infinity]", "not a finite"),
        ("1e999", "1e999 is not a finite"),
        ("9" * 5000, r"has more than 64 bits"),
        (str(2**64), "64 bits"),
        ("[" * 100000, "nested|not JSON"),
        ("[" * 65 + "]" * 65, "nested more than 64"),
        ('{"a":' * 500 + "1" + "}" * 500, "nested more than 64"),
        ('["\\ud800"]', r"\\ud800, half of a character"),
    ],
)
def test_faults_are_one_short_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_json(text, "x.json")
    assert "x.json" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_wide_values_are_not_deep_ones():
    assert parse_json("[" + "[]," * 1000 + "[]]", "x") == [[]] * 1001
    assert parse_json("[" * 64 + "]" * 64, "x")


def test_files_that_cannot_be_read_are_refused(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(InputError, match="cannot read .*No such file"):
        read_json(path)
    with pytest.raises(InputError, match="directory"):
        read_json(tmp_path)
    with pytest.raises(InputError, match="no file has such a name"):
        read_json(tmp_path / "a\0b")
    path.symlink_to(path)
    with pytest.raises(InputError, match="symbolic links"):
        read_json(path)
    path.unlink()
    path.write_bytes(b'"\xff"')
    with pytest.raises(InputError, match="byte 1 is 0xff"):
        read_json(path)
    path.write_text("[" + "1, " * 100 + "1]")
    with pytest.raises(InputError, match="more than"):
        read_json(path, largest_bytes=100)


def test_lines_are_numbered_and_damaged_ones_named_or_skipped(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n\n[2]\n{"a"')
    with pytest.raises(InputError, match=r"x\.jsonl, line 4"):
        list(read_json_lines(path))
    assert list(read_json_lines(path, skip_damaged=True)) == [(1, {"a": 1}), (3, [2])]
