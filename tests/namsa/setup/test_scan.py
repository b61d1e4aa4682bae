"""Probe positions from a file; what a file or a raster cannot give is refused by name."""

import os
import sys
import types
from unittest.mock import Mock

import ase.build
import numpy as np
import pytest

import namsa
from namsa import InputError
from namsa.config.instrument import Scan
from namsa.config.simulation import load_config
from namsa.io import labelled
from namsa.physics.optics import wavelength_angstrom
from namsa.setup import scan

BEAM = {"energy_ev": 200e3, "semiangle_mrad": 12.0}
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
    with pytest.raises(
        InputError, match=f"cannot read scan.file .*{name}: it is a pipe or a device"
    ):
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
    with pytest.raises(
        InputError, match=r"declares float64 of shape \(9, 2\), and 48 bytes follow"
    ):
        scan.read(npy)


@pytest.fixture(scope="module")
def crystal():
    return ase.build.bulk("Al", a=4.05, cubic=True) * (2, 1, 1)  # 8.1 Å along x, 4.05 Å along y


@pytest.fixture(scope="module")
def sample(crystal):
    return namsa.simulate(crystal, **BEAM, scan=(2, 3), sampling=0.2)


def test_a_scan_of_rows_and_columns_fills_the_cell_and_sampling_is_the_largest_pixel(sample):
    assert sample.provenance["scan_shape"] == [2, 3]
    expected = []
    for y in (0, 4.05 / 2):
        for x in (0, 8.1 / 3, 8.1 * 2 / 3):
            expected.append([y, x])
    np.testing.assert_allclose(sample.provenance["positions_angstrom"], expected)
    (ny, nx), (ly, lx) = sample.provenance["grid_shape"], sample.provenance["extent_angstrom"]
    assert 0.15 < ly / ny <= 0.2
    assert 0.15 < lx / nx <= 0.2


def test_without_a_scan_the_steps_sample_the_probe(crystal):
    made = namsa.simulate(crystal, **BEAM, sampling=0.3, backend="cpu")
    step = wavelength_angstrom(200e3) / (4 * 12e-3)
    rows, columns = made.provenance["scan_shape"]
    assert (rows, columns) == (np.ceil(4.05 / step), np.ceil(8.1 / step))
    plane = namsa.simulate(crystal, energy_ev=200e3, semiangle_mrad=0, sampling=0.3)
    assert plane.provenance["scan_shape"] == [1, 1]


def test_a_scan_with_a_step_is_that_of_a_configuration(crystal):
    scan = namsa.Scan(shape=(2, 2), step_angstrom=(0.5, 0.25), origin_angstrom=(1, 2))
    made = namsa.simulate(crystal, **BEAM, scan=scan, sampling=0.3)
    assert made.provenance["positions_angstrom"] == [[1, 2], [1, 2.25], [1.5, 2], [1.5, 2.25]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"scan": (2, 2), "positions_angstrom": [[0, 0]]},
            "scan and positions_angstrom are mutually exclusive",
        ),
        (
            {"scan_shape": (2, 2)},
            r"scan_shape is \(2, 2\), without positions_angstrom: give scan=\(2, 2\)",
        ),
        ({"scan": (0, 2)}, "scan: shape"),
        (
            {"scan": (1, 1), "sampling": 0.3, "grid_shape": (8, 8)},
            "grid_shape and sampling are mutually exclusive",
        ),
        ({"scan": (1, 1), "sampling": 0.0}, "sampling is 0.0; it must lie within"),
    ],
)
def test_what_is_said_twice_or_wrong_is_refused(crystal, arguments, message):
    with pytest.raises(namsa.InputError, match=message):
        namsa.simulate(crystal, **BEAM, **arguments)


def test_a_scattering_takes_a_scan_and_is_one_short_line(crystal):
    scattering = namsa.scatter(crystal, energy_ev=200e3, max_angle_mrad=12, sampling=0.3)
    stack = scattering.simulate(semiangle_mrad=12, scan=(2, 3)).stack
    assert stack.shape[:2] == (2, 3)
    assert repr(scattering).startswith("<Scattering: 4.05 Å; ")
    assert len(repr(scattering)) < 120
    page, (ny, nx) = scattering._repr_html_(), scattering.grid.extent_angstrom
    assert (page.count('src="data:image/png'), page.count(f"{ny:.4g} × {nx:.4g} Å")) == (2, 2)
    assert f"to {scattering.densities.max():.3g} e/Å²" in page


def test_the_stack_is_a_view_of_the_patterns_along_the_scan(sample):
    assert sample.stack.shape == (2, 3, *sample.cbed.shape[1:])
    assert np.shares_memory(sample.stack, sample.cbed)
    assert (sample.stack[1, 2] == sample.cbed[5]).all()


def test_xarray_has_coordinates_and_units(sample):
    pytest.importorskip("xarray")
    dataset = sample.to_xarray()
    assert dataset.cbed.dims == ("y", "x", "ky", "kx")
    assert (
        dataset.cbed.sel(y=4.05 / 2, x=8.1 / 3, method="nearest").values.tolist()
        == sample.stack[1, 1].tolist()
    )
    assert (dataset.x.units, dataset.kx.units, dataset.density.units) == ("Å", "mrad", "e/Å²")
    assert dataset.density.dims == ("density_y", "density_x")
    assert float(dataset.kx[sample.stack.shape[3] // 2]) == pytest.approx(0)


def test_hyperspy_gets_calibrated_axes(sample, monkeypatch):
    package = types.ModuleType("hyperspy")
    api = types.ModuleType("hyperspy.api")
    api.signals = types.SimpleNamespace(Signal2D=lambda data, **settings: (data, settings))
    monkeypatch.setitem(sys.modules, "hyperspy", package)
    monkeypatch.setitem(sys.modules, "hyperspy.api", api)
    data, settings = sample.to_hyperspy()
    assert data.shape == sample.stack.shape
    y, x, ky, kx = settings["axes"]
    assert (y["name"], y["units"], y["scale"], y["navigate"]) == (
        "y",
        "Å",
        pytest.approx(4.05 / 2),
        True,
    )
    assert (kx["units"], kx["navigate"], kx["size"]) == ("mrad", False, data.shape[3])
    assert kx["offset"] + kx["scale"] * (kx["size"] // 2) == pytest.approx(0)
    assert x["size"] == 3
    assert ky["scale"] == pytest.approx(sample.provenance["detector_sampling_mrad"][0])


def test_a_library_that_is_missing_is_named(sample, monkeypatch):
    missing = ModuleNotFoundError("No module named 'hyperspy.api'", name="hyperspy")
    monkeypatch.setattr(labelled.importlib, "import_module", Mock(side_effect=missing))
    with pytest.raises(namsa.InputError, match="hyperspy is not installed: pip install hyperspy"):
        sample.to_hyperspy()
