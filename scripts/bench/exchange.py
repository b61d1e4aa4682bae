"""Runs the programs of ptychography on what `namsa export --to` writes, with right and with wrong
conventions.

    python scripts/bench/exchange.py --work DIR --phaser ENV/bin --py4dstem ENV/bin --ptyrad ENV/bin
    --quantem ENV/bin

The stack is SrTiO3, 16 Å thick, with missing columns; its detector is flipped, turned by 25° and
off its centre. Each program starts with the right numbers, with the angle, the exchange of axes or
the defocus of the other sign, and with the true density as first object. "ratio": the largest, over
programs, of the last error with the right numbers over the smallest with wrong ones; below 1 all
conventions are right. Each of ENV is an environment with one program: phaserEM, py4DSTEM, quantem,
or PtyRAD (on a CPU without the package accelerate).
"""

import argparse
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import frame
import h5py
import numpy as np
import numpy.typing as npt
from reality_specimens import perovskite
from scipy.ndimage import map_coordinates

import namsa
from namsa.base.pixels import PixelGrid
from namsa.exchange.export import export_ptychography
from namsa.io import hdf5
from namsa.io.calibration import CalibrationOverrides
from namsa.physics import density_target
from namsa.physics.grid import Grid
from namsa.physics.optics import wavelength_angstrom

SIDE = 3.905
PIXELS = 96
KEPT = 64
ELECTRONS = np.float32(1e5)
TURN_DEG = 25.0
DEFOCUS = 100.0
STEP = 0.8
SCAN = (14, 18)
ORIGIN = np.array([4.0, 8.0])
Positions = npt.NDArray[np.float64]  # (..., 2), as (y, x), Å
Program = Literal["ptyrad", "phaser", "py4dstem", "quantem"]


@dataclass(frozen=True)
class Convention:
    """Numbers that a program starts with; the defaults are the right ones."""

    rotation_deg: float = TURN_DEG
    flip: bool = True
    defocus_angstrom: float = DEFOCUS
    density: bool = False  # the true density is the first object


CONVENTIONS = {
    "right": Convention(),
    "angle": Convention(rotation_deg=-TURN_DEG),
    "flip": Convention(flip=False),
    "defocus": Convention(defocus_angstrom=-DEFOCUS),
    "first object": Convention(density=True),
}
WRONG = ("angle", "flip", "defocus")


@dataclass(frozen=True)
class Runner:
    """Command of a program, and the pattern of its iterations' errors in its output."""

    command: Sequence[str]
    pattern: str


RUNNERS: dict[Program, Runner] = {
    "py4dstem": Runner(["python", "reconstruct.py"], r"(?<=error )[\d. ]+"),
    "phaser": Runner(["phaser", "run", "phaser.yaml"], r"Error: ([\d.e+-]+)"),
    "ptyrad": Runner(["ptyrad", "run", "ptyrad.yaml", "--gpuid", "cpu"], r"Total Loss: ([\d.]+)"),
    "quantem": Runner(["python", "reconstruct.py"], r"(?<=loss )[\de.+ -]+"),
}


def main() -> None:
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    calibration = make_stack(options.work)
    results: dict[str, dict[str, list[float]]] = {}
    for program in RUNNERS:
        environment = getattr(options, program)
        if environment is None:
            continue
        results[program] = {}
        for name in CONVENTIONS:
            folder = export(options, program, name, calibration)
            errors = errors_of(program, environment.absolute(), folder)
            results[program][name] = [errors[0], errors[-1]]
            print(
                f"{program:9s} {name:13s} first {errors[0]:.4g} last {errors[-1]:.4g}", flush=True
            )
    ratios = []
    for cases in results.values():
        least_wrong = min(cases[name][1] for name in WRONG)
        ratios.append(cases["right"][1] / least_wrong)
    frame.finish(options, {"ratio": max(ratios, default=None), "errors": results})


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=10)
    for program in RUNNERS:
        parser.add_argument(f"--{program}", type=Path, metavar="ENV/bin")
    return parser.parse_args()


