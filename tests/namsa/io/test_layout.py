"""Which frames belong to a scan, which axis is which, and masks: the same options for every
format.
"""

import h5py
import numpy as np
import pytest
from measured_files import (
    assert_reads,
    assert_refused,
    patterns,
    scan_of,
    write_blo,
    write_dm,
    write_empad,
    write_hdr,
    write_mib,
    write_mrc,
    write_ser,
)

import namsa

DATA = patterns()  # (3, 4, 6, 8)


# ---- Frames beside the scan


@pytest.mark.parametrize("last_row", [True, False])
@pytest.mark.parametrize("kind", ["mib", "empad"])
def test_one_frame_more_per_row_is_flyback_and_it_is_said(tmp_path, kind, last_row):
    with_flyback = patterns(
        "u2" if kind == "mib" else "f4", (26, 35), (128, 128) if kind == "empad" else (2, 3)
    )
    frames = with_flyback.reshape(-1, *with_flyback.shape[2:])[: 910 if last_row else 909][None]
    if kind == "mib":
        write_mib(tmp_path / "a.mib", frames)
        write_hdr(tmp_path / "a.hdr", ScanX=34, ScanY=26)
    else:
        write_empad(
            tmp_path / "a.raw",
            frames,
            '<r><raw_file filename="a.raw"/><pix_x>34</pix_x><pix_y>26</pix_y></r>',
        )
    with namsa.read(tmp_path / ("a.mib" if kind == "mib" else "a.raw")) as recording:
        assert recording.shape[:2] == (26, 34)
        np.testing.assert_array_equal(
            recording.read(slice(20, 26), slice(0, 34)), with_flyback[20:, :34]
        )
        note = (
            f"{26 if last_row else 25} frames more than 26x34: 1 frame of flyback at the end of "
            "each row left out"
        )
        assert recording.notes == (note,)


def test_what_a_header_of_merlin_says_of_the_flyback_is_used(tmp_path):
    data = patterns(scan=(4, 9))
    write_mib(tmp_path / "a.mib", data)
    named = {
        "Frames in Acquisition (Number)": 36,
        "Frames per Trigger (Number)": 9,
        "ScanX": 6,
        "ScanY": 4,
    }
    write_hdr(tmp_path / "a.hdr", **named)
    note = ("3 frames of flyback at the end of each row left out",)
    assert_reads(tmp_path / "a.mib", data[:, :6], {"notes": note})


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (
            13,
            "say where the 1 others are: give --skip-frames 1 if .* before the scan, "
            "--skip-frames 0 1 if after it",
        ),
        (17, r"the 5 others"),
        (18, "--flyback 2 if at the end of each row"),
        (16, "--flyback 2 if at the end of each row"),
        (11, "give --scan-shape 2x4 --skip-frames 0 3 for its complete rows"),
    ],
)
def test_frames_that_fit_no_scan_are_refused_with_the_options(tmp_path, count, message):
    write_mib(tmp_path / "a.mib", patterns(scan=(1, count)))
    write_hdr(tmp_path / "a.hdr", ScanX=4, ScanY=3)
    assert_refused(
        rf"a\.mib holds {count} frames, and the file says 3x4, which takes 12: .*{message}",
        tmp_path / "a.mib",
    )


def writers(tmp_path):
    stored = np.concatenate([DATA, DATA[:, :1]], axis=1)  # a column more
    frames = stored.reshape(1, 15, 6, 8)
    write_mib(tmp_path / "a.mib", frames)
    write_mrc(tmp_path / "a.mrc", frames)
    write_ser(tmp_path / "a.ser", stored)
    write_dm(tmp_path / "a.dm4", stored, [(1.0, 0.0, "mrad")] * 2 + [(1.0, 0.0, "nm")] * 2)
    np.save(tmp_path / "a.npy", stored)
    np.save(tmp_path / "frames.npy", frames[0])
    np.savez(tmp_path / "a.npz", scan=stored)
    np.savez_compressed(tmp_path / "packed.npz", scan=stored)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["scan"] = stored
    stored.tofile(tmp_path / "a.bin")
    return stored


