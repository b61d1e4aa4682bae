"""Runs the programs of ptychography on what `namsa export --to` writes, with right and with wrong conventions.

    python scripts/bench/exchange.py --work DIR --phaser ENV/bin --py4dstem ENV/bin --ptyrad ENV/bin --quantem ENV/bin

The stack is SrTiO3, 16 Å thick, with missing columns; its detector is flipped, turned by 25° and off its centre. Each
program starts with the right numbers, with the angle, the exchange of axes or the defocus of the other sign, and with
the true density as first object. "ratio": the largest, over programs, of the last error with the right numbers over the
smallest with wrong ones; below 1 all conventions are right. Each of ENV is an environment with one program: phaserEM,
py4DSTEM, quantem, or PtyRAD (on a CPU without the package accelerate).
"""

import argparse
import json
import re
import subprocess
from pathlib import Path

import h5py
import numpy as np
from ase.spacegroup import crystal
from scipy.ndimage import map_coordinates

import namsa
from namsa.exchange.export import export_ptychography
from namsa.io import hdf5
from namsa.io.calibration import CalibrationOverrides
from namsa.physics import density_target
from namsa.physics.grid import Grid
from namsa.physics.optics import wavelength_angstrom
from namsa.pixels import PixelGrid

SIDE, PIXELS, KEPT, ELECTRONS = 3.905, 96, 64, np.float32(1e5)
TURN_DEG, DEFOCUS, STEP, SCAN, ORIGIN = 25.0, 100.0, 0.8, (14, 18), np.array([4.0, 8.0])
CASES = {
    "right": {},
    "angle": {"rotation_deg": -TURN_DEG},
    "flip": {"flip": False},
    "defocus": {"defocus": -DEFOCUS},
    "first object": {"density": True},
}
COMMANDS = {
    "py4dstem": (["python", "reconstruct.py"], r"(?<=error )[\d. ]+"),
    "phaser": (["phaser", "run", "phaser.yaml"], r"Error: ([\d.e+-]+)"),
    "ptyrad": (["ptyrad", "run", "ptyrad.yaml", "--gpuid", "cpu"], r"Total Loss: ([\d.]+)"),
    "quantem": (["python", "reconstruct.py"], r"(?<=loss )[\de.+ -]+"),
}


def in_cell(scan_yx):
    """Positions in the scan's frame in that of the cell, which is the detector's."""
    angle = np.deg2rad(TURN_DEG)
    y, x = scan_yx[..., 0], scan_yx[..., 1]
    return np.stack([y * np.cos(angle) + x * np.sin(angle), x * np.cos(angle) - y * np.sin(angle)], -1) + ORIGIN


def make_stack(work):
    """Writes scan.h5 and density.h5; returns the calibration."""
    cell = crystal(
        ["Sr", "Ti", "O"],
        [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0)],
        spacegroup=221,
        cellpar=[SIDE, SIDE, SIDE, 90, 90, 90],
    ).repeat((6, 6, 4))
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
    y, x = PIXELS // 2 - KEPT // 2 - 1, PIXELS // 2 - KEPT // 2 + 2
    patterns = sample.cbed.reshape(*SCAN, PIXELS, PIXELS)[..., y : y + KEPT, x : x + KEPT]
    with h5py.File(work / "scan.h5", "w") as file:
        file["scan"] = ELECTRONS * patterns.transpose(0, 1, 3, 2)
    extent = float(atoms.cell.lengths()[0])
    grid = Grid((PIXELS, PIXELS), (extent, extent))
    limit = 2 * 20e-3 / wavelength_angstrom(200e3)
    density = density_target.on_grid(density_target.band_limited(sample.density.astype(float), grid, limit))
    pixels = PixelGrid((0.3, 0.3), (-1.2, -1.2))
    at = np.stack(np.meshgrid(*pixels.coordinates((44, 54)), indexing="ij"), -1)
    image = map_coordinates(density, np.moveaxis(in_cell(at) * PIXELS / extent, -1, 0), order=3, mode="grid-wrap")
    hdf5.write_images(work / "density.h5", "reconstruction", {"density": (image, "e/Å²")}, pixels, {})
    return {
        "scan_step_angstrom": STEP,
        "pixel_mrad": tuple(sample.provenance["detector_sampling_mrad"]),
        "energy_ev": 200e3,
        "semiangle_mrad": 20.0,
        "centre_pixels": (PIXELS // 2 - x, PIXELS // 2 - y),
        "rotation_deg": TURN_DEG,
        "flip": True,
    }


def errors(program, environment, folder):
    """The error of each iteration."""
    command, pattern = COMMANDS[program]
    done = subprocess.run(
        [environment / command[0], *command[1:]], cwd=folder, capture_output=True, text=True, check=False
    )
    found = [float(word) for each in re.findall(pattern, done.stdout + done.stderr) for word in each.split()]
    if done.returncode or not found:
        raise SystemExit(f"{program} failed in {folder}: {done.stderr[-1000:]}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="the last line is JSON in any case")
    for program in COMMANDS:
        parser.add_argument(f"--{program}", type=Path, metavar="ENV/bin")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    known = make_stack(options.work)
    results: dict[str, dict[str, list[float]]] = {}
    for program in COMMANDS:
        environment = getattr(options, program)
        if environment is None:
            continue
        for case, changes in CASES.items():
            numbers = known | {key: value for key, value in changes.items() if key in known}
            folder = options.work / f"{program}-{case.replace(' ', '-')}"
            given = {"density": options.work / "density.h5", "formula": "SrTiO3"} if "density" in changes else {}
            export_ptychography(
                options.work / "scan.h5",
                program,
                folder,
                overrides=CalibrationOverrides(**numbers),
                defocus_angstrom=changes.get("defocus", DEFOCUS),
                thickness_angstrom=4 * SIDE,
                iterations=options.iterations,
                **given,
            )
            found = errors(program, environment.absolute(), folder)
            results.setdefault(program, {})[case] = [found[0], found[-1]]
            print(f"{program:9s} {case:13s} first {found[0]:.4g} last {found[-1]:.4g}", flush=True)
    wrong = ("angle", "flip", "defocus")
    ratios = [cases["right"][1] / min(cases[case][1] for case in wrong) for cases in results.values()]
    print(json.dumps({"ratio": max(ratios, default=None), "errors": results}))


if __name__ == "__main__":
    main()
