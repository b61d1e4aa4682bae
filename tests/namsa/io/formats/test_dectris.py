"""Detectors that write HDF5: master files of Dectris with their data beside them, fpd, stacks, and
packed datasets.
"""

import os

import h5py
import hdf5plugin
import numpy as np
import pytest
from measured_files import assert_reads, assert_refused, needs_measured, patterns, vendor

import namsa
from namsa import WorkError

WHOLE = (slice(0, 3), slice(0, 4))


def write_master(
    folder, data, *, triggers=1, images=12, files=(5, 7), link="scan_data_{:06d}.h5", masked=1
):
    """Writes a master file and the files of frames beside it."""
    frames = data.reshape(-1, *data.shape[2:])
    with h5py.File(folder / "scan_master.h5", "w") as file:
        group = file.create_group("entry/data")
        start = 0
        for file_number, count in enumerate(files, start=1):
            with h5py.File(folder / f"scan_data_{file_number:06d}.h5", "w") as data_file:
                data_file.create_dataset(
                    "entry/data/data",
                    data=frames[start : start + count],
                    chunks=(1, *data.shape[2:]),
                    **hdf5plugin.Bitshuffle(cname="lz4"),
                )
            group[f"data_{file_number:06d}"] = h5py.ExternalLink(
                link.format(file_number), "/entry/data/data"
            )
            start += count
        detector = file.create_group("entry/instrument/detector")
        detector["x_pixel_size"], detector["y_pixel_size"], detector["detector_distance"] = (
            1e-4,
            2e-4,
            0.1,
        )
        detector["description"], detector["count_time"] = "Dectris ARINA", 1e-5
        specific = detector.create_group("detectorSpecific")
        specific["ntrigger"], specific["nimages"], specific["photon_energy"] = (
            triggers,
            images,
            300e3,
        )
        mask = np.zeros(data.shape[2:], "u4")
        mask[2, 3] = masked
        specific["pixel_mask"] = mask
    return folder / "scan_master.h5"


def test_a_master_file_joins_the_files_beside_it(tmp_path):
    data = patterns("u4")
    path = write_master(tmp_path, data, triggers=3, images=4)
    with namsa.read(path) as recording:
        assert (recording.format, recording.shape, recording.dtype) == (
            "Dectris",
            data.shape,
            np.float32,
        )
        values = recording.read(*WHOLE)
        others = np.ones(data.shape[2:], bool)
        others[2, 3] = False  # masked
        np.testing.assert_array_equal(values[..., others], data[..., others])
        neighbours = data[..., 1:4, 2:5].astype(float).sum(axis=(2, 3)) - data[..., 2, 3]
        np.testing.assert_allclose(values[..., 2, 3], neighbours / 8, rtol=1e-6)
        np.testing.assert_array_equal(
            recording.read(slice(1, 2), slice(0, 3))[..., others], data[1:2, :3, others]
        )
        assert recording.energy_ev == 300e3
        assert recording.pixel_mrad == pytest.approx((2.0, 1.0), rel=1e-5)
        assert recording.bad_pixels == ((2, 3),)
        assert any("1 bad pixels replaced" in line for line in recording.notes)


def test_the_scan_of_a_master_file_is_the_callers_where_it_does_not_say_it(tmp_path):
    data = patterns("u4")
    path = write_master(tmp_path, data)
    assert_refused("12 frames and does not state the scan's shape", path)
    with namsa.read(path, scan_shape=(2, 4), flyback=2) as recording:
        values = recording.read(slice(0, 2), slice(0, 4))
        np.testing.assert_array_equal(values[..., 3:, :], data.reshape(2, 6, 6, 8)[:, :4, 3:])


