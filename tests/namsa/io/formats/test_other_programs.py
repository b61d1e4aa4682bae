"""Files of Velox, MATLAB, NeXus, Nion Swift, TVIPS and EMPAD-G2, and frames in files of their
own.
"""

import json
import struct
import zipfile

import h5py
import numpy as np
import pytest
from measured_files import (
    assert_reads,
    assert_refused,
    patterns,
    scan_of,
    write_dm,
    write_empad,
    write_hdr,
    write_mib,
)
from scipy import io

import namsa
from namsa import WorkError
from namsa.physics.optics import wavelength_angstrom

DATA = patterns()  # (3, 4, 6, 8)
INVERSE_NM = 1e2 * wavelength_angstrom(200e3)  # mrad


# ---- Velox


def write_velox(path, frames):
    stated = {
        "BinaryResult": {
            "PixelSize": {"width": "2e8", "height": "3e8"},
            "PixelUnitX": "1/m",
            "PixelUnitY": "1/m",
        },
        "Optics": {"AccelerationVoltage": "200000", "BeamConvergence": "0.0205"},
    }
    text = np.frombuffer(json.dumps(stated).encode(), np.uint8)
    with h5py.File(path, "w") as file:
        group = file.create_group("Data/Image/5f1c")
        group.create_dataset("Data", data=np.moveaxis(frames, 0, -1), chunks=(6, 8, 1))
        group["Metadata"] = np.repeat(text[:, None], len(frames), axis=1)


def test_velox_counts_frames_along_the_last_axis(tmp_path):
    write_velox(tmp_path / "a.emd", DATA.reshape(12, 6, 8))
    assert_refused("holds 12 frames and does not state the scan's shape", tmp_path / "a.emd")
    known = {"format": "Velox", "energy_ev": 200e3, "semiangle_mrad": 20.5}
    known["pixel_mrad"] = (0.3 * INVERSE_NM, 0.2 * INVERSE_NM)
    assert_reads(tmp_path / "a.emd", DATA, known, scan_shape=(3, 4))


# ---- MATLAB


@pytest.mark.parametrize("compressed", [False, True])
def test_matlab_arrays_of_version_5(tmp_path, compressed):
    path = tmp_path / "a.mat"
    io.savemat(
        path,
        {"cube": DATA, "title": "x", "step": 0.4, "cell": {"a": [1]}},
        do_compression=compressed,
    )
    with namsa.read(path) as recording:
        assert (recording.format, recording.metadata["dataset"]) == ("MATLAB", "cube")
        assert any(
            "the axes are taken as (scan y, scan x, detector y, detector x)" in line
            for line in recording.notes
        )
    np.testing.assert_array_equal(scan_of(path), DATA)
    io.savemat(path, {"cube": DATA.transpose(2, 3, 0, 1)})
    np.testing.assert_array_equal(scan_of(path, axes="dy,dx,sy,sx"), DATA)
    io.savemat(path, {"frames": np.moveaxis(DATA.reshape(12, 6, 8), 0, -1)})
    np.testing.assert_array_equal(scan_of(path, scan_shape=(3, 4)), DATA)
    assert_refused("give --scan-shape, and --axes n,dy,dx or dy,dx,n", path)
    io.savemat(path, {"a": DATA, "b": DATA})
    assert_refused("several arrays: choose one with --dataset: a, b", path)
    np.testing.assert_array_equal(scan_of(path, dataset="b"), DATA)
    path.write_bytes(path.read_bytes()[:200])
    assert_refused("MATLAB|no patterns", path)


@pytest.mark.parametrize("of_matlab", [False, True])
def test_matlab_7_3_is_hdf5_behind_a_user_block(tmp_path, of_matlab):
    path = tmp_path / "a.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["cube"] = DATA.T if of_matlab else DATA
        if of_matlab:
            file["cube"].attrs["MATLAB_class"] = np.bytes_("uint16")
    with path.open("r+b") as file:
        file.write(
            b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + struct.pack("<2H", 0x200, 0x4D49)
        )
    assert_reads(path, DATA, {"format": "HDF5"})
    with namsa.read(path) as recording:
        assert bool(recording.notes) == of_matlab


# ---- NeXus and Nion Swift


