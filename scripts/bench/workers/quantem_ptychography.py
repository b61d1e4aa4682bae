"""Runs quantem for reconstruct_vs_rivals.py, in an environment of its own, since it needs PyTorch.

Reads one JSON job per line and answers each with one JSON line. A job names a stack (.npy, (sy, sx, dy, dx), fractions
of the beam) and its microscope, the settings, and the iterations after which the object is evaluated. The axis of the
patterns and the probe are known, so that quantem need not estimate them. Phases are sums over slices, in rad.
"""

import time
from typing import Any

import numpy as np
import torch
import torchvision_on_cpu  # noqa: F401 - before what imports torchvision
from ptychography_jobs import answer_jobs, projected
from quantem.core.datastructures.dataset4dstem import Dataset4dstem
from quantem.diffractive_imaging import (
    DetectorPixelated,
    ObjectPixelated,
    ProbePixelated,
    Ptychography,
    PtychographyDatasetRaster,
)


class OnAxis(PtychographyDatasetRaster):
    """Takes the axis as given, in the middle pixel, where quantem fits the mean of the patterns' centres."""

    def _set_intensities_com(self, *arguments: Any, **options: Any) -> None:
        super()._set_intensities_com(*arguments, **options)
        self.com_fit = np.broadcast_to(((self.roi_shape - 1) / 2)[:, None, None], self.com_fit.shape)


def prepared(job: dict[str, Any]) -> Ptychography:
    settings, patterns = job["settings"], np.load(job["stack"])
    slices = settings.get("slices", 1)
    data = Dataset4dstem.from_array(
        array=patterns.astype(np.float32),
        sampling=(*job["step_angstrom"], *job["pixel_mrad"]),
        units=("A", "A", "mrad", "mrad"),
    )
    stack = OnAxis.from_dataset4dstem(data, verbose=0, learn_descan=False, learn_scan_positions=False)
    padding = tuple(n // 2 + 1 for n in patterns.shape[2:])
    stack.preprocess(
        com_fit_function="constant",
        force_com_rotation=0,
        force_com_transpose=False,
        plot_rotation=False,
        plot_com=False,
        probe_energy=job["energy_ev"],
        obj_padding_px=padding,
    )
    between = job["thickness_angstrom"] / slices
    model = ObjectPixelated.from_uniform(
        num_slices=slices, slice_thicknesses=between if slices > 1 else None, obj_type=settings["object"]
    )
    probe = {
        "energy": job["energy_ev"],
        "semiangle_cutoff": job["semiangle_mrad"],
        "C10": settings.get("C10", 0.0) + settings.get("plane", 0) * between,
    }
    ptychography = Ptychography.from_models(
        dset=stack,
        obj_model=model,
        probe_model=ProbePixelated.from_params(probe_params=probe),
        detector_model=DetectorPixelated(),
        verbose=0,
        rng=0,
    )
    ptychography.preprocess(obj_padding_px=padding, plot_rotation=False, plot_com=False)
    return ptychography


def run(job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(job["threads"])
    settings = job["settings"]
    start = time.process_time()  # of all threads
    ptychography = prepared(job)
    name, rate = settings["update"]  # SGD takes quantem's analytic gradients, in ePIE's steps
    optimizers = {"object": {"name": name, "lr": rate}}
    if settings.get("probe_rate"):
        optimizers["probe"] = {"name": "adam", "lr": settings["probe_rate"]}
    limits = {key: settings[key] for key in ("identical_slices", "tv_weight_z", "tv_weight_xy") if key in settings}
    phases, seconds, done = [], [], 0
    for wanted in job["iterations"]:
        ptychography.reconstruct(
            num_iters=wanted - done,
            reset=done == 0,
            optimizer_params=None if done else optimizers,
            scheduler_params=None if done else {"object": {"name": "plateau", "factor": 0.5}},
            constraints={"object": limits} if limits else None,
            batch_size=settings.get("batch", 128),
            autograd=name != "sgd",
        )
        done = wanted
        phases.append(projected(ptychography.obj_model.obj.detach().numpy()))
        seconds.append(time.process_time() - start)
    sampling, first = ptychography.dset.obj_sampling, ptychography.dset.scan_positions_px.detach().numpy()[0]
    np.savez(job["result"], phases=np.array(phases, np.float32), step=sampling, first=first * sampling)
    losses = [float(loss) for loss in ptychography.iter_losses]
    return {"cpu_seconds": seconds, "losses": losses}


if __name__ == "__main__":
    answer_jobs(run)
