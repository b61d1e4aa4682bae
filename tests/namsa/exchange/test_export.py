"""What is exported describes the patterns: each program's own forward model, written out here,
gives them again.

The programs themselves are run by hand (docs/exchange.md says how, and what came out).
"""

import json
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import ase
import h5py
import numpy as np
import pytest
import yaml
from measured_files import assert_reads

import namsa
from namsa import InputError
from namsa.base import folders, locks
from namsa.base.leftovers import hidden_name
from namsa.base.pixels import PixelGrid
from namsa.config.instrument import Detector
from namsa.exchange import py4dstem
from namsa.exchange.export import export_ptychography
from namsa.exchange.first_object import conversion, phase_image
from namsa.exchange.task import PtychographyTask
from namsa.exchange.zspy import write_zspy
from namsa.io import hdf5
from namsa.io.calibration import CalibrationOverrides
from namsa.io.reading import open_patterns
from namsa.physics import optics
from namsa.physics.form_factors import electron, xray
from namsa.physics.grid import Grid
from namsa.physics.potential import POTENTIAL_CONSTANT

N = 48
SCAN = (5, 7)
STEP = (0.7, 0.9)
TURN = 25.0
DEFOCUS = 90.0
ENERGY = 200e3
SEMIANGLE = 20.0
WAVELENGTH = optics.wavelength_angstrom(ENERGY)
PIXEL = WAVELENGTH / 16.0 * 1e3  # mrad: the window is 16 Å wide
CENTRE = (N // 2 - 2, N // 2 + 1)  # of the patterns as they are stored


def potential(yx):
    """A smooth potential without symmetry in the scan's frame, rad at these energies of order 1."""
    spots = [(0.5, 1.0, 0.8), (2.2, 3.1, 0.5), (1.1, 4.6, 0.3)]
    return sum(
        a * np.exp(-((yx[..., 0] - y) ** 2 + (yx[..., 1] - x) ** 2) / 0.8) for y, x, a in spots
    )


def turned(yx):
    """The scan's frame in the detector's, where the waves are."""
    angle = np.deg2rad(TURN)
    y = yx[..., 0]
    x = yx[..., 1]
    return np.stack(
        [y * np.cos(angle) + x * np.sin(angle), x * np.cos(angle) - y * np.sin(angle)], -1
    )


def patterns(flip):
    """Patterns of a phase object by optics alone: a probe at each position of a window that moves
    with it.
    """
    coordinate = (np.arange(N) - N // 2) * 16.0 / N
    window = np.stack(np.meshgrid(coordinate, coordinate, indexing="ij"), -1)
    angle = np.deg2rad(TURN)
    k = np.fft.fftfreq(N, 16.0 / N)
    alpha = WAVELENGTH * np.hypot(k[:, None], k[None])
    inside = np.clip((SEMIANGLE - 1e3 * alpha) / PIXEL + 0.5, 0, 1)
    probe = np.fft.fftshift(
        np.fft.ifft2(inside * np.exp(1j * np.pi / WAVELENGTH * DEFOCUS * alpha**2))
    )
    probe /= np.linalg.norm(probe)
    stack = np.zeros((*SCAN, N, N), np.float32)
    for i, j in np.ndindex(*SCAN):
        y, x = np.moveaxis(window + turned(np.array([i * STEP[0], j * STEP[1]])), -1, 0)
        at = np.stack(
            [y * np.cos(angle) - x * np.sin(angle), x * np.cos(angle) + y * np.sin(angle)], -1
        )
        wave = np.fft.fft2(probe * np.exp(1j * potential(at)))
        pattern = np.fft.fftshift(abs(wave) ** 2) / N**2
        centre = CENTRE[::-1] if flip else CENTRE
        pattern = np.roll(pattern, np.subtract(centre, N // 2), (0, 1))
        stack[i, j] = pattern.T if flip else pattern
    return stack


@pytest.fixture(scope="module", params=[False, True], ids=["straight", "flipped"])
def exported(request, tmp_path_factory):
    """A folder of exports with a first object, and the patterns."""
    folder = tmp_path_factory.mktemp("export")
    patcher = pytest.MonkeyPatch()
    with patcher.context() as patch:
        stack = patterns(request.param)
        with h5py.File(folder / "scan.h5", "w") as file:
            file["scan"] = stack
        coordinates = [np.arange(60) * 0.25 - 4.5, np.arange(72) * 0.25 - 5.0]
        image = potential(np.stack(np.meshgrid(*coordinates, indexing="ij"), -1))
        pixels = PixelGrid((0.25, 0.25), (-4.5, -5.0))
        hdf5.write_images(
            folder / "density.h5", "reconstruction", {"density": (image, "e/Å²")}, pixels, {}
        )
        # The conversion has tests of its own: here the density is the phase.
        patch.setattr(
            "namsa.inverse.mott_bethe.DensityToPotential.potential",
            lambda self, density, grid, scale=1.0: density / optics.interaction_constant(ENERGY),
        )
        for program in ("ptyrad", "phaser", "py4dstem", "quantem"):
            step = STEP if program != "py4dstem" else (STEP[0], STEP[0])  # which takes one step
            export_ptychography(
                folder / "scan.h5",
                program,
                folder / program,
                overrides=CalibrationOverrides(
                    scan_step_angstrom=step,
                    pixel_mrad=PIXEL,
                    energy_ev=ENERGY,
                    semiangle_mrad=SEMIANGLE,
                    centre_pixels=CENTRE,
                    rotation_deg=TURN,
                    flip=request.param,
                ),
                defocus_angstrom=DEFOCUS,
                density=folder / "density.h5",
                formula="Si",
            )
    return folder, stack


def difference(found, expected):
    """Relative, of amplitudes."""
    return np.linalg.norm(np.sqrt(found) - np.sqrt(expected)) / np.linalg.norm(np.sqrt(expected))


def test_ptyrad_forward_model_gives_the_patterns(exported):
    folder, stack = exported
    params = yaml.safe_load((folder / "ptyrad/ptyrad.yaml").read_text())["init_params"]
    with (
        h5py.File(folder / "ptyrad/first.h5") as file,
        h5py.File(folder / "ptyrad/patterns.h5") as data,
    ):
        tensors = {name: item[()] for name, item in file["optimizable_tensors"].items()}
        start = file["model_attributes/crop_pos"][()]
        measured = data["patterns"][()].reshape(params["meas_reshape"])
    np.testing.assert_array_equal(measured, stack.reshape(-1, N, N))
    if params["meas_flipT"][2]:
        measured = measured.transpose(0, 2, 1)
    waves = tensors["obja"][0, 0] * np.exp(1j * tensors["objp"][0, 0])
    ky = np.fft.fftfreq(N)[:, None]
    kx = np.fft.fftfreq(N)[None]
    for shift, (y, x), pattern in zip(tensors["probe_pos_shifts"], start, measured, strict=True):
        probe = np.fft.ifft2(
            np.fft.fft2(tensors["probe"][0]) * np.exp(-2j * np.pi * (shift[0] * ky + shift[1] * kx))
        )
        psi = probe * waves[y : y + N, x : x + N]
        assert psi.shape == (N, N)
        assert difference(np.fft.fftshift(abs(np.fft.fft2(psi, norm="ortho")) ** 2), pattern) < 0.02
    assert params["probe_aberrations"]["C10"] == -DEFOCUS
    assert params["meas_calibration"] == {"mode": "da", "value": pytest.approx(PIXEL)}


def test_phaser_forward_model_gives_the_patterns(exported):
    folder, _ = exported
    plan = yaml.safe_load((folder / "phaser/phaser.yaml").read_text())
    scan = plan["init"]["scan"]
    raw = plan["raw_data"]
    with (
        h5py.File(folder / "phaser/first.h5") as file,
        h5py.File(folder / "phaser/patterns.h5") as data,
    ):
        item = file["object"]
        waves = item["data"][0]
        corner = item["corner"][()]
        sampling = item["sampling"][()]
        probe = file["probe/data"][0]
        extent = file["probe/extent"][()]
        measured = data["patterns"][()].reshape(-1, N, N)
    assert extent[0] == raw["wavelength"] / (
        raw["diff_step"] * 1e-3
    )  # to the last bit, or patterns are resampled
    if raw["det_flips"][2]:
        measured = measured.transpose(0, 2, 1)
    angle = np.deg2rad(scan["rotation"])
    raster = (np.argwhere(np.ones(scan["shape"])) - np.array(scan["shape"]) / 2) * scan["step_size"]
    positions = (
        raster @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]).T
    )
    ky = np.fft.fftfreq(N)[:, None]
    kx = np.fft.fftfreq(N)[None]
    for position, pattern in zip(positions, measured, strict=True):
        exact = (position - corner) / sampling - (N - 1) / 2
        y, x = np.round(exact).astype(int)
        shift = exact - (y, x)
        moved = np.fft.ifft2(
            np.fft.fft2(probe) * np.exp(-2j * np.pi * (shift[0] * ky + shift[1] * kx))
        )
        psi = moved * waves[y : y + N, x : x + N]
        assert difference(np.fft.fftshift(abs(np.fft.fft2(psi, norm="ortho")) ** 2), pattern) < 0.02


@pytest.mark.parametrize("program", ["py4dstem", "quantem"])
def test_py4dstem_and_quantem_get_namsas_own_numbers(exported, program):
    folder = exported[0] / program
    parameters = json.loads((folder / "parameters.json").read_text())
    assert (parameters["rotation_deg"], parameters["aberrations"]) == (TURN, {"C10": -DEFOCUS})
    assert tuple(parameters["centre_pixels"]) == CENTRE
    with np.load(folder / "first_phase.npz") as file:
        (y, x), (dy, dx) = file["origin"], file["step"]
        at = np.array([[1.0, 2.0], [2.25, 3.0]])
        rows, columns = np.round((at - (y, x)) / (dy, dx)).astype(int).T
        phase = file["phase"][rows, columns]
    expected = potential(at)
    assert phase[1] - phase[0] == pytest.approx(expected[1] - expected[0], abs=0.01)
    code = (folder / "reconstruct.py").read_text()
    assert f"import {program}" in code or f"from {program}" in code.lower()
    compile(code, "reconstruct.py", "exec")


@pytest.mark.parametrize("flip", [False, True])
def test_py4dstem_and_quantem_count_azimuths_from_the_rows_of_recorded_patterns(flip):
    """Their probe, A exp(−iχ) with the azimuth arctan2(column, row), is the wave that the patterns
    are of.
    """
    known = {
        "scan_step_angstrom": STEP,
        "pixel_mrad": PIXEL,
        "energy_ev": ENERGY,
        "semiangle_mrad": SEMIANGLE,
    }
    scan = open_patterns(
        np.ones((2, 2, N, N)), CalibrationOverrides(**known, rotation_deg=TURN, flip=flip)
    )
    scan = replace(scan, centre_pixels=(N // 2, N // 2))
    along_x = {
        "C10": -DEFOCUS,
        "C12": 40.0,
        "phi12": 0.0,
        "C21": 900.0,
        "phi21": 0.0,
    }  # of the scan
    task = PtychographyTask(
        scan, "a", along_x, thickness_angstrom=None, slices=1, iterations=1, electrons=1.0
    )
    found = py4dstem.aberrations(task)
    assert found["phi12"] == pytest.approx(np.deg2rad(TURN if flip else 90 - TURN))
    wave = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(task.probe())))
    wave = wave.T if flip else wave
    rows, columns = np.meshgrid(*2 * [(np.arange(N) - N // 2) * PIXEL * 1e-3], indexing="ij")
    alpha = np.hypot(rows, columns)
    phase = optics.aberration_phase(alpha, np.arctan2(columns, rows), WAVELENGTH, found)
    inside = alpha < 0.95e-3 * SEMIANGLE
    np.testing.assert_allclose(np.angle(wave * np.exp(1j * phase))[inside], 0, atol=1e-4)


def test_a_density_becomes_the_phase_of_its_element():
    grid = Grid((24, 30), (6.0, 7.5))
    transfer = conversion("Au", 3.0)
    q2 = grid.squared_frequency()
    inside = q2 < 1.5**2
    density = np.fft.ifft2(np.where(inside, xray(79, q2, "lobato"), 0)).real
    window = 0.5 * (1 + np.cos(np.pi * np.sqrt(q2) / 3.0))
    density = np.fft.fftshift(
        np.fft.ifft2(np.fft.fft2(density) * window).real
    )  # in the middle, away from the mirrors
    expected = np.fft.fftshift(
        np.fft.ifft2(np.where(inside, POTENTIAL_CONSTANT * electron(79, q2, "lobato"), 0)).real
    )
    expected *= optics.interaction_constant(ENERGY)
    phase = phase_image(density, PixelGrid((0.25, 0.25), (1.0, 2.0)), transfer, ENERGY)
    y, x = PixelGrid((0.25, 0.25), (1.0, 2.0)).coordinates(density.shape)
    found = phase.at(np.stack(np.meshgrid(y, x, indexing="ij"), -1))
    np.testing.assert_allclose(
        found - found.mean(), expected - expected.mean(), atol=0.02 * np.ptp(expected)
    )


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
    positions = [(float(y), float(x)) for y in (3, 4) for x in (3, 4, 5)]
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
    with pytest.warns(namsa.SimulationWarning, match=r"band limit of 41\.8 mrad") as found:
        export_ptychography(tmp_path / "whole.h5", "phaser", tmp_path / "out")
    share = float(re.search(r"([\d.]+)% of the detector's pixels", str(found[0].message))[1])
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


# ---- An export over an earlier one
# ---------------------------------------------------------------------------------------------


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


# ---- Stores of HyperSpy
# ---------------------------------------------------------------------------------------------


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
