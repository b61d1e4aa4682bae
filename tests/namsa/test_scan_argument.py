"""`scan` and `sampling` of `namsa.simulate`, and what a sample is for a notebook and for other libraries."""

import sys
import types

import ase.build
import numpy as np
import pytest

import namsa
from namsa.io import labelled
from namsa.physics.optics import wavelength_angstrom

BEAM = {"energy_ev": 200e3, "semiangle_mrad": 12.0}


@pytest.fixture(scope="module")
def crystal():
    return ase.build.bulk("Al", a=4.05, cubic=True) * (2, 1, 1)  # 8.1 Å along x, 4.05 Å along y


@pytest.fixture(scope="module")
def sample(crystal):
    return namsa.simulate(crystal, **BEAM, scan=(2, 3), sampling=0.2)


def test_a_scan_of_rows_and_columns_fills_the_cell(sample):
    assert sample.provenance["scan_shape"] == [2, 3]
    expected = [[y, x] for y in (0, 4.05 / 2) for x in (0, 8.1 / 3, 8.1 * 2 / 3)]
    np.testing.assert_allclose(sample.provenance["positions_angstrom"], expected)


def test_sampling_is_the_largest_pixel(sample):
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
        ({"scan": (2, 2), "positions_angstrom": [[0, 0]]}, "scan and positions_angstrom each say where the probe is"),
        ({"scan_shape": (2, 2)}, r"scan_shape is \(2, 2\), without positions_angstrom: give scan=\(2, 2\)"),
        ({"scan": (0, 2)}, "scan: shape"),
        ({"scan": (1, 1), "sampling": 0.3, "grid_shape": (8, 8)}, "grid_shape and sampling each say the pixels"),
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


def test_the_stack_is_a_view_of_the_patterns_along_the_scan(sample):
    assert sample.stack.shape == (2, 3, *sample.cbed.shape[1:])
    assert np.shares_memory(sample.stack, sample.cbed)
    assert (sample.stack[1, 2] == sample.cbed[5]).all()


def test_xarray_has_coordinates_and_units(sample):
    pytest.importorskip("xarray")
    found = sample.to_xarray()
    assert found.cbed.dims == ("y", "x", "ky", "kx")
    assert found.cbed.sel(y=4.05 / 2, x=8.1 / 3, method="nearest").values.tolist() == sample.stack[1, 1].tolist()
    assert (found.x.units, found.kx.units, found.density.units) == ("Å", "mrad", "e/Å²")
    assert found.density.dims == ("density_y", "density_x")
    assert float(found.kx[sample.stack.shape[3] // 2]) == pytest.approx(0)


def test_hyperspy_gets_calibrated_axes(sample, monkeypatch):
    package, api = types.ModuleType("hyperspy"), types.ModuleType("hyperspy.api")
    api.signals = types.SimpleNamespace(Signal2D=lambda data, **settings: (data, settings))
    monkeypatch.setitem(sys.modules, "hyperspy", package)
    monkeypatch.setitem(sys.modules, "hyperspy.api", api)
    data, settings = sample.to_hyperspy()
    assert data.shape == sample.stack.shape
    y, x, ky, kx = settings["axes"]
    assert (y["name"], y["units"], y["scale"], y["navigate"]) == ("y", "Å", pytest.approx(4.05 / 2), True)
    assert (kx["units"], kx["navigate"], kx["size"]) == ("mrad", False, data.shape[3])
    assert kx["offset"] + kx["scale"] * (kx["size"] // 2) == pytest.approx(0)
    assert x["size"] == 3
    assert ky["scale"] == pytest.approx(sample.provenance["detector_sampling_mrad"][0])


def test_a_library_that_is_missing_is_named(sample, monkeypatch):
    monkeypatch.setattr(labelled.importlib, "import_module", lambda name: (_ for _ in ()).throw(missing(name)))
    with pytest.raises(namsa.InputError, match="hyperspy is not installed: pip install hyperspy"):
        sample.to_hyperspy()


def missing(name):
    return ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
