"""A small network that ranks train, and the same training in one process."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.experiment.sections import Training
from train.optimization import losses, precision
from train.optimization.gradients import Accumulation
from train.optimization.loop import EpochPlan, make_step, train_epoch
from train.optimization.optimizers import LarsAdam
from train.ranks.connection import engine
from train.ranks.exchange import make_exchange

Array = npt.NDArray[Any]
Choice = dict[str, Any]
Choices = dict[str, Choice]
RANKS = 4
STEPS = 5
RATE = 1e-2


def small_model(seed: int = 1) -> keras.Model:
    """No dropout and no normalisation, so that the mean over ranks is the mean over a larger
    batch.
    """
    keras.utils.set_random_seed(seed)
    names = ("down1_conv1", "down1_conv2", "up1_conv1", "up1_conv2")
    convolutions = []
    for name in names:
        convolutions.append(keras.layers.Conv2D(4, 3, padding="same", activation="relu", name=name))
    last = keras.layers.Conv2D(1, 1, name="last")
    return keras.Sequential([keras.Input((6, 8, 2)), *convolutions, last])


def batches(
    samples: slice = slice(None), ranks: int = RANKS
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """STEPS batches of a sample for each rank, or those of them that a rank has."""
    rng = np.random.default_rng(4)
    for _ in range(STEPS):
        x = rng.normal(size=(ranks, 6, 8, 2)).astype(np.float32)
        yield (
            tf.constant(x[samples]),
            tf.constant((x[..., :1] * x[..., 1:]).astype(np.float32)[samples]),
        )


def configured(choice: Choice, **sections: Any) -> Training:
    """A constant rate, and float32 throughout."""
    schedule = {"scale_with_ranks": False, "warmup_epochs": 0}
    given = {
        "epochs": 1,
        "optimizer": {"learning_rate": RATE},
        "schedule": schedule,
        "exchange": choice,
    }
    return Training.model_validate(given | sections)


def train(
    choice: Choice,
    model: keras.Model,
    read: Iterator[tuple[tf.Tensor, tf.Tensor]],
    steps: int = STEPS,
    **sections: Any,
) -> tuple[list[Array], list[Any], Any, Any]:
    """(weights, rows, the optimizer and the exchange) after some steps."""
    config = configured(choice, **sections)
    optimizer = precision.with_loss_scale(LarsAdam(config.optimizer), config)
    exchange = make_exchange(config.exchange, engine().rank(), engine().size())
    exchange.begin(model, optimizer)
    exchange.restore(exchange.blank_state(), [], resumed=False)
    accumulation = Accumulation(model, optimizer, config) if config.accumulate > 1 else None
    step = make_step(model, optimizer, config, exchange, accumulation)
    plan = EpochPlan(epoch=0, first_step=1, steps=steps, ranks=engine().size())
    rows = list(train_epoch(step, read, config, plan, exchange=exchange, accumulation=accumulation))
    return [weight.numpy() for weight in model.trainable_variables], rows, optimizer, exchange


def digest(arrays: Iterable[Array]) -> str:
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    ).hexdigest()


class ReferenceTraining:
    """One process that trains with nothing of `train.ranks` or `make_step`."""

    def __init__(self) -> None:
        self.training = configured({})
        self.model = small_model(seed=0)
        self.weights = self.model.trainable_variables
        self.optimizer = LarsAdam(self.training.optimizer)
        self.optimizer.build(self.weights)

    def gradients(self, x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        """Those of the loss; `huber` is its part that depends on the samples."""
        with tf.GradientTape() as tape:
            huber = losses.huber(
                self.model(x, training=True), y, losses.huber_delta(self.training.loss, 0)
            )
            loss = huber + losses.l2(losses.kernels(self.weights), self.training.loss.l2)
        self.huber = float(huber)
        return tape.gradient(loss, [weight.value for weight in self.weights])


def assert_close(out: Path, name: str, weights: Sequence[Array], tolerance: float = 2e-6) -> None:
    """The weights of TRAINED[name] are `weights`."""
    with np.load(out / f"{name}.npz") as file:
        for stored, wanted in zip(file.values(), weights, strict=True):
            np.testing.assert_allclose(stored, wanted, atol=tolerance)
