"""PtyRAD 1.0: patterns.h5, first.h5 with probe, positions and object, and ptyrad.yaml.

PtyRAD takes square patterns. A probe at position p covers pixels p to p + n of the object, its
centre at p + n // 2.
"""

from pathlib import Path

import numpy as np

from namsa.base.errors import InputError
from namsa.exchange.first_object import PhaseImage
from namsa.exchange.task import PtychographyTask, write_yaml
from namsa.io.unfailing_file import create_hdf5

MARGIN = 0.1  # of the object's side, around what the probes cover, as PtyRAD has it
BATCH = 32
COMMAND = "ptyrad run ptyrad.yaml"
FILES = ("first.h5", "ptyrad.yaml")
KEY_FILE = "ptyrad.yaml"


def write(task: PtychographyTask, folder: Path, phase: PhaseImage | None) -> None:
    """Writes what PtyRAD starts from, beside patterns.h5.

    Args:
        phase: The first object. `None` leaves PtyRAD's own.

    Raises:
        InputError: If patterns are not square.
    """
    n, columns = task.pattern_shape
    if n != columns:
        raise InputError(
            f"PtyRAD takes square patterns, and these have {n} × {columns} pixels: crop them"
        )
    pixel = task.object_pixel_angstrom[0]
    positions = task.positions() / pixel
    span = np.ceil(positions.max(0) - positions.min(0) + n)
    margin = np.ceil(MARGIN * span)
    corner = positions.min(0) - margin  # of the object, in pixels from the first position's window
    with create_hdf5(folder / "first.h5") as (file, _):
        start = np.round(positions - corner)
        file["model_attributes/crop_pos"] = start.astype(np.int16)
        file["optimizable_tensors/probe_pos_shifts"] = (positions - corner - start).astype(
            np.float32
        )
        file["optimizable_tensors/probe"] = task.probe()[None]
        if phase is not None:
            height, width = (span + 2 * margin).astype(int)
            pixels = np.stack(
                np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1
            )
            at = task.to_scan((pixels + corner - n // 2) * pixel)
            slices = np.repeat(phase.at(at)[None, None] / task.slices, task.slices, axis=1)
            slices = slices.astype(np.float32)
            file["optimizable_tensors/objp"] = slices
            file["optimizable_tensors/obja"] = np.ones_like(slices)
    write_yaml(
        folder / "ptyrad.yaml",
        "PtyRAD 1.0: run `ptyrad run ptyrad.yaml` in this folder",
        _params(task, phase),
    )


def _params(task: PtychographyTask, phase: PhaseImage | None) -> dict[str, object]:
    """Returns PtyRAD's parameters; those that are left out have its defaults."""
    rows, columns = task.scan.shape[:2]
    n = task.pattern_shape[0]
    start: dict[str, object] = {"probe_source": "PtyRAD", "probe_params": "first.h5"}
    start |= {"pos_source": "PtyRAD", "pos_params": "first.h5", "pos_scan_rand_std": None}
    if phase is not None:
        start |= {"obj_source": "PtyRAD", "obj_params": "first.h5"}
    return {
        "init_params": {
            "probe_kv": task.scan.energy_ev / 1e3,
            "probe_conv_angle": task.scan.semiangle_mrad,
            "probe_aberrations": {"C10": task.effective_aberrations["C10"]},
            "probe_pmode_max": 1,
            "meas_Npix": n,
            "meas_calibration": {"mode": "da", "value": task.pixel_mrad},
            "meas_params": {"path": "patterns.h5", "key": "patterns"},
            "meas_reshape": [rows * columns, *task.scan.shape[2:]],
            "meas_flipT": [0, 0, int(task.scan.flip)],
            "pos_N_scans": rows * columns,
            "pos_N_scan_slow": rows,
            "pos_N_scan_fast": columns,
            "pos_scan_step_size": task.scan.scan_step_angstrom[1],
            "obj_Nlayer": task.slices,
            "obj_slice_thickness": task.slice_thickness_angstrom,
            **start,
        },
        "recon_params": {
            "NITER": task.iterations,
            "BATCH_SIZE": {"size": BATCH, "grad_accumulation": 1},
            "SAVE_ITERS": task.iterations,
            "output_dir": "output",
            "recon_dir_affixes": ["minimal"],
        },
    }
