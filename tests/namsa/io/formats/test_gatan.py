"""Gatan's DM3 and DM4: tags in both byte orders, both orders of a scan's axes, and real files."""

import numpy as np
import pytest
from measured_files import Dm, assert_refused, needs_measured, patterns, vendor, write_dm

import namsa
from namsa import WorkError
from namsa.physics.optics import wavelength_angstrom

SCAN_AXES = [(0.5, 0.0, "nm"), (0.4, 0.0, "nm")]  # x, y
DETECTOR_AXES = [(0.1, 4.0, "1/nm"), (0.2, 2.0, "1/nm")]
PIXEL = 1e2 * wavelength_angstrom(300e3)  # of 1/nm, mrad


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("swapped", [True, False, None])
def test_a_scan_in_both_orders_of_its_axes(tmp_path, version, order, swapped):
    data, path = patterns("i2", largest=30000), tmp_path / f"a.dm{version}"
    if swapped:
        write_dm(path, data, DETECTOR_AXES + SCAN_AXES, version=version, order=order, swapped=True)
    else:
        stored = np.ascontiguousarray(data.transpose(2, 3, 0, 1))
        write_dm(path, stored, SCAN_AXES + DETECTOR_AXES, version=version, order=order, swapped=swapped)
    with namsa.read(path) as recording:
        assert (recording.format, recording.shape, recording.dtype) == ("DigitalMicrograph", data.shape, np.int16)
        np.testing.assert_array_equal(recording.read(slice(0, 3), slice(0, 4)), data)
        np.testing.assert_array_equal(recording.read(slice(1, 2), slice(2, 4)), data[1:2, 2:4])
        np.testing.assert_array_equal(recording.data[::2, 1:, 1:5, 2:], data[::2, 1:, 1:5, 2:])
        assert recording.energy_ev == 300e3
        assert recording.scan_step_angstrom == pytest.approx((4.0, 5.0))
        assert recording.pixel_mrad == pytest.approx((0.2 * PIXEL, 0.1 * PIXEL))
        assert recording.centre_pixels == pytest.approx((2.0, 4.0))


def test_of_a_plane_only_the_rows_are_read(tmp_path, monkeypatch):
    data = patterns("u1", scan=(16, 4))
    write_dm(tmp_path / "a.dm4", np.ascontiguousarray(data.transpose(2, 3, 0, 1)), SCAN_AXES + DETECTOR_AXES)
    with namsa.read(tmp_path / "a.dm4") as recording:
        monkeypatch.setattr("namsa.io.planes.READ_BYTES", 100)
        np.testing.assert_array_equal(recording.read(slice(3, 5), slice(1, 3)), data[3:5, 1:3])
        np.testing.assert_array_equal(recording.read(slice(1, 12), slice(0, 4)), data[1:12])


def test_a_stack_and_an_image_are_frames(tmp_path):
    data = patterns("f4", largest=1000)
    write_dm(tmp_path / "stack.dm4", data.reshape(12, 6, 8), [*DETECTOR_AXES, (1.0, 0.0, "s")])
    with namsa.read(tmp_path / "stack.dm4", scan_shape="3x4") as recording:
        np.testing.assert_array_equal(recording.read(slice(0, 3), slice(0, 4)), data)
        assert recording.pixel_mrad == pytest.approx((0.2 * PIXEL, 0.1 * PIXEL))
        assert recording.scan_step_angstrom is None
    write_dm(tmp_path / "image.dm4", data[1, 2], DETECTOR_AXES)
    with namsa.read(tmp_path / "image.dm4") as recording:
        np.testing.assert_array_equal(recording.read(slice(0, 1), slice(0, 1))[0, 0], data[1, 2])


def test_what_is_damaged_is_one_line(tmp_path):
    path = tmp_path / "a.dm4"
    write_dm(path, patterns(), DETECTOR_AXES + SCAN_AXES, swapped=True)
    whole = path.read_bytes()
    for size in (2, 10, 20, 50, 500, len(whole) - 3000):
        path.write_bytes(whole[:size])
        assert_refused(r"a\.dm4", path)
    deep: dict = {}
    for _ in range(60):
        deep = {"a": deep}
    path.write_bytes(b"\0\0\0\4" + bytes(11) + b"\1" + Dm(4, "<").group(deep))
    assert_refused("nested more than", path)
    path.write_bytes(b"\0\0\0\4" + bytes(11) + b"\1" + Dm(4, "<").group({"ImageList": {}}))
    assert_refused("holds no image", path)
    stored = np.ascontiguousarray(patterns().transpose(2, 3, 0, 1))
    write_dm(path, stored, SCAN_AXES + DETECTOR_AXES)
    with namsa.read(path) as recording:
        path.write_bytes(path.read_bytes()[:-2000])
        with pytest.raises(WorkError, match="has become shorter"):
            recording.read(slice(0, 3), slice(0, 4))


@needs_measured
@pytest.mark.parametrize(
    ("name", "options", "shape", "dtype", "total", "brightest", "energy_ev"),
    [
        ("dd020.dm3", {}, (1, 1, 256, 256), "i4", 8934745, (103, 136), 300e3),
        ("bismuth.dm3", {}, (1, 1, 256, 256), "i1", -6126727, (148, 61), 90e3),
        ("bismuth.dm4", {}, (1, 1, 256, 256), "i1", -6126727, (148, 61), 90e3),
        ("dmTest_3D_int16_64,65,66.dm4", {"scan_shape": (6, 11)}, (6, 11, 65, 64), "i2", 8648640, None, None),
    ],
)
def test_real_files(name, options, shape, dtype, total, brightest, energy_ev):
    with namsa.read(vendor(name), **options) as recording:
        data = recording.read(slice(0, shape[0]), slice(0, shape[1]))
        assert (data.shape, data.dtype, data.sum(dtype=int)) == (shape, np.dtype(dtype), total)
        assert brightest is None or np.unravel_index(data[0, 0].argmax(), shape[2:]) == brightest
        assert recording.energy_ev == energy_ev
