"""Backends where CuPy is installed and there is no device: the processor computes."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from namsa.errors import InputError
from namsa.physics.backend import free_device_memory, resolve_backend


def test_cupy_without_a_device_is_left_alone(monkeypatch):
    def no_device():
        raise RuntimeError("CUDA driver version is insufficient")

    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=no_device)))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    free_device_memory()
    assert resolve_backend("auto") is np
    with pytest.raises(InputError, match=r"CuPy cannot use CUDA \(CUDA driver version is insufficient\): use backend"):
        resolve_backend("cupy")
