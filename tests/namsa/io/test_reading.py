"""`namsa.read`: arrays, what callers and calibration files know better, files of any format, and
pieces of them.
"""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import h5py
import numpy as np
import pytest
from measured_files import (
    MEASURED,
    assert_refused,
    needs_measured,
    patterns,
    scan_of,
    write_blo,
    write_mib,
    write_mrc,
)

import namsa
from namsa import CalibrationOverrides, InputError
from namsa.io.calibration import calibrate, override
from namsa.io.calibration_file import (
    CalibratedQuantity,
    CalibrationFile,
    read_calibration,
    with_calibration_file,
    write_calibration,
)
from namsa.io.frames import JoinedFrames, ScanOfFrames, scan_of_frames
from namsa.io.read_options import ReadOptions
from namsa.io.recording import ArrayPatterns
from namsa.physics.optics import wavelength_angstrom

WHOLE = (slice(0, 3), slice(0, 4))


def test_an_array_is_a_recording_that_knows_nothing():
    data = patterns()
    with namsa.read(data) as recording:
        assert (recording.format, recording.shape, recording.dtype) == (
            "array",
            data.shape,
            np.uint16,
        )
        assert recording.energy_ev is recording.pixel_mrad is recording.centre_pixels is None
        np.testing.assert_array_equal(recording.read(slice(1, 2), slice(0, 3)), data[1:2, :3])
        message = (
            "the array does not state the beam's energy and the probe's semiangle.*: give "
            "energy_ev, semiangle_mrad, "
        )
        with pytest.raises(InputError, match=message):
            calibrate(recording)
    np.testing.assert_array_equal(
        scan_of(data.reshape(12, 6, 8), scan_shape=(3, 4), flyback=0), data
    )
    np.testing.assert_array_equal(scan_of(data.tolist()), data)
    for wrong in (data.reshape(12, 6, 8), data.astype(complex), data[:0], 3):
        assert_refused("the array", wrong)


def test_a_given_number_far_from_the_files_is_noted_beside_it():
    stated = CalibrationOverrides(energy_ev=2e5, semiangle_mrad=20, pixel_mrad=2)
    with namsa.read(patterns()) as array:
        recording = override(array, replace(stated, scan_step_angstrom=(0.4, 0.4)))
        close = override(recording, CalibrationOverrides(scan_step_angstrom=0.42))
        far = override(recording, CalibrationOverrides(scan_step_angstrom=0.04, energy_ev=2e5))
    assert close.notes == recording.notes
    assert far.notes == (
        *recording.notes,
        "the scan's step is 0.04 Å as given with --scan-step-angstrom, and 0.4 Å in the file: "
        "check which is right",
    )


def test_an_object_that_is_sliced_as_an_array_is_not_loaded():
    class Lazy:
        shape = (3, 4, 6, 8)
        dtype = np.dtype("u2")
        chunks = (1, 2, 6, 8)

        def __getitem__(self, index):
            asked.append(index)
            return patterns()[index]

    asked = []
    with namsa.read(Lazy()) as recording:
        assert recording.chunk == (1, 2)
        assert asked == []
        np.testing.assert_array_equal(recording.read(slice(1, 2), slice(0, 3)), patterns()[1:2, :3])
    assert asked == [(slice(1, 2), slice(0, 3))]


def test_what_the_caller_says_precedes_the_calibration_and_that_the_file(tmp_path):
    write_blo(tmp_path / "a.blo", patterns("u1", detector=(6, 6)))
    known = CalibrationOverrides(energy_ev=80e3, semiangle_mrad=20.0, pixel_mrad=1.5)
    with namsa.read(
        tmp_path / "a.blo", calibration=known, energy_ev=100e3, centre_pixels=(2, 3)
    ) as recording:
        assert (recording.energy_ev, recording.semiangle_mrad) == (100e3, 20.0)
        assert recording.pixel_mrad == (1.5, 1.5)
        assert recording.scan_step_angstrom == (25.0, 15.0)
        assert calibrate(recording).centre_pixels == (2.0, 3.0)
    assert_refused("neither a number nor a pair", tmp_path / "a.blo", pixel_mrad=(1, 2, 3))


def test_a_pixel_in_inverse_angstrom_is_an_angle_once_the_energy_is_known():
    recording = namsa.Recording(
        ArrayPatterns(patterns()), "x", "x", pixel_inverse_angstrom=(0.01, 0.02)
    )
    known = CalibrationOverrides(scan_step_angstrom=1.0, semiangle_mrad=20.0)
    with pytest.raises(InputError, match="^x does not state the beam's energy: give --energy-ev$"):
        calibrate(recording, known)
    scan = calibrate(
        recording,
        CalibrationOverrides(scan_step_angstrom=1.0, semiangle_mrad=20.0, energy_ev=200e3),
    )
    assert scan.pixel_mrad == pytest.approx(
        (10 * wavelength_angstrom(200e3), 20 * wavelength_angstrom(200e3))
    )


