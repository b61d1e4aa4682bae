"""Runs abTEM for simulate_gpu.py, in an environment of its own: abTEM is GPL and no part of namsa.

Reads one JSON workload per line and answers each with one JSON line. Patterns are copied to the
memory of the host, as namsa's are. The potential is built before the time is taken, and a first,
small scan loads libraries and plans transforms.
"""

import json
import sys
import time
from typing import Any

import abtem
import ase
import numpy as np


def run(job: dict[str, Any]) -> dict[str, Any]:
    abtem.config.set({"device": "gpu", "precision": "float32"})
    atoms = ase.Atoms(job["numbers"], positions=job["positions"], cell=job["cell"], pbc=True)
    potential = abtem.Potential(
        atoms,
        gpts=tuple(job["grid_shape"][::-1]),
        slice_thickness=job["slice_thickness_angstrom"],
        parametrization="lobato",
        projection="infinite",
    ).build(lazy=False)
    probe = abtem.Probe(energy=job["energy_ev"], semiangle_cutoff=job["semiangle_mrad"])
    positions = np.asarray(job["probes_yx"])[:, ::-1]

    def scan(count: int) -> np.ndarray:
        return (
            probe.scan(
                potential,
                scan=abtem.CustomScan(positions[:count]),
                detectors=abtem.PixelatedDetector(max_angle=None),
                max_batch=job["batch"],
                lazy=True,
            )
            .compute(progress_bar=False, scheduler="single-threaded")
            .to_cpu()
            .array
        )

    scan(job["batch"])
    start = time.perf_counter()
    patterns = scan(len(positions))
    seconds = time.perf_counter() - start
    return {
        "propagation_s": seconds,
        "slices": len(potential),
        "transmitted": float(patterns[0].sum(dtype=np.float64)),
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
