"""The training job's own step, for step_vs_torch.py.

Also writes the initial weights and the batch to the files that the request names.
"""

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from answer_requests import answer_requests

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from train.experiment.sections import Training
from train.optimization.loop import make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import reduction


class Job:
    """A network, its optimizer and a batch."""

    def __init__(self, asked: dict[str, Any]) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(asked["threads"])
        tf.config.threading.set_inter_op_parallelism_threads(asked["threads"])
        keras.utils.clear_session()
        network = NetworkConfig.model_validate(asked["network"])
        training = Training.model_validate(asked["training"])
        self.model = build(network, seed=1, recompute=training.recompute)
        optimizer = LarsAdam(training.optimizer)
        optimizer.build(self.model.trainable_variables)
        self.update = make_step(self.model, optimizer, training)
        self.scalars = asked["rate"], asked["delta"], 0.0
        channels, height, width = network.input_shape
        rng = np.random.default_rng(1)
        x = rng.random((training.batch_size, height, width, channels), np.float32)
        y = 3 * x[..., :1] * x[..., 1:2] + x.mean(-1, keepdims=True)
        self.x, self.y = tf.constant(x), tf.constant(y)
        if not os.path.exists(asked["batch"]):
            np.savez(asked["batch"], x=x, y=y)
            self.save(asked["weights"])

    def step(self) -> list[float]:
        scalars = [tf.constant(value, tf.float32) for value in self.scalars]  # new in every step, as in train_epoch
        huber, l2, _, norm, *_ = self.update(self.x, self.y, *scalars).numpy().tolist()
        return [huber, l2, norm]

    def save(self, path: str) -> None:
        np.savez(path, **{variable.path: np.asarray(variable) for variable in self.model.variables})


if __name__ == "__main__":
    reduction.start()
    answer_requests(tf.__version__, Job)
