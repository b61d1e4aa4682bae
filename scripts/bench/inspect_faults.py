"""Loss of a reconstruction by faults of a scan, with and without `namsa inspect`.

    scripts/uv run python scripts/bench/inspect_faults.py [--materials NAME ...] [--each]
        [--scan-shape Y X] [--json]

Scans of crystals that are simulated for the network (steps of 0.4 Å, 10⁶ electrons per pattern) are
read by a detector with pixels of 1 mrad. Then they get faults: the optic axis 2 pixels beside the
detector's centre of mass of a perfect scan, the detector turned by 7°, a stated step that is 3 %
too long, an ellipse of 5 %, six hot and two dead pixels, and a disk that moves by 1.2 pixels over
the scan. All faults are at work together; with --each, one at a time, too. The table has the SSIM
of `train.reconstruct` against the true density at the positions that the result claims: of the
perfect scan, of the faulty scan with the stated numbers alone, and with the calibration of
`namsa.inspect`, which is told the crystal. "ratio" is the largest SSIM that is lost with the
calibration.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import frame

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import ase
import numpy as np
from scipy import ndimage

import namsa
from namsa.config.instrument import Detector
from namsa.inspection.orientation import frame_matrix
from namsa.io.calibration import CalibrationOverrides, circle_from_ellipse
from namsa.io.calibration_file import read_calibration
from namsa.physics import density_target
from namsa.physics.grid import Grid

if TYPE_CHECKING:  # imported where it is needed
    from train.apply.models import Model

ENERGY_EV = 200e3
SEMIANGLE_MRAD = 20.0
STEP = 0.4
PIXEL_MRAD = 1.0
# pixels: of the simulation, and of the detector that has the faults
SOURCE = 121
DETECTOR = (112, 116)
SCAN = (44, 48)
ELECTRONS = 1e6
MATERIALS = ("NaCl-225-cF8", "Si-227-cF8", "CsCl-221-cP2")
MEASURED = ("centre_pixels", "rotation_deg", "mirrored", "scan_step_angstrom", "ellipse_ratio")
MAX_Q = 1.25  # 1/Å, of the network's target


@dataclass(frozen=True)
class Faults:
    """Faults of a scan; the defaults are those of a perfect one."""

    shift: tuple[float, float] = (0.0, 0.0)  # of the optic axis, pixels
    rotation_deg: float = 0.0
    step: float = 1.0  # stated over true
    ellipse: tuple[float, float] | None = None  # ratio, direction of the major axis in degrees
    bad_pixels: bool = False
    # pixels over the scan
    descan: tuple[tuple[float, float], tuple[float, float]] = ((0.0, 0.0), (0.0, 0.0))


ALL = Faults((1.5, -1.3), 7.0, 1.03, (1.05, 30.0), True, ((1.0, -0.3), (0.2, 0.6)))
EACH = {
    "centre": Faults(shift=ALL.shift),
    "rotation": Faults(rotation_deg=ALL.rotation_deg),
    "step": Faults(step=ALL.step),
    "ellipse": Faults(ellipse=ALL.ellipse),
    "bad pixels": Faults(bad_pixels=True),
    "descan": Faults(descan=ALL.descan),
}


Truth = Callable[[np.ndarray, np.ndarray], np.ndarray]  # density at rows and columns, Å


def main() -> int:
    options = parse()
    import train

    model = train.load_model(options.checkpoint)
    crystals = {material.name: material.atoms for material in namsa.builtin_materials()}
    cases = {"all": ALL}
    if options.each:
        cases |= EACH
    rows = []
    for name in options.materials:
        atoms = crystals[name]
        patterns, truth = simulate(atoms, options.thickness_angstrom, tuple(options.scan_shape))
        perfect = reconstruct(record(patterns, Faults(), 0), model, Faults(), None, truth)
        for label, faults in cases.items():
            row = inspected(record(patterns, faults, seed=1), faults, atoms, model, truth)
            row["lost"] = perfect - row["inspected"]
            rows.append({"material": name, "faults": label, "perfect": perfect, **row})
    show(rows)
    frame.finish(options, {"ratio": max(frame.column(rows, "lost")), "rows": rows})
    return 0


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument(
        "--materials", nargs="+", default=MATERIALS, metavar="NAME", help="built-in crystals"
    )
    parser.add_argument("--thickness-angstrom", type=float, default=50.0)
    parser.add_argument(
        "--scan-shape", type=int, nargs=2, default=SCAN, metavar=("Y", "X"), help="positions"
    )
    parser.add_argument("--checkpoint", default="200kv-20mrad-reality", metavar="NAME")
    parser.add_argument("--each", action="store_true", help="each fault alone, too")
    return parser.parse_args()


def inspected(
    scan: np.ndarray, faults: Faults, atoms: ase.Atoms, model: "Model", truth: Truth
) -> dict[str, Any]:
    """Returns the SSIM of a scan with faults, without and with its inspection."""
    faulty = reconstruct(scan, model, faults, None, truth)
    started = time.perf_counter()
    inspection = namsa.inspect(scan, crystal=atoms, **stated(faults))
    seconds = time.perf_counter() - started
    return {
        "faulty": faulty,
        "inspected": reconstruct(scan, model, faults, inspection, truth),
        "seconds": seconds,
        "calibration": {key: inspection.calibration.value(key) for key in MEASURED},
    }


def show(rows: list[dict[str, Any]]) -> None:
    names = ("perfect", "faulty", "inspected", "lost")
    table = frame.table("material", "faults", *names, "inspect, s")
    for row in rows:
        ssims = [f"{row[name]:.3f}" for name in names]
        table.add_row(row["material"], row["faults"], *ssims, f"{row['seconds']:.1f}")
    frame.show(table)


def simulate(
    atoms: ase.Atoms, thickness_angstrom: float, scan_shape: tuple[int, int]
) -> tuple[np.ndarray, Truth]:
    """Returns patterns (sy, sx, SOURCE, SOURCE), and the true density as a function of rows and
    columns in Å.
    """
    cell = namsa.make_supercell(
        atoms, zone_axis=(0, 0, 1), lateral_angstrom=(26, 26), thickness_angstrom=thickness_angstrom
    ).atoms
    lx, ly, _ = cell.cell.lengths()
    grid_y, grid_x = (int(np.ceil(length / 0.13 / 4)) * 4 for length in (ly, lx))
    grid = Grid((grid_y, grid_x), (ly, lx))
    y, x = (np.arange(n) * STEP for n in scan_shape)
    positions = np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)
    sample = namsa.simulate(
        cell,
        energy_ev=ENERGY_EV,
        semiangle_mrad=SEMIANGLE_MRAD,
        grid_shape=grid.shape,
        positions_angstrom=positions,
        scan_shape=scan_shape,
        detector=Detector(shape=(SOURCE, SOURCE), pixel_mrad=PIXEL_MRAD),
    )
    coefficients = density_target.band_limited(sample.density.astype(np.float64), grid, MAX_Q)
    patterns = sample.cbed.reshape(*scan_shape, SOURCE, SOURCE)
    return patterns, lambda y, x: density_target.at_positions(coefficients, grid, y, x)


def record(patterns: np.ndarray, faults: Faults, seed: int) -> np.ndarray:
    """Returns what a detector with faults counts, (sy, sx, dy, dx)."""
    to_circle = circle_from_ellipse(faults.ellipse) if faults.ellipse else np.eye(2)
    matrix = frame_matrix(faults.rotation_deg, False) @ to_circle
    middle = (np.array(DETECTOR) - 1) / 2
    source = (SOURCE - 1) / 2
    rng = np.random.default_rng(seed)
    scan_shape = patterns.shape[:2]
    counts = np.zeros((*scan_shape, *DETECTOR), np.float32)
    for row, column in np.ndindex(*scan_shape):
        share = np.array([row, column]) / (np.array(scan_shape) - 1) - 0.5
        centre = middle + faults.shift + np.array(faults.descan) @ share
        seen = ndimage.affine_transform(
            patterns[row, column],
            matrix,
            source - matrix @ centre,
            DETECTOR,
            order=1,
            mode="constant",
        )
        counts[row, column] = rng.poisson(np.maximum(seen, 0) * ELECTRONS)
    if faults.bad_pixels:
        level = float(counts.mean(axis=(0, 1)).max())
        places = np.stack([rng.integers(20, n - 20, 8) for n in DETECTOR], axis=1)
        for index, (y, x) in enumerate(places):
            counts[:, :, y, x] = 0 if index < 2 else rng.poisson(4 * level, scan_shape)
    return counts


def stated(faults: Faults) -> dict[str, Any]:
    """Returns what the file of a scan with faults says."""
    step = STEP * faults.step
    return {
        "energy_ev": ENERGY_EV,
        "semiangle_mrad": SEMIANGLE_MRAD,
        "scan_step_angstrom": (step, step),
        "pixel_mrad": (PIXEL_MRAD, PIXEL_MRAD),
    }


def reconstruct(
    scan: np.ndarray,
    model: "Model",
    faults: Faults,
    inspection: namsa.Inspection | None,
    truth: Truth,
) -> float:
    """Returns the SSIM of a reconstruction against the truth at the positions that it claims."""
    import train
    from train.measure.metrics import image_metrics

    calibration = CalibrationOverrides(**stated(faults))
    if inspection is not None:
        with tempfile.TemporaryDirectory() as folder:  # through the file, as a user has it
            path = Path(folder) / "calibration.json"
            inspection.save(path)
            calibration = replace(read_calibration(path).overrides(), energy_ev=ENERGY_EV)
    result = train.reconstruct(scan, model, calibration, beam_intensity=ELECTRONS)
    y, x = result.pixels.coordinates(result.density.shape)
    ssim = image_metrics(result.density, truth(y, x), huber_delta=1.0)["ssim"]
    return float(ssim or 0)


if __name__ == "__main__":
    sys.exit(main())
