"""Exports of scans for other programs: what is refused, replaced, left by a kill or a full disk."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import ase
import h5py
import numpy as np
import pytest
import yaml
from phase_object import (
    ENERGY,
    SEMIANGLE,
)

import namsa
from namsa import InputError
from namsa.base import folders, locks
from namsa.config.instrument import Detector
from namsa.exchange.export import export_ptychography
from namsa.exchange.zspy import write_zspy
from namsa.io import hdf5
from namsa.io.calibration import CalibrationOverrides
from namsa.io.reading import open_patterns

KNOWN = {"scan_step_angstrom": 1.0, "pixel_mrad": 1.0, "energy_ev": 1e5, "semiangle_mrad": 2.0}


def scan_file(folder, stack):
    folder.mkdir(exist_ok=True)
    with h5py.File(folder / "scan.h5", "w") as file:
        file["scan"] = stack
    return folder / "scan.h5"


@pytest.mark.parametrize(
    ("known", "program", "changes", "message"),
    [
        ({"pixel_mrad": (1.0, 1.1)}, "phaser", {}, "square ones"),
        ({}, "phaser", {"density": "density.h5"}, "give --formula"),
        ({}, "phaser", {"slices": 3}, "give --thickness-angstrom"),
        ({}, "tem", {}, "ptyrad, phaser, py4dstem, quantem"),
        ({}, "phaser", {"iterations": 0}, "iterations is 0"),
        ({"scan_step_angstrom": (1.0, 1.1)}, "py4dstem", {}, "py4DSTEM takes one step"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path, known, program, changes, message):
    scan = scan_file(tmp_path, np.ones((2, 3, 8, 8), np.float32))
    with pytest.raises(InputError, match=message):
        export_ptychography(
            scan,
            program,
            tmp_path / "out",
            overrides=CalibrationOverrides(**KNOWN | known),
            **changes,
        )


def test_almost_equal_steps_become_one_and_what_was_assumed_is_said(tmp_path):
    notes = []
    export_ptychography(
        scan_file(tmp_path, np.ones((2, 3, 8, 8), np.float32)),
        "py4dstem",
        tmp_path / "out",
        overrides=CalibrationOverrides(**KNOWN | {"scan_step_angstrom": (0.4, 0.4005)}),
        on_note=notes.append,
    )
    written = json.loads((tmp_path / "out/parameters.json").read_text())
    assert written["scan_step_angstrom"] == pytest.approx([0.40025] * 2, rel=1e-5)
    assert sum(word in "".join(notes) for word in ("not mirrored", "middle", "one step")) == 3


@pytest.mark.parametrize(("shape", "centre"), [((8, 11), (3.0, 6.0)), ((9, 6), (5.0, 2.5))])
def test_patterns_for_ptyrad_are_cropped_about_the_optic_axis(tmp_path, shape, centre):
    stack = np.random.default_rng(0).random((2, 3, *shape), np.float32)
    notes = []
    export_ptychography(
        scan_file(tmp_path, stack),
        "ptyrad",
        tmp_path / "out",
        overrides=CalibrationOverrides(**KNOWN, centre_pixels=centre, rotation_deg=3.0, flip=True),
        on_note=notes.append,
    )
    with h5py.File(tmp_path / "out/patterns.h5") as file:
        written = file["patterns"][:]
    assert len(notes) == 1
    side = min(shape)
    assert written.shape == (2, 3, side, side)
    row, column = (
        int(np.clip(round(at - side // 2), 0, n - side))
        for at, n in zip(centre, shape, strict=True)
    )
    np.testing.assert_array_equal(written, stack[:, :, row : row + side, column : column + side])


def test_patterns_are_copied_a_few_rows_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("namsa.exchange.patterns.READ_BYTES", 1)
    stack = np.arange(3 * 4 * 5 * 5, dtype=np.uint16).reshape(3, 4, 5, 5)
    known = CalibrationOverrides(**KNOWN)
    command = export_ptychography(
        scan_file(tmp_path, stack), "phaser", tmp_path / "out", overrides=known
    )[0]
    assert command == "phaser run phaser.yaml"
    with h5py.File(tmp_path / "out/patterns.h5") as file:
        np.testing.assert_array_equal(file["patterns"], stack)
        assert file["patterns"].dtype == np.uint16


def square_and_round_patterns(folder):
    """Carbon with pixels of 0.2 Å, whose band of 2/3 ends at 41.8 mrad (200 keV): on the grid, and
    on a detector.
    """
    atoms = ase.Atoms("C", positions=[(4, 4, 1)], cell=[8, 8, 2], pbc=True)
    positions = []
    for y in (3, 4):
        for x in (3, 4, 5):
            positions.append((float(y), float(x)))
    shown = {
        "energy_ev": ENERGY,
        "semiangle_mrad": SEMIANGLE,
        "positions_angstrom": positions,
        "scan_shape": (2, 3),
    }
    for name, detector in (("whole", None), ("cut", Detector(max_angle_mrad=28))):
        sample = namsa.simulate(
            atoms, grid_shape=(40, 40), accuracy=None, detector=detector, **shown
        )
        sample.save(folder / f"{name}.h5")


def test_pixels_beyond_the_band_limit_are_warned_of(tmp_path):
    """The band is a circle of 2/3 of the side of the patterns: π/9 of their area."""
    square_and_round_patterns(tmp_path)
    with pytest.warns(namsa.SimulationWarning, match=r"band limit of 41\.8 mrad") as warned:
        export_ptychography(tmp_path / "whole.h5", "phaser", tmp_path / "out")
    share = float(re.search(r"([\d.]+)% of the detector's pixels", str(warned[0].message))[1])
    assert share == pytest.approx(100 * (1 - np.pi / 9), abs=1)
    with namsa.read(tmp_path / "whole.h5") as recording:
        assert any("band limit of 41.8 mrad" in note for note in recording.notes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_ptychography(tmp_path / "cut.h5", "phaser", tmp_path / "out")
    pytest.importorskip("zarr")
    with (
        open_patterns(tmp_path / "whole.h5") as scan,
        pytest.warns(namsa.SimulationWarning, match=r"band limit of 41\.8 mrad"),
    ):
        write_zspy(scan, tmp_path / "scan.zspy")


def test_values_that_are_not_finite_are_warned_of(tmp_path):
    stack = np.ones((2, 3, 8, 8), np.float32)
    stack[1, 2, 3, 4] = np.nan
    path = scan_file(tmp_path, stack)
    with pytest.warns(namsa.SimulationWarning, match="1 pattern with values that are not finite"):
        export_ptychography(
            path, "phaser", tmp_path / "out", overrides=CalibrationOverrides(**KNOWN)
        )


def exported_to(folder, program, scan, **changes):
    overrides = CalibrationOverrides(**KNOWN)
    return export_ptychography(scan, program, folder, overrides=overrides, **changes)


class Killed(BaseException):
    """The process is killed."""


@pytest.mark.slow
def test_an_export_that_is_killed_over_an_earlier_one_mixes_nothing(tmp_path, monkeypatch):
    """The parameter file, from which the program starts, is there with its own patterns alone."""
    old, new = (
        scan_file(tmp_path / name, np.full((2, 3, 8, 8), value, np.float32))
        for name, value in (("old", 1), ("new", 2))
    )
    replace_file = Path.replace
    states = set()
    for steps in range(6):
        folder = tmp_path / str(steps)
        exported_to(folder, "ptyrad", old, iterations=10)
        left = iter(range(steps))

        def replace_some(path, target, left=left):
            if next(left, None) is None:
                raise Killed
            return replace_file(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace_some)
            try:
                exported_to(folder, "ptyrad", new, iterations=20)
                ended = True
            except Killed:
                ended = False
        states.add(export_state(folder))
        exported_to(folder, "ptyrad", new, iterations=20)
        assert export_state(folder) == (20, 2.0)
        assert {path.name for path in folder.iterdir()} == {
            "patterns.h5",
            "first.h5",
            "ptyrad.yaml",
        }
        if ended:
            break
    assert ended
    assert states <= {(10, 1.0), None, (20, 2.0)}
    assert None in states  # it was killed in between


def export_state(folder):
    """Iterations and intensity of the export in a folder; `None` without a parameter file."""
    if not (folder / "ptyrad.yaml").exists():
        return None
    iterations = yaml.safe_load((folder / "ptyrad.yaml").read_text())["recon_params"]["NITER"]
    with h5py.File(folder / "patterns.h5") as file:
        return iterations, float(file["patterns"][0, 0, 0, 0])


def test_an_export_replaces_no_files_that_belong_to_one_for_another_program(tmp_path):
    scan = scan_file(tmp_path, np.ones((2, 3, 8, 8), np.float32))
    exported_to(tmp_path / "out", "phaser", scan)
    with pytest.raises(InputError, match="holds an export for phaser, whose patterns.h5 would be"):
        exported_to(tmp_path / "out", "ptyrad", scan)
    exported_to(tmp_path / "script", "py4dstem", scan)
    exported_to(tmp_path / "script", "quantem", scan)  # of the same names, which all are replaced


def test_two_exports_to_one_place_at_once_are_told_so_early(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_S", 0.0)
    scan = scan_file(tmp_path, np.ones((2, 3, 8, 8), np.float32))
    with (
        folders.open_folder(tmp_path / "out"),
        pytest.raises(InputError, match="is writing to .*out: wait until it ends"),
    ):
        exported_to(tmp_path / "out", "phaser", scan)


FULL = """
import resource, sys
from namsa.cli.parser import main
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # as a disk that is full
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", ["ptyrad", "phaser", "py4dstem", "quantem", "zspy"])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, program):
    if program == "zspy":
        pytest.importorskip("zarr")
    scan = tmp_path / "scan.h5"
    with hdf5.write_file(scan) as (file, _):
        file["scan"] = np.random.default_rng(1).random((4, 4, 32, 32), np.float32)
    out = tmp_path / ("out.zspy" if program == "zspy" else "out")
    known = ["--scan-step-angstrom", "0.5", "--pixel-mrad", "1.5"]
    known += ["--energy-ev", "200000", "--semiangle-mrad", "20"]
    line = [sys.executable, "-c", FULL, "export", scan, "--to", program, "--out", out, *known]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"error: cannot write [^\n]*: File too large\n", done.stderr), done.stderr
    assert not out.exists() or not list(out.iterdir())
    assert {path.name for path in tmp_path.iterdir()} <= {"scan.h5", "out"}
