"""The public names of `train`, used as a new user would: a small scan, reconstructed by a shipped
network.
"""

import subprocess
import sys
from dataclasses import replace

import ase
import h5py
import numpy as np
import pytest

import namsa
import train

SHAPE = (16, 20)
STEP = 0.4
CALIBRATION = train.CalibrationOverrides(
    energy_ev=200e3, semiangle_mrad=20.0, scan_step_angstrom=(STEP, STEP), pixel_mrad=(5.0, 5.0)
)


@pytest.fixture(scope="module")
def patterns():
    """(16, 20, 24, 24), fractions of the beam, of two unit cells of strontium titanate."""
    a = 3.905
    sites = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)]
    crystal = ase.Atoms("SrTiO3", scaled_positions=sites, cell=[a, a, a], pbc=True) * (3, 2, 5)
    y, x = (STEP * np.arange(n) for n in SHAPE)
    sample = namsa.simulate(
        crystal,
        energy_ev=200e3,
        semiangle_mrad=20.0,
        grid_shape=(96, 144),
        positions_angstrom=np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2),
        detector=namsa.Detector(shape=(24, 24), pixel_mrad=5.0),
    )
    return sample.cbed.reshape(*SHAPE, 24, 24)


@pytest.fixture(scope="module")
def result(patterns):
    return train.reconstruct(patterns, "200kv-20mrad-fast", CALIBRATION, beam_intensity=1.0)


def test_an_array_becomes_a_density(result):
    assert isinstance(result, train.Reconstruction)
    assert result.density.shape == result.uncertainty.shape == result.bright_field.shape == SHAPE
    assert result.trust is None
    assert result.step_angstrom == (STEP, STEP)
    np.testing.assert_allclose(result.axes_angstrom[1], STEP * np.arange(20))
    # 3.905 Å from the origin, and 0.8 Å further on
    strontium = result.density[10, 10]
    hollow = result.density[10, 12]
    assert strontium > 2 * hollow
    assert result.notes[0] == "array: 16×20 patterns of 24×24 pixels, float32"
    assert any("centre of mass" in line for line in result.notes)


def test_a_file_gives_the_density_of_its_array(tmp_path, patterns, result):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file.create_dataset("scan", data=patterns, chunks=(4, 4, 24, 24))
    model = train.load_model("200kv-20mrad-fast")
    stored = train.reconstruct(tmp_path / "scan.h5", model, CALIBRATION, beam_intensity=1.0)
    np.testing.assert_array_equal(stored.density, result.density)
    np.testing.assert_array_equal(stored.uncertainty, result.uncertainty)
    np.testing.assert_array_equal(stored.bright_field, result.bright_field)
    assert stored.provenance["data"] == "scan.h5"


def test_one_number_stands_for_a_pair(patterns, result):
    square = replace(CALIBRATION, scan_step_angstrom=STEP, pixel_mrad=5.0)
    again = train.reconstruct(patterns, "200kv-20mrad-fast", square, beam_intensity=1.0)
    np.testing.assert_array_equal(again.density, result.density)


def test_a_result_shows_itself(tmp_path, result):
    figure = result.show(tmp_path / "density.png")
    titles = {axes.get_title(loc="left") for axes in figure.axes}
    assert {"Density", "Uncertainty", "Bright field", "Mean pattern"} < titles
    assert (tmp_path / "density.png").stat().st_size > 10_000
    page = result._repr_html_()
    assert repr(result) == "<Reconstruction: 16 × 20 pixels of 0.4 × 0.4 Å, by 200kv-20mrad-fast>"
    assert "<b>Reconstruction</b> 16 × 20 pixels of 0.4 × 0.4 Å, by 200kv-20mrad-fast" in page
    assert 'src="data:image/png;base64,' in page
    assert ">uncertainty</th>" in page


@pytest.mark.parametrize(
    ("array", "changes", "message"),
    [
        (np.ones((4, 4, 8)), {}, "the array has 3 axes and no scan_shape: give numbers"),
        (
            np.ones((16, 16, 8, 8)),
            {"energy_ev": None, "pixel_mrad": None},
            "give energy_ev, pixel_mrad",
        ),
        (
            np.ones((16, 16, 8, 8)),
            {"scan_step_angstrom": (0.4, -1.0)},
            "scan_step_angstrom is -1: give a positive",
        ),
        (
            np.ones((16, 16, 8, 8)),
            {"energy_ev": 300e3},
            "array does not fit the network: energy 300 keV, trained for",
        ),
    ],
)
def test_an_array_without_a_valid_calibration_is_refused(array, changes, message):
    with pytest.raises(namsa.InputError, match=message):
        train.reconstruct(array, "200kv-20mrad-fast", replace(CALIBRATION, **changes))


def test_refinement_without_a_specimen_is_refused(patterns):
    options = train.ReconstructionOptions(refine_steps=5)
    with pytest.raises(
        namsa.InputError, match="refine_steps is 5, and no thickness of the specimen is known"
    ):
        train.reconstruct(patterns, "200kv-20mrad-fast", CALIBRATION, options=options)


def test_a_run_that_does_not_exist_is_not_evaluated(tmp_path):
    with pytest.raises(namsa.InputError, match=r"config\.yaml"):
        train.evaluate(tmp_path / "none")


def test_importing_the_package_does_not_import_tensorflow():
    code = (
        "import sys, train\n"
        # the report of a run of any task, too
        "import train.tasks.density.trust.consistency, train.tasks.reporting\n"
        "model = train.load_model('200kv-20mrad-fast')\n"
        "assert {'reconstruct', 'load_model', 'evaluate', 'Reconstruction'} <= set(dir(train))\n"
        "print(train.__version__, 'tensorflow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [train.__version__, "False"]
    assert callable(train.reconstruct)
    with pytest.raises(AttributeError, match="reconstruction_of"):
        _ = train.reconstruction_of
