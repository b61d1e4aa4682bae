"""Serpentine scans, axes that run backwards, dropped frames, and coordinates of axes."""

import h5py
import numpy as np
import pytest
from measured_files import assert_reads, assert_refused, frames_of, patterns, scan_of

import namsa
from namsa.io.calibration_file import read_calibration
from namsa.io.scan_counts import scan_by_counts

DATA = patterns()  # 3 × 4 positions of 6 × 8 pixels


def as_recorded(data):
    """Returns the patterns of a scan whose odd rows are recorded backwards."""
    recorded = data.copy()
    recorded[1::2] = data[1::2, ::-1]
    return recorded


def test_a_serpentine_scan_is_put_in_order_whatever_the_format(tmp_path):
    np.save(tmp_path / "a.npy", as_recorded(DATA))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["frames"] = frames_of(as_recorded(DATA))
    assert_reads(tmp_path / "a.npy", DATA, serpentine=True)
    assert_reads(tmp_path / "a.h5", DATA, scan_shape=(3, 4), serpentine=True)
    assert_reads(as_recorded(DATA), DATA, {"serpentine": True}, serpentine=True)


@pytest.mark.parametrize(("axes", "index"), [("y", np.s_[::-1]), ("x", np.s_[:, ::-1])])
def test_a_scan_is_flipped(axes, index):
    assert_reads(DATA[index], DATA, flip_scan=axes)


def test_a_scan_is_flipped_along_both_axes_and_says_so():
    with namsa.read(DATA[::-1, ::-1], flip_scan="yx") as recording:
        assert recording.notes == ("scan flipped along y and x",)
    assert_reads(DATA[::-1, ::-1], DATA, flip_scan="yx")
    assert_refused("--flip-scan is z", DATA, flip_scan="z")


def test_the_order_is_part_of_the_calibration(tmp_path):
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:24, :24]
    disk = 200.0 * (np.hypot(y - 11, x - 12) < 7) + 1
    scan = rng.poisson(disk, (3, 4, 24, 24)).astype("u2")
    np.save(tmp_path / "a.npy", as_recorded(scan)[:, ::-1])
    namsa.inspect(tmp_path / "a.npy", serpentine=True, flip_scan="x").save(tmp_path / "a.json")
    calibration = read_calibration(tmp_path / "a.json")
    assert (calibration.serpentine, calibration.flip_scan) == (True, "x")
    ordered = scan_of(tmp_path / "a.npy", calibration=calibration.overrides())
    expected = scan_of(as_recorded(scan)[:, ::-1], serpentine=True, flip_scan="x")
    np.testing.assert_array_equal(ordered, expected)


@pytest.mark.parametrize("dropped", [(0,), (5,), (3, 4, 11)])
def test_an_empty_pattern_is_in_the_place_of_a_dropped_frame(tmp_path, dropped):
    frames = frames_of(DATA)
    np.save(tmp_path / "a.npy", np.delete(frames, dropped, axis=0))
    expected = frames.copy()
    expected[list(dropped)] = 0
    options = {"scan_shape": (3, 4), "dropped_frames": dropped}
    assert_reads(tmp_path / "a.npy", expected.reshape(DATA.shape), **options)
    assert_refused("frames count from 0", tmp_path / "a.npy", **options | {"dropped_frames": [99]})


def counted(places):
    return scan_by_counts(np.array(places, float))


def test_counts_put_frames_of_a_serpentine_scan_in_their_places():
    places = []
    for y in range(3):
        for x in range(5):
            places.append((y, x if y % 2 == 0 else 4 - x))
    recorded = [(0, 0)] * 2 + [places[n] for n in range(15) if n not in (3, 7, 8)] + [(2, 4)] * 3
    scan = counted(recorded)
    assert scan.shape == (3, 5)
    assert np.flatnonzero(scan.numbers == -1).tolist() == [3, 6, 7]
    assert [scan.numbers[0], scan.numbers[9], scan.numbers[5]] == [2, 6, 8]
    assert any("3 dropped frames" in note for note in scan.notes)
    assert any("serpentine" in note for note in scan.notes)


@pytest.mark.parametrize("dropped", [[0], [14], [4, 5], [1, 6, 12], list(range(5, 8))])
def test_counts_find_dropped_frames_wherever_they_are(dropped):
    places = []
    for y in range(3):
        for x in range(5):
            places.append((y, x))
    scan = counted(
        [(0, 0)] * 2 * (0 not in dropped) + [p for n, p in enumerate(places) if n not in dropped]
    )
    assert scan.shape == (3, 5)
    assert np.flatnonzero(scan.numbers == -1).tolist() == dropped


def test_a_row_that_has_hardly_begun_is_left_out():
    scan = counted([(y, x) for y in range(4) for x in range(6)][:-5])
    assert scan.shape == (3, 6)
    assert scan.notes == ("row 3 has 1 of 6 frames, and is left out",)


def test_counts_that_rest_are_no_scan():
    assert counted([(0, 0)] * 20) is None
    assert counted(np.full((20, 2), np.nan)) is None


# ---- Coordinates of axes

DETECTOR = {
    "qy": (0.5 * (np.arange(6) - 2), "mrad"),
    "qx": (0.5 * (np.arange(8) - 3.5), "mrad"),
}


