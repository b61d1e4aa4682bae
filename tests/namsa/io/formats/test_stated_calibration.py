"""Calibrations that NSID, USID, OME-Zarr, NXem and Direct Electron's server store beside patterns,
in files as their programs write them.
"""

import h5py
import numpy as np
import pytest
import zarr
from measured_files import assert_reads, assert_refused, patterns, write_mrc

import namsa
from namsa.physics.optics import wavelength_angstrom

DATA = patterns()  # (3, 4, 6, 8)
MRAD = 300 * wavelength_angstrom(200e3) / 10  # of 0.3 1/nm
KNOWN = {
    "scan_step_angstrom": pytest.approx((2, 1)),
    "pixel_mrad": pytest.approx((MRAD, MRAD)),
    "centre_pixels": pytest.approx((2.5, 3.5)),
}
AXES = (
    ("y", "nm", 0.2 * np.arange(3)),
    ("x", "nm", 0.1 * np.arange(4)),
    ("v", "1/nm", 0.3 * (np.arange(6) - 2.5)),
    ("u", "1/nm", 0.3 * (np.arange(8) - 3.5)),
)


def test_dimension_scales_of_nsid_are_the_axes_of_its_dataset(tmp_path):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        group = file.create_group("Measurement_000/Channel_000/scan")
        data = group.create_dataset("scan", data=DATA)
        for axis, (name, units, values) in enumerate(AXES):
            scale = group.create_dataset(name, data=values)
            scale.attrs.update({"units": units, "name": name, "dimension_type": "SPATIAL"})
            scale.make_scale(name)
            data.dims[axis].attach_scale(scale)
        experiment = group.create_group("metadata/experiment")
        experiment.attrs.update({"acceleration_voltage": 200e3, "convergence_angle": 0.02})
    assert_reads(tmp_path / "scan.h5", DATA, KNOWN | {"energy_ev": 200e3, "semiangle_mrad": None})
    with namsa.read(tmp_path / "scan.h5") as scan:
        assert scan.notes == (
            "convergence_angle is 0.02 without units, and not used: give --semiangle-mrad",
        )


def write_usid(path, positions, fast_first=False):
    """Writes patterns as rows of a matrix that refers to its indices and values."""
    order = (1, 0) if fast_first else (0, 1)
    tables = {}
    for kind, (slow, fast) in (("Position", AXES[:2]), ("Spectroscopic", AXES[2:])):
        axes = (slow, fast)
        indices = np.indices([len(axis[2]) for axis in axes]).reshape(2, -1)
        values = np.stack([axis[2][index] for axis, index in zip(axes, indices, strict=True)])
        labels = np.array([axes[index][0].encode() for index in order])
        units = np.array([axes[index][1].encode() for index in order])
        for name, in_order in (("Indices", indices), ("Values", values)):
            table = in_order[list(order)]
            stored = table[:, :positions].T if kind == "Position" else table
            tables[f"{kind}_{name}"] = (stored, labels, units)
    with h5py.File(path, "w") as file:
        group = file.create_group("Measurement_000/Channel_000")
        data = group.create_dataset("Raw_Data", data=DATA.reshape(12, 48)[:positions])
        for name, (stored, labels, units) in tables.items():
            table = group.create_dataset(name, data=stored)
            table.attrs.update({"labels": labels, "units": units})
            data.attrs[name] = table.ref


@pytest.mark.parametrize("fast_first", [False, True])
def test_a_matrix_of_usid_is_a_scan_in_the_order_of_its_indices(tmp_path, fast_first):
    write_usid(tmp_path / "scan.h5", 12, fast_first)
    known = {"format": "USID", "scan_step_angstrom": pytest.approx((2, 1))}
    assert_reads(tmp_path / "scan.h5", DATA, known)
    with namsa.read(tmp_path / "scan.h5", energy_ev=200e3) as scan:
        assert scan.pixel_mrad == KNOWN["pixel_mrad"]
        assert scan.centre_pixels == KNOWN["centre_pixels"]
    name = "Measurement_000/Channel_000/Raw_Data"
    assert_reads(tmp_path / "scan.h5", DATA, {"format": "USID"}, dataset=name)


def test_positions_of_usid_that_are_no_full_grid_are_refused(tmp_path):
    write_usid(tmp_path / "scan.h5", 11)
    assert_refused("no full grid of 3x4 in rows: 11 values", tmp_path / "scan.h5")


