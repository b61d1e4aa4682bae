"""Stores of HyperSpy: what is written is read, and nothing is replaced."""

import numpy as np
import pytest
from measured_files import assert_reads

from namsa import InputError
from namsa.base.leftovers import hidden_name
from namsa.exchange.zspy import write_zspy
from namsa.io.calibration import CalibrationOverrides
from namsa.io.reading import open_patterns

STACK = np.arange(3 * 4 * 6 * 5, dtype=np.uint16).reshape(3, 4, 6, 5)
CALIBRATION = CalibrationOverrides(
    scan_step_angstrom=(0.5, 0.75),
    pixel_mrad=(1.5, 2.0),
    energy_ev=80e3,
    semiangle_mrad=2.5,
    centre_pixels=(2.0, 3.0),
)


def test_a_store_is_read_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr("namsa.exchange.patterns.READ_BYTES", 1)
    with open_patterns(STACK, CALIBRATION) as scan:
        write_zspy(scan, tmp_path / "scan.zspy")
    assert [path.name for path in tmp_path.iterdir()] == ["scan.zspy"]
    known = {
        "scan_step_angstrom": (0.5, 0.75),
        "pixel_mrad": (1.5, 2.0),
        "centre_pixels": (2.0, 3.0),
    }
    assert_reads(tmp_path / "scan.zspy", STACK, known)


def test_a_store_that_a_killed_process_has_left_is_removed_by_the_next(tmp_path):
    left = hidden_name(tmp_path / "scan.zspy")
    left = left.with_name(f"{left.name[:-24]}{2**22 + 1:08x}{left.name[-16:]}")  # of no process
    left.mkdir()
    (left / "zarr.json").touch()
    with open_patterns(STACK, CALIBRATION) as scan:
        write_zspy(scan, tmp_path / "scan.zspy")
    assert [path.name for path in tmp_path.iterdir()] == ["scan.zspy"]


def test_nothing_is_replaced(tmp_path):
    (tmp_path / "scan.zspy").mkdir()
    (tmp_path / "scan.zspy" / "mine.txt").touch()
    with open_patterns(STACK, CALIBRATION) as scan:
        with pytest.raises(InputError, match="is there already"):
            write_zspy(scan, tmp_path / "scan.zspy")
        with pytest.raises(InputError, match=r"end it in \.zspy"):
            write_zspy(scan, tmp_path / "scan.zarr")
