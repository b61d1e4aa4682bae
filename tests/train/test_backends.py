"""The numbers of `train` are those of `keras.ops`, the same under TensorFlow and JAX.

`PYTHONPATH=tests/support python tests/train/test_backends.py FILE.npz` writes those of its process'
backend. TensorFlow cannot be imported there unless it is the backend.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if os.environ.get("KERAS_BACKEND") == "jax":
    sys.modules["tensorflow"] = None  # type: ignore[assignment]  # importing it raises ImportError

import keras
import numpy as np
import pytest
from keras import ops
from paths import DATA, ROOT, SUPPORT

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from fcdensenet.keras_layers import Dropout, HeNormal
from train.experiment.channels import make_channels
from train.experiment.experiment import load
from train.experiment.sections import Loss, Optimizer, Training
from train.input.normalisation import Batch, Intensities, Normalisation, normaliser
from train.optimization import losses, precision
from train.optimization.optimizers import make_optimizer
from train.tasks.classify.task import cross_entropy
from train.tasks.estimate.task import estimate_loss
from train.tasks.estimate.task import gradients as slopes
from train.tasks.segment.task import weighted_cross_entropy

if JAX := keras.backend.backend() == "jax":
    from jax import jit as graph
else:
    from tensorflow import function as graph

Arrays = dict[str, Any]
CASES: dict[str, Callable[[], Arrays]] = {}


def case(function: Callable[[], Arrays]) -> Callable[[], Arrays]:
    CASES[function.__name__] = function
    return function


def named(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}_{name}": array for name, array in arrays.items()}


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


# ---- Losses


@case
def losses_of_a_density() -> Arrays:
    target = rng().normal(5, 3, (3, 6, 4, 1))
    arrays = {}
    output = target + rng().normal(0, 2, (3, 6, 4, 2))
    output[0, :2] *= 60
    for likelihood in ("none", "laplace", "gaussian"):
        for relative in (False, True):
            loss = Loss(likelihood=likelihood, relative=relative, huber_delta=1.5)
            objective = losses.DensityObjective(loss)
            for dtype in ("float32", "float16"):
                x = ops.cast(output[..., : len(objective.terms)], dtype)
                terms = objective(
                    x, ops.cast(target, "float32"), ops.cast(loss.huber_delta, "float32")
                )
                arrays[f"{likelihood}_{relative}_{dtype}"] = ops.stack(terms)
    kernel, bias = (
        keras.Variable(rng().normal(size=shape), dtype="float32") for shape in ((3, 3, 2, 5), (5,))
    )
    return arrays | {"l2": losses.l2(losses.kernels([kernel, bias, kernel]), 0.1)}


# ---- Optimizers and loss scales


def updated(
    optimizer: Any, steps: int = 4, spoilt: int | None = None, scale: float = 1.0
) -> Arrays:
    """Weights, moments and the other state after some steps, in the way in which each backend
    trains.
    """
    draw = rng()
    variables = []
    for shape in ((3, 3, 2, 4), (4,), (5, 2)):
        variables.append(keras.Variable(draw.normal(size=shape), dtype="float32"))
    optimizer.build(variables)
    state = [*variables, *optimizer.variables]
    apply = graph(optimizer.stateless_apply if JAX else optimizer.apply)
    for step in range(steps):
        gradients = [np.float32(scale * draw.normal(size=variable.shape)) for variable in variables]
        if step == spoilt:
            gradients[1][0] = np.inf
        optimizer.learning_rate.assign(0.05 / (1 + step))
        if JAX:
            values = [variable.value for variable in state]
            new_weights, new_values = apply(
                values[len(variables) :], gradients, values[: len(variables)]
            )
            for variable, value in zip(state, [*new_weights, *new_values], strict=True):
                variable.assign(value)
        else:
            apply([ops.convert_to_tensor(gradient) for gradient in gradients])
    return {str(index): variable.numpy() for index, variable in enumerate(state)}


@case
def optimizers() -> Arrays:
    arrays = {}
    for lars, rates in (
        ("before", "lars"),
        ("before", "larc"),
        ("after", "lars"),
        ("after", "larc"),
        ("none", "lars"),
    ):
        config = Optimizer(learning_rate=0.05, lars=lars, lars_trust=0.3, layer_rates=rates)
        arrays |= named(f"adam_{lars}_{rates}", updated(make_optimizer(config)))
    for lars in ("before", "none"):
        config = Optimizer(kind="momentum", momentum=0.8, learning_rate=0.1, lars=lars)
        arrays |= named(f"momentum_{lars}", updated(make_optimizer(config)))
    return arrays


@case
def loss_scales() -> Arrays:
    arrays = {}
    for kind in ("backoff", "logmax"):
        settings = {"compute": "mixed_float16", "loss_scaling": kind, "growth_steps": 2}
        training = Training.model_validate({"epochs": 1, "precision": settings})
        for spoilt in (None, 2):
            optimizer = precision.with_loss_scale(make_optimizer(training.optimizer), training)
            arrays |= named(f"{kind}_{spoilt}", updated(optimizer, 5, spoilt, 2.0**15))
    return arrays


@case
def losses_of_classes() -> Arrays:
    """The cross-entropies and the mean square of the other tasks."""
    logits = rng().normal(size=(3, 4, 5, 6))
    labels = rng().integers(0, 6, (3, 4, 5))
    weighted = []
    for is_channels_first in (False, True):
        weighted.append(weighted_cross_entropy(tuple(range(1, 7)), is_channels_first).compute)
    estimated = estimate_loss(Loss(likelihood="laplace")).compute
    return {
        "patterns": cross_entropy(ops.cast(logits[0, 0], "float16"), labels[0, 0])[0],
        "positions_last": weighted[0](ops.cast(logits, "float32"), labels)[0],
        "positions_first": weighted[1](ops.cast(np.moveaxis(logits, -1, 1), "float32"), labels)[0],
        "estimates": ops.stack(
            estimated(ops.cast(logits[0, 0], "float32"), ops.cast(logits[1, 0, :, :3], "float32"))
        ),
        "slopes": slopes(ops.cast(rng().random((2, 4, 7)), "float32")),
    }


@case
def dropout() -> Arrays:
    """Two draws of a layer, of a number of values that is not a multiple of four."""
    arrays = {}
    for dtype in ("float32", "float16", "bfloat16"):
        layer = Dropout(0.3, seed=2**31 - 5, dtype=dtype)
        for draw in range(2):
            arrays[f"{dtype}_{draw}"] = ops.cast(
                layer(ops.ones((3, 5, 7), dtype), training=True), "float32"
            )
    return arrays


@case
def initial_weights() -> Arrays:
    return {"kernel": HeNormal(2**31 - 5)((3, 3, 5, 7)), "dense": HeNormal(12, 1.5)((33, 70))}


@case
def networks() -> Arrays:
    """An FC-DenseNet whose stacks are recomputed, in both orders of axes."""
    arrays = {}
    draw = rng()
    for is_channels_first, shape in ((False, (2, 16, 24, 6)), (True, (2, 6, 16, 24))):
        order = "channels_first" if is_channels_first else "channels_last"
        small = {
            "input_shape": (6, 16, 24),
            "layers": (1, 2, 1),
            "growth": 4,
            "first_filters": 5,
            "kernel": 3,
        }
        model = build(NetworkConfig(**small, data_format=order), 3, recompute=True)
        model.set_weights(
            [draw.random(w.shape, np.float32) - (w.ndim > 1) / 2 for w in model.get_weights()]
        )
        arrays[order] = model(draw.random(shape, np.float32))
    return arrays


# ---- Input


@case
def inputs() -> Arrays:
    """x and y of a batch of stored samples in each layout, and the channels of a scan."""
    experiment = load(DATA / "tiny.yaml")
    arrays = {}
    (sy, sx), (dy, dx) = experiment.conditions().scan_shape, experiment.conditions().detector_shape
    patterns = rng().exponential(1 / dy / dx, (2, sy, sx, dy, dx))
    patterns[1, 2, 3] = 0  # no electron at all
    stored = (1000 * patterns).astype(np.float16)
    batch = Batch(
        stored, np.full((2, 1, 1, 1), 1000, np.float32), np.float32(rng().random((2, sy, sx)))
    )
    layouts = [
        ("detector", "pixels", "none"),
        ("pattern", "pixels", "none"),
        ("volume", "binned", "none"),
    ]
    kinds = [
        ("binned", "none"),
        ("polar", "none"),
        ("virtual", "none"),
        ("pixels", "dpc"),
        ("virtual", "dpc"),
    ]
    for index, (layout, kind, guess) in enumerate(
        [*layouts, *(("scan", kind, guess) for kind, guess in kinds)]
    ):
        data_format, power = ("channels_last", 0.5) if index % 2 else ("channels_first", 0.3)
        changed = {"layout": layout, "channels": kind, "guess": guess, "power": power, "gain": 1.5}
        section = experiment.training.inputs.model_copy(
            update={**changed, "coordinates": layout == "detector"}
        )
        settings = Normalisation.of(section, data_format, "float32")
        if kind != "pixels" or guess != "none":
            channels = make_channels(section, experiment.conditions())
        else:
            channels = None
        tensors = Batch(*map(ops.convert_to_tensor, batch))
        x, y = normaliser(settings, channels)(tensors)
        arrays |= named(f"{layout}_{kind}_{guess}", {"x": x, "y": y})
        for rule in ("log", "standardised", "root_of_stored"):
            other = settings._replace(intensities=Intensities(rule, 0.5, 1.5))
            arrays[f"{layout}_{kind}_{guess}_{rule}"] = normaliser(other, channels)(tensors)[0]
    return arrays


def numbers() -> Arrays:
    """All of them, by case and name."""
    return {
        f"{case}/{name}": np.asarray(value)
        for case, make in CASES.items()
        for name, value in make().items()
    }


@pytest.fixture(scope="module")
def under_jax(tmp_path_factory):
    """The numbers of a process with JAX, in which TensorFlow cannot be imported."""
    path = tmp_path_factory.mktemp("jax") / "numbers.npz"
    environment = os.environ | {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiles in less time
        "PYTHONPATH": f"{ROOT}{os.pathsep}{SUPPORT}",
    }
    subprocess.run([sys.executable, __file__, path], env=environment, check=True, timeout=600)
    with np.load(path) as arrays:
        return dict(arrays)


# Of the largest number in an array. A scale is 2 to the power of a float32.
DIGITS = {"loss_scales": 3e-5, "networks": 1e-5}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_the_same_under_jax_without_tensorflow(under_jax, case):
    for name, value in CASES[case]().items():
        expected = np.asarray(value)
        actual = under_jax[f"{case}/{name}"]
        assert actual.dtype.kind == expected.dtype.kind, name
        error = DIGITS.get(case, 1e-6) * np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=error, err_msg=name)


if __name__ == "__main__":
    np.savez(Path(sys.argv[1]), **numbers())