def test_patterns_of_a_recording_that_nobody_keeps_are_read(tmp_path):
    """The file stays open for them, and they are indexed as an array."""
    data = patterns()
    write_mib(tmp_path / "a.mib", data)
    np.save(tmp_path / "a.npy", data)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["scan"] = data
    for name in ("a.mib", "a.npy", "a.h5"):
        stored = namsa.read(tmp_path / name, scan_shape=(3, 4)).data
        np.testing.assert_array_equal(namsa.read(tmp_path / name, scan_shape=(3, 4)).data[:], data)
        for index in (np.s_[1], np.s_[-1, 2], np.s_[..., 3], np.s_[1:, 0, ..., ::2]):
            np.testing.assert_array_equal(stored[index], data[index])
        np.testing.assert_array_equal(np.asarray(stored), data)
        with pytest.raises(IndexError):
            stored[3]


def test_content_precedes_the_suffix(tmp_path):
    write_mib(tmp_path / "a.mib", patterns())
    write_mrc(tmp_path / "b.mrc", patterns())
    for source, target, name in (
        ("a.mib", "x.mrc", "Merlin"),
        ("b.mrc", "y.raw", "MRC"),
        ("b.mrc", "z", "MRC"),
    ):
        shutil.copyfile(tmp_path / source, tmp_path / target)
        with namsa.read(tmp_path / target, scan_shape=(3, 4)) as recording:
            assert recording.format == name
            np.testing.assert_array_equal(recording.read(*WHOLE), patterns())


