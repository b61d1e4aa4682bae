"""Files of quantem are read as scans. quantem itself is in an environment of
`scripts/other_programs.sh`.
"""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import namsa
from namsa import InputError
from namsa.exchange.export import export_ptychography
from namsa.io.calibration import CalibrationOverrides

zarr = pytest.importorskip("zarr")

PATTERNS = np.random.default_rng(2).poisson(9.0, (4, 5, 16, 18)).astype(np.float32)
SAMPLING = (0.5, 0.7, 1.5, 1.5)
ORIGIN = (1.0, 2.0, -12.0, -13.5)
UNITS = ("A", "A", "mrad", "mrad")


def save(folder, sampling=SAMPLING):
    """The file that `quantem.Dataset4dstem.save` of quantem 0.1.10 writes."""
    blosc = {
        "name": "blosc",
        "configuration": {"cname": "zstd", "clevel": 4, "shuffle": "bitshuffle"},
    }
    root = zarr.open_group(folder, mode="w", zarr_format=3)
    root.attrs["_autoserialize"] = {
        "version": 1,
        "class_module": "os",
        "class_name": "system",
    }  # is not imported
    for name, array in (
        ("_array", PATTERNS),
        ("_sampling", np.array(sampling)),
        ("_origin", np.array(ORIGIN)),
    ):
        root.create_array(name, shape=array.shape, dtype=array.dtype, compressors=[blosc])[...] = (
            array
        )
    root.create_group("_units").attrs.update({str(axis): unit for axis, unit in enumerate(UNITS)})
    root.create_group("_metadata").attrs.update(
        {"q_to_r_rotation_ccw_deg": 25.0, "q_transpose": True}
    )


def check(recording):
    np.testing.assert_array_equal(recording.read(slice(0, 4), slice(0, 5)), PATTERNS)
    assert recording.scan_step_angstrom == pytest.approx((0.5, 0.7))
    assert recording.pixel_mrad == (1.5, 1.5)
    assert recording.centre_pixels == (8.0, 9.0)
    assert (recording.rotation_deg, recording.flip) == (25.0, True)


def test_what_it_saves_is_a_scan(tmp_path):
    save(tmp_path / "saved")
    shutil.make_archive(str(tmp_path / "saved"), "zip", tmp_path / "saved")
    for name in ("saved", "saved.zip"):
        with namsa.read(tmp_path / name) as recording:
            check(recording)
            assert (recording.scan_origin_angstrom, recording.energy_ev) == ((1.0, 2.0), None)


def test_axes_of_another_number_are_damage(tmp_path):
    save(tmp_path / "saved", sampling=(0.5, 0.7))
    with pytest.raises(InputError, match="_sampling is not of 4 axes"):
        namsa.read(tmp_path / "saved")


def test_quantem_itself_reads_the_export_and_saves_a_scan(tmp_path):
    """The script runs and its loss falls; the file that it saves has what was exported."""
    pytest.importorskip("quantem")
    known = {
        "scan_step_angstrom": SAMPLING[:2],
        "pixel_mrad": 1.5,
        "energy_ev": 80e3,
        "semiangle_mrad": 8.0,
    }
    overrides = CalibrationOverrides(
        **known, centre_pixels=(8.0, 9.0), rotation_deg=25.0, flip=True
    )
    np.save(tmp_path / "scan.npy", PATTERNS)
    command, *_ = export_ptychography(
        tmp_path / "scan.npy", "quantem", tmp_path / "q", overrides=overrides
    )
    assert command == "python reconstruct.py"
    parameters = json.loads((tmp_path / "q/parameters.json").read_text()) | {"iterations": 3}
    (tmp_path / "q/parameters.json").write_text(json.dumps(parameters))
    run = [sys.executable, "reconstruct.py"]
    done = subprocess.run(run, cwd=tmp_path / "q", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    losses = [float(word) for word in done.stdout.splitlines()[-1].split()[1:]]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    with namsa.read(tmp_path / "q/dataset.zip") as recording:
        check(recording)
