"""Fixtures of the simulator's tests."""

import fake_samples
import pytest

from namsa.cli.parser import main
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
    """The materials of `fake_samples`, whose size nobody samples: it is another than that of real
    ones.
    """
    monkeypatch.setattr(listing, "select_materials", lambda *_, **__: fake_samples.MATERIALS)
    monkeypatch.setattr(disk_space, "SAMPLED", 0)


@pytest.fixture
def run(capsys):
    """Runs a command; returns its exit code and what it wrote to stderr, at most one line of
    bounded length.
    """

    def run(words):
        capsys.readouterr()
        code = main(words)
        line = capsys.readouterr().err
        assert len(line.splitlines()) <= 1
        assert len(line) < 1000
        return code, line

    return run
