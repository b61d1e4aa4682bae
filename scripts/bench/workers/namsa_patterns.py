"""Runs namsa for simulate_vs_abtem.py, in a process of its own so that its peak memory is known.

Reads one JSON workload per line and answers each with one JSON line.
"""

import json
import resource
import sys
import time
from typing import Any

import ase
import numpy as np

import namsa


def run(job: dict[str, Any]) -> dict[str, Any]:
    atoms = ase.Atoms(job["numbers"], positions=job["positions"], cell=job["cell"], pbc=True)
    times: dict[str, float] = {}
    start = time.perf_counter()
    sample = namsa.simulate(
        atoms,
        energy_ev=job["energy_ev"],
        semiangle_mrad=job["semiangle_mrad"],
        grid_shape=tuple(job["grid_shape"]),
        positions_angstrom=job["probes_yx"],
        slice_thickness_angstrom=job["slice_thickness_angstrom"],
        backend="cpu",
        engine=job["engine"],
        on_progress=lambda stage, done, total: times.update({stage: time.perf_counter()}),
    )
    done = time.perf_counter()
    return {
        "total_s": done - start,
        "propagation_s": times["probes"] - times["slices"],
        "slices": sample.provenance["slices"],
        "transmitted": float(sample.cbed.sum(dtype=np.float64)) / len(sample.cbed),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "engine": sample.provenance["engine"],
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
