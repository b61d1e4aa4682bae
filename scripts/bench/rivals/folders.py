"""A stack as the folder from which PtyRAD or phaser starts, written by namsa's own export."""

from pathlib import Path

import h5py
import numpy as np

from namsa.exchange import phaser, ptyrad
from namsa.exchange.task import SIMULATED_ELECTRONS, PtychographyTask
from namsa.io.calibration import FourDData
from namsa.pixels import pattern_grid
from rivals.stacks import Image, Stack

WRITERS = {"ptyrad": ptyrad.write, "phaser": phaser.write}


def write_folder(
    program: str,
    stack: Stack,
    folder: Path,
    *,
    thickness_angstrom: float,
    slices: int,
    plane: float,
    c10: float,
    iterations: int,
) -> None:
    """Writes a stack for a program.

    Args:
        program: Key of `WRITERS`.
        stack: The patterns and what is told of them.
        folder: Where to write.
        thickness_angstrom: Of the specimen.
        slices: Of the object.
        plane: Where the slices lie within their thickness, 0 at the front.
        c10: Defocus of the first probe, Å; it has no other aberrations.
        iterations: The largest number of iterations.
    """
    told, detector = stack.provenance, pattern_grid(stack.provenance)
    scan = FourDData(
        data=stack.patterns.reshape(*told["scan_shape"], *stack.patterns.shape[1:]),
        scan_step_angstrom=(stack.frame.step[0], stack.frame.step[1]),
        scan_origin_angstrom=(0.0, 0.0),
        pixel_mrad=(detector.step[0], detector.step[1]),
        energy_ev=told["energy_ev"],
        semiangle_mrad=told["semiangle_mrad"],
        centre_pixels=(-detector.origin[0] / detector.step[0], -detector.origin[1] / detector.step[1]),
        rotation_deg=0.0,
        flip=False,
        normalised=True,
    )
    # `PtychographyTask` puts a single slice into the middle and several to their fronts.
    focus = (plane - 0.5 * (slices == 1)) * thickness_angstrom / slices
    electrons = counted_electrons(stack.patterns) or SIMULATED_ELECTRONS
    task = PtychographyTask(scan, "stack", {"C10": c10 + focus}, thickness_angstrom, slices, iterations, electrons)
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "patterns.h5", "w") as file:
        file["patterns"] = scan.data
    WRITERS[program](task, folder, None)


def counted_electrons(patterns: Image) -> float | None:
    """Electrons per pattern of counted patterns, which are multiples of one electron; `None` of noiseless ones."""
    least = patterns[patterns > 0].min()
    counts = patterns[: max(1, len(patterns) // 16)] / least
    return float(1 / least) if np.allclose(counts, np.round(counts), atol=1e-2) else None
