"""Formats of frame after frame: EMPAD, blockfile, MRC, TIA, NumPy and raw, by their descriptions
and real files.
"""

import struct

import numpy as np
import pytest
from measured_files import (
    assert_reads,
    assert_refused,
    needs_measured,
    patterns,
    vendor,
    write_blo,
    write_empad,
    write_mrc,
    write_ser,
)

import namsa
from namsa import WorkError

WHOLE = (slice(0, 3), slice(0, 4))
EMPAD = (128, 128)
XML = """<root><raw_file filename="/home/empad/{name}"/><scan_parameters mode="search"><scan_resolution_x>9
</scan_resolution_x></scan_parameters><scan_parameters mode="acquire"><scan_resolution_x>4</scan_resolution_x>
<scan_resolution_y>3</scan_resolution_y></scan_parameters><iom_measurements><high_voltage>200000.0</high_voltage>
<calibrated_diffraction_angle>0.0005</calibrated_diffraction_angle></iom_measurements></root>"""  # noqa: E501


# ---- EMPAD


def test_empad_is_128_of_130_rows_with_the_scan_of_its_xml_and_cut_short_says_so(tmp_path):
    data = patterns("f4", detector=EMPAD)
    write_empad(tmp_path / "scan.raw", data, XML.format(name="scan.raw"))
    known = {
        "format": "EMPAD",
        "energy_ev": 200e3,
        "pixel_mrad": (0.5, 0.5),
        "scan_step_angstrom": None,
    }
    for name in ("scan.raw", "scan.xml"):
        assert_reads(tmp_path / name, data, known)
    with (tmp_path / "scan.raw").open("r+b") as file:
        file.truncate(500_000)
    assert_refused("500000 bytes, which are no whole frames", tmp_path / "scan.raw")


def test_empad_without_xml_has_the_scan_of_its_name(tmp_path):
    data = patterns("f4", detector=EMPAD)
    write_empad(tmp_path / "scan_x4_y3.raw", data)
    assert_reads(tmp_path / "scan_x4_y3.raw", data)
    (tmp_path / "scan_x4_y3.raw").rename(tmp_path / "other.raw")
    assert_refused(
        r"other\.raw holds 12 frames.*give --scan-shape SYxSX; 3x4", tmp_path / "other.raw"
    )


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (XML.format(name=".."), "names no .raw file"),
        (XML.format(name="missing.raw"), "missing.raw: No such file"),
        ("<raw_file", "as XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]>' + XML.format(name="scan.raw"), "declares entities"),
        (
            XML.format(name="scan.raw").replace("<scan_resolution_x>4", "<scan_resolution_x>5"),
            "the file says 3x5",
        ),
    ],
)
def test_an_xml_that_does_not_fit_is_one_line(tmp_path, xml, message):
    write_empad(tmp_path / "scan.raw", patterns("f4", detector=EMPAD), xml)
    assert_refused(message, tmp_path / "scan.xml")


@needs_measured
@pytest.mark.parametrize(
    ("name", "scan", "pixel_mrad"),
    [
        ("map4x4.xml", (4, 4), 0.42906574),
        ("EMPAD_v1.2.2_x32_y64_size0.8.xml", (64, 32), None),
        ("06_35000x_alpha0p42.xml", (128, 128), None),
    ],
)
def test_the_scan_of_real_xml(tmp_path, name, scan, pixel_mrad):
    """The parameters of the scan in two of them are of another scan: what the file is named
    counts.
    """
    text = vendor(name).read_text()
    raw = text.partition('raw_file filename="')[2].partition('"')[0]
    (tmp_path / name).write_text(text)
    with (tmp_path / raw).open("wb") as file:
        file.truncate(scan[0] * scan[1] * 130 * 128 * 4)  # zeros that take no room
    with namsa.read(tmp_path / raw) as recording:
        assert recording.shape == (*scan, 128, 128)
        assert recording.energy_ev == 300e3
        assert recording.pixel_mrad == (
            None if pixel_mrad is None else pytest.approx((pixel_mrad,) * 2)
        )


# ---- NanoMEGAS


