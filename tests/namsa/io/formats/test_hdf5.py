"""4D-STEM files as py4DSTEM and HyperSpy write them (tests/data/fourd), and as nobody says what
they are.
"""

import os
import shutil
from dataclasses import replace

import fake_samples
import h5py
import numpy as np
import pytest
from paths import DATA

from namsa import InputError, WorkError
from namsa.io import hdf5
from namsa.io.calibration import CalibrationOverrides
from namsa.io.reading import open_patterns
from namsa.physics.optics import wavelength_angstrom

FILES = DATA / "fourd"
SHAPE = (4, 5, 6, 8)
COUNTS = np.arange(np.prod(SHAPE)).reshape(SHAPE)
BEAM = CalibrationOverrides(energy_ev=200e3, semiangle_mrad=20.0)
PIXEL = 0.2 * 1e3 * wavelength_angstrom(200e3)  # 0.2 1/Å


@pytest.mark.parametrize(
    ("name", "centre", "rotation"),
    [
        ("py4dstem.h5", (2.0, 4.5), 90.0),
        ("py4dstem-0.13.h5", None, 0.0),
        ("py4dstem-0.12.h5", None, 0.0),
        ("hyperspy.hspy", (2.0, 4.5), 0.0),
        ("hyperspy.emd", (2.0, 4.5), 0.0),  # stored with its axes backwards
    ],
)
def test_real_files_say_where_their_patterns_are(name, centre, rotation):
    with open_patterns(FILES / name, BEAM) as patterns:
        assert patterns.shape == SHAPE
        np.testing.assert_array_equal(patterns.read(slice(1, 3), slice(2, 5)), COUNTS[1:3, 2:5])
        assert patterns.scan_step_angstrom == pytest.approx((0.5, 0.5))
        assert patterns.pixel_mrad == pytest.approx((PIXEL, PIXEL))
        assert patterns.centre_pixels == (None if centre is None else pytest.approx(centre))
        assert (patterns.rotation_deg, patterns.flip, patterns.normalised) == (
            rotation,
            False,
            False,
        )


def test_the_beam_is_the_files_where_it_says_so():
    with open_patterns(FILES / "hyperspy.hspy") as patterns:
        assert (patterns.energy_ev, patterns.semiangle_mrad) == (200e3, 20.0)
    with open_patterns(
        FILES / "py4dstem-0.12.h5", CalibrationOverrides(semiangle_mrad=20.0)
    ) as patterns:
        assert patterns.energy_ev == 200e3
    with open_patterns(
        FILES / "hyperspy.hspy", CalibrationOverrides(energy_ev=80e3, pixel_mrad=(1.0, 2.0))
    ) as patterns:
        assert (patterns.energy_ev, patterns.pixel_mrad) == (80e3, (1.0, 2.0))


def test_what_is_not_said_must_be_given():
    pixels = FILES / "py4dstem-pixels.h5"
    for given, option in (
        (CalibrationOverrides(semiangle_mrad=20.0), "--energy-ev"),
        (CalibrationOverrides(energy_ev=200e3), "--semiangle-mrad"),
        (BEAM, "step is in pixels.*--scan-step-angstrom"),
        (
            CalibrationOverrides(energy_ev=200e3, semiangle_mrad=20.0, scan_step_angstrom=(1, 1)),
            "pixel is in pixels.*--pixel-mrad",
        ),
    ):
        with pytest.raises(InputError, match=option), open_patterns(pixels, given):
            pass