def test_a_master_file_whose_last_files_do_not_exist_is_an_acquisition_that_was_stopped(tmp_path):
    path = write_master(tmp_path, patterns("u4"), triggers=3, images=4, files=(4, 4, 4), masked=0)
    (tmp_path / "scan_data_000003.h5").unlink()
    stopped = "the acquisition was stopped: 1 of 3 files of frames do not exist"
    read = "2 of 3 rows of 4 positions are complete and read"
    assert_reads(path, patterns("u4")[:2], {"notes": (stopped, read)})
    assert_reads(path, patterns("u4")[:2], {"notes": (stopped,)}, scan_shape=(2, 4))
    (tmp_path / "scan_data_000001.h5").unlink()
    assert_refused(
        "data_000001 is an external link to .*, which is no file beside it", path, scan_shape=(2, 4)
    )


def test_links_lead_only_to_files_beside_the_master(tmp_path):
    folder = tmp_path / "scan"
    folder.mkdir()
    write_master(tmp_path, patterns("u4"))
    for link in (
        str(tmp_path / "scan_data_{:06d}.h5"),
        "../scan_data_{:06d}.h5",
        "missing_{:06d}.h5",
        ".",
        "linked_{:06d}.h5",
    ):
        path = write_master(folder, patterns("u4"), link=link)
        for file_number in (1, 2):
            if not os.path.lexists(
                folder / f"linked_{file_number:06d}.h5"
            ):  # a symbolic link out of the folder
                (folder / f"linked_{file_number:06d}.h5").symlink_to(
                    tmp_path / f"scan_data_{file_number:06d}.h5"
                )
        assert_refused(
            "data_000001 is an external link to .*, which is no file beside it",
            path,
            scan_shape=(3, 4),
        )
    path = write_master(folder, patterns("u4"))
    with h5py.File(folder / "scan_data_000001.h5", "w") as data_file:  # and back, in a circle
        data_file["entry/data/data"] = h5py.ExternalLink(
            "scan_master.h5", "/entry/data/data_000001"
        )
    assert_refused("leads through more than 16 links", path, scan_shape=(3, 4))


def test_frames_of_two_sizes_are_no_scan(tmp_path):
    path = write_master(tmp_path, patterns("u4"))
    with h5py.File(tmp_path / "scan_data_000002.h5", "w") as data_file:
        data_file["entry/data/data"] = np.zeros((7, 5, 5), "u4")
    assert_refused("not all of entry/data/data_", path, scan_shape=(3, 4))


@pytest.mark.parametrize("name", ["Bitshuffle", "Blosc", "Blosc2", "LZ4", "Zstd", "BZip2"])
def test_the_usual_filters_are_unpacked(tmp_path, name):
    data = patterns()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("scan", data=data, chunks=(1, 2, 6, 8), **getattr(hdf5plugin, name)())
    assert_reads(tmp_path / "a.h5", data)


