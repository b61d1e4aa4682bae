"""Answers of shipped networks to random patterns: `python network_answers.py FILE.npz [NAME ...]`
writes them, one network after the other.

The backend is that of KERAS_BACKEND; under JAX, TensorFlow cannot be imported. `../networks_jax.py`
compares them.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

if os.environ.get("KERAS_BACKEND") == "jax":
    sys.modules["tensorflow"] = None  # type: ignore[assignment]  # importing it raises ImportError

import numpy as np
import numpy.typing as npt

from train.apply.models import Model, shipped
from train.apply.weights import build_loaded
from train.tasks.classify.task import logits_function
from train.tasks.density.trust.predictions import trained_ensemble
from train.tasks.embed.task import autoencoder
from train.tasks.estimate.task import predictor as estimator
from train.tasks.segment.task import predictor as segmenter

Array = npt.NDArray[Any]

WINDOWS = 3


def random_windows(model: Model) -> Array:
    """Returns patterns of a noisy disk, `(n, sy, sx, dy, dx)`, fractions of the beam."""
    trained = model.conditions
    rng = np.random.default_rng(7)
    y, x = trained.detector_pixels.coordinates(trained.detector_shape)
    disk = np.hypot(*np.meshgrid(y, x, indexing="ij")) < trained.semiangle_mrad
    patterns = (0.01 + disk) * rng.exponential(
        size=(WINDOWS, *trained.scan_shape, *trained.detector_shape)
    )
    return (patterns / patterns.sum(axis=(-2, -1), keepdims=True)).astype(np.float32)


def answers(model: Model) -> dict[str, Array]:
    """Returns what a network says of random windows: of densities, all that an ensemble of its
    views predicts.
    """
    task = model.experiment.training.task
    windows = random_windows(model)
    if task == "density":
        predictions = trained_ensemble(model, with_maps=True).predict(windows)._asdict()
        return {name: array for name, array in predictions.items() if array is not None}
    network = build_loaded(model, model.experiment.network)
    if task == "segment":
        return {"logits": segmenter(model.experiment, network)(windows, 1.0)}
    if task == "estimate":
        return dict(
            zip(
                ("values", "deviations"), estimator(model.experiment, network)(windows), strict=True
            )
        )
    images = windows.reshape(-1, *model.conditions.detector_shape, 1)[:40]
    images = (images * images[0].size) ** model.experiment.training.inputs.power
    if task == "classify":
        return {"logits": logits_function(network)(images)}
    return dict(zip(("decoded", "mean", "log_variance"), autoencoder(network)(images), strict=True))


def main() -> None:
    path, *names = sys.argv[1:]
    arrays: dict[str, Any] = {}
    models = {}
    for model in shipped():
        models[model.name] = model
    for name in names or models:
        began = time.perf_counter()
        arrays |= {f"{name}/{answer}": array for answer, array in answers(models[name]).items()}
        arrays[f"{name}/seconds"] = time.perf_counter() - began
        partial = Path(path).with_suffix(".partial.npz")  # this process may be ended at any time
        np.savez(partial, **arrays)
        partial.replace(path)


if __name__ == "__main__":
    main()
