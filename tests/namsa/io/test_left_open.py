"""Python ends quietly where recordings are left open."""

import subprocess
import sys

import h5py
import measured_files
import numpy as np
import pytest

SCRIPT = """
import sys, namsa
kept = [namsa.read(path) for path in sys.argv[1:]]
print(sum(recording.read(slice(0, 1), slice(0, 2)).size > 0 for recording in kept))
"""


def test_python_ends_quietly_with_recordings_of_every_kind_left_open(tmp_path):
    zarr = pytest.importorskip("zarr")
    data = measured_files.patterns("u1", detector=(8, 8))
    paths = [tmp_path / f"a.{suffix}" for suffix in ("h5", "blo", "ser", "npy", "npz", "zarr")]
    with h5py.File(paths[0], "w") as file:
        file["data"] = data
    measured_files.write_blo(paths[1], data)
    measured_files.write_ser(paths[2], data)
    np.save(paths[3], data)
    np.savez(paths[4], data=data)
    zarr.save_array(str(paths[5]), data)
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, *paths], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "6", "")