def test_the_axes_of_nxdata_have_their_units(tmp_path):
    with h5py.File(tmp_path / "a.nxs", "w") as file:
        file.attrs["default"] = "entry"
        entry = file.create_group("entry")
        entry.attrs["default"] = "scan"
        group = entry.create_group("scan")
        group.attrs.update(
            {"NX_class": "NXdata", "signal": "counts", "axes": ["y", "x", "ky", "kx"]}
        )
        group["counts"], group["other"] = DATA, DATA
        for name, units, step, n in (
            ("y", "nm", 0.05, 3),
            ("x", "um", 4e-5, 4),
            ("ky", "1/nm", 2, 6),
            ("kx", "rad", 1e-3, 8),
        ):
            group[name] = step * np.arange(n)
            group[name].attrs["units"] = units
        entry["instrument/source/energy"] = 200.0
        entry["instrument/source/energy"].attrs["units"] = "keV"
    with namsa.read(tmp_path / "a.nxs") as recording:
        assert recording.metadata["dataset"] == "entry/scan/counts"
        assert recording.scan_step_angstrom == pytest.approx((0.5, 0.4))
        assert recording.energy_ev == 200e3
        assert recording.pixel_mrad is None
        assert recording.reasons["pixel_mrad"] == (
            "the detector's pixel is in 1/nm and rad, an angle and a reciprocal length"
        )


def test_what_nion_swift_says_of_its_data_is_used(tmp_path):
    stated = {
        "dimensional_calibrations": [
            {"offset": -1.0, "scale": 0.05, "units": "nm"},
            {"offset": -1.0, "scale": 0.04, "units": "nm"},
            {"offset": -0.006, "scale": 0.002, "units": "rad"},
            {"offset": -0.009, "scale": 0.003, "units": "rad"},
        ],
        "collection_dimension_count": 2,
        "metadata": {"instrument": {"high_tension": 60000.0}},
    }
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = DATA
        file["data"].attrs["properties"] = json.dumps(stated)
    np.save(tmp_path / "data.npy", DATA)
    with zipfile.ZipFile(tmp_path / "a.ndata1", "w") as archive:
        archive.write(tmp_path / "data.npy", "data.npy")
        archive.writestr("metadata.json", json.dumps(stated))
    known = {
        "scan_step_angstrom": (0.5, 0.4),
        "pixel_mrad": (2.0, 3.0),
        "centre_pixels": (3.0, 3.0),
        "energy_ev": 60e3,
    }
    for name in ("a.h5", "a.ndata1"):
        assert_reads(tmp_path / name, DATA, known)


# ---- TVIPS


# ---- EMPAD-G2


# ---- One file per frame


@pytest.mark.parametrize("suffix", ["mib", "dm4"])
def test_frames_in_files_of_their_own(tmp_path, suffix):
    folder = tmp_path / "scan"
    folder.mkdir()
    for frame_number, frame in enumerate(DATA.reshape(12, 6, 8), start=1):  # 10 comes after 9
        path = folder / f"frame{frame_number}.{suffix}"
        if suffix == "mib":
            write_mib(path, frame[None, None])
        else:
            write_dm(path, frame, [(0.1, 4.0, "mrad"), (0.2, 2.0, "mrad")])
    for path in (folder, folder / f"frame*.{suffix}"):
        assert_refused("holds 12 frames and does not state the scan's shape", path)
        assert_reads(
            path, DATA, {"pixel_mrad": None if suffix == "mib" else (0.2, 0.1)}, scan_shape=(3, 4)
        )
    (folder / f"frame3.{suffix}").write_bytes(b"x")
    with (
        namsa.read(folder, scan_shape=(3, 4)) as recording,
        pytest.raises(WorkError, match="frame3"),
    ):
        recording.read(slice(0, 3), slice(0, 4))


@pytest.mark.parametrize("counts", [(12,), (6, 6), (5, 5, 2), (1, 7, 4)])
def test_frames_are_joined_from_files_of_many(tmp_path, counts):
    frames = DATA.reshape(1, 12, 6, 8)
    start = 0
    for file_number, count in enumerate(counts, start=9):  # 10 comes after 9
        write_mib(tmp_path / f"scan_{file_number}.mib", frames[:, start : start + count])
        start += count
    assert_refused("12 frames and does not state", tmp_path)
    assert_reads(tmp_path, DATA, scan_shape=(3, 4))
    write_hdr(tmp_path / "scan.hdr", ScanX=4, ScanY=3)
    assert_reads(tmp_path / "scan_*.mib", DATA)


# ---- What else files may say


def test_descriptions_of_merlin_and_empad_in_capitals_count(tmp_path):
    write_mib(tmp_path / "SCAN.MIB", DATA)
    write_hdr(tmp_path / "SCAN.HDR", ScanX=4, ScanY=3)
    for name in ("SCAN.MIB", "SCAN.HDR"):
        np.testing.assert_array_equal(scan_of(tmp_path / name), DATA)
    write_empad(tmp_path / "A.RAW", patterns("f4", detector=(128, 128)))
    (tmp_path / "A.XML").write_text(
        '<r><raw_file filename="A.RAW"/><pix_x>4</pix_x><pix_y>3</pix_y></r>'
    )
    assert namsa.read(tmp_path / "A.RAW").shape[:2] == (3, 4)


