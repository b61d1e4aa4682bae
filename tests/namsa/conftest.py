"""Fixtures of the simulator's tests."""

import fake_samples
import pytest

from namsa.dataset import disk_space, listing


@pytest.fixture
def cupy():
    """CuPy, where there is a CUDA device."""
    module = pytest.importorskip("cupy")
    try:
        module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError as fault:
        pytest.skip(f"no CUDA device: {fault}")
    return module


@pytest.fixture
def fake_materials(monkeypatch):
    """The materials of `fake_samples`, whose size nobody samples: it is another than that of real ones."""
    monkeypatch.setattr(listing, "select_materials", lambda *_, **__: fake_samples.MATERIALS)
    monkeypatch.setattr(disk_space, "SAMPLED", 0)
