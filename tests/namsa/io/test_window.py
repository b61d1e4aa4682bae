"""Parts of a scan and of its detector, and binned pixels: patterns, and the numbers that follow."""

import h5py
import numpy as np
import pytest
from measured_files import assert_reads, assert_refused, patterns, write_mib

import namsa
from namsa.cli.parser import main
from namsa.io.calibration_file import CalibratedQuantity, CalibrationFile
from namsa.io.reading import open_patterns
from namsa.io.window_calibration import of_stored_scan

DATA = patterns(scan=(5, 6), detector=(12, 16))  # u2
KNOWN = {
    "energy_ev": 200e3,
    "semiangle_mrad": 20.0,
    "scan_step_angstrom": (0.4, 0.5),
    "pixel_mrad": (2.0, 3.0),
    "centre_pixels": (5.25, 8.5),
}


def binned(data, side):
    """Returns patterns of which squares of pixels are added."""
    height, width = (n // side for n in data.shape[2:])
    cut = data[:, :, : height * side, : width * side].astype(np.uint64)
    return cut.reshape(*data.shape[:2], height, side, width, side).sum((3, 5))


def test_a_part_of_scan_and_detector_is_read_from_a_file_with_its_calibration(tmp_path):
    write_mib(tmp_path / "a.mib", DATA, kind="U16")
    window = DATA[1:4, 2:6, 3:9, 4:14]
    known = {
        "centre_pixels": (2.25, 4.5),
        "scan_origin_angstrom": pytest.approx((0.4, 1.0)),
        "pixel_mrad": (2.0, 3.0),
        "dtype": np.uint16,
    }
    given = {"scan_shape": (5, 6), "region": "1:4,2:", "crop": "3:9,4:14"} | KNOWN
    assert_reads(tmp_path / "a.mib", window, known, **given)
    assert_reads(tmp_path / "a.mib", window, known, **given | {"region": ((1, 4), (2, None))})


@pytest.mark.parametrize(
    ("dtype", "of_sums"), [("u1", "u4"), ("i2", "i4"), ("u4", "u8"), ("f4", "f4"), ("f8", "f8")]
)
def test_squares_of_pixels_are_added_in_a_type_that_holds_them(dtype, of_sums):
    data = np.full((2, 3, 7, 9), 255 if dtype == "u1" else 100, dtype)
    data[0, 1] += np.arange(63).reshape(7, 9).astype(dtype) // 64
    with namsa.read(data, binning=3, **KNOWN) as scan:
        assert scan.dtype == np.dtype(of_sums)
        np.testing.assert_array_equal(scan.data[...], binned(data, 3))
        np.testing.assert_array_equal(scan.data[:, 1:, ::2, 1:], binned(data, 3)[:, 1:, ::2, 1:])
        # the middle of the first square is pixel (1, 1) as it is stored
        assert scan.centre_pixels == pytest.approx(((5.25 - 1) / 3, (8.5 - 1) / 3))
        assert scan.pixel_mrad == (6.0, 9.0)
        assert "up to 1 pixels at the end" in scan.notes[-1]


def test_a_size_is_cut_about_the_optic_axis_or_the_middle():
    with namsa.read(DATA, crop="6x6", **KNOWN) as scan:  # axis at (5.25, 8.5)
        np.testing.assert_array_equal(scan.data[...], DATA[:, :, 3:9, 6:12])
        assert scan.centre_pixels == (2.25, 2.5)
        assert "cropped to pixels 3:9,6:12 of a detector of 12x16" in scan.notes
    with namsa.read(DATA, crop=(12, 4)) as scan:
        np.testing.assert_array_equal(scan.data[...], DATA[:, :, :, 6:10])


def test_bad_pixels_and_a_movement_of_the_disk_are_those_of_the_stored_scan():
    slope = ((0.2, 0.0), (0.0, -0.1))
    known = KNOWN | {"bad_pixels": ((4, 5), (0, 0)), "centre_slope": slope}
    with (
        namsa.read(DATA, **known) as stored,
        namsa.read(DATA, region="1:4,2:6", crop="2:10,4:12", binning=2, **known) as window,
    ):
        expected = stored.data[1:4, 2:6, 2:10, 4:12].reshape(3, 4, 4, 2, 4, 2).sum((3, 5))
        np.testing.assert_allclose(window.data[...], expected, rtol=1e-6)
        assert window.bad_pixels == ((1, 0),)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"region": "0:9,0:2"}, "--region is 0:9,0:2, and there are 5 rows and 6 columns"),
        ({"region": "2:2,0:2"}, "not empty"),
        ({"region": "0:2"}, "give rows and columns as Y0:Y1,X0:X1"),
        ({"crop": "-3:4,0:2"}, "give rows and columns as Y0:Y1,X0:X1"),
        ({"crop": "64x64"}, "the detector has 12x16 pixels"),
        ({"crop": "6"}, "give rows x columns"),
        ({"binning": 13}, "give an integer from 1 to 12"),
        ({"crop": "6x6", "binning": 0}, "give an integer from 1 to 6"),
    ],
)
def test_what_is_no_part_is_refused(given, message):
    assert_refused(message, DATA, **given)