def test_rows_of_a_pixel_trigger_show_in_the_times_of_its_frames(tmp_path):
    write_mib(tmp_path / "a.mib", DATA)
    write_hdr(
        tmp_path / "a.hdr",
        **{"Frames in Acquisition (Number)": 12, "Frames per Trigger (Number)": 1},
    )
    content = (tmp_path / "a.mib").read_bytes()
    ends = 0
    for index in range(12):  # 1 ms a frame, 5 ms between rows
        at = content.index(b"2021-05-07T", ends)
        ends = content.index(b"Z", at)
        ns = 1_000_000 * (index + 4 * (index // 4)) + 37 * index % 50_000
        content = content[:at] + f"2021-05-07T16:51:10.{ns:09d}".encode() + content[ends:]
    (tmp_path / "a.mib").write_bytes(content)
    stated = ("scan of 3x4 by the frames' times, which pause after each row",)
    assert_reads(tmp_path / "a.mib", DATA, {"notes": stated})


@pytest.mark.parametrize("kind", ["hspy", "dm4"])
def test_each_axis_has_its_own_units_and_units_say_which_is_the_scans(tmp_path, kind):
    """A transposed signal of HyperSpy, and a scan of DigitalMicrograph that says nothing of its
    order.
    """
    stored = np.ascontiguousarray(DATA.transpose(2, 3, 0, 1))
    path = tmp_path / f"a.{kind}"
    if kind == "hspy":
        with h5py.File(path, "w") as file:
            group = file.create_group("Experiments/a")
            group["data"] = stored
            axes = (("ky", 2.0, "1/nm"), ("kx", 3.0, "1/nm"), ("y", 4e-5, "µm"), ("x", 0.05, "nm"))
            for axis_index, (name, scale, units) in enumerate(axes):
                axis = group.create_group(f"axis-{axis_index}")
                axis.attrs.update({"name": name, "scale": scale, "offset": 0.0, "units": units})
    else:
        write_dm(
            path,
            stored,
            [(0.05, 0.0, "nm"), (4e-5, 0.0, "µm"), (3.0, 0.0, "1/nm"), (2.0, 0.0, "1/nm")],
            swapped=True,
        )
    known = {"scan_step_angstrom": (0.4, 0.5), "pixel_mrad": (2 * INVERSE_NM, 3 * INVERSE_NM)}
    assert_reads(path, DATA, known, energy_ev=200e3)


def test_a_scan_of_digital_micrograph_whose_detector_is_listed_first_without_the_tag(tmp_path):
    axes = [(0.1, 4.0, "1/nm"), (0.2, 2.0, "1/nm"), (0.5, 0.0, "nm"), (0.4, 0.0, "nm")]
    write_dm(tmp_path / "a.dm4", DATA, axes)
    np.testing.assert_array_equal(scan_of(tmp_path / "a.dm4"), DATA)
    write_dm(tmp_path / "b.dm4", DATA, [(1.0, 0.0, "")] * 4)
    np.testing.assert_array_equal(scan_of(tmp_path / "b.dm4", axes="sy,sx,dy,dx"), DATA)
    with namsa.read(tmp_path / "b.dm4") as recording:
        assert recording.shape == (6, 8, 3, 4)
        assert "stored as detector before scan; --axes says another" in recording.notes[0]


def test_a_calibration_without_a_rotation_states_none(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["root/cube/data"] = DATA
        group = file.create_group("root/metadatabundle/calibration")
        for name, value in (("R_pixel_size", 0.4), ("Q_pixel_size", 2.0), ("QR_flip", False)):
            group[name] = value
        group["R_pixel_units"], group["Q_pixel_units"] = "A", "mrad"
    with namsa.read(tmp_path / "a.h5") as recording:
        assert (recording.rotation_deg, recording.flip) == (None, None)
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["root/metadatabundle/calibration/QR_rotation"] = np.pi
    with namsa.read(tmp_path / "a.h5") as recording:
        assert (recording.rotation_deg, recording.flip) == (pytest.approx(180.0), False)


@pytest.mark.parametrize(
    "units", ["$A^{-1}$", "k_A^-1", "Å⁻¹", "1/angstroms", "A**-1", "[A_^_-_1]", r"$\AA^{-1}$"]
)
def test_spellings_of_a_reciprocal_length(units):
    from namsa.io.units import angstrom_per_unit, inverse_angstrom_per_unit

    assert inverse_angstrom_per_unit(units) == 1.0
    assert angstrom_per_unit(units) is None


# ---- EMPAD of either generation, and what PtychoShelves reads


def test_patterns_of_ptychoshelves_are_turned_back(tmp_path):
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        file["dp"] = DATA.reshape(12, 6, 8).swapaxes(1, 2)
    assert_reads(tmp_path / "data.hdf5", DATA, scan_shape=(3, 4))
