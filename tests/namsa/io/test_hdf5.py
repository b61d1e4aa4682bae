"""HDF5 files hold what was simulated, in EMD 1.0; scripts/bench/readers.py opens them with the real
readers.
"""

import os
import subprocess
import sys
from dataclasses import replace

import fake_samples
import h5py
import numpy as np
import pytest

import namsa
from namsa import InputError, WorkError
from namsa.base.pixels import UNITS
from namsa.io import hdf5
from namsa.samples import sample_file

PROVENANCE = {
    "grid_shape": [8, 10],
    "semiangle_mrad": 20.0,
    "positions_angstrom": [[1 + 0.5 * i, 3 + 0.5 * j] for i in range(2) for j in range(3)],
    "detector_sampling_mrad": [2.0, 2.0],
    "detector_origin_mrad": [-4.0, -7.0],
}


def sample(**provenance):
    return fake_samples.sample(**(PROVENANCE | provenance))


def test_what_is_read_is_what_was_written(tmp_path):
    written = {
        "a": sample(),
        "b": replace(sample(), cbed=2 * sample().cbed),
        "loose": sample(scan_shape=None),
    }
    assert hdf5.write_samples(tmp_path / "new" / "file.h5", written.items()) == 3
    samples = dict(sample_file.read_samples(tmp_path / "new" / "file.h5"))
    assert list(samples) == list(written)
    for name, expected in written.items():
        for array in UNITS:
            np.testing.assert_array_equal(getattr(samples[name], array), getattr(expected, array))
        assert samples[name].provenance == expected.provenance
    for name, expected in ((None, written["a"]), ("b", written["b"])):
        one = sample_file.read_sample(tmp_path / "new" / "file.h5", name)
        np.testing.assert_array_equal(one.cbed, expected.cbed)
    with pytest.raises(InputError, match=r"has no sample c: it holds a, b, loose$"):
        sample_file.read_sample(tmp_path / "new" / "file.h5", "c")


def test_a_simulated_scan_says_its_aperture_edge_and_without_it_that_of_before(tmp_path):
    for index, (stated, expected) in enumerate(
        (({}, "amplitude"), ({"aperture_edge": "intensity"}, "intensity"))
    ):
        path = tmp_path / f"{index}.h5"
        hdf5.write_samples(path, [("a", sample(**stated))])
        with namsa.read(path) as recording:
            assert recording.aperture_edge == expected


def test_every_array_has_its_axes_and_units(tmp_path):
    hdf5.write_samples(tmp_path / "file.h5", [("a", sample())])
    with h5py.File(tmp_path / "file.h5") as file:
        assert (
            dict(file.attrs).items()
            >= {"emd_group_type": "file", "version_major": 1, "version_minor": 0}.items()
        )
        assert file["a"].attrs["emd_group_type"] == "root"
        for array, units, axes in (
            (
                "cbed",
                "fraction of the beam",
                [
                    ("y", "Å", [1, 1.5]),
                    ("x", "Å", [3, 3.5, 4]),
                    ("ky", "mrad", 2.0 * np.arange(5) - 4),
                    ("kx", "mrad", 2.0 * np.arange(7) - 7),
                ],
            ),
            ("density", "e/Å²", [("y", "Å", [1, 1.5]), ("x", "Å", [3, 3.25, 3.5])]),
            (
                "projected_potential",
                "V·Å",
                [("y", "Å", 2.0 * np.arange(8)), ("x", "Å", 1.8 * np.arange(10))],
            ),
        ):
            group = file["a"][array]
            assert group.attrs["emd_group_type"] == "array"
            assert group["data"].attrs["units"] == units
            assert group["data"].shape == tuple(len(along) for _, _, along in axes)
            for axis, (name, unit, along) in enumerate(axes):
                dimension = group[f"dim{axis}"]
                assert (dimension.attrs["name"], dimension.attrs["units"]) == (name, unit)
                np.testing.assert_allclose(dimension, along)


def test_py4dstem_is_told_pixels_steps_and_the_optic_axis(tmp_path):
    hdf5.write_samples(tmp_path / "file.h5", [("a", sample())])
    with h5py.File(tmp_path / "file.h5") as file:
        assert file["a/cbed"].attrs["python_class"] == "DataCube"
        calibration = file["a/metadatabundle/calibration"]
        numbers = {}
        for key in ("R_pixel_size", "Q_pixel_size", "qx0", "qy0", "probe_semiangle"):
            numbers[key] = calibration[key][()]
        assert numbers == {
            "R_pixel_size": 0.5,
            "Q_pixel_size": 2.0,
            "qx0": 2.0,
            "qy0": 3.5,
            "probe_semiangle": 10.0,
        }
        assert calibration["R_pixel_units"][()] == b"A"
        assert calibration["Q_pixel_units"].attrs["type"] == "string"


@pytest.mark.parametrize(
    "uneven",
    [
        {"scan_shape": None},
        {"detector_sampling_mrad": [2.0, 1.9]},
        {"positions_angstrom": [[1 + 0.5 * i, 3 + 0.4 * j] for i in range(2) for j in range(3)]},
    ],
)
def test_what_py4dstem_has_no_number_for_is_no_datacube(tmp_path, uneven):
    hdf5.write_samples(tmp_path / "file.h5", [("a", sample(**uneven))])
    with h5py.File(tmp_path / "file.h5") as file:
        assert file["a/cbed"].attrs["python_class"] == "Array"
        assert "calibration" not in file["a/metadatabundle"]