def test_a_part_is_not_cut_again():
    with namsa.read(DATA, crop="6x6") as scan:
        assert_refused("is not cut again", scan, binning=2)


def test_a_calibration_measured_on_a_part_is_that_of_the_stored_scan():
    with namsa.read(DATA, region="1:4,2:6", crop="2:10,4:12", binning=2) as recording:
        window = recording.window
    measured = {
        "pixel_mrad": CalibratedQuantity((4.0, 6.0), (0.2, 0.4), "disk"),
        "centre_pixels": CalibratedQuantity((1.0, 2.0), (0.1, 0.2), "disk"),
        "centre_slope_pixels": CalibratedQuantity(((0.5, 0.0), (0.0, 1.0)), None, "descan"),
        "disk_radius_pixels": CalibratedQuantity(3.0, 0.1, "disk"),
    }
    stored = of_stored_scan(CalibrationFile(measured, ((0, 1),)), window)
    assert stored.value("pixel_mrad") == (2.0, 3.0)
    assert stored.value("disk_radius_pixels") == 6.0
    assert stored.quantities["centre_pixels"].error == (0.2, 0.4)
    # square (1, 2) has its middle at (4.5, 8.5); the region's middle is (0, 1.5 - ...) off
    rows, columns = window.scan_shift
    assert (rows, columns) == (0.0, 1.0)
    assert stored.value("centre_pixels") == pytest.approx((4.5, 8.5 - 2.0))
    assert stored.bad_pixels == ((2, 6), (2, 7), (3, 6), (3, 7))


def test_options_of_the_command_line_are_those_of_read(tmp_path, capsys):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = DATA
    path = str(tmp_path / "a.h5")
    cut = ["--region", "1:4,2:6", "--crop", "8x8", "--binning", "2"]
    assert main(["info", path, *cut]) == 0
    printed = capsys.readouterr().out
    assert "3 × 4 of 4 × 4 pixels" in printed
    assert "squares of 2x2 pixels added" in printed
    numbers = ["--energy-ev", "2e5", "--semiangle-mrad", "20", "--scan-step-angstrom", "0.4"]
    numbers += ["--pixel-mrad", "2", "--rotation-deg", "0"]
    out = tmp_path / "ptyrad"
    assert main(["export", path, "--to", "ptyrad", "--out", str(out), *numbers, *cut]) == 0
    with h5py.File(out / "patterns.h5") as file:
        assert file["patterns"].shape == (3, 4, 4, 4)
    with open_patterns(DATA, crop="8x8", binning=2, **KNOWN) as scan:
        assert scan.pixel_mrad == (4.0, 6.0)


def test_a_calibration_file_of_a_part_suits_every_part(tmp_path):
    y, x = np.mgrid[:32, :36]
    disk = 400.0 / (1 + np.exp((np.hypot(y - 15.4, x - 18.2) - 9) / 0.3))
    data = np.random.default_rng(0).poisson(disk, (6, 6, 32, 36)).astype(np.uint16)
    np.save(tmp_path / "a.npy", data)
    path = str(tmp_path / "a.npy")
    cut = ["--crop", "2:32,4:34", "--region", "1:5,:"]
    out = tmp_path / "a.json"
    assert main(["inspect", path, "--semiangle-mrad", "18", "--out", str(out), *cut]) == 0
    with namsa.read(path, crop="24x24") as scan:
        assert scan.centre_pixels is None
    stated = namsa.inspect(path, semiangle_mrad=18.0, crop="2:32,4:34")
    assert stated.calibration.value("centre_pixels") == pytest.approx((15.4, 18.2), abs=0.05)
    assert stated.as_read.value("centre_pixels") == pytest.approx((13.4, 14.2), abs=0.05)
    known = stated.calibration.overrides()
    with namsa.read(path, calibration=known, crop="24x24", binning=2) as scan:
        middle = np.array(scan.centre_pixels) * 2 + 0.5 + np.array([4, 7])
        np.testing.assert_allclose(middle, (15.4, 18.2), atol=0.05)
        np.testing.assert_allclose(scan.pixel_mrad, 2 * 18 / 9, rtol=0.02)
