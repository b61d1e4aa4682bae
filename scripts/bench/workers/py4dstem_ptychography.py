"""Runs py4DSTEM for reconstruct_vs_rivals.py, in an environment of its own: py4DSTEM is GPL and no part of namsa.

The jobs and answers are those of workers/quantem_ptychography.py. The axis and the probe are given. Phases are sums
over slices, in rad.
"""

import time
from typing import Any

import matplotlib as mpl
import numpy as np
import py4DSTEM
from ptychography_jobs import answer_jobs, projected
from py4DSTEM.process.phase import MultislicePtychography, SingleslicePtychography

mpl.use("Agg")


def prepared(job: dict[str, Any]) -> Any:
    settings, patterns = job["settings"], np.load(job["stack"])
    slices = settings.get("slices", 1)
    cube = py4DSTEM.DataCube(data=patterns.astype(np.float32))
    cube.calibration.set_R_pixel_size(job["step_angstrom"][0])
    cube.calibration.set_R_pixel_units("A")
    cube.calibration.set_Q_pixel_size(job["pixel_mrad"][0])
    cube.calibration.set_Q_pixel_units("mrad")
    between = job["thickness_angstrom"] / slices
    options = {
        "datacube": cube,
        "energy": job["energy_ev"],
        "semiangle_cutoff": job["semiangle_mrad"],
        "rolloff": 1.0,
        "polar_parameters": {"C10": settings.get("C10", 0.0) + settings.get("plane", 0) * between},
        "object_padding_px": tuple(n // 2 + 1 for n in patterns.shape[2:]),
        "object_type": settings["object"],
        "verbose": False,
        "device": "cpu",
    }
    if slices > 1:
        ptychography = MultislicePtychography(num_slices=slices, slice_thicknesses=between, **options)
    else:
        ptychography = SingleslicePtychography(**options)
    axis = [np.full(patterns.shape[:2], (n - 1) / 2, np.float32) for n in patterns.shape[2:]]
    return ptychography.preprocess(
        force_com_rotation=0,
        force_com_transpose=False,
        force_com_shifts=axis,
        plot_center_of_mass=False,
        plot_rotation=False,
        plot_probe_overlaps=False,
    )


def run(job: dict[str, Any]) -> dict[str, Any]:
    settings = job["settings"]
    start = time.process_time()  # of all threads
    ptychography = prepared(job)
    options = {"step_size": settings["rate"], "fix_probe": not settings.get("probe")}
    names = ("object_positivity", "identical_slices", "kz_regularization_gamma")
    options |= {name: settings[name] for name in names if name in settings}
    phases, seconds, losses, done = [], [], [], 0
    for wanted in job["iterations"]:
        ptychography.reconstruct(
            num_iter=wanted - done,
            reset=done == 0,
            max_batch_size=settings.get("batch", 128),
            seed_random=done,
            progress_bar=False,
            **options,
        )
        losses += [float(error) for error in ptychography.error_iterations[-(wanted - done) :]]
        done = wanted
        phases.append(projected(np.atleast_3d(ptychography.object.T).T))
        seconds.append(time.process_time() - start)
    sampling, first = np.array(ptychography.sampling), np.asarray(ptychography._positions_px)[0]
    np.savez(job["result"], phases=np.array(phases, np.float32), step=sampling, first=first * sampling)
    return {"cpu_seconds": seconds, "losses": losses}


if __name__ == "__main__":
    answer_jobs(run)