NAMES = (
    "a.mib",
    "a.mrc",
    "a.ser",
    "a.dm4",
    "a.npy",
    "frames.npy",
    "a.npz",
    "packed.npz",
    "a.h5",
    "a.bin",
)


@pytest.mark.parametrize("name", NAMES)
def test_flyback_skipped_frames_and_masks_hold_for_every_format(tmp_path, name):
    stored = writers(tmp_path)
    raw = {"dtype": "u2", "detector_shape": (6, 8)} if name == "a.bin" else {}
    flown = scan_of(tmp_path / name, scan_shape=(3, 4), flyback=1, **raw)
    np.testing.assert_array_equal(flown, stored[:, :4])
    frames = stored.reshape(15, 6, 8)
    skipped = scan_of(tmp_path / name, scan_shape=(3, 4), skip_frames=(2, 1), **raw)
    np.testing.assert_array_equal(skipped, frames[2:14].reshape(3, 4, 6, 8))
    mask = np.zeros((6, 8), np.uint8)
    mask[1, 2] = 1
    np.save(tmp_path / "mask.npy", mask)
    with namsa.read(
        tmp_path / name, scan_shape=(3, 5), mask=tmp_path / "mask.npy", **raw
    ) as recording:
        values = recording.read(slice(0, 3), slice(0, 5))
        expected = (stored[..., :3, 1:4].sum(axis=(2, 3), dtype=float) - stored[..., 1, 2]) / 8
        np.testing.assert_allclose(values[..., 1, 2], expected, rtol=1e-6)
        np.testing.assert_array_equal(values[..., mask == 0], stored[..., mask == 0])
        assert recording.bad_pixels == ((1, 2),)
    if name in ("a.npy", "a.h5", "a.npz", "a.dm4"):  # of four axes: the flyback alone says it
        np.testing.assert_array_equal(scan_of(tmp_path / name, flyback=1), stored[:, :4])


def test_a_blockfile_whose_scan_is_stated_keeps_it(tmp_path):
    data = patterns("u1", detector=(6, 6))
    write_blo(tmp_path / "a.blo", data)
    np.testing.assert_array_equal(
        scan_of(tmp_path / "a.blo", flyback=1, scan_shape=(3, 3)), data[:, :3]
    )
    assert_refused(
        "--dataset is x, and files of NanoMEGAS blockfile hold one array",
        tmp_path / "a.blo",
        dataset="x",
    )
    assert_refused(
        "holds one scan, and --index 1 chooses one of a series", tmp_path / "a.blo", index=1
    )


# ---- Axes


def test_a_series_of_scans_needs_the_choice_of_one(tmp_path):
    series = np.stack([DATA, DATA + 1, DATA + 2])
    np.save(tmp_path / "a.npy", series)
    np.savez_compressed(tmp_path / "a.npz", series)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["scan"] = series
    for data in (tmp_path / "a.npy", tmp_path / "a.npz", tmp_path / "a.h5", series):
        assert_refused("a series of 3 scans: choose one with --index, 0 to 2", data)
        assert_refused("and --index is 3", data, index=3)
        np.testing.assert_array_equal(scan_of(data, index=2), DATA + 2)
        np.testing.assert_array_equal(scan_of(data, index=1, flyback=1), DATA[:, :3] + 1)


@pytest.mark.parametrize(
    ("order", "axes"),
    [("dy,dx,sy,sx", (2, 3, 0, 1)), ("dx dy sx sy", (3, 2, 1, 0)), ("sx,sy,dy,dx", (1, 0, 2, 3))],
)
def test_the_caller_may_name_the_axes(tmp_path, order, axes):
    stored = np.ascontiguousarray(DATA.transpose(axes))
    np.save(tmp_path / "a.npy", stored)
    for data in (tmp_path / "a.npy", stored):
        np.testing.assert_array_equal(scan_of(data, axes=order), DATA)
    frames = np.moveaxis(DATA.reshape(12, 6, 8), 0, -1)
    values = scan_of(np.ascontiguousarray(frames), axes="dy,dx,n", scan_shape=(3, 4))
    np.testing.assert_array_equal(values, DATA)


