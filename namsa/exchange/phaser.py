"""phaser 0.3 (phaserEM): patterns.h5, first.h5 with probe and object, and phaser.yaml.

phaser centres a raster scan of n rows on row n / 2. The middle of a cutout of n pixels lies at (n -
1) / 2 for it, and the probe's centre at n // 2: with an even n, the object lies half a pixel
further than the positions say.
"""

from pathlib import Path

import h5py
import numpy as np

from namsa.exchange.first_object import PhaseImage
from namsa.exchange.task import PtychographyTask, write_yaml
from namsa.io.unfailing_file import create_hdf5

PADDING = 5  # pixels of the object around what the probes cover
GROUP = 32  # patterns at once
COMMAND = "phaser run phaser.yaml"
FILES = ("first.h5", "phaser.yaml")
KEY_FILE = "phaser.yaml"


def write(task: PtychographyTask, folder: Path, phase: PhaseImage | None) -> None:
    """Writes what phaser starts from, beside patterns.h5.

    Args:
        phase: The first object. `None` leaves phaser's own.
    """
    with create_hdf5(folder / "first.h5") as (file, _):
        text = h5py.string_dtype("utf-8")
        file.create_dataset("type", (), text, "phaser_state")
        file.create_dataset("version", (), text, "0.2")
        file["wavelength"] = task.wavelength
        _write_probe(file.create_group("probe"), task)
        if phase is not None:
            _write_object(file.create_group("object"), task, phase)
    write_yaml(
        folder / "phaser.yaml",
        "phaser 0.3: run `phaser run phaser.yaml` in this folder",
        _plan(task),
    )


def _extent(task: PtychographyTask) -> float:
    """Returns the sides of the probe's window in the digits of phaser, which compares them with its
    own.
    """
    return task.wavelength / (task.pixel_mrad * 1e-3)


def _write_probe(group: h5py.Group, task: PtychographyTask) -> None:
    """Writes the probe."""
    extent = np.full(2, _extent(task))
    group["type"] = "pixelated"
    group["data"] = task.probe()[None]
    group["extent"] = extent
    group["sampling"] = extent / task.pattern_shape


def _write_object(group: h5py.Group, task: PtychographyTask, phase: PhaseImage) -> None:
    """Writes the object on pixels that cover all probes."""
    shape = np.asarray(task.pattern_shape)
    pixel = _extent(task) / shape
    rows, columns = task.scan.shape[:2]
    middle = task.to_detector(np.asarray([rows / 2, columns / 2]) * task.scan.scan_step_angstrom)
    positions = task.positions() - middle
    padding = _extent(task) / 2 + (PADDING + 1) * pixel
    corner = positions.min(0) - padding
    height, width = (np.ceil((positions.max(0) + padding - corner) / pixel) + 1).astype(int)
    pixels = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1)
    half = np.where(shape % 2 == 0, pixel / 2, 0.0)
    values = phase.at(task.to_scan(pixels * pixel + corner - half + middle)) / task.slices
    group["type"] = "pixelated"
    group["data"] = np.repeat(np.exp(1j * values)[None], task.slices, axis=0).astype(np.complex64)
    group["sampling"] = pixel
    group["corner"] = corner
    group["extent"] = pixel * (height, width)
    thicknesses = [task.slice_thickness_angstrom] * task.slices if task.slices > 1 else []
    group["thicknesses"] = np.asarray(thicknesses, np.float32)
    group["zs"] = np.arange(task.slices) * np.float32(task.slice_thickness_angstrom)


def _plan(task: PtychographyTask) -> dict[str, object]:
    """Returns phaser's plan."""
    if task.slices > 1:
        slices = {"n": task.slices, "slice_thickness": task.slice_thickness_angstrom}
    else:
        slices = None
    return {
        "file_type": "phaser_plan",
        "version": "1.0",
        "name": task.name,
        "raw_data": {
            "type": "manual",
            "path": "patterns.h5",
            "key": "patterns",
            "wavelength": task.wavelength,
            "diff_step": task.pixel_mrad,
            "adu": 1 / task.electrons,
            "det_flips": [False, False, bool(task.scan.flip)],
        },
        "init": {
            "state": "first.h5",
            "scan": {
                "type": "raster",
                "shape": list(task.scan.shape[:2]),
                "step_size": list(task.scan.scan_step_angstrom),
                "rotation": -task.scan.rotation_deg,
            },
        },
        **({"slices": slices} if slices else {}),
        "engines": [
            {
                "type": "conventional",
                "niter": task.iterations,
                "grouping": GROUP,
                "bwlim_frac": 1.0,
                "obj_pad_px": PADDING,
                "noise_model": {"type": "amplitude", "eps": 0.1},
                "solver": {"type": "epie", "beta_object": 1.0, "beta_probe": 0.1},
                "group_constraints": [],
                "iter_constraints": [],
                "update_probe": {"after": 5},
                "save": {"every": task.iterations},
                "save_images": {"every": task.iterations},
                "save_options": {"images": ["probe", "object_phase_sum"]},
            }
        ],
    }