def test_our_own_file_is_read_as_it_was_written(tmp_path):
    sample = fake_samples.sample(
        scan_shape=[2, 3],
        grid_shape=[8, 10],
        positions_angstrom=[[1 + 0.5 * i, 3 + 0.5 * j] for i in range(2) for j in range(3)],
        detector_sampling_mrad=[
            2.0,
            3.0,
        ],  # no DataCube of py4DSTEM's: its axes alone say what they are
        detector_origin_mrad=[-4.0, -9.0],
        energy_ev=200e3,
        semiangle_mrad=20.0,
    )
    hdf5.write_samples(tmp_path / "own.h5", [("a", sample)])
    with open_patterns(tmp_path / "own.h5") as patterns:
        assert patterns.scan_step_angstrom == pytest.approx((0.5, 0.5))
        assert patterns.scan_origin_angstrom == (1.0, 3.0)
        assert patterns.pixel_mrad == (2.0, 3.0)
        assert patterns.centre_pixels == (2.0, 3.0)
        assert patterns.normalised
    hdf5.write_samples(tmp_path / "two.h5", [("a", sample), ("b", sample)])
    with pytest.raises(InputError, match="several.*--dataset: a/cbed/data, b/cbed/data"):
        open_patterns(tmp_path / "two.h5").__enter__()
    with open_patterns(tmp_path / "two.h5", CalibrationOverrides(dataset="b/cbed")) as patterns:
        assert patterns.data.values.name == "/b/cbed/data"


def test_what_hdf5_cannot_unpack_is_said(tmp_path):
    with h5py.File(tmp_path / "damaged.h5", "w") as file:
        data = file.create_dataset("scan", SHAPE, "u2", chunks=(2, 5, 6, 8), compression="gzip")
        data[:] = 1
        data.id.write_direct_chunk((2, 0, 0, 0), b"not what gzip writes")
    with open_patterns(
        tmp_path / "damaged.h5", replace(BEAM, scan_step_angstrom=(1, 1), pixel_mrad=(1, 1))
    ) as patterns:
        assert patterns.read(slice(0, 2), slice(0, 5)).min() == 1
        with pytest.raises(
            WorkError, match="damaged.h5 from scan row 2 on, it is damaged or packed by a filter"
        ):
            patterns.read(slice(2, 3), slice(0, 5))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("hyperspy.hspy", {"axis-0": 3.0}, "step is in no units.*--scan-step-angstrom"),
        ("hyperspy.hspy", {"axis-2": None}, "pixel is in no units.*--pixel-mrad"),
        ("hyperspy.hspy", {"axis-1@scale": None}, "the scan's step is no number: give --scan-step"),
        (
            "hyperspy.hspy",
            {"axis-3@scale": np.inf},
            "the detector's pixel is no number: give --pixel-mrad",
        ),
        (
            "hyperspy.hspy",
            {"axis-3@scale": [1.0, 2.0]},
            "the detector's pixel is no number: give --pixel-mrad",
        ),
        ("hyperspy.hspy", {"axis-0@units": h5py.Empty("f")}, "step is in no units"),
        ("hyperspy.hspy", {"axis-0@units": b"furlong"}, "step is in furlong, not a length"),
        (
            "hyperspy.hspy",
            {"axis-0@units": "x" * 5000},
            r"step is in x{40,}\.\.\.x{20,}, not a length",
        ),
        (
            "hyperspy.hspy",
            {"axis-0@scale": 1e30},
            "scan_step_angstrom is 1e\\+31: give a positive number from 0.0001",
        ),
        ("hyperspy.emd", {"dim1": 3.0}, "step is in no units"),
        ("hyperspy.emd", {"dim2": b"words"}, "step is in no units"),
        (
            "hyperspy.emd",
            {"dim3": np.array([np.nan, 1.0])},
            r"step is in \[1_/_n_m\], not a length",
        ),
        (
            "py4dstem.h5",
            {"../metadatabundle/calibration/Q_pixel_size": b"x"},
            "the detector's pixel is no number",
        ),
        (
            "py4dstem.h5",
            {"../metadatabundle/calibration/QR_rotation_degrees": 1e9},
            "rotation_deg is 1e\\+09: give a number",
        ),
        (
            "py4dstem.h5",
            {"../metadatabundle/calibration/qx0_mean": 1e9},
            "centre_pixels is 1e\\+09: give a number",
        ),
    ],
)
def test_odd_calibrations_are_asked_for(tmp_path, name, changes, message):
    shutil.copyfile(FILES / name, tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        names = []
        file.visit(names.append)
        group = file[
            next(
                name
                for name in names
                if isinstance(file[name], h5py.Dataset) and file[name].ndim == 4
            )
        ].parent
        for change, value in changes.items():
            place, _, attribute = change.partition("@")
            place = os.path.normpath(f"{group.name}/{place}")
            if attribute:
                del file[place].attrs[attribute]
                file[place].attrs.update({} if value is None else {attribute: value})
            else:
                del file[place]
                if value is not None:
                    file[place] = value
    with (
        pytest.raises(InputError, match=rf"x\.h5.*{message}"),
        open_patterns(tmp_path / "x.h5", BEAM),
    ):
        pass


@pytest.mark.parametrize(
    "provenance", ["{", "[" * 5000, "[1]", "{}", '{"energy_ev": "high"}', 7, h5py.Empty("f")]
)
def test_a_provenance_of_another_kind_says_nothing_of_the_beam(tmp_path, provenance):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["scan"] = np.ones(SHAPE)
        file.attrs["provenance"] = provenance
    with (
        pytest.raises(InputError, match=r"x\.h5 does not state the beam's energy"),
        open_patterns(tmp_path / "x.h5"),
    ):
        pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"energy_ev": 0.0}, "energy_ev is 0: give a positive number from 10000 to 1e"),
        ({"energy_ev": float("nan")}, "energy_ev is nan"),
        ({"semiangle_mrad": 1e30}, "semiangle_mrad is 1e"),
        ({"scan_step_angstrom": (0.4, 0.0)}, "scan_step_angstrom is 0"),
        ({"pixel_mrad": (1e-300, 1.0)}, "pixel_mrad is 1e-300"),
        ({"centre_pixels": (1.0, float("inf"))}, "centre_pixels is inf"),
        ({"rotation_deg": float("nan")}, "rotation_deg is nan"),
    ],
)
def test_numbers_out_of_range_are_refused(changes, message):
    with pytest.raises(InputError, match=f"hyperspy.hspy: {message}"):
        open_patterns(FILES / "hyperspy.hspy", replace(BEAM, **changes)).__enter__()


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("c8", r"complex numbers: store the intensity, \|ψ\|²"),
        ("S4", "S4, not numbers"),
        (h5py.string_dtype(), "not numbers"),
        ("f4,i4", "not numbers"),
    ],
)
def test_data_that_are_no_numbers_are_no_scan(tmp_path, dtype, kind):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("scan", (2, 2, 2, 2), dtype)
    for name, missing in (
        (None, "holds no datasets of four axes"),
        ("scan", "has no dataset scan of four axes"),
    ):
        with pytest.raises(InputError, match=f"{missing}.*/scan holds .*{kind}"):
            open_patterns(tmp_path / "x.h5", replace(BEAM, dataset=name)).__enter__()


