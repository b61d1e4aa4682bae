"""Runs phaser for reconstruct_vs_rivals.py, in an environment of its own; see ptychography_jobs.py.

A job names a folder as `namsa export --to phaser` writes it, whose plan gets the settings. phaser runs on JAX, as in
its own examples. A reconstruction that diverges ends there; its later phases are NaN.
"""

import logging
import os
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import yaml
from phaser.engines.common.simulation import cutout_group, make_propagators, slice_forwards, tilt_propagators
from phaser.execute import execute_plan
from phaser.observer import Observer
from phaser.plan import ReconsPlan
from phaser.utils.num import abs2, fft2, ifft2, to_numpy
from ptychography_jobs import answer_jobs, projected

LONGEST_MOVE = 0.2  # Å, of a position in an iteration, as in phaser's examples
UPDATE_AFTER = 5  # iterations, until probe and positions follow, as there


class Along(Observer):
    """Keeps the object after each of the wanted iterations, with the CPU time until then."""

    def __init__(self, wanted: list[int], start: float) -> None:
        self.wanted, self.start = wanted, start
        self.phases: list[np.ndarray] = []
        self.seconds: list[float] = []
        self.losses: list[float] = []
        self.state: Any = None

    def start_engine(self, init_state: Any) -> None:
        self.state = init_state
        self.nominal = np.asarray(to_numpy(init_state.scan.data)).copy()

    def update_iteration(self, state: Any, i: int, n: int, errors: dict[str, float]) -> None:
        self.losses.append(float(errors.get("total_loss", np.nan)))
        if state.iter.total_iter in self.wanted:
            self.state = state
            self.phases.append(projected(np.asarray(to_numpy(state.object.data))))
            self.seconds.append(time.process_time() - self.start)


def engine(settings: dict[str, Any], written: dict[str, Any], semiangle_mrad: float, electrons: float) -> Any:
    """phaser's engine: the solver that `settings` name, with what regularises it."""
    name, rate = settings["update"]
    constraints: list[dict[str, Any]] = [
        {"type": "limit_probe_support", "max_angle": 1.1 * semiangle_mrad},
        {"type": "clamp_object_amplitude", "amplitude": settings["amplitude"]},
    ]
    if settings.get("layers_weight"):
        constraints.append({"type": "layers", "sigma": 100.0, "weight": settings["layers_weight"]})
    if settings.get("blur_weight"):
        constraints.append({"type": "obj_gaussian", "sigma": 0.2, "weight": settings["blur_weight"]})
    plan = written | {
        "grouping": settings["batch"],
        "probe_modes": settings["modes"],
        "noise_model": {"type": settings["noise"], "eps": 1.0},
        "group_constraints": [],
        "iter_constraints": constraints,
        "update_probe": {"after": UPDATE_AFTER} if settings["probe"] else False,
        "update_positions": {"after": UPDATE_AFTER} if settings["positions"] else False,
        "save": False,
        "save_images": False,
    }
    if name == "adam":  # the amplitude model has no gradient where the model has no intensity
        plan["noise_model"] = {"type": "anscombe"}
        variables = {"object": {"type": "adam", "learning_rate": rate}}
        if settings["probe"]:  # its pixels grow with the root of the electrons
            variables["probe"] = {"type": "adam", "learning_rate": rate * np.sqrt(electrons)}
        if settings["positions"]:
            variables["positions"] = {"type": "adam", "learning_rate": settings["positions"]}
        return plan | {"type": "gradient", "solver": None, "solvers": variables, "regularizers": []}
    probe = {"beta_object": rate, "beta_probe": 0.1}
    more = {"gamma": 0.0, "illum_reg_object": settings["illumination"] * electrons, "illum_reg_probe": 0.0}
    plan["solver"] = {"type": name, **probe, **(more if name == "lsqml" else {})}
    if settings["positions"]:
        momentum = {"type": "momentum", "momentum": 0.9, "step_size": settings["positions"]}
        plan["position_solver"] = momentum | {"max_step_size": LONGEST_MOVE}
    return plan


def patterns_at(state: Any, positions: np.ndarray) -> np.ndarray:
    """The patterns of a state at positions `(n, 2)`, in electrons, by phaser's own forward model."""
    state.scan.data = positions.astype(np.float32)
    grid = state.probe.sampling.recip_grid(dtype=np.float32, xp=np)
    wave, slices, _ = cutout_group(*grid, state, np.arange(len(positions))[None])

    def through(number: int, propagator: Any, wave: Any) -> Any:
        wave = wave * slices[:, number, None]
        return wave if propagator is None else ifft2(fft2(wave) * propagator[:, None])

    wave = slice_forwards(tilt_propagators(*grid, state, make_propagators(state, 1.0), None), wave, through)
    return np.fft.fftshift(np.asarray(to_numpy(abs2(fft2(wave)).sum(axis=1))), axes=(-2, -1))


def keep_out(positions: np.ndarray, scan_shape: tuple[int, int]) -> np.ndarray:
    """Takes the patterns at positions out of the folder's file; returns them, `(n, dy, dx)`."""
    with h5py.File("patterns.h5", "r+") as file:
        patterns = file["patterns"][()].reshape(scan_shape[0] * scan_shape[1], *file["patterns"].shape[2:])
        kept = patterns[positions]
        patterns[positions] = np.nan
        file["patterns"][...] = patterns.reshape(file["patterns"].shape)
    return np.asarray(kept)


def run(job: dict[str, Any]) -> dict[str, Any]:
    os.chdir(job["folder"])
    start = time.process_time()  # of all threads
    plan = yaml.safe_load(Path("phaser.yaml").read_text(encoding="utf-8"))
    (written,) = plan["engines"]
    made = engine(job["settings"], written, job["semiangle_mrad"], 1 / plan["raw_data"]["adu"])
    made = {key: value for key, value in made.items() if value is not None} | {"niter": job["iterations"][-1]}
    plan |= {"engines": [made], "backend": "jax"}
    scan, kept_out = plan["init"]["scan"], np.array(job.get("kept_out", []), int)
    if len(kept_out):
        measured = keep_out(kept_out, scan["shape"])
        plan["post_init"] = [{"type": "drop_nans"}]
    along = Along(job["iterations"], start)
    try:
        execute_plan(ReconsPlan.from_data(plan), seed=0, override_observers=along)
    except (ValueError, FloatingPointError) as error:  # phaser's word for an object that is not finite
        if "NaN or inf" not in str(error):
            raise
        logging.warning("diverged: %s", error)
    sampling, shape = along.state.object.sampling, along.state.probe.data.shape[-2:]
    missing = len(job["iterations"]) - len(along.phases)
    phases = [*along.phases, *[np.full(along.state.object.data.shape[-2:], np.nan)] * missing]
    pixel = np.asarray(sampling.sampling, float)
    half = np.where(np.asarray(shape) % 2 == 0, pixel / 2, 0.0)  # see namsa/exchange/phaser.py
    first = along.nominal.reshape(-1, 2)[0] - np.asarray(sampling.corner, float) + half
    both = np.empty(0)
    if len(kept_out):  # the first position is not kept out
        places = along.nominal.reshape(-1, 2)[0] + np.stack(divmod(kept_out, scan["shape"][1]), -1) * scan["step_size"]
        both = np.stack([measured, patterns_at(along.state, places) * plan["raw_data"]["adu"]])
    np.savez(job["result"], phases=np.array(phases, np.float32), step=pixel, first=first, kept_out=both)
    spent = time.process_time() - start
    return {"cpu_seconds": [*along.seconds, *[spent] * missing], "losses": along.losses}


if __name__ == "__main__":
    answer_jobs(run)