def test_a_blockfile_says_its_scan_energy_and_step(tmp_path):
    data = patterns("u1", detector=(6, 6))
    path = tmp_path / "a.blo"
    write_blo(path, data)
    known = {"scan_step_angstrom": (25.0, 15.0), "energy_ev": 200e3, "pixel_mrad": (0.8030838,) * 2}
    assert_reads(path, data, known)
    intact = path.read_bytes()
    for size, message in (
        (30, "30 of 64 bytes"),
        (len(intact) - 1, "is cut short: it declares 12 frames"),
    ):
        path.write_bytes(intact[:size])
        assert_refused(message, path)
    path.write_bytes(intact[:-42] + bytes(42))
    with (
        namsa.read(path) as recording,
        pytest.raises(WorkError, match="does not begin with its mark"),
    ):
        recording.read(*WHOLE)
    path.write_bytes(intact[:20] + b"\0\0" + intact[22:])
    assert_refused("3x4 patterns of 0x0 pixels", path)


@needs_measured
def test_real_blockfiles():
    with namsa.read(vendor("test1.blo")) as recording:
        data = recording.read(slice(0, 3), slice(0, 2))
        assert (data.shape, data.sum(dtype=int)) == ((3, 2, 144, 144), 5164570)
        assert np.unravel_index(data[0, 0].argmax(), (144, 144)) == (
            69,
            72,
        )  # the direct beam, near the centre
        assert (recording.scan_step_angstrom, recording.energy_ev) == ((128.0, 128.0), 200e3)
    with namsa.read(vendor("test2.blo")) as recording:
        assert recording.shape == (2, 3, 5, 5)
        assert recording.read(slice(0, 2), slice(0, 3)).sum(axis=(2, 3)).tolist() == [
            [473, 537, 534],
            [482, 388, 538],
        ]


# ---- MRC


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("mode", "dtype"), [(0, "i1"), (1, "i2"), (2, "f4"), (6, "u2"), (12, "f2")]
)
def test_mrc_in_both_byte_orders(tmp_path, order, mode, dtype):
    data = patterns(dtype, largest=100)
    write_mrc(tmp_path / "a.mrc", data, order, mode, voltage=200e3)
    known = {"format": "MRC", "dtype": np.dtype(dtype), "energy_ev": 200e3}
    assert_reads(tmp_path / "a.mrc", data, known, scan_shape=(3, 4))


def test_mrc_that_is_damaged_is_one_line(tmp_path):
    path = tmp_path / "a.mrc"
    write_mrc(path, patterns())
    intact = path.read_bytes()
    for data, message in (
        (intact[:100], "has 100 bytes"),
        (intact[:-1], "is cut short: it declares 12 frames"),
        (struct.pack("<4i", 8, 6, 12, 99) + intact[16:], "mode 99; modes 0, 1, 2, 6, 12 are read"),
        (struct.pack("<4i", 2**30, 2**30, 12, 6) + intact[16:], "declares a detector of"),
        (struct.pack("<4i", 8, -6, 12, 6) + intact[16:], "12 frames of -6x8"),
    ):
        path.write_bytes(data)
        assert_refused(rf"a\.mrc.*{message}", path, scan_shape=(3, 4))


# ---- TIA


@pytest.mark.parametrize("version", [0x0210, 0x0220])
def test_a_series_of_tia_has_its_scan_and_its_step(tmp_path, version):
    data = patterns()
    path = tmp_path / "a_1.ser"
    write_ser(path, data, version)
    assert_reads(path, data, {"scan_step_angstrom": (20.0, 10.0)})
    write_ser(path, data, version, valid=9)  # stopped
    assert_refused(
        "holds 9 frames, and the file says 3x4.*--scan-shape 2x4 --skip-frames 0 1", path
    )


def test_images_of_a_series_that_overlap_are_refused(tmp_path):
    """A small file would declare terabytes."""
    path = tmp_path / "a.ser"
    frames = patterns().reshape(-1, 6, 8)
    write_ser(path, patterns())
    offsets = 8 * len(frames)
    data = path.read_bytes()
    (first_offset,) = struct.unpack_from("<q", data, len(data) - offsets)
    path.write_bytes(data[:-offsets] + struct.pack("<q", first_offset) * len(frames))
    with namsa.read(path) as recording:  # the same image again and again, within the file's size
        assert recording.shape == (3, 4, 6, 8)
    many = bytearray(data[:-offsets] + struct.pack("<q", first_offset) * 10**4)
    struct.pack_into("<2i", many, 14, 10**4, 10**4)
    path.write_bytes(bytes(many))
    assert_refused("10000 frames of 146 bytes overlap", path, scan_shape=(100, 100))