def test_a_filter_that_is_missing_is_said(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("scan", data=patterns(), chunks=(1, 2, 6, 8), **hdf5plugin.Bitshuffle())
    plain = []
    for folder in os.sys.path:
        if "site-packages" in folder:
            plain.append(folder)
    (tmp_path / "hdf5plugin.py").write_text("")  # as if it were not installed
    monkeypatch.setattr("sys.path", [str(tmp_path), *plain])
    with (
        namsa.read(tmp_path / "a.h5") as recording,
        pytest.raises(WorkError, match=r"pip install namsa\[formats\]"),
    ):
        recording.read(*WHOLE)


def test_a_stack_of_frames_is_a_scan_with_its_shape(tmp_path):
    data = patterns()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("frames", data=data.reshape(12, 6, 8), chunks=(8, 6, 8))
        file["image"] = np.zeros((3, 4))
    assert_reads(tmp_path / "a.h5", data, {"chunk": (2, 4)}, scan_shape=(3, 4))
    assert_refused("holds 12 frames and does not state", tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["other"] = np.zeros((5, 6, 8))
    message = "choose one with --dataset and give --scan-shape: frames, other"
    assert_refused(message, tmp_path / "a.h5")
    assert_reads(tmp_path / "a.h5", data, dataset="frames", scan_shape=(3, 4))
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["scan"] = data
    notes = ("the scan of 3x4 is read as one of 4x3",)
    assert_reads(tmp_path / "b.h5", data.reshape(4, 3, 6, 8), {"notes": notes}, scan_shape=(4, 3))
    assert_refused(
        "holds 12 frames, and --scan-shape says 4x4", tmp_path / "b.h5", scan_shape=(4, 4)
    )


def test_the_first_counter_of_fpd_is_read(tmp_path):
    data = patterns(">u2")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        both = np.stack([data, data + 1], axis=2)
        file.create_dataset("fpd_expt/fpd_data/data", data=both, chunks=(1, 1, 1, 3, 4))
        file["fpd_expt/DAC/data"] = np.zeros((3, 4, 1, 27), "u1")
    assert_reads(tmp_path / "a.hdf5", data, {"chunk": (1, 1)})
    with namsa.read(tmp_path / "a.hdf5") as recording:
        assert recording.metadata["counters"] == 2


@needs_measured
def test_real_files():
    with namsa.read(vendor("test_00_master.h5"), scan_shape=(4, 4)) as recording:
        data = recording.read(slice(0, 4), slice(0, 4))
        assert (data.shape, data.dtype, data.sum()) == ((4, 4, 192, 192), np.uint32, 0)
        assert (recording.energy_ev, recording.metadata["saturation_value"]) == (300e3, 8352)
        assert recording.metadata["description"] == "Dectris ARINA CZT"
    with namsa.read(vendor("fpd_file_test.hdf5")) as recording:
        data = recording.read(slice(0, 2), slice(0, 2))
        # The file holds these sums itself, in fpd_sum_im.
        assert data.sum(axis=(2, 3)).tolist() == [[821833, 822375], [821384, 823283]]
        assert np.unravel_index(data[1, 1].argmax(), (256, 256)) == (124, 127)


def test_a_row_that_was_not_completed_is_left_out_of_a_stopped_acquisition(tmp_path):
    path = write_master(tmp_path, patterns("u4"), triggers=3, images=4, files=(5, 5, 2), masked=0)
    (tmp_path / "scan_data_000003.h5").unlink()
    assert_reads(path, patterns("u4")[:2])
    with namsa.read(path) as recording:
        assert "2 of 3 rows of 4 positions are complete and read" in recording.notes
        assert "2 frames after the scan left out" in recording.notes


@pytest.mark.parametrize("missing", [True, False])
def test_the_whole_rows_of_a_stopped_acquisition_are_read_where_the_caller_gives_the_shape(
    tmp_path, missing
):
    path = write_master(tmp_path, patterns("u4"), images=12, files=(5, 4, 3), masked=0)
    if missing:
        (tmp_path / "scan_data_000003.h5").unlink()
    else:  # the last file was cut short
        with h5py.File(tmp_path / "scan_data_000003.h5", "w") as file:
            file["entry/data/data"] = patterns("u4").reshape(12, 6, 8)[9:10]
    assert_reads(path, patterns("u4")[:2], scan_shape=(3, 4))
    with namsa.read(path, scan_shape=(3, 4)) as recording:
        assert "2 of 3 rows of 4 positions are complete and read" in recording.notes
    complete = write_master(tmp_path, patterns("u4"), images=12, files=(12,), masked=0)
    assert_refused("12 frames, and --scan-shape says 4x4", complete, scan_shape=(4, 4))


@pytest.mark.parametrize("index", [None, 0, 1])
def test_of_two_thresholds_one_is_read_from_all_files(tmp_path, index):
    data = np.stack([patterns("u2"), patterns("u2")[::-1]], axis=2)  # (sy, sx, threshold, dy, dx)
    frames = data.reshape(-1, *data.shape[2:])
    with h5py.File(tmp_path / "scan_master.h5", "w") as file:
        file["entry/data/data_000001"] = frames[:5]
        file["entry/data/data_000002"] = frames[5:]
        file["entry/instrument/detector/detectorSpecific/ntrigger"] = 3
        file["entry/instrument/detector/detectorSpecific/nimages"] = 4
    assert_reads(tmp_path / "scan_master.h5", data[:, :, index or 0], index=index)
    with namsa.read(tmp_path / "scan_master.h5", index=index) as recording:
        assert recording.notes == (f"number {index or 0} of 2 counters is read (--index)",)
