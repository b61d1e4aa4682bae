"""Runs abTEM for exactness.py, in an environment of its own: abTEM is GPL and no part of namsa.

Reads one JSON job per line and answers each with one JSON line. A job with "patterns" is a
reference case, whose patterns are written to that file; without it, only the potential is built and
timed.

Of abTEM's own options, only `precision` affects exactness with the infinite projection. A potential
that is built on a grid "oversampling" times finer is cropped to the frequencies of the case with
abTEM's own `fft_crop`; abTEM has no option for this. "slices" names a file of potential slices from
elsewhere.
"""

import json
import sys
import time
from typing import Any

import abtem
import ase
import numpy as np
from abtem.core.fft import fft2, fft_crop, ifft2

ABOVE_FACE_ANGSTROM = 1e-6


def run(job: dict[str, Any]) -> dict[str, Any]:
    abtem.config.set(
        {"device": "cpu", "precision": job["precision"], "fft": "fftw", "fftw.threads": 1}
    )
    atoms = ase.Atoms(job["numbers"], positions=job["positions"], cell=job["cell"], pbc=True)
    # Atoms on the face of two slices belong to the upper one, also where rounding left them just
    # below it: the infinite projection depends on nothing else of z.
    atoms.positions[:, 2] += ABOVE_FACE_ANGSTROM
    start = time.perf_counter()
    potential = build(atoms, job)
    seconds = time.perf_counter() - start
    if "patterns" in job:
        probe = abtem.Probe(
            energy=job["energy_ev"],
            semiangle_cutoff=job["semiangle_mrad"],
            aberrations=job["aberrations"],
        )
        scan = abtem.CustomScan(np.asarray(job["probes_yx"])[:, ::-1])
        found = probe.scan(
            potential, scan=scan, detectors=abtem.PixelatedDetector(max_angle=None), lazy=False
        )
        np.save(
            job["patterns"], np.asarray(found.array).swapaxes(-1, -2)
        )  # abTEM's arrays are [x, y]
    return {"potential_s": seconds, "slices": len(potential), "version": abtem.__version__}


def build(atoms: ase.Atoms, job: dict[str, Any]) -> Any:
    wanted = tuple(job["grid_shape"][::-1])
    lengths = np.asarray(job["cell"])
    if "slices" in job:
        slices = np.load(job["slices"], allow_pickle=False).swapaxes(-1, -2)
        return abtem.PotentialArray(
            slices, slice_thickness=lengths[2] / len(slices), extent=tuple(lengths[:2])
        )
    times = job.get("oversampling", 1)
    built = abtem.Potential(
        atoms,
        gpts=tuple(times * n for n in wanted),
        slice_thickness=job["slice_thickness_angstrom"],
        parametrization="lobato",
        projection="infinite",
    ).build(lazy=False)
    if times == 1:
        return built
    cut = (
        np.stack([ifft2(fft_crop(fft2(v.astype(complex)), wanted)).real for v in built.array])
        / times**2
    )
    return abtem.PotentialArray(cut, slice_thickness=built.slice_thickness, extent=built.extent)


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