@pytest.mark.parametrize(
    ("scan", "detector", "step", "pixel"),
    [
        ("nm", "mrad", 10.0, 1.0),
        ("Å", "rad", 1.0, 1e3),
        ("pm", "1/nm", 0.01, 100 * wavelength_angstrom(200e3)),
        ("[n_m]", "[A_^_-_1]", 10.0, 1e3 * wavelength_angstrom(200e3)),
        ("µm", "1 / Å", 1e4, 1e3 * wavelength_angstrom(200e3)),
        ("angstrom", "nm⁻¹", 1.0, 100 * wavelength_angstrom(200e3)),
    ],
)
def test_units_in_their_spellings(tmp_path, scan, detector, step, pixel):
    with h5py.File(tmp_path / "emd.h5", "w") as file:
        file["a/data"] = np.ones((2, 3, 4, 5))
        for axis_number, units in enumerate((scan, scan, detector, detector), start=1):
            file[f"a/dim{axis_number}"] = [0.0, 1.0]
            file[f"a/dim{axis_number}"].attrs["units"] = units
    with open_patterns(tmp_path / "emd.h5", BEAM) as patterns:
        assert patterns.scan_step_angstrom == pytest.approx((step, step))
        assert patterns.pixel_mrad == pytest.approx((pixel, pixel))
        assert patterns.centre_pixels is None  # an axis from 0 on says nothing about the optic axis
