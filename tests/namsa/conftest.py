"""Fixtures of the simulator's tests."""

import pytest


@pytest.fixture
def cupy():
    """CuPy, where there is a CUDA device."""
    module = pytest.importorskip("cupy")
    try:
        module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError as fault:
        pytest.skip(f"no CUDA device: {fault}")
    return module
