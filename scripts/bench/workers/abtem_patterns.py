"""Runs abTEM for speed against namsa, in an environment of its own: abTEM is GPL and no part of
namsa.

Reads one JSON workload per line and answers each with one JSON line. The settings are those with
which abTEM was fastest: on processors one thread per transform, small batches, one Dask thread per
core, and the potential built before the probes are scanned. On a GPU ("fft" is null) patterns are
copied to the memory of the host, as namsa's are, and a first, small scan loads libraries and plans
transforms. "slices" are the thicknesses of the slices, Å, or one for all of them. "total_s" is the
time from atoms to patterns, "propagation_s" that of the scan.
"""

import json
import sys
import time
from typing import Any

import abtem
import abtem.core.fft
import ase
import dask
import numpy as np


def mkl(x: np.ndarray, name: str, overwrite_x: bool, **options: Any) -> np.ndarray:
    """abTEM 1.0.11 passes mkl_fft an argument that it no longer has; in place where abTEM asks for
    it.
    """
    import mkl_fft

    return getattr(mkl_fft, name)(x, out=x if overwrite_x else None, **options)


def run(job: dict[str, Any]) -> dict[str, Any]:
    on_gpu = job["fft"] is None
    abtem.config.set({"device": "gpu" if on_gpu else "cpu", "precision": "float32"})
    if not on_gpu:
        abtem.config.set({"fft": job["fft"], "fftw.threads": 1})
    if job["fft"] == "mkl":
        abtem.core.fft._mkl_fft_dispatch = mkl
    atoms = ase.Atoms(job["numbers"], positions=job["positions"], cell=job["cell"], pbc=True)
    atoms.positions[:, 2] += job["above_face_angstrom"]
    slices = job["slices"]
    start = time.perf_counter()
    potential = abtem.Potential(
        atoms,
        gpts=tuple(job["grid_shape"][::-1]),
        slice_thickness=tuple(slices) if isinstance(slices, list) else slices,
        parametrization="lobato",
        projection="infinite",
    ).build(lazy=False)
    built = time.perf_counter()
    positions = np.asarray(job["probes_yx"])[:, ::-1]
    if on_gpu:
        scan(potential, positions[: job["batch"]], job)
    began = time.perf_counter()
    patterns = scan(potential, positions, job)
    seconds = time.perf_counter() - began
    if "patterns" in job:
        np.save(job["patterns"], patterns.swapaxes(-1, -2))  # abTEM's arrays are [x, y]
    return {
        "total_s": built - start + seconds,
        "propagation_s": seconds,
        "slices": len(potential),
    }


def scan(
    potential: "abtem.PotentialArray", positions: np.ndarray, job: dict[str, Any]
) -> np.ndarray:
    """Returns the patterns of probes at positions as (x, y), Å, in the memory of the host."""
    probe = abtem.Probe(energy=job["energy_ev"], semiangle_cutoff=job["semiangle_mrad"])
    measured = probe.scan(
        potential,
        scan=abtem.CustomScan(positions),
        detectors=abtem.PixelatedDetector(max_angle=None),
        max_batch=job["batch"],
        lazy=True,
    )
    if job["fft"] is None:
        done = measured.compute(progress_bar=False, scheduler="single-threaded")
        return done.to_cpu().array
    with dask.config.set(scheduler="threads", num_workers=job["threads"]):
        return measured.compute(progress_bar=False).array


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