@pytest.mark.parametrize("version", [2, 3])
def test_scales_of_ome_zarr_are_the_axes_of_its_finest_image(tmp_path, version):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    for name, data in (("0", DATA), ("1", DATA[:, ::2])):
        group.create_array(name, data=data, chunks=(1, 2, 6, 8))
    units = ("nanometer", "nanometer", "1/nm", "1/nm")
    axes = []
    for axis, unit in zip(AXES, units, strict=True):
        axes.append({"name": axis[0], "type": "space", "unit": unit})
    image_scale = [{"type": "scale", "scale": [2, 1, 3, 3]}]
    offset = {"type": "translation", "translation": [0, 0, -0.25, -0.35]}
    scale = {"type": "scale", "scale": [0.1, 0.1, 0.1, 0.1]}
    image = {
        "axes": axes,
        "coordinateTransformations": image_scale,
        "datasets": [{"path": "0", "coordinateTransformations": [scale, offset]}, {"path": "1"}],
    }
    stated = {"multiscales": [image]}
    group.attrs.update(stated if version == 2 else {"ome": {"version": "0.5"} | stated})
    assert_reads(tmp_path / "a.zarr", DATA, KNOWN, energy_ev=200e3)
    coarse = {"scan_step_angstrom": pytest.approx((20, 10))}
    assert_reads(tmp_path / "a.zarr", DATA[:, ::2], coarse, dataset="1")


@pytest.mark.parametrize("event", ["", "event1/", "events/1/"])
@pytest.mark.parametrize(("voltage", "units"), [(200e3, "V"), (200, "kV")])
def test_the_voltage_of_nxem_is_the_energy(tmp_path, voltage, units, event):
    with h5py.File(tmp_path / "scan.nxs", "w") as file:
        data = file.create_group("entry1/measurement/event_data_em_set/event_data_em1/stack")
        data.attrs.update({"signal": "data", "axes": ["y", "x", "v", "u"]})
        data["data"] = DATA
        for name, unit, values in AXES:
            data[name] = values
            data[name].attrs["units"] = unit
        source = f"entry1/measurement/{event}instrument/ebeam_column/electron_source/voltage"
        file[source] = voltage
        file[source].attrs["units"] = units
    assert_reads(tmp_path / "scan.nxs", DATA, KNOWN | {"energy_ev": 200e3})


INFO = {
    "Camera Model": "CeleritasXS",
    "Instrument Accelerating Voltage (V)": "300000",
    "Scan - Enable": "Enable",
    "Scan - ROI Enable": "Disable",
    "Scan - Size X": "4",
    "Scan - Size Y": "3",
    "Scan - Type": "Raster",
    "Specimen Pixel Size X (nanometers)": "0.1",
    "Specimen Pixel Size Y (nanometers)": "0.2",
}


def write_info(path, changes):
    lines = [f"{name:64}= {value}" for name, value in (INFO | changes).items()]
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("name", ["20230925_01497_movie.mrc", "20230925_01497_0_movie.mrc"])
def test_the_info_file_of_direct_electron_has_the_scan(tmp_path, name):
    write_mrc(tmp_path / name, DATA)
    write_info(tmp_path / "20230925_01497_info.txt", {})
    known = {"energy_ev": 300e3, "scan_step_angstrom": pytest.approx((2, 1))}
    assert_reads(tmp_path / name, DATA, known)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"Scan - Type": "Random"}, "the scan is Random, not a raster"),
        ({"Scan - Size X": "5"}, "a scan of 3x5 does not fit 12 frames"),
    ],
)
def test_an_info_file_that_does_not_fit_is_noted_and_not_used(tmp_path, changes, note):
    write_mrc(tmp_path / "a_movie.mrc", DATA)
    write_info(tmp_path / "a_info.txt", changes)
    assert_refused("give --scan-shape", tmp_path / "a_movie.mrc")
    with namsa.read(tmp_path / "a_movie.mrc", scan_shape=(3, 4)) as scan:
        assert note in " ".join(scan.notes)
        assert scan.scan_step_angstrom is None


def test_the_roi_of_a_scan_is_its_shape(tmp_path):
    write_mrc(tmp_path / "a_movie.mrc", DATA)
    roi = {"Scan - ROI Enable": "On", "Scan - ROI Size X": "4", "Scan - ROI Size Y": "3"}
    write_info(tmp_path / "a_info.txt", roi | {"Scan - Size X": "64", "Scan - Size Y": "64"})
    assert_reads(tmp_path / "a_movie.mrc", DATA)
