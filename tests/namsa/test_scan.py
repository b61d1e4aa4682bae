"""Probe positions from a file; what a file or a raster cannot give is refused by name."""

import os

import numpy as np
import pytest

from namsa import InputError, scan
from namsa.config.instrument import Scan
from namsa.config.simulation import load_config

POSITIONS = np.array([[0.5, 1.25], [3.0, -2.0], [7.75, 1e-3]])
CONFIG = "simulation: {grid_shape: [64, 80]}\nscan: {file: %s}\n"


@pytest.fixture
def npy(tmp_path):
    np.save(tmp_path / "at.npy", POSITIONS)
    return tmp_path / "at.npy"


def test_files_of_every_kind_hold_the_same_positions(npy, tmp_path):
    text = "# y, x in Å\n" + "".join(f"{y!r},{x!r}\n" for y, x in POSITIONS.tolist())
    (tmp_path / "at.csv").write_text(text)
    (tmp_path / "at.txt").write_text(text.replace(",", "  "))
    for name in ("at.npy", "at.csv", "at.txt"):
        np.testing.assert_array_equal(scan.read(tmp_path / name), POSITIONS)
    np.save(npy, POSITIONS[:1].astype(np.float32))
    assert scan.read(npy).dtype == np.float64


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "y,x\n1,2\n", "begin a header with #"),
        ("a.csv", "1,2,3\n", r"shape \(1, 3\)"),
        ("a.csv", "", r"shape"),
        ("a.csv", "1,2\n3\n", "two columns"),
        ("a.txt", "1 2\n3 nan\n", r"\[1\] is \[3.0, nan\]"),
        ("a.txt", "1 inf\n", "finite"),
        ("a.dat", "1 2\n", "must end in"),
        ("a.npy", "no array", "holds no NumPy array"),
    ],
)
def test_bad_files_are_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        scan.read(tmp_path / name)
    assert name in str(caught.value)


def test_pickles_complex_numbers_and_missing_files_are_refused(tmp_path):
    np.save(tmp_path / "p.npy", np.array([[{}, 1]], dtype=object), allow_pickle=True)
    np.save(tmp_path / "c.npy", POSITIONS.astype(complex))
    with pytest.raises(InputError, match=r"scan.file .*p.npy holds Python objects"):
        scan.read(tmp_path / "p.npy")
    with pytest.raises(InputError, match="complex"):
        scan.read(tmp_path / "c.npy")
    with pytest.raises(InputError, match="cannot read"):
        scan.read(tmp_path / "absent.csv")


def test_a_scan_is_a_grid_or_a_file(npy):
    assert Scan().shape == (16, 16)
    assert Scan(step_angstrom=(0.5, 0.5)).shape == (16, 16)
    assert Scan(file=npy).shape is None
    assert Scan.model_validate(Scan(file=npy).model_dump()) == Scan(file=npy)
    for other in ({"shape": (2, 2)}, {"step_angstrom": (1.0, 1.0)}, {"origin_angstrom": "random"}):
        with pytest.raises(ValueError, match="not both"):
            Scan(file=npy, **other)
    with pytest.raises(InputError, match="no raster"):
        scan.positions(Scan(file=npy), (8.0, 9.0), np.random.default_rng(0))


def test_a_target_at_the_scan_needs_a_raster(npy, tmp_path):
    (tmp_path / "c.yaml").write_text(CONFIG % npy + "target: {at: scan}\n")
    with pytest.raises(InputError, match=r"give scan.shape in place of scan.file"):
        load_config(tmp_path / "c.yaml")


def test_the_samples_hash_knows_a_files_contents_and_not_its_name(npy, tmp_path):
    (tmp_path / "c.yaml").write_text(CONFIG % npy)
    before = load_config(tmp_path / "c.yaml").samples_hash()
    npy.rename(tmp_path / "elsewhere.npy")
    elsewhere = load_config(tmp_path / "c.yaml", [f"scan.file={tmp_path / 'elsewhere.npy'}"])
    assert elsewhere.samples_hash() == before
    np.save(tmp_path / "elsewhere.npy", POSITIONS + 1e-9)
    assert elsewhere.samples_hash() != before
    with pytest.raises(InputError, match=r"cannot read scan.file"):
        load_config(tmp_path / "c.yaml").samples_hash()


@pytest.mark.parametrize("name", ["at.npy", "at.csv", "at.txt"])
def test_pipes_devices_and_huge_files_are_refused_at_once(tmp_path, name):
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(InputError, match=f"cannot read scan.file .*{name}: it is a pipe or a device"):
        scan.read(path)
    (tmp_path / "c.yaml").write_text(CONFIG % path)
    with pytest.raises(InputError, match="it is a pipe or a device"):
        load_config(tmp_path / "c.yaml").samples_hash()
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="it is a pipe or a device"):
        scan.read(path)
    path.unlink()
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(InputError, match="more than 64 MiB"):
        scan.read(path)


def test_a_declared_shape_takes_no_memory(npy):
    npy.write_bytes(npy.read_bytes().replace(b"(3, 2)", b"(9, 2)"))
    with pytest.raises(InputError, match=r"declares float64 of shape \(9, 2\), and 48 bytes follow"):
        scan.read(npy)
