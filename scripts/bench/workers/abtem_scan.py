"""Simulates a 4D-STEM scan by abTEM for `specimen_scans.py`, in an environment of its own: abTEM is
GPL and no part of namsa.

Reads one JSON object per line and answers with the file of the patterns, `(n, dy, dx)`, of a square
detector about the optic axis: fractions of the beam.
"""

import json
import sys
import tempfile
from typing import Any

import abtem
import ase
import numpy as np

BATCH = 64


def run(job: dict[str, Any]) -> dict[str, str]:
    """Returns the file of the mean patterns over the snapshots and the weighted focus values."""
    abtem.config.set({"device": "cpu", "precision": "float32", "fft": "fftw", "fftw.threads": 1})
    total = np.zeros(())
    for positions in job["snapshots"]:
        atoms = ase.Atoms(job["numbers"], positions=positions, cell=job["cell"], pbc=True)
        atoms.wrap()
        potential = abtem.Potential(
            atoms,
            sampling=job["pixel_angstrom"],
            slice_thickness=job["slice_angstrom"],
            parametrization="kirkland",
            projection="finite",
        ).build(lazy=False)
        for aberrations, weight in zip(job["aberrations"], job["weights"], strict=True):
            total = total + weight * scanned(potential, aberrations, job)
    with tempfile.NamedTemporaryFile(suffix=".npy", delete=False) as file:
        np.save(file, total / len(job["snapshots"]))
    return {"patterns": file.name}


def scanned(
    potential: "abtem.PotentialArray", aberrations: dict[str, float], job: dict[str, Any]
) -> np.ndarray:
    """Returns the patterns of a scan, `(n, dy, dx)`."""
    tilt_y, tilt_x = job["tilt_yx_mrad"]
    probe = abtem.Probe(
        energy=job["energy_ev"],
        semiangle_cutoff=job["semiangle_mrad"],
        aberrations=aberrations,
        tilt=(-tilt_x, -tilt_y),
    )
    probe.grid.match(potential)
    scan = abtem.CustomScan(np.asarray(job["positions_yx_angstrom"])[:, ::-1])
    measured = probe.scan(
        potential,
        scan=scan,
        detectors=abtem.PixelatedDetector(max_angle=None),
        max_batch=BATCH,
        lazy=False,
    )
    images = measured.array.swapaxes(-1, -2)  # abTEM's arrays are [x, y]
    spacing_x, spacing_y = measured.angular_sampling  # mrad
    count = job["detector_pixels"]
    along_y = shares(images.shape[1], spacing_y, count, job["pixel_mrad"])
    along_x = shares(images.shape[2], spacing_x, count, job["pixel_mrad"])
    return np.einsum("dy,nyx,ex->nde", along_y, images, along_x, optimize=True)


def shares(count: int, spacing: float, pixels: int, pixel_mrad: float) -> np.ndarray:
    """Returns the share of each angle, `count` of them about zero, in each pixel of a detector."""
    middle = (np.arange(count) - count // 2) * spacing
    edges = (np.arange(pixels + 1) - pixels / 2) * pixel_mrad
    covered = np.clip(edges[:, None], middle - spacing / 2, middle + spacing / 2)
    return np.diff(covered, axis=0) / spacing


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
