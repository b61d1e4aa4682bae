"""Share of the convolutions in the time of a training step: the whole step against the convolutions alone.

    scripts/uv run python scripts/bench/step.py [--growth 256] [--size 64] [--repeats 7] [--json]

The network is of the paper's kind (5×5 kernels, growth 256, 1×1 transitions), with fewer and smaller maps, so that a
step fits a CPU. The step is that of the training job (forward, Huber and L2, backward, LARS and Adam, float32, one
rank). The convolutions alone are their three parts, forward, gradient by input and gradient by weights, each on tensors
of the same shapes and with nothing in between; the first layer has no gradient by input. Rounds alternate; numbers are
medians.

`python -m train profile` measures the convolutions where they are, in the step itself. Here they run alone, one after
another, which tells how fast this machine's convolutions are with nothing around them.

"ratio" is the time of the convolutions divided by that of the step: 0.71 in Laanait et al. (2019). The FLOP/s of both
and the memory of the step beside the estimate of `fcdensenet describe` are also printed.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from statistics import median
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from fcdensenet.count import LayerCount, count
from train.experiment.sections import Training
from train.optimization.loop import make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import reduction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--growth", type=int, default=256, help="maps a convolution adds")
    parser.add_argument("--size", type=int, default=64, help="pixels along y; along x half as many again")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    network = NetworkConfig(
        input_shape=(options.growth, options.size, options.size * 3 // 2),
        layers=(1, 2, 1),
        growth=options.growth,
        first_filters=options.growth,
        transition_up_kernel=1,
    )
    weight = count(network)
    bare = bare_convolutions(network)
    before = memory_mib()
    whole = training_step(network)
    times: dict[str, list[float]] = {"whole": [], "bare": []}
    for work in (whole, bare):
        work()
    for _ in range(options.repeats):
        for name, work in (("whole", whole), ("bare", bare)):
            began = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - began)
    step_s, bare_s = median(times["whole"]), median(times["bare"])
    found = {
        "growth": options.growth,
        "input_shape": network.input_shape,
        "step_flop": weight.step_flop,
        "step_s": step_s,
        "bare_s": bare_s,
        "step_flop_per_s": weight.step_flop / step_s,
        "bare_flop_per_s": weight.step_flop / bare_s,
        "activations_mib": weight.activation_bytes("float32") / 2**20,
        "peak_memory_mib": memory_mib(),
        "memory_before_mib": before,
        "cores": len(os.sched_getaffinity(0)),
        "ratio": bare_s / step_s,
    }
    table = Table("", "whole step", "bare convolutions", box=None)
    table.add_row("seconds", f"{step_s:.3f}", f"{bare_s:.3f}")
    table.add_row("GFLOP/s", f"{found['step_flop_per_s'] / 1e9:.1f}", f"{found['bare_flop_per_s'] / 1e9:.1f}")
    console = Console(width=110)
    console.print(f"input {network.input_shape}, growth {options.growth}, {weight.step_flop:.3e} FLOP a step")
    console.print(table)
    console.print(f"the convolutions' share of the step: {found['ratio']:.3f}")
    if options.json:
        print(json.dumps(found))


def training_step(network: NetworkConfig) -> Callable[[], Any]:
    """One update by the training job's own step on fixed tensors."""
    reduction.start()
    training = Training.model_validate({"epochs": 1})
    model = build(network, seed=1)
    optimizer = LarsAdam(training.optimizer)
    optimizer.build(model.trainable_variables)
    step = make_step(model, optimizer, training)
    channels, height, width = network.input_shape
    rng = np.random.default_rng(1)
    x = tf.constant(rng.normal(size=(1, height, width, channels)), tf.float32)
    y = tf.constant(rng.normal(size=(1, height, width, 1)), tf.float32)
    rate, delta = tf.constant(1e-4), tf.constant(10.0)
    return lambda: step(x, y, rate, delta).numpy()


def bare_convolutions(network: NetworkConfig) -> Callable[[], Any]:
    """Every convolution's forward pass and gradients, one after another, each waiting for the one before."""
    layers = [layer for layer in count(network).layers if layer.kernel_shape]
    parts = [part for index, layer in enumerate(layers) for part in parts_of(layer, with_input=index > 0)]

    @tf.function(autograph=False)
    def run() -> Any:
        ended: list[Any] = []
        for part in parts:
            with tf.control_dependencies(ended[-1:]):
                ended.append(tf.reshape(part(), [-1])[0])
        return tf.stack(ended)  # all of them: what nothing depends on would not be computed

    return lambda: run().numpy()


def parts_of(layer: LayerCount, with_input: bool) -> list[Callable[[], Any]]:
    """Forward, gradient by input where there is one, gradient by weights; a transposed convolution is the second."""
    rng = np.random.default_rng(2)

    def random(*shape: int) -> tf.Variable:
        return tf.Variable(rng.standard_normal(shape, np.float32), trainable=False)

    up = layer.kind == "conv up"
    height, width, filters = layer.output_shape
    # Of a transposed convolution the kernel is (k, k, out, in), and its forward pass is a convolution's gradient.
    kernel = random(*layer.kernel_shape)
    stride = 2 if up else 1
    wide = random(1, height, width, layer.kernel_shape[2])
    narrow = random(1, height // stride, width // stride, layer.kernel_shape[3])
    assert filters == layer.kernel_shape[2 if up else 3]

    def forward() -> Any:
        return tf.nn.conv2d(wide, kernel, stride, "SAME")

    def by_input() -> Any:
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=wide.shape,
            filter=kernel,
            out_backprop=narrow,
            strides=[1, stride, stride, 1],
            padding="SAME",
        )

    def by_weights() -> Any:
        return tf.raw_ops.Conv2DBackpropFilter(
            input=wide,
            filter_sizes=kernel.shape,
            out_backprop=narrow,
            strides=[1, stride, stride, 1],
            padding="SAME",
        )

    return [forward, by_input, by_weights] if with_input else [forward, by_weights]


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