@pytest.mark.parametrize("wrong", ["dy,dx", "sy,sx,dy,dy", "a,b,c,d", "n,dy,dx"])
def test_axes_that_are_none_are_refused(wrong):
    assert_refused("--axes", DATA, axes=wrong)


# ---- Masks


def test_masks_are_arrays_pictures_and_datasets(tmp_path):
    from PIL import Image

    mask = np.zeros((6, 8), np.uint32)
    mask[2, 3] = 2  # dead, in the bits of NeXus
    mask[4, 4] = 1 << 31  # a virtual pixel, which may be used
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["entry/pixel_mask"], file["flatfield"] = mask, np.ones((6, 8))
    Image.fromarray((mask == 2).astype(np.uint8) * 255).save(tmp_path / "m.png")
    Image.fromarray((mask == 2).astype(np.uint8)).save(tmp_path / "m.tif")
    for given in (mask, mask == 2, tmp_path / "m.h5", tmp_path / "m.png", str(tmp_path / "m.tif")):
        assert namsa.read(DATA, mask=given).bad_pixels == ((2, 3),)
    for wrong, message in (
        (np.zeros((8, 6)), r"shape \(8, 6\): give numbers of the detector's 6x8"),
        (mask == 0, "excludes 46 of 48 pixels.*invert it"),
        (tmp_path / "no.npy", "No such file"),
        (tmp_path / "test.txt", "give one of .npy, .png, .tif, .tiff, HDF5"),
    ):
        (tmp_path / "test.txt").write_text("text")
        assert_refused(message, DATA, mask=wrong)


# ---- A recording


def test_a_recording_is_open_at_once_and_says_what_it_is(tmp_path):
    write_mib(tmp_path / "a.mib", DATA)
    assert_refused("there is no file", tmp_path / "none.mib")
    recording = namsa.read(
        tmp_path / "a.mib", scan_shape=(3, 4), scan_step_angstrom=(0.4, 0.5), energy_ev=300e3
    )
    assert repr(recording) == (
        "<Recording: Merlin, 3 × 4 patterns of 6 × 8 pixels, uint16, 300 keV, semiangle unknown, "
        "steps of 0.4 × 0.5 Å, pixel unknown>"
    )
    page = recording._repr_html_()
    assert page.startswith(f'<div><p style="margin:0 0 .5em"><b>Recording</b> {tmp_path}/a.mib</p>')
    for fact in ("300 keV", "steps of 0.4 × 0.5 Å", *recording.notes):
        assert f">{fact}</td>" in page
    np.testing.assert_array_equal(recording.read(slice(0, 3), slice(0, 4)), DATA)
    known = namsa.read(recording, pixel_mrad=2.0)  # what is opened may be described further
    assert known.pixel_mrad == (2.0, 2.0)
    known.close()
    with recording as same:
        assert same is recording
        np.testing.assert_array_equal(same.read(slice(1, 2), slice(0, 4)), DATA[1:2])
    for read in (lambda: recording.read(slice(0, 1), slice(0, 1)), lambda: recording.data[:]):
        with pytest.raises(namsa.InputError, match="the file is closed"):
            read()


def test_a_recording_closes_its_file_when_nothing_refers_to_it(tmp_path):
    import gc
    import os

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["scan"] = DATA
    write_mib(tmp_path / "a.mib", DATA)
    gc.collect()
    open_files = len(os.listdir("/proc/self/fd"))
    for name in ("a.mib", "a.h5"):
        first_row = namsa.read(tmp_path / name, scan_shape=(3, 4)).read(slice(0, 1), slice(0, 4))
        np.testing.assert_array_equal(first_row, DATA[:1])
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == open_files
