"""Runs PtyRAD for reconstruct_vs_rivals.py, in an environment of its own; see ptychography_jobs.py.

A job names a folder as `namsa export --to ptyrad` writes it, whose parameters get the settings; what they leave out has
PtyRAD's defaults. The loop is that of PtyRAD's `recon_loop`, without its files.
"""

import os
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
import torchvision_on_cpu  # noqa: F401 - before what imports torchvision
import yaml
from ptychography_jobs import answer_jobs, projected
from ptyrad.core import PtychoModel
from ptyrad.params import load_params
from ptyrad.solver import PtyRADSolver
from ptyrad.solver.reconstruction import (
    compute_loss,
    create_optimizer,
    prepare_recon,
    recon_step,
    toggle_grad_requires,
)

mpl.use("Agg")


def parameters(settings: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    """PtyRAD's parameters: those of the folder, with the settings."""

    def update(rate: float) -> dict[str, Any]:
        return {"start_iter": 1, "lr": rate} if rate else {"start_iter": None, "lr": 0.0}

    amplitude = settings["rate"] if settings["object"] == "complex" else 0.0
    constraints: dict[str, Any] = {"objp_postiv": {"start_iter": 1 if settings["positivity"] else None}}
    constraints["obj_zblur"] = {"start_iter": 1, "std": settings["zblur"]} if settings.get("zblur") else {}
    if not constraints["obj_zblur"]:
        constraints["obj_zblur"] = {"start_iter": None}
    return written | {
        "init_params": written["init_params"] | {"probe_pmode_max": settings["modes"]},
        "model_params": {
            "update_params": {
                "obja": update(amplitude),
                "objp": update(settings["rate"]),
                "probe": update(settings["probe_rate"]),
                "probe_pos_shifts": update(settings["position_rate"]),
            }
        },
        "loss_params": {
            "loss_single": {"state": True, "weight": 1.0, "dp_pow": 0.5},
            "loss_sparse": {"state": bool(settings["sparsity"]), "weight": settings["sparsity"], "ln_order": 1},
        },
        "constraint_params": constraints,
        "recon_params": written["recon_params"]
        | {"BATCH_SIZE": {"size": settings["batch"], "grad_accumulation": 1}, "SAVE_ITERS": None},
    }


def run(job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(job["threads"])
    os.chdir(job["folder"])
    start = time.process_time()  # of all threads
    written = yaml.safe_load(Path("ptyrad.yaml").read_text(encoding="utf-8"))
    Path("settings.yaml").write_text(yaml.safe_dump(parameters(job["settings"], written)), encoding="utf-8")
    params = load_params("settings.yaml", validate=True)
    solver = PtyRADSolver(params, device="cpu", seed=0)
    model = PtychoModel(solver.init.init_variables, params["model_params"], device="cpu")
    optimizer = create_optimizer(model.optimizer_params, model.optimizable_params)
    _, groups, _ = prepare_recon(model, solver.init, params)
    kept_out = np.array(job.get("kept_out", []), int)  # positions; no step uses their patterns
    batches = [torch.from_numpy(group[~np.isin(group, kept_out)]) for group in groups]
    pixel = float(model.dx)
    first = (model.crop_pos[0] + model.opt_probe_pos_shifts[0]).detach().numpy() + model.H.shape[-1] // 2
    phases, seconds, losses = [], [], []
    for iteration in range(1, job["iterations"][-1] + 1):
        toggle_grad_requires(model, iteration)
        found = recon_step(
            batches, 1, model, optimizer, None, solver.loss_fn, solver.constraint_fn, iteration,
            compute_loss_fn=compute_loss,
        )  # fmt: skip
        losses.append(float(sum(np.mean(values) for values in found.values())))
        if iteration in job["iterations"]:
            phases.append(projected(model.opt_objp.detach().numpy()[0]))
            seconds.append(time.process_time() - start)
    both = np.empty(0)
    if len(kept_out):
        with torch.no_grad():
            both = np.stack([model.get_measurements(kept_out).numpy(), model(kept_out).numpy()])
    phases = np.array(phases, np.float32)
    np.savez(job["result"], phases=phases, step=[pixel, pixel], first=first * pixel, kept_out=both)
    return {"cpu_seconds": seconds, "losses": losses}


if __name__ == "__main__":
    answer_jobs(run)
