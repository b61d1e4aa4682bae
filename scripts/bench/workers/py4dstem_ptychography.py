"""Runs py4DSTEM for `../rivals.py`, in an environment of its own: py4DSTEM is GPL and no part of
namsa. See `ptychography_jobs.py`.

The optic axis is given: the middle of the detector. The first modes of the probe beside that of the
lens are py4DSTEM's own, shifted at random.
"""

import time
from typing import Any

import h5py
import matplotlib as mpl
import numpy as np
import py4DSTEM
from ptychography_jobs import answer_jobs, projected
from py4DSTEM.process.phase import MixedstateMultislicePtychography

mpl.use("Agg")


def prepared(job: dict[str, Any]) -> Any:
    """Returns the reconstruction of a job before its first iteration."""
    settings = job["settings"]
    with h5py.File(job["patterns"]) as file:
        patterns = file["patterns"][()]
    cube = py4DSTEM.DataCube(data=patterns)
    cube.calibration.set_R_pixel_size(job["step_angstrom"])
    cube.calibration.set_R_pixel_units("A")
    cube.calibration.set_Q_pixel_size(job["pixel_mrad"])
    cube.calibration.set_Q_pixel_units("mrad")
    np.random.seed(0)  # noqa: NPY002  # py4DSTEM draws the modes from it
    ptychography = MixedstateMultislicePtychography(
        datacube=cube,
        energy=job["energy_ev"],
        semiangle_cutoff=job["semiangle_mrad"],
        rolloff=1.0,
        polar_parameters={"C10": job["c10"]},
        object_padding_px=tuple(n // 2 + 1 for n in patterns.shape[2:]),
        object_type=settings["object"],
        num_probes=settings["modes"],
        num_slices=job["slices"],
        slice_thicknesses=job["thickness_angstrom"] / job["slices"],
        verbose=False,
        device="cpu",
    )
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
    """Reconstructs the patterns of a job.

    Its settings: "rate" of object and probe; "modes" of the probe; "batch"; "object", "potential"
    or "complex"; "kz", strength of the filter along the beam, or 0; "positive", whether potentials
    are; "identical", whether all slices are alike; "blur", standard deviation of a lateral blur, Å.
    """
    settings = job["settings"]
    start = time.process_time()
    ptychography = prepared(job)
    phases = []
    seconds = []
    losses = []
    done = 0
    for wanted in job["iterations"]:
        ptychography.reconstruct(
            num_iter=wanted - done,
            reset=done == 0,
            max_batch_size=settings["batch"],
            seed_random=done,
            step_size=settings["rate"],
            identical_slices=settings["identical"],
            kz_regularization_gamma=settings["kz"] or None,
            object_positivity=settings["positive"],
            gaussian_filter_sigma=settings["blur"] or None,
            progress_bar=False,
        )
        losses += [float(error) for error in ptychography.error_iterations[done - wanted :]]
        done = wanted
        phases.append(projected(np.asarray(ptychography.object)))
        seconds.append(time.process_time() - start)
    sampling = np.array(ptychography.sampling)
    first_pixel = np.asarray(ptychography._positions_px)[0]
    np.savez(
        job["result"],
        phases=np.array(phases, np.float32),
        step=sampling,
        first=first_pixel * sampling,
    )
    return {"cpu_seconds": seconds, "losses": losses}


if __name__ == "__main__":
    answer_jobs(run)
