"""Merlin's .mib and Gatan's DM3 and DM4, by their descriptions and by files of real detectors."""

import zipfile

import numpy as np
import pytest
from measured_files import (
    Dm,
    assert_reads,
    assert_refused,
    needs_measured,
    patterns,
    vendor,
    write_dm,
    write_hdr,
    write_mib,
)

import namsa
from namsa import WorkError
from namsa.physics.optics import wavelength_angstrom

RAW_DETECTOR = (4, 128)  # whole words of 64 pixels, also in a quarter of it


@pytest.mark.parametrize(
    ("kind", "depth", "dtype"), [("U08", 6, "u1"), ("U16", 12, "u2"), ("U32", 24, "u4")]
)
def test_processed_frames_are_big_endian(tmp_path, kind, depth, dtype):
    data = patterns(dtype)
    write_mib(tmp_path / "a.mib", data, kind, depth)
    assert_reads(
        tmp_path / "a.mib", data, {"format": "Merlin", "dtype": np.dtype(dtype)}, scan_shape=(3, 4)
    )
    with namsa.read(tmp_path / "a.mib", scan_shape=(3, 4)) as recording:
        assert recording.metadata["counter_depth"] == depth
        assert recording.metadata["exposure_s"] == 0.1
        assert recording.metadata["threshold_kev"] == 40


@pytest.mark.parametrize("quad", [False, True])
@pytest.mark.parametrize("depth", [1, 6, 12, 24])
def test_raw_frames_are_unpacked(tmp_path, depth, quad):
    data = patterns("u4", detector=RAW_DETECTOR, largest=2**depth - 1)
    write_mib(tmp_path / "a.mib", data, "R64", depth, quad)
    assert_reads(tmp_path / "a.mib", data, scan_shape="3x4")


def test_the_scan_is_the_hdrs_or_the_callers(tmp_path):
    data = patterns()
    path = tmp_path / "a.mib"
    write_mib(path, data)
    message = (
        r"12 frames and does not state the scan's shape: give --scan-shape SYxSX; 3x4 or 4x3 or "
        r"2x6 would fit"
    )
    assert_refused(message, path)
    write_hdr(
        tmp_path / "a.hdr",
        **{"Frames in Acquisition (Number)": 12, "Frames per Trigger (Number)": 4},
    )
    for name in ("a.mib", "a.hdr"):
        assert_reads(tmp_path / name, data)
    write_hdr(tmp_path / "a.hdr", ScanX=6, ScanY=2)
    assert_reads(path, data.reshape(2, 6, 6, 8))
    assert_reads(path, data.reshape(4, 3, 6, 8), scan_shape=(4, 3))


def test_what_is_damaged_is_one_line(tmp_path):
    path = tmp_path / "a.mib"
    write_mib(path, patterns(detector=RAW_DETECTOR, largest=63), "R64", 6)
    intact = path.read_bytes()
    for old, new, message in (
        (b"MQ1,000001,00384", b"MQ1,000001,09x84", "no file of Merlin"),
        (b",00384,", b",00001,", "states 1 bytes"),
        (b",R64,", b",R99,", None),
        (b",6,\0", b",9,\0", "counter depth 9: read are"),
        (b",0128,0004,", b",0100,0004,", "not of whole words"),
        (b",01,0128", b",06,0128", "of 6 chips"),
        (b",0128,0004,", b",1280,1004,", "holds no frame"),
    ):
        path.write_bytes(intact.replace(old, new, 1))
        if message:
            assert_refused(rf"a\.mib.*{message}", path, scan_shape=(3, 4))
    path.write_bytes(intact[:-600])  # an acquisition that was stopped
    assert_refused(
        "holds 11 frames.*give --scan-shape 2x4 --skip-frames 0 3 for its complete rows",
        path,
        scan_shape=(3, 4),
    )
    path.write_bytes(intact)
    with namsa.read(path, scan_shape=(3, 4)) as recording:
        path.write_bytes(intact[:2000])
        with pytest.raises(WorkError, match=r"a\.mib at frame 0: it has become shorter"):
            recording.read(slice(0, 3), slice(0, 4))


@needs_measured
def test_real_scans():
    with namsa.read(vendor("001_4x2_6bit.mib"), scan_shape=(2, 4)) as recording:
        data = recording.read(slice(0, 2), slice(0, 4))
        assert (data.shape, data.dtype, data.sum(), data.max()) == (
            (2, 4, 256, 256),
            np.uint8,
            3623664,
            63,
        )
        assert recording.metadata["header"]["Readout System"] == "Merlin Quad"
    with namsa.read(vendor("002_4x2_6bit_roi128.hdr"), scan_shape=(2, 4)) as recording:
        assert recording.shape == (2, 4, 128, 256)  # a region of interest
        assert recording.read(slice(0, 2), slice(0, 4)).sum() == 3263829
    with namsa.read(vendor("test.mib")) as recording:
        data = recording.read(slice(0, 1), slice(0, 1))
        assert (data.dtype, data.sum(), data.max()) == (np.uint16, 728470, 717)


