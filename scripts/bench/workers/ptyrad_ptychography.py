"""Runs PtyRAD for `../rivals.py`, in an environment of its own; see `ptychography_jobs.py`.

A job names a folder as `namsa export --to ptyrad` writes it, whose parameters get the settings;
what they leave out has PtyRAD's defaults. The loop is that of PtyRAD's `recon_loop`, without its
files. Two modules that no reconstruction needs are replaced by empty ones: PtyRAD 1.0.0's plots
cannot be read by Python before 3.12, and torchvision's operators are missing beside a torch for
processors.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import yaml
from ptychography_jobs import answer_jobs, projected


class Empty(ModuleType):
    """A module in which every name is a function that does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **options: None


sys.modules["ptyrad.plotting.basic"] = Empty("ptyrad.plotting.basic")
if not torch.version.cuda:
    sys.modules["torchvision._meta_registrations"] = Empty("torchvision._meta_registrations")

from ptyrad.core import PtychoModel  # noqa: E402
from ptyrad.params import load_params  # noqa: E402
from ptyrad.solver import PtyRADSolver  # noqa: E402
from ptyrad.solver.reconstruction import (  # noqa: E402
    compute_loss,
    create_optimizer,
    prepare_recon,
    recon_step,
    toggle_grad_requires,
)


def update(rate: float) -> dict[str, Any]:
    """Returns how a quantity is updated; not at all at a rate of 0."""
    return {"start_iter": 1 if rate else None, "lr": rate}


def parameters(settings: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    """Returns PtyRAD's parameters: those of the folder, with the settings.

    Args:
        settings: "rate" of the phase; "amplitude_rate", "probe_rate", "position_rate" and
            "thickness_rate", 0 for none; "modes" of the probe; "batch"; "blur", standard deviation
            along the beam, slices; "positive", whether phases are.
        written: Parameters of the folder.
    """
    rates = {
        "obja": settings["amplitude_rate"],
        "objp": settings["rate"],
        "probe": settings["probe_rate"],
        "probe_pos_shifts": settings["position_rate"],
        "slice_thickness": settings["thickness_rate"],
    }
    blur: dict[str, Any] = {"start_iter": None}
    if settings["blur"]:
        blur = {"start_iter": 1, "std": settings["blur"]}
    batches = {"size": settings["batch"], "grad_accumulation": 1}
    initial = written["init_params"]
    return written | {
        "init_params": initial | {"probe_pmode_max": settings["modes"]},
        "model_params": {"update_params": {name: update(rate) for name, rate in rates.items()}},
        "constraint_params": {
            "objp_postiv": {"start_iter": 1 if settings["positive"] else None},
            "obj_zblur": blur,
        },
        "loss_params": {
            "loss_single": {"state": True, "weight": 1.0, "dp_pow": 0.5},
            "loss_sparse": {"state": bool(settings["sparsity"]), "weight": settings["sparsity"]},
        },
        "recon_params": written["recon_params"] | {"BATCH_SIZE": batches, "SAVE_ITERS": None},
    }


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Reconstructs the folder of a job."""
    torch.set_num_threads(1)
    os.chdir(job["folder"])
    start = time.process_time()
    written = yaml.safe_load(Path("ptyrad.yaml").read_text(encoding="utf-8"))
    settings = yaml.safe_dump(parameters(job["settings"], written))
    Path("settings.yaml").write_text(settings, encoding="utf-8")
    params = load_params("settings.yaml", validate=True)
    solver = PtyRADSolver(params, device="cpu", seed=0)
    model = PtychoModel(solver.init.init_variables, params["model_params"], device="cpu")
    optimizer = create_optimizer(model.optimizer_params, model.optimizable_params)
    _, groups, _ = prepare_recon(model, solver.init, params)
    batches = [torch.from_numpy(group) for group in groups]
    pixel = float(model.dx)
    corner = (model.crop_pos[0] + model.opt_probe_pos_shifts[0]).detach().numpy()
    first_pixel = corner + model.H.shape[-1] // 2
    phases = []
    seconds = []
    losses = []
    for iteration in range(1, job["iterations"][-1] + 1):
        toggle_grad_requires(model, iteration)
        batch_losses = recon_step(
            batches,
            1,
            model,
            optimizer,
            None,
            solver.loss_fn,
            solver.constraint_fn,
            iteration,
            compute_loss_fn=compute_loss,
        )
        losses.append(float(sum(np.mean(values) for values in batch_losses.values())))
        if iteration in job["iterations"]:
            phases.append(projected(model.opt_objp.detach().numpy()[0]))
            seconds.append(time.process_time() - start)
            images = np.array(phases, np.float32)
            np.savez(job["result"], phases=images, step=[pixel, pixel], first=first_pixel * pixel)
    between = float(model.opt_slice_thickness.detach())
    return {"cpu_seconds": seconds, "losses": losses, "slice_thickness": between}


if __name__ == "__main__":
    answer_jobs(run)
