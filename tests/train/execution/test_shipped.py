"""Every network that is shipped gives the same answers under TensorFlow and JAX."""

import os
import subprocess
import sys

import numpy as np
import pytest
from paths import ROOT

from train.apply.models import shipped

pytest.importorskip("jax")

WORKER = ROOT / "scripts/bench/workers/network_answers.py"


@pytest.mark.slow  # it compiles all networks for both
def test_shipped_networks_give_the_same_under_both_backends(tmp_path):
    jobs = {
        backend: subprocess.Popen(
            [sys.executable, WORKER, tmp_path / f"{backend}.npz"],
            env=os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        )
        for backend in ("tensorflow", "jax")
    }
    assert [job.wait() for job in jobs.values()] == [0, 0]
    with np.load(tmp_path / "tensorflow.npz") as expected, np.load(tmp_path / "jax.npz") as found:
        answers = [key for key in expected.files if not key.endswith("/seconds")]
        assert {key.partition("/")[0] for key in answers} == {model.name for model in shipped()}
        for key in answers:
            error = np.abs(found[key] - expected[key]).max() / np.abs(expected[key]).max()
            # The network predicts the logarithm of the error, of which the variance is the square.
            assert error <= (4e-5 if key.endswith("/variance") else 1e-5), f"{key}: {error:.1e}"
