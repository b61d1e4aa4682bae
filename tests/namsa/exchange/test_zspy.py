"""A .zspy store holds the scan with its axes; HyperSpy itself opens it by hand (docs/exchange.md)."""

import numpy as np
import pytest

import namsa
from namsa import InputError
from namsa.exchange import zspy
from namsa.exchange.zspy import write_zspy
from namsa.io.calibration import CalibrationOverrides
from namsa.io.reading import open_patterns

pytest.importorskip("zarr")

STACK = np.arange(3 * 4 * 6 * 5, dtype=np.uint16).reshape(3, 4, 6, 5)
KNOWN = CalibrationOverrides(
    scan_step_angstrom=(0.5, 0.75), pixel_mrad=(1.5, 2.0), energy_ev=80e3, semiangle_mrad=2.5, centre_pixels=(2.0, 3.0)
)


def test_a_store_is_read_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(zspy, "READ_BYTES", 1)
    with open_patterns(STACK, KNOWN) as scan:
        write_zspy(scan, tmp_path / "scan.zspy")
    assert [path.name for path in tmp_path.iterdir()] == ["scan.zspy"]
    with namsa.read(tmp_path / "scan.zspy") as found:
        np.testing.assert_array_equal(found.read(slice(0, 3), slice(0, 4)), STACK)
        assert found.scan_step_angstrom == (0.5, 0.75)
        assert found.pixel_mrad == (1.5, 2.0)
        assert found.centre_pixels == (2.0, 3.0)


def test_nothing_is_replaced(tmp_path):
    (tmp_path / "scan.zspy").mkdir()
    (tmp_path / "scan.zspy" / "mine.txt").touch()
    with open_patterns(STACK, KNOWN) as scan:
        with pytest.raises(InputError, match="is there already"):
            write_zspy(scan, tmp_path / "scan.zspy")
        with pytest.raises(InputError, match=r"end it in \.zspy"):
            write_zspy(scan, tmp_path / "scan.zarr")
