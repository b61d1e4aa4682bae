"""Runs namsa for equal_error.py.

Reads one JSON workload per line and answers each with one JSON line. A workload without
"grid_shape" gets the pixels and slices that namsa chooses for "reach_mrad". With "patterns", the
patterns are written to that file.
"""

import json
import sys
import time
from typing import Any

import ase
import numpy as np

import namsa


def run(job: dict[str, Any]) -> dict[str, Any]:
    atoms = ase.Atoms(job["numbers"], positions=job["positions"], cell=job["cell"], pbc=True)
    start = time.perf_counter()
    sample = namsa.simulate(
        atoms,
        energy_ev=job["energy_ev"],
        semiangle_mrad=job["semiangle_mrad"],
        aperture_edge="amplitude",  # that of abTEM
        grid_shape=job.get("grid_shape") and tuple(job["grid_shape"]),
        positions_angstrom=job["probes_yx"],
        band_fraction=job.get("band_fraction"),
        reach_mrad=job.get("reach_mrad"),
        backend="cpu",
    )
    done = time.perf_counter()
    if "patterns" in job:
        np.save(job["patterns"], sample.cbed)
    return {
        "total_s": done - start,
        "slices": sample.provenance["slices"],
        "grid_shape": list(sample.cbed.shape[1:]),
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