def export(
    options: argparse.Namespace, program: Program, name: str, calibration: CalibrationOverrides
) -> Path:
    """Writes the files of a program under a convention; returns their folder."""
    convention = CONVENTIONS[name]
    folder: Path = options.work / f"{program}-{name.replace(' ', '-')}"
    overrides = replace(calibration, rotation_deg=convention.rotation_deg, flip=convention.flip)
    export_ptychography(
        options.work / "scan.h5",
        program,
        folder,
        overrides=overrides,
        defocus_angstrom=convention.defocus_angstrom,
        thickness_angstrom=4 * SIDE,
        iterations=options.iterations,
        density=options.work / "density.h5" if convention.density else None,
        formula="SrTiO3" if convention.density else None,
    )
    return folder


def in_cell(scan_yx: Positions) -> Positions:
    """Positions in the scan's frame in that of the cell, which is the detector's."""
    angle = np.deg2rad(TURN_DEG)
    y = scan_yx[..., 0]
    x = scan_yx[..., 1]
    return (
        np.stack([y * np.cos(angle) + x * np.sin(angle), x * np.cos(angle) - y * np.sin(angle)], -1)
        + ORIGIN
    )


def make_stack(work: Path) -> CalibrationOverrides:
    """Writes scan.h5 and density.h5; returns the calibration."""
    cell = perovskite("Sr", "Ti", "O", SIDE).repeat((6, 6, 4))
    row = (abs(cell.positions - 2 * SIDE) < (0.1, 4.5, np.inf)).all(axis=1) & (cell.symbols == "Sr")
    atoms = cell[~row]
    sample = namsa.simulate(
        atoms,
        energy_ev=200e3,
        semiangle_mrad=20.0,
        grid_shape=(PIXELS, PIXELS),
        positions_angstrom=in_cell(np.argwhere(np.ones(SCAN)) * STEP),
        aberrations={"C10": -DEFOCUS},
        scan_shape=SCAN,
    )
    y = PIXELS // 2 - KEPT // 2 - 1
    x = PIXELS // 2 - KEPT // 2 + 2
    patterns = sample.cbed.reshape(*SCAN, PIXELS, PIXELS)[..., y : y + KEPT, x : x + KEPT]
    with h5py.File(work / "scan.h5", "w") as file:
        file["scan"] = ELECTRONS * patterns.transpose(0, 1, 3, 2)
    extent = float(atoms.cell.lengths()[0])
    grid = Grid((PIXELS, PIXELS), (extent, extent))
    limit = 2 * 20e-3 / wavelength_angstrom(200e3)
    density = density_target.on_grid(
        density_target.band_limited(sample.density.astype(float), grid, limit)
    )
    pixels = PixelGrid((0.3, 0.3), (-1.2, -1.2))
    at = np.stack(np.meshgrid(*pixels.coordinates((44, 54)), indexing="ij"), -1)
    image = map_coordinates(
        density, np.moveaxis(in_cell(at) * PIXELS / extent, -1, 0), order=3, mode="grid-wrap"
    )
    hdf5.write_images(
        work / "density.h5", "reconstruction", {"density": (image, "e/Å²")}, pixels, {}
    )
    sampling_y, sampling_x = sample.provenance["detector_sampling_mrad"]
    return CalibrationOverrides(
        scan_step_angstrom=STEP,
        pixel_mrad=(sampling_y, sampling_x),
        energy_ev=200e3,
        semiangle_mrad=20.0,
        centre_pixels=(PIXELS // 2 - x, PIXELS // 2 - y),
        rotation_deg=TURN_DEG,
        flip=True,
    )


def errors_of(program: Program, environment: Path, folder: Path) -> list[float]:
    """Runs a program; returns the error of each iteration."""
    runner = RUNNERS[program]
    done = subprocess.run(
        [environment / runner.command[0], *runner.command[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = []
    for numbers in re.findall(runner.pattern, done.stdout + done.stderr):
        errors += [float(number) for number in numbers.split()]
    if done.returncode or not errors:
        raise SystemExit(f"{program} failed in {folder}: {done.stderr[-1000:]}")
    return errors


if __name__ == "__main__":
    main()