def test_an_axis_of_one_position_has_a_step(tmp_path):
    line = sample(scan_shape=[1, 6], positions_angstrom=[[1.0, 0.5 * j] for j in range(6)])
    hdf5.write_samples(tmp_path / "file.h5", [("a", line)])
    with h5py.File(tmp_path / "file.h5") as file:
        assert file["a/cbed/data"].shape == (1, 6, 5, 7)
        np.testing.assert_allclose(np.diff(file["a/cbed/dim0"]), 1.0)


def test_many_positions_fit_into_the_provenance(tmp_path):
    many = sample(
        scan_shape=None,
        positions_angstrom=np.random.default_rng(0).uniform(0, 9, (20_000, 2)).tolist(),
    )
    many = replace(many, cbed=np.ones((20_000, 1, 1), np.float32))
    hdf5.write_samples(tmp_path / "file.h5", [("a", many)])
    ((_, read_back),) = sample_file.read_samples(tmp_path / "file.h5")
    assert read_back.provenance == many.provenance


COPY = """
import sys
from namsa.io import hdf5
from namsa.samples import sample_file
source, copy = sys.argv[1:]
hdf5.write_samples(copy, sample_file.read_samples(source))
"""


def test_a_sample_is_the_same_file_whatever_order_sets_have(tmp_path):
    bins = np.random.default_rng(0).uniform(0, 4, (4, 2, 3)).astype(np.float32)
    hdf5.write_samples(tmp_path / "sample.h5", [("a", replace(sample(), density_by_depth=bins))])
    copies = [tmp_path / "0.h5", tmp_path / "2.h5"]
    processes = []
    for copy in copies:
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", COPY, tmp_path / "sample.h5", copy],
                env=os.environ | {"PYTHONHASHSEED": copy.stem},
            )
        )
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    assert copies[0].read_bytes() == copies[1].read_bytes()
    with h5py.File(copies[0]) as file:
        assert "density_by_depth" in file["a"]


def test_a_file_is_whole_or_not_there(tmp_path):
    def broken():
        yield "a", sample()
        raise WorkError("cut off")

    with pytest.raises(WorkError, match="cut off"):
        hdf5.write_samples(tmp_path / "file.h5", broken())
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_read_or_written_are_named(tmp_path):
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(InputError, match="text.h5"):
        list(sample_file.read_samples(tmp_path / "text.h5"))
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    with pytest.raises(InputError, match="no sample"):
        list(sample_file.read_samples(tmp_path / "other.h5"))
    with pytest.raises(WorkError, match="cannot write"):
        hdf5.write_samples(tmp_path / "text.h5" / "file.h5", [("a", sample())])


def declare_more(group):
    """Than the file can hold."""
    del group["density/data"]
    group["density"].create_dataset("data", (10**4, 10**4), "f8", chunks=(100, 100), fillvalue=1.0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda group: group.attrs.update(provenance="{"), "its provenance, is not JSON"),
        (lambda group: group.attrs.update(provenance="[" * 5000), "nested more than 64 levels"),
        (lambda group: group.attrs.update(provenance="[1]"), "no JSON object"),
        (lambda group: group.attrs.update(provenance=[1, 2]), "a provenance that is no text"),
        (lambda group: group.pop("density"), "has no array density"),
        (lambda group: group["cbed"].pop("data"), "has no array cbed"),
        (
            lambda group: (group["density"].pop("data"), group["density"].update(data=1.0)),
            r"density of shape \(\)",
        ),
        (
            lambda group: (group["density"].pop("data"), group["density"].update(data=[[b"x"]])),
            "not a sample's",
        ),
        (
            lambda group: (
                group["cbed"].pop("data"),
                group["cbed"].update(data=np.ones((9, 5, 7))),
            ),
            "for 9 patterns",
        ),
        (declare_more, "declares 800000000 bytes"),
        (lambda group: group.parent.move("a", ".."), r"a sample of .*file\.h5 is named '\.\.'"),
    ],
)
def test_odd_samples_are_refused(tmp_path, damage, message):
    hdf5.write_samples(tmp_path / "file.h5", [("a", sample())])
    with h5py.File(tmp_path / "file.h5", "r+") as file:
        damage(file["a"])
    with pytest.raises(InputError, match=message):
        sample_file.read_sample(tmp_path / "file.h5")


def test_py4dstem_is_told_the_ellipse_and_the_movement_of_the_disk(tmp_path):
    rng = np.random.default_rng(0)
    rows, columns = np.indices((5, 7))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        root = file.create_group("root")
        root["datacube/data"] = rng.poisson(9, (5, 7, 20, 24)).astype("u2")
        calibration = root.create_group("metadatabundle/calibration")
        calibration["R_pixel_size"], calibration["R_pixel_units"] = 0.5, "A"
        calibration["Q_pixel_size"], calibration["Q_pixel_units"] = 1.0, "mrad"
        calibration["a"], calibration["b"], calibration["theta"] = 8.0, 10.0, np.deg2rad(20)
        calibration["qx0"] = 9.0 + 0.1 * (rows - 2) - 0.05 * (columns - 3)
        calibration["qy0"] = 11.0 + 0.2 * (columns - 3)
    with namsa.read(tmp_path / "a.h5") as recording:
        ratio, axis_deg = recording.ellipse
        assert ratio == pytest.approx(1.25)
        # the long axis is b, at 20° + 90° from the rows' direction towards the columns'
        assert axis_deg == pytest.approx(90 - 110)
        assert recording.centre_pixels == pytest.approx((9.0, 11.0))
        assert any("patterns shifted back" in note for note in recording.notes)
        assert recording.data.values.centre_slope == (
            pytest.approx((0.1, -0.05)),
            pytest.approx((0.0, 0.2), abs=1e-12),
        )
