"""What two ranks find out together, each into OUT/rank.json; `test_ranks.py` starts it under horovodrun."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from namsa.errors import InputError, WorkError
from train.experiment.exchange import Allreduce
from train.experiment.sections import Training
from train.optimization import precision
from train.optimization.loop import make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import reduction, wire
from train.ranks.exchange import make_exchange

STEPS, GROUPS = 5, 6


def training(**sections):
    return Training.model_validate({"epochs": 1, "optimizer": {"learning_rate": 1e-2}} | sections)


def plain_model(seed=1):
    """No dropout and no normalisation, so that the mean over ranks is the mean over a larger batch."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((6, 8, 2)),
            layers.Conv2D(4, 3, padding="same", activation="relu"),
            layers.Conv2D(1, 3, padding="same"),
        ]
    )


def pairs():
    """STEPS batches of two samples."""
    rng = np.random.default_rng(4)
    for _ in range(STEPS):
        x = rng.normal(size=(2, 6, 8, 2)).astype(np.float32)
        yield x, (x[..., :1] * x[..., 1:]).astype(np.float32)


def train(config, model, batches):
    """(weights, rows of numbers, optimizer) after all `batches`."""
    optimizer = precision.with_loss_scale(LarsAdam(config.optimizer), config)
    optimizer.build(model.trainable_variables)
    reduction.broadcast_state(model, optimizer.variables)
    step = make_step(model, optimizer, config)
    numbers = [step(tf.constant(x), tf.constant(y), tf.constant(1e-2), tf.constant(2.0)).numpy() for x, y in batches]
    return [weight.numpy() for weight in model.trainable_variables], numbers, optimizer


def mine(rank):
    return ((x[rank : rank + 1], y[rank : rank + 1]) for x, y in pairs())


def digest(arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def metered(sent, own, names):
    """`reduction.all_to_all` that adds to `sent` the bytes for ranks but number `own`, and to `names` the names."""
    all_to_all = reduction.all_to_all

    def add(values, size):
        sent.append(int(values) * int(size))
        return values

    def exchange(flat, splits, name, *members):
        names.append(name)
        with tf.control_dependencies([tf.py_function(add, [tf.size(flat) - splits[own], flat.dtype.size], tf.int32)]):
            return all_to_all(tf.identity(flat), splits, name, *members)

    return exchange


def caught(work):
    try:
        work()
    except (InputError, WorkError, SystemExit) as error:
        return [type(error).__name__, str(error)]
    return None


def groups_at_once(path):
    """Horovod's record of STEPS reductions of GROUPS groups of two tensors that are ready at the same time."""
    members = [[2 * number, 2 * number + 1] for number in range(GROUPS)]

    @tf.function(autograph=False)
    def means(start):
        return make_exchange(Allreduce()).average([start + n for n in range(2 * GROUPS)], members)

    hvd.start_timeline(str(path))
    time.sleep(0.2)  # it begins at a cycle of its own
    for _ in range(STEPS):
        means(tf.zeros(3))
    hvd.stop_timeline()
    time.sleep(0.2)


def failing(on, rank):
    with reduction.together():
        if rank in on:
            raise on[rank]


def overflowing(ranks):
    """What the mean of float16 messages is if no gradient, but the sum of all of them is beyond float16."""
    exchange = make_exchange(Allreduce(groups=1, compression="fp16"))
    largest = 60000.0 * wire.wire_divisors(ranks)[0]

    @tf.function(autograph=False)
    def means(gradient):
        return exchange.average([gradient, 0 * gradient], [[0, 1]])

    return [mean.numpy().tolist() for mean in means(tf.constant([largest, 1.0]))]


def main(out):
    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    reduction.start()
    rank = reduction.rank()
    groups_at_once(out / "timeline.json")
    found = {
        "ranks": [rank, reduction.size()],
        "gathered": reduction.gather_json({"rank": rank, "text": "Å" * (3 * rank + 1)}),
        "lowest": reduction.minimum(7 - rank),
        "total": reduction.total(np.array([0.1, rank])).tolist(),
        "same": caught(lambda: reduction.check_same({"a": 1}, "it")),
        "differs": caught(lambda: reduction.check_same(rank, "the number")),
        "failed on 1": caught(lambda: failing({1: InputError("bad")}, rank)),
        "failed on both": caught(lambda: failing({0: WorkError("zero"), 1: InputError("one")}, rank)),
        "failed on none": caught(lambda: failing({}, rank)),
    }

    averaged = {}
    choices = {
        "grouped": {"groups": 2},
        "single": {"groups": 0},
        "layers": {"grouping": "layer"},
        "contiguous": {"groups": 2, "contiguous": True},
        "fp16": {"groups": 3, "compression": "fp16"},
    }
    for name, choice in choices.items():
        config = training(exchange=choice)
        weights, numbers, _ = train(config, plain_model(seed=rank), mine(rank))  # rank 1 starts from other weights
        averaged[name] = [float(number[0]) for number in numbers]
        found[f"{name} digest"] = digest(weights)
        if rank == 0:
            np.savez(out / f"{name}.npz", *weights)
    found["huber"] = averaged
    found["overflow"] = overflowing(reduction.size())

    def poisoned():
        for index, (x, y) in enumerate(mine(rank)):
            yield (x * np.inf if index == 2 and rank == 1 else x), y

    config = training(precision={"compute": "mixed_float16", "initial_loss_scale": 1024.0})
    with precision.policy("mixed_float16"):
        model = plain_model()
    weights, numbers, optimizer = train(config, model, poisoned())
    found["poisoned"] = {
        "scales": [float(number[2]) for number in numbers],
        "iterations": int(optimizer.iterations),
        "digest": digest(weights),
        "finite": bool(all(np.isfinite(weight).all() for weight in weights)),
    }

    model = plain_model()
    optimizer = LarsAdam(training().optimizer)
    optimizer.build(model.trainable_variables)
    step = make_step(model, optimizer, training())
    waits = []
    for index, (x, y) in enumerate(mine(rank)):
        time.sleep(0.5 if (index, rank) == (3, 1) else 0)
        waits.append(float(step(tf.constant(x), tf.constant(y), tf.constant(1e-2), tf.constant(2.0))[4]))
    found["comm_s"] = waits

    network = NetworkConfig(
        input_shape=(2, 8, 12), layers=(1, 1, 1), growth=4, kernel=3, first_kernel=3, first_filters=4, dropout=0.5
    )
    model = build(network, seed=rank)
    rng = np.random.default_rng(6)  # both ranks see the same samples, and drop different maps
    x, y = rng.normal(size=(3, 1, 8, 12, 2)).astype(np.float32), rng.normal(size=(3, 1, 8, 12, 1)).astype(np.float32)
    weights, _, optimizer = train(training(), model, zip(x, y, strict=True))
    found["whole network"] = {
        "weights": digest(weights),
        "moments": digest(variable.numpy() for variable in optimizer.variables),
        "statistics": digest(variable.numpy() for variable in model.non_trainable_weights),
        "generators": [v.numpy().tolist() for v in model.variables if v.name == "seed_generator_state"],
    }
    (out / f"{rank}.json").write_text(json.dumps(found))
    reduction.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
