"""Cost of sending weights in fewer bytes: packing, unpacking and norms, per value and as a share of a training step.

    scripts/uv run python scripts/bench/packing.py [--values 4000000] [--rounds 7] [--config FILE.yaml] [--json]

Times are of the processor, summed over threads, which other work on the machine disturbs less than the clock's; the
lowest of all rounds.

shifts      `train.strategies.exchange.packing`
slices      the same bytes by tf.bitcast to bytes, slicing, and padding with zeros on the way back
norm        tf.norm of the same values
step        one step of the configuration's network on a random batch, one rank: with resident weights, and with sharded
            ones in two bytes, which packs, unpacks and takes the norms of all weights

"ratio" is the time of slices over that of shifts, packing and unpacking, the smallest of one to three bytes.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from train.experiment.experiment import load
from train.experiment.sections import Training
from train.input.batches import random_batch
from train.networks import Network
from train.optimization.loop import make_step
from train.optimization.optimizers import assemble
from train.ranks import reduction
from train.strategies.exchange import packing

CONFIG = Path(__file__).parents[2] / "configs/quickstart.yaml"
STEPS = 5  # in a round
SHARDED = {"kind": "sharded", "transfer": {"precision": 16}}


def main() -> int:
    options = parse()
    values = tf.constant(np.random.default_rng(1).normal(size=options.values).astype(np.float32))
    table, per_value = Table("bytes", "method", "pack, ns", "unpack, ns", box=None), {}
    for size in (1, 2, 3):
        for name, (pack, unpack) in {"shifts": (packing.pack, packing.unpack), "slices": (sliced, padded)}.items():
            times = pack_and_unpack_ns(pack, unpack, values, size, options.rounds)
            per_value[f"{name}, {size}"] = times
            table.add_row(str(size), name, *(f"{ns:.2f}" for ns in times))
    norm_ns = cpu_s(tf.function(tf.norm, autograph=False), values, options.rounds) * 1e9 / options.values
    ratio = min(sum(per_value[f"slices, {size}"]) / sum(per_value[f"shifts, {size}"]) for size in (1, 2, 3))
    experiment = load(options.config)
    reduction.start(experiment.training)
    images = experiment.images_per_sample()
    steps = {}
    for name, section in (("resident", {}), ("sharded", SHARDED)):
        training = Training.model_validate(experiment.training.model_dump() | {"exchange": section})
        steps[name] = step_s(experiment.network, training, images, options.rounds)
    console = Console(markup=False)
    console.print(table)
    console.print(f"norm: {norm_ns:.2f} ns per value")
    console.print(
        f"a step of {options.config.name}: {steps['resident']:.3f} s, sharded in two bytes {steps['sharded']:.3f} s"
    )
    if options.json:
        result = {"ns_per_value": per_value, "norm_ns": norm_ns, "step_cpu_s": steps, "ratio": ratio}
        print(json.dumps(result))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def sliced(values: Any, size: int) -> Any:
    return tf.reshape(tf.bitcast(values, tf.uint8)[:, 4 - size :], [-1])


def padded(packed: Any, size: int) -> Any:
    return tf.bitcast(tf.pad(tf.reshape(packed, [-1, size]), [[0, 0], [4 - size, 0]]), tf.float32)


def pack_and_unpack_ns(pack: Any, unpack: Any, values: Any, size: int, rounds: int) -> tuple[float, float]:
    """Processor time of both per value, ns."""
    packing_ = tf.function(lambda x: pack(x, size), autograph=False)
    unpacking = tf.function(lambda x: unpack(x, size), autograph=False)
    packed = packing_(values)
    scale = 1e9 / values.shape[0]
    return scale * cpu_s(packing_, values, rounds), scale * cpu_s(unpacking, packed, rounds)


def cpu_s(function: Callable[[Any], Any], argument: Any, rounds: int) -> float:
    """The lowest processor time of a call, s; the first is not counted."""
    times = []
    for _ in range(rounds + 1):
        started = time.process_time()
        np.asarray(function(argument)).shape  # noqa: B018 - waits for the result
        times.append(time.process_time() - started)
    return min(times[1:])


def step_s(network: Network, training: Training, images: int, rounds: int) -> float:
    """The lowest mean processor time of `STEPS` steps, s."""
    parts = assemble(network, 1, training)
    step = make_step(parts.model, parts.optimizer, training, parts.exchange)
    parts.exchange.restore(parts.exchange.blank_state(), [], resumed=False)
    batch = random_batch(network, training, images)
    rate, setting = tf.constant(0.0), tf.constant(1.0)

    def steps(_: Any) -> Any:
        for _ in range(STEPS):
            numbers = step(*batch, rate, setting)
        return numbers

    return cpu_s(steps, None, rounds) / STEPS


if __name__ == "__main__":
    raise SystemExit(main())