def test_a_series_that_is_damaged_is_one_line(tmp_path):
    path = tmp_path / "a_1.ser"
    write_ser(path, patterns())
    intact = path.read_bytes()
    for data, message in (
        (intact[:15], "ends within its header"),
        (intact[:-1], "images at byte"),
        (intact[:18] + struct.pack("<i", 10**8) + intact[22:], "states 100000000 images"),
        (intact[:6] + struct.pack("<i", 0x4120) + intact[10:], "holds spectra"),
        (intact[:-8] + struct.pack("<q", 2**40), "is cut short"),
        (intact[:-8] + struct.pack("<q", -5), "is cut short"),
    ):
        path.write_bytes(data)
        assert_refused(rf"a_1\.ser.*{message}", path)


# ---- NumPy and raw


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">u4", "f8"])
def test_numpy_arrays_are_read_lazily_in_both_orders(tmp_path, dtype):
    data = patterns(dtype.strip("<>"), largest=255).astype(dtype)
    path = tmp_path / "a.npy"
    for array, options in (
        (data, {}),
        (np.asfortranarray(data), {}),
        (data.reshape(12, 6, 8), {"scan_shape": "3x4"}),
    ):
        np.save(path, array)
        assert_reads(path, data, **options)


def test_numpy_files_that_hold_no_patterns_are_refused(tmp_path):
    path = tmp_path / "a.npy"
    for array, message in (
        (np.ones((3, 4)), "float64 of shape"),
        (np.ones((2, 2, 2, 2), complex), "complex128 of shape"),
        (np.array([{}], object), "Python objects, which are never read"),
        (np.ones((0, 2, 2, 2)), "holds no patterns"),
    ):
        np.save(path, array, allow_pickle=True)
        assert_refused(message, path)
    np.save(path, patterns())
    path.write_bytes(path.read_bytes()[:-1])
    assert_refused("is cut short", path)


@pytest.mark.parametrize(
    ("dtype", "offset", "flyback"), [("u2", 0, 0), (">u4", 100, 0), ("f4", 7, 2)]
)
def test_a_file_without_a_format_is_what_the_caller_says(tmp_path, dtype, offset, flyback):
    data = patterns("u2", scan=(3, 4 + flyback)).astype(dtype)
    (tmp_path / "a.bin").write_bytes(bytes(offset) + data.tobytes())
    options = {"dtype": dtype, "scan_shape": (3, 4), "offset_bytes": offset, "flyback": flyback}
    assert_reads(
        tmp_path / "a.bin", data[:, :4], {"format": "raw"}, detector_shape="6x8", **options
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "does not state its layout: give --dtype, --detector-shape, --scan-shape"),
        ({"dtype": "u2"}, "give --detector-shape, --scan-shape"),
        (
            {"dtype": "u2", "detector_shape": (5, 8), "scan_shape": (3, 4)},
            "no whole frames of 5x8 uint16",
        ),
        (
            {"dtype": "u2", "detector_shape": (6, 8), "scan_shape": (5, 4)},
            "holds 12 frames, and --scan-shape says 5x4",
        ),
        (
            {"dtype": "u2", "detector_shape": (6, 8), "scan_shape": (2, 4)},
            "which takes 8: say where the 4 others are: give --skip-frames 4",
        ),
        ({"dtype": "complex64"}, "--dtype is complex64: give a type of integers or real numbers"),
        ({"dtype": "O"}, "--dtype is O"),
        ({"scan_shape": "3"}, "--scan-shape is 3: give rows x columns"),
        ({"scan_shape": "0x4"}, "--scan-shape is 0x4"),
        ({"detector_shape": (6, 10**9)}, "--detector-shape is"),
        ({"offset_bytes": -1}, "--offset-bytes is -1: give an integer from 0"),
        ({"flyback": 1.5}, "--flyback is 1.5"),
    ],
)
def test_what_does_not_fit_is_said_with_its_option(tmp_path, options, message):
    (tmp_path / "a.bin").write_bytes(patterns().tobytes())
    assert_refused(message, tmp_path / "a.bin", **options)