def test_files_that_are_none(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.mib").touch()
    for name in ("text.xyz", "text.h5"):
        (tmp_path / name).write_text("text")
    faults = {
        "none.mib": "no file",
        "folder": "a folder without a Zarr store",
        "empty.mib": "is empty: it has 0",
        "text.xyz": "of no known format.*for plain numbers give --dtype",
        "text.h5": "as HDF5",
    }
    for name, message in faults.items():
        assert_refused(message, tmp_path / name)
    assert_refused(
        "folder: Is a directory",
        tmp_path / "folder",
        dtype="u2",
        detector_shape=(6, 8),
        scan_shape=(3, 4),
    )


@pytest.mark.parametrize(
    "index", [np.s_[:, :], np.s_[1:2], np.s_[::2, 1::2], np.s_[1:, :, 2:4, ::3], np.s_[::-1, ::-1]]
)
def test_scans_of_frames_are_sliced_as_arrays(index):
    data = patterns(scan=(5, 6))
    frames = data.reshape(30, 6, 8)
    joined = JoinedFrames(
        [ArrayPatterns(frames[:7]), ArrayPatterns(frames[7:11]), ArrayPatterns(frames[11:])]
    )
    for scan in (ScanOfFrames(ArrayPatterns(frames), (5, 6)), ScanOfFrames(joined, (5, 6))):
        np.testing.assert_array_equal(
            scan[index if isinstance(index, tuple) else (index,)], data[index]
        )
    flown_back = ScanOfFrames(joined, (5, 4), flyback=2)
    np.testing.assert_array_equal(
        flown_back[index if isinstance(index, tuple) else (index,)], data[:, :4][index]
    )


def test_the_last_row_may_lack_its_flyback():
    options = ReadOptions(scan_shape=(3, 4), flyback=2)
    for count, fits in ((15, False), (16, True), (17, False), (18, True), (23, False), (24, False)):
        frames = ArrayPatterns(np.zeros((count, 2, 2)))
        if fits:
            assert scan_of_frames(frames, options, "x").shape == (3, 4, 2, 2)
        else:
            with pytest.raises(
                InputError,
                match=f"x holds {count} frames, and --scan-shape says 3x4, which takes 16",
            ):
                scan_of_frames(frames, options, "x")


@needs_measured
def test_a_whole_measured_scan_is_read_by_pieces():
    with namsa.read(
        MEASURED / "rotavirus" / "rotavirus_127x127x64x64_bin4_uint16.h5", energy_ev=300e3
    ) as recording:
        assert (recording.shape, recording.dtype) == ((127, 127, 64, 64), np.uint16)
        rows = recording.read(slice(60, 62), slice(0, 127))
        assert rows.sum(axis=(2, 3)).mean() == pytest.approx(
            91221, rel=0.02
        )  # counts a pattern, as its README says


def test_threads_read_where_the_system_cannot_read_at_a_position(tmp_path, monkeypatch):
    """As on Windows."""
    monkeypatch.delattr("os.pread")
    data = patterns(scan=(40, 6))
    write_mib(tmp_path / "a.mib", data)
    with (
        namsa.read(tmp_path / "a.mib", scan_shape=(40, 6)) as recording,
        ThreadPoolExecutor(4) as threads,
    ):
        rows = list(
            threads.map(lambda row: recording.read(slice(row, row + 1), slice(0, 6)), range(40))
        )
        np.testing.assert_array_equal(np.concatenate(rows), data)


@pytest.mark.parametrize(
    "fault", [LookupError("unknown encoding"), OverflowError("too large"), ZeroDivisionError()]
)
def test_what_no_reader_expects_is_a_fault_of_the_file(tmp_path, monkeypatch, fault):
    np.save(tmp_path / "a.npy", np.ones((2, 2, 3, 3), np.uint16))

    def fail(path, options):
        raise fault

    monkeypatch.setattr("namsa.io.formats.numpy_array.open_recording", fail)
    with pytest.raises(
        InputError, match=rf"a\.npy as NumPy.*: it is damaged \({type(fault).__name__}"
    ):
        namsa.read(tmp_path / "a.npy")


# ---- Calibration files

FILE = CalibrationFile(
    quantities={
        "pixel_mrad": CalibratedQuantity((1.0, 1.5), (0.1, 0.1), "disk"),
        "centre_pixels": CalibratedQuantity((31.5, 33.0), None, "ellipse"),
        "centre_slope_pixels": CalibratedQuantity(((0.01, 0.0), (-0.02, 0.03)), None, "plane"),
        "ellipse_ratio": CalibratedQuantity(
            2.007, 0.01, "ellipse"
        ),  # of a round disk by `inspect --pixel-mrad 2 1`
        "ellipse_axis_deg": CalibratedQuantity(-30.0, 2.0, "ellipse"),
        "rotation_deg": CalibratedQuantity(-126.0, 0.5, "curl"),
        "mirrored": CalibratedQuantity(True, None, "curl"),
        "beam_intensity": CalibratedQuantity(9.1e4, 20.0, "vacuum"),
    },
    bad_pixels=((3, 4), (10, 2)),
    data="scan.h5",
    notes=("nothing",),
)


def test_a_file_is_read_as_it_was_written(tmp_path):
    write_calibration(FILE, tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json") == FILE


def test_no_flipped_bit_of_a_calibration_file_changes_a_number_in_silence(tmp_path):
    path = tmp_path / "c.json"
    write_calibration(FILE, path)
    intact = path.read_bytes()
    for place in range(len(intact)):
        damaged = bytearray(intact)
        damaged[place] ^= 1 << place % 7
        path.write_bytes(damaged)
        with suppress(InputError):
            assert read_calibration(path) == FILE, place
    rotation = b'"rotation_deg": -126.0'
    assert rotation in intact
    path.write_bytes(intact.replace(rotation, b'"rotation_deg": -127.0'))
    with pytest.raises(
        InputError,
        match='is not as it was written: write it again .*; or remove its "digest"',
    ):
        read_calibration(path)
    values = json.loads(path.read_text())
    del values["digest"]  # as somebody does who has changed it, and as older files are
    path.write_text(json.dumps(values))
    assert read_calibration(path).value("rotation_deg") == -127.0


def test_the_callers_numbers_take_precedence(tmp_path):
    write_calibration(FILE, tmp_path / "c.json")
    given = CalibrationOverrides(rotation_deg=5.0, energy_ev=2e5)
    both, beam = with_calibration_file(given, tmp_path / "c.json")
    assert (both.rotation_deg, both.energy_ev, both.pixel_mrad) == (5.0, 2e5, (1.0, 1.5))
    assert both.flip is True
    assert both.ellipse == (2.007, -30.0)
    assert both.bad_pixels == ((3, 4), (10, 2))
    assert beam == 9.1e4
    assert with_calibration_file(given, None) == (given, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "no calibration file"),
        ({"rotation": 3}, "did you mean rotation_deg"),
        ({"rotation_deg": "3"}, "must be a number"),
        ({"rotation_deg": 1e9}, "at most 720"),
        ({"pixel_mrad": 1.0}, "pixel_mrad is 1.0"),
        (
            {"pixel_mrad": [1.0, 0.0]},
            "pixel_mrad 1 is 0.0: must be at least 0.00001",
        ),
        ({"pixel_mrad_error": [-1.0, 0.0]}, "pixel_mrad_error"),
        ({"mirrored": 1}, "must be true or false"),
        ({"centre_slope_pixels": [[1, 2], [3]]}, "centre_slope_pixels 1 1"),
        ({"bad_pixels": [[1, -2]]}, "bad_pixels 0 1 is -2"),
        ({"bad_pixels": [[1.5, 2]]}, "bad_pixels 0 0 is 1.5"),
        ({"ellipse_axis_deg": None}, "must be a number"),
        ({"defocus_angstrom_error": 3.0}, "defocus_angstrom is missing"),
        ({"notes": "x"}, "must be a list"),
        ({"rotation_deg_method": 3}, "must be text"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, message):
    path = tmp_path / "c.json"
    values = json.loads(json.dumps(FILE.as_json())) | change
    path.write_text(json.dumps(values))
    with pytest.raises(InputError) as error:
        read_calibration(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
