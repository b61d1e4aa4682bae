"""Exported files describe the patterns: each program's own forward model, written out here,
gives them again.

The programs themselves are run by hand (docs/exchange.md says how, and what came out).
"""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
import yaml
from phase_object import (
    CENTRE,
    DEFOCUS,
    ENERGY,
    PIXEL,
    SEMIANGLE,
    STEP,
    TURN,
    WAVELENGTH,
    N,
    patterns,
    potential,
)

from namsa.base.pixels import PixelGrid
from namsa.exchange import py4dstem
from namsa.exchange.export import export_ptychography
from namsa.exchange.first_object import conversion, phase_image
from namsa.exchange.task import PtychographyTask
from namsa.io import hdf5
from namsa.io.calibration import CalibrationOverrides
from namsa.io.reading import open_patterns
from namsa.physics import optics
from namsa.physics.form_factors import electron, xray
from namsa.physics.grid import Grid
from namsa.physics.potential import POTENTIAL_CONSTANT


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


def difference(computed, expected):
    """Relative, of amplitudes."""
    return np.linalg.norm(np.sqrt(computed) - np.sqrt(expected)) / np.linalg.norm(np.sqrt(expected))


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
    coefficients = py4dstem.aberrations(task)
    assert coefficients["phi12"] == pytest.approx(np.deg2rad(TURN if flip else 90 - TURN))
    wave = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(task.probe())))
    wave = wave.T if flip else wave
    rows, columns = np.meshgrid(*2 * [(np.arange(N) - N // 2) * PIXEL * 1e-3], indexing="ij")
    alpha = np.hypot(rows, columns)
    phase = optics.aberration_phase(alpha, np.arctan2(columns, rows), WAVELENGTH, coefficients)
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
    phase_values = phase.at(np.stack(np.meshgrid(y, x, indexing="ij"), -1))
    np.testing.assert_allclose(
        phase_values - phase_values.mean(), expected - expected.mean(), atol=0.02 * np.ptp(expected)
    )


# ---- An export over an earlier one
# ---------------------------------------------------------------------------------------------


# ---- Stores of HyperSpy
# ---------------------------------------------------------------------------------------------
