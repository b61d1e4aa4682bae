"""Formats of other packages, which are found by entry points."""

import sys

import installed_package
import numpy as np
import pytest

import namsa
from namsa import InputError
from namsa.io import formats

MODULE = """
from contextlib import contextmanager

import numpy as np
from namsa.io.formats import numpy_array

NAME = "four bytes of test"
SUFFIXES = (".fourbytes",)


def recognises(path, head):
    return head.startswith(b"4BYT")


@contextmanager
def open_recording(path, options):
    plain = path.with_suffix(".npy")
    plain.write_bytes(path.read_bytes()[4:])
    with numpy_array.open_recording(plain, options) as recording:
        yield recording
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a module as the format of another package."""

    def write(text, name="format_of_test"):
        modules = {f"{name}.py": text}
        installed_package.install(
            tmp_path, monkeypatch, modules, "namsa.formats", {"fourbytes": name}
        )
        formats.formats_of_others.cache_clear()

    yield write
    formats.formats_of_others.cache_clear()
    for name in ("format_of_test", "broken_format_of_test"):
        sys.modules.pop(name, None)


def test_a_format_of_another_package_is_read_by_its_first_bytes(install, tmp_path):
    install(MODULE)
    patterns = np.random.default_rng(0).random((2, 3, 4, 5)).astype(np.float32)
    np.save(tmp_path / "plain.npy", patterns)
    path = tmp_path / "scan.data"
    path.write_bytes(b"4BYT" + (tmp_path / "plain.npy").read_bytes())
    with namsa.read(path) as recording:
        np.testing.assert_array_equal(recording.read(slice(0, 2), slice(0, 3)), patterns)
    with namsa.read(tmp_path / "plain.npy") as recording:
        assert recording.shape == (2, 3, 4, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_this_name", "fourbytes of broken_format_of_test cannot be imported"),
        ("NAME = 'x'", "lacks SUFFIXES, recognises, open_recording: repair or uninstall"),
    ],
)
def test_a_format_that_is_none_is_named(install, tmp_path, text, message):
    install(text, "broken_format_of_test")
    (tmp_path / "scan.data").write_bytes(b"12345678")
    with pytest.raises(InputError, match=message):
        namsa.read(tmp_path / "scan.data")
