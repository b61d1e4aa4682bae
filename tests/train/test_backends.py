"""The numbers of `train` are those of `keras.ops`, the same under TensorFlow and JAX."""

import os
import subprocess
import sys

import number_cases
import numpy as np
import pytest
from paths import ROOT


@pytest.fixture(scope="module")
def under_jax(tmp_path_factory):
    """The numbers of a process with JAX, in which TensorFlow cannot be imported."""
    path = tmp_path_factory.mktemp("jax") / "numbers.npz"
    environment = os.environ | {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiles in less time
        "PYTHONPATH": str(ROOT),
    }
    subprocess.run([sys.executable, number_cases.__file__, path], env=environment, check=True, timeout=600)
    with np.load(path) as arrays:
        return dict(arrays)


# Of the largest number in an array. A scale is 2 to the power of a float32.
DIGITS = {"loss_scales": 3e-5}


@pytest.mark.slow
@pytest.mark.parametrize("case", number_cases.CASES)
def test_numbers_are_the_same_under_jax_without_tensorflow(under_jax, case):
    for name, value in number_cases.CASES[case]().items():
        expected, found = np.asarray(value), under_jax[f"{case}/{name}"]
        assert found.dtype.kind == expected.dtype.kind, name
        error = DIGITS.get(case, 1e-6) * np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=error, err_msg=name)
