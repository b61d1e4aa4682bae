"""4D-STEM files as py4DSTEM and HyperSpy write them (tests/data/fourd), and as nobody says what they are."""

from dataclasses import replace

import fake_samples
import h5py
import numpy as np
import pytest
from paths import DATA

from namsa import InputError, WorkError
from namsa.io import hdf5
from namsa.io.foreign import CalibrationOverrides, open_patterns
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
        assert (patterns.rotation_deg, patterns.flip, patterns.normalised) == (rotation, False, False)


def test_the_beam_is_the_files_where_it_says_so():
    with open_patterns(FILES / "hyperspy.hspy") as patterns:
        assert (patterns.energy_ev, patterns.semiangle_mrad) == (200e3, 20.0)
    with open_patterns(FILES / "py4dstem-0.12.h5", CalibrationOverrides(semiangle_mrad=20.0)) as patterns:
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
        detector_sampling_mrad=[2.0, 3.0],  # no DataCube of py4DSTEM's: its axes alone say what they are
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
    with (
        pytest.raises(InputError, match="several.*--dataset: a/cbed/data, b/cbed/data"),
        open_patterns(tmp_path / "two.h5"),
    ):
        pass
    with open_patterns(tmp_path / "two.h5", CalibrationOverrides(dataset="b/cbed")) as patterns:
        assert patterns.data.name == "/b/cbed/data"


def test_files_that_hold_no_scan_are_refused(tmp_path):
    with h5py.File(tmp_path / "flat.h5", "w") as file:
        file["images"] = np.zeros((3, 4, 5))
    (tmp_path / "text.h5").write_text("no HDF5")
    for name, message in (("flat.h5", "no datasets of four"), ("text.h5", "as HDF5"), ("none.h5", "no file")):
        with pytest.raises(InputError, match=message), open_patterns(tmp_path / name, BEAM):
            pass


def test_what_hdf5_cannot_unpack_is_said(tmp_path):
    with h5py.File(tmp_path / "damaged.h5", "w") as file:
        data = file.create_dataset("scan", SHAPE, "u2", chunks=(2, 5, 6, 8), compression="gzip")
        data[:] = 1
        data.id.write_direct_chunk((2, 0, 0, 0), b"not what gzip writes")
    with open_patterns(
        tmp_path / "damaged.h5", replace(BEAM, scan_step_angstrom=(1, 1), pixel_mrad=(1, 1))
    ) as patterns:
        assert patterns.read(slice(0, 2), slice(0, 5)).min() == 1
        with pytest.raises(WorkError, match="damaged.h5 from scan row 2 on, it is damaged or packed by a filter"):
            patterns.read(slice(2, 3), slice(0, 5))


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
        for number, units in enumerate((scan, scan, detector, detector), start=1):
            file[f"a/dim{number}"] = [0.0, 1.0]
            file[f"a/dim{number}"].attrs["units"] = units
    with open_patterns(tmp_path / "emd.h5", BEAM) as patterns:
        assert patterns.scan_step_angstrom == pytest.approx((step, step))
        assert patterns.pixel_mrad == pytest.approx((pixel, pixel))
        assert patterns.centre_pixels is None  # an axis from 0 on says nothing about the optic axis
