"""The training job's own step, for step_vs_torch.py. Reads and answers the requests that torch_step.py describes.

{"prepare": ...} also writes the initial weights and the batch to the files that it names.
"""

import json
import os
import resource
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from train.experiment.sections import Reduction, Training
from train.optimization.loop import make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import reduction


class Job:
    """A network, its optimizer and a batch."""

    def __init__(self, asked: dict[str, Any]) -> None:
        keras.utils.clear_session()
        network = NetworkConfig.model_validate(asked["network"])
        training = Training.model_validate(asked["training"])
        self.model = build(network, seed=1, recompute=training.recompute)
        optimizer = LarsAdam(training.optimizer)
        optimizer.build(self.model.trainable_variables)
        self.step = make_step(self.model, optimizer, training)
        self.scalars = asked["rate"], asked["delta"], 0.0
        channels, height, width = network.input_shape
        rng = np.random.default_rng(1)
        x = rng.random((training.batch_size, height, width, channels), np.float32)
        y = 3 * x[..., :1] * x[..., 1:2] + x.mean(-1, keepdims=True)
        self.x, self.y = tf.constant(x), tf.constant(y)
        if not os.path.exists(asked["batch"]):
            np.savez(asked["batch"], x=x, y=y)
            self.save(asked["weights"])

    def save(self, path: str) -> None:
        np.savez(path, **{variable.path: np.asarray(variable) for variable in self.model.variables})


def answer(asked: dict[str, Any], job: Job | None) -> tuple[dict[str, Any], Job | None]:
    if "prepare" in asked:
        threads = asked["prepare"]["threads"]
        if not job:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        return {"version": tf.__version__}, Job(asked["prepare"])
    assert job
    if "save" in asked:
        job.save(asked["save"])
        return {}, job
    times, numbers, cpu = [], [], time.process_time()
    for _ in range(asked["steps"]):
        began = time.perf_counter()  # the scalars are new in every step, as in train_epoch
        result = job.step(job.x, job.y, *[tf.constant(value, tf.float32) for value in job.scalars]).numpy().tolist()
        times.append(time.perf_counter() - began)
        numbers.append([result[0], result[1], result[3]])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu_s = (time.process_time() - cpu) / asked["steps"]
    return {"times": times, "cpu_s": cpu_s, "numbers": numbers, "peak_mib": peak}, job


if __name__ == "__main__":
    reduction.start(Reduction())
    job: Job | None = None
    for line in sys.stdin:
        reply, job = answer(json.loads(line), job)
        print(json.dumps(reply), flush=True)