def write_nexus(path, scan_axes, **attributes):
    axes = scan_axes | DETECTOR
    with h5py.File(path, "w") as file:
        group = file.create_group("entry")
        file.attrs["default"] = "entry"
        group["data"] = DATA
        group.attrs.update({"signal": "data", "axes": list(axes), **attributes})
        for name, (coordinates, units) in axes.items():
            group[name] = coordinates
            group[name].attrs["units"] = units


def test_the_step_is_that_of_all_coordinates(tmp_path):
    jitter = np.array([0.004, -0.002, 0.001, 0.003])
    write_nexus(
        tmp_path / "a.nxs",
        {"y": (0.05 * np.arange(3), "nm"), "x": (0.04 * np.arange(4) + jitter, "nm")},
    )
    slope = np.polyfit(np.arange(4), 0.04 * np.arange(4) + jitter, 1)[0]
    with namsa.read(tmp_path / "a.nxs") as recording:
        assert recording.scan_step_angstrom == pytest.approx((0.5, 10 * slope))
        assert any("x: coordinates deviate by up to" in note for note in recording.notes)


def test_a_stage_far_from_zero_in_float32_keeps_its_step(tmp_path):
    coordinates = np.float32(1e6 + 0.05 * np.arange(400))
    with h5py.File(tmp_path / "a.emd", "w") as file:
        group = file.create_group("scan")
        group.attrs["emd_group_type"] = 1
        group["data"] = np.ones((400, 2, 6, 8), "u1")
        for axis, values in enumerate((coordinates, np.float32([1e6, 1e6 + 0.0625]))):
            group[f"dim{axis + 1}"] = values
            group[f"dim{axis + 1}"].attrs["units"] = "nm"
        for axis, (values, units) in enumerate(DETECTOR.values()):
            group[f"dim{axis + 3}"] = values
            group[f"dim{axis + 3}"].attrs["units"] = units
    with namsa.read(tmp_path / "a.emd") as recording:
        assert recording.scan_step_angstrom[0] == pytest.approx(0.5, rel=1e-3)
        assert any("rounded to 0.0625 nm" in note for note in recording.notes)


def test_edges_become_the_middles_of_their_intervals(tmp_path):
    scan = {"y": (0.05 * np.arange(4), "nm"), "x": (0.04 * np.arange(5), "nm")}
    write_nexus(tmp_path / "a.nxs", scan)
    with h5py.File(tmp_path / "a.nxs", "a") as file:
        del file["entry/qy"]
        file["entry/qy"] = 0.5 * (np.arange(7) - 2.5)
        file["entry/qy"].attrs["units"] = "mrad"
    with namsa.read(tmp_path / "a.nxs") as recording:
        assert recording.scan_step_angstrom == pytest.approx((0.5, 0.4))
        assert recording.scan_origin_angstrom == pytest.approx((0.25, 0.2))
        assert recording.centre_pixels == pytest.approx((2.0, 3.5))
        assert sum("edges" in note for note in recording.notes) == 3


def test_coordinates_of_another_length_are_not_used(tmp_path):
    write_nexus(
        tmp_path / "a.nxs", {"y": (0.05 * np.arange(7), "nm"), "x": (0.04 * np.arange(4), "nm")}
    )
    with namsa.read(tmp_path / "a.nxs") as recording:
        assert recording.scan_step_angstrom is None
        assert "y has 7 coordinates for 3 indices, and is not used" in recording.notes


def test_nexus_says_which_axis_coordinates_belong_to(tmp_path):
    scan = {"x": (0.04 * np.arange(4), "nm"), "y": (0.05 * np.arange(3), "nm")}
    write_nexus(tmp_path / "a.nxs", scan, x_indices=1, y_indices=[0])
    assert_reads(tmp_path / "a.nxs", DATA, {"scan_step_angstrom": (0.5, 0.4)})


def test_measured_positions_of_both_axes_give_the_mean_step(tmp_path):
    y, x = np.meshgrid(0.05 * np.arange(3), 0.04 * np.arange(4), indexing="ij")
    write_nexus(
        tmp_path / "a.nxs", {"y": (y, "nm"), "x": (x, "nm")}, y_indices=[0, 1], x_indices=[0, 1]
    )
    assert_reads(tmp_path / "a.nxs", DATA, {"scan_step_angstrom": (0.5, 0.4)})


def test_axes_with_negative_steps_are_flipped_and_named(tmp_path):
    scan = {"y": (-0.05 * np.arange(3), "nm"), "x": (0.04 * np.arange(4), "nm")}
    write_nexus(tmp_path / "a.nxs", scan)
    with h5py.File(tmp_path / "a.nxs", "a") as file:
        file["entry/qx"][...] = -0.5 * (np.arange(8) - 2.0)
    attributes = {
        "scan_step_angstrom": (0.5, 0.4),
        "scan_origin_angstrom": (-1.0, 0.0),
        "pixel_mrad": (0.5, 0.5),
        "centre_pixels": (2.0, 5.0),
    }
    assert_reads(tmp_path / "a.nxs", DATA[::-1, :, :, ::-1], attributes)
    with namsa.read(tmp_path / "a.nxs") as recording:
        assert any("scan y and detector x" in note for note in recording.notes)