@needs_measured
def test_raw_and_processed_frames_of_a_test_pattern_agree(tmp_path):
    """Of one chip and of four. The detector's test pattern is the same but for a few pixels of
    noise.
    """
    with zipfile.ZipFile(vendor("Merlin_Single_Quad.zip")) as archive:
        archive.extractall(tmp_path)
    for chips, side in (("Single", 256), ("Quad", 512)):
        images = {}
        for name in ("1_Rows_256", "1_Rows_256RAW", "6_Rows_256", "12_Rows_256", "24_Rows_256"):
            with namsa.read(
                tmp_path / f"{chips}_9_Frame_CounterDepth_{name}.mib", scan_shape=(3, 3)
            ) as recording:
                images[name] = recording.read(slice(0, 1), slice(0, 1))[0, 0]
                assert recording.shape == (3, 3, side, side)
        assert (images["1_Rows_256"] == images["1_Rows_256RAW"]).mean() > 0.998
        assert images["12_Rows_256"].max() <= 4095
        for name in ("6_Rows_256", "12_Rows_256", "24_Rows_256"):  # the line around the image
            assert (images[name][:2, :200] == 10).mean() > 0.95


# ---- Gatan's DM3 and DM4

SCAN_AXES = [(0.5, 0.0, "nm"), (0.4, 0.0, "nm")]  # x, y
DETECTOR_AXES = [(0.1, 4.0, "1/nm"), (0.2, 2.0, "1/nm")]
PIXEL = 1e2 * wavelength_angstrom(300e3)  # of 1/nm, mrad


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("swapped", [True, False, None])
def test_a_scan_in_both_orders_of_its_axes(tmp_path, version, order, swapped):
    data = patterns("i2", largest=30000)
    path = tmp_path / f"a.dm{version}"
    if swapped:
        write_dm(path, data, DETECTOR_AXES + SCAN_AXES, version=version, order=order, swapped=True)
    else:
        stored = np.ascontiguousarray(data.transpose(2, 3, 0, 1))
        write_dm(
            path, stored, SCAN_AXES + DETECTOR_AXES, version=version, order=order, swapped=swapped
        )
    pixel = {"pixel_mrad": (0.2 * PIXEL, 0.1 * PIXEL), "centre_pixels": (2.0, 4.0)}
    known = {
        "format": "DigitalMicrograph",
        "dtype": np.int16,
        "energy_ev": 300e3,
        "scan_step_angstrom": (4.0, 5.0),
    }
    assert_reads(path, data, known | pixel)


def test_of_a_plane_only_the_rows_are_read(tmp_path, monkeypatch):
    data = patterns("u1", scan=(16, 4))
    write_dm(
        tmp_path / "a.dm4",
        np.ascontiguousarray(data.transpose(2, 3, 0, 1)),
        SCAN_AXES + DETECTOR_AXES,
    )
    with namsa.read(tmp_path / "a.dm4") as recording:
        monkeypatch.setattr("namsa.io.planes.READ_BYTES", 100)
        np.testing.assert_array_equal(recording.read(slice(3, 5), slice(1, 3)), data[3:5, 1:3])
        np.testing.assert_array_equal(recording.read(slice(1, 12), slice(0, 4)), data[1:12])


def test_a_stack_and_an_image_are_frames(tmp_path):
    data = patterns("f4", largest=1000)
    write_dm(tmp_path / "stack.dm4", data.reshape(12, 6, 8), [*DETECTOR_AXES, (1.0, 0.0, "s")])
    known = {"pixel_mrad": (0.2 * PIXEL, 0.1 * PIXEL), "scan_step_angstrom": None}
    assert_reads(tmp_path / "stack.dm4", data, known, scan_shape="3x4")
    write_dm(tmp_path / "image.dm4", data[1, 2], DETECTOR_AXES)
    with namsa.read(tmp_path / "image.dm4") as recording:
        np.testing.assert_array_equal(recording.read(slice(0, 1), slice(0, 1))[0, 0], data[1, 2])


def test_tags_that_are_damaged_are_one_line(tmp_path):
    path = tmp_path / "a.dm4"
    write_dm(path, patterns(), DETECTOR_AXES + SCAN_AXES, swapped=True)
    intact = path.read_bytes()
    for size in (2, 10, 20, 50, 500, len(intact) - 3000):
        path.write_bytes(intact[:size])
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
        (
            "dmTest_3D_int16_64,65,66.dm4",
            {"scan_shape": (6, 11)},
            (6, 11, 65, 64),
            "i2",
            8648640,
            None,
            None,
        ),
    ],
)
def test_real_files(name, options, shape, dtype, total, brightest, energy_ev):
    with namsa.read(vendor(name), **options) as recording:
        data = recording.read(slice(0, shape[0]), slice(0, shape[1]))
        assert (data.shape, data.dtype, data.sum(dtype=int)) == (shape, np.dtype(dtype), total)
        assert brightest is None or np.unravel_index(data[0, 0].argmax(), shape[2:]) == brightest
        assert recording.energy_ev == energy_ev
