"""Runs abTEM for speed against namsa, in an environment of its own: abTEM is GPL and no part of
namsa.

Reads one JSON workload per line and answers each with one JSON line. The settings are those with
which abTEM was fastest on this workload: one thread per transform, small batches, one Dask thread
per core, and the potential built before the probes are scanned. "slices" are
the thicknesses of the slices, Å.
"""

import json
import sys
import time
from typing import Any

import abtem
import abtem.core.fft
import ase
import dask
import mkl_fft
import numpy as np

BATCH = 16


def mkl(x: np.ndarray, name: str, overwrite_x: bool, **options: Any) -> np.ndarray:
    """abTEM 1.0.11 passes mkl_fft an argument that it no longer has; in place where abTEM asks for
    it.
    """
    return getattr(mkl_fft, name)(x, out=x if overwrite_x else None, **options)


def run(job: dict[str, Any]) -> dict[str, Any]:
    abtem.config.set(
        {
            "device": "cpu",
            "precision": "float32",
            "fft": job["fft"],
            "fftw.threads": 1,
        }
    )
    if job["fft"] == "mkl":
        abtem.core.fft._mkl_fft_dispatch = mkl
    atoms = ase.Atoms(job["numbers"], positions=job["positions"], cell=job["cell"], pbc=True)
    atoms.positions[:, 2] += job["above_face_angstrom"]
    start = time.perf_counter()
    potential = abtem.Potential(
        atoms,
        gpts=tuple(job["grid_shape"][::-1]),
        slice_thickness=tuple(job["slices"]),
        parametrization="lobato",
        projection="infinite",
    ).build(lazy=False)
    probe = abtem.Probe(energy=job["energy_ev"], semiangle_cutoff=job["semiangle_mrad"])
    scan = abtem.CustomScan(np.asarray(job["probes_yx"])[:, ::-1])
    with dask.config.set(scheduler="threads", num_workers=job["threads"]):
        patterns = probe.scan(
            potential,
            scan=scan,
            detectors=abtem.PixelatedDetector(max_angle=None),
            max_batch=BATCH,
            lazy=True,
        ).compute(progress_bar=False)
    done = time.perf_counter()
    if "patterns" in job:
        np.save(job["patterns"], patterns.array.swapaxes(-1, -2))  # abTEM's arrays are [x, y]
    return {"total_s": done - start, "slices": len(potential)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
