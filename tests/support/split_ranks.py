"""Samples that are divided over groups of WAYS ranks: OUT/rank.json, OUT/CASE.npz; `test_split.py`.

    python tests/support/split_ranks.py OUT WAYS CASE...

Every case is trained here by all ranks, and by the test in one process that knows of no parts. A case may be one of the
neighbours' networks, or all of them.
"""

import json
import sys
from functools import partial
from itertools import islice, product
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from exchange_ranks import digest
from timelines import metered

from fcdensenet import keras_layers
from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from train.experiment.sections import Training
from train.input.division import division_of
from train.networks import build as build_network
from train.networks import read_network
from train.optimization import checkpoint
from train.optimization.loop import EpochPlan, make_step, train_epoch
from train.optimization.losses import DensityObjective
from train.optimization.optimizers import assemble
from train.ranks import reduction
from train.strategies.division.parts.section import SampleSplit

STEPS, STOP = 5, 3
# Beside CASES; RESTART continues the first case from a checkpoint.
FLOAT64, RESTART, NETWORKS = "float64", "restart", "networks"
NETWORK = {
    "input_shape": (3, 32, 48),
    "layers": (1, 2, 1),
    "growth": 4,
    "kernel": 5,
    "first_kernel": 3,
    "first_filters": 6,
    "dropout": 0.0,
}
NEIGHBOURS = {
    "strided": {"kind": "fcdensenet", "transitions": "strided", "transition_up_kernel": 3, **NETWORK},
    "deeplabv3plus": {
        "input_shape": (2, 64, 24),
        "units": (1, 1, 1, 1),
        "width": 2,
        "rates": (1, 3),
        "filters": 3,
        "low_level_filters": 2,
        "skip_filters": (2, 3),
    },
    "cosmoflow": {
        "input_shape": (2, 32, 16, 24),
        "filters": (2, 3, 4),
        "strides": (1, 2, 1),
        "dense": (6, 5),
        "outputs": 3,
        "dropout": 0.0,
        "norm": True,
    },
    "unet3d": {"input_shape": (1, 16, 8, 12), "levels": 2, "first_filters": 2},
}
CASES = {
    "pooled": ({}, {}),
    "x, recomputed": ({"transition_up_kernel": 3}, {"split": "x", "recompute": True}),
    "relative": ({"output_channels": 2}, {"loss": {"relative": True, "likelihood": "laplace", "l2": 1e-2}}),
    "channels first": ({"data_format": "channels_first", "kernel": 3}, {"accumulate": 2}),
    "float16": ({"kernel": 3}, {"precision": {"compute": "mixed_float16", "initial_loss_scale": 1024.0}}),
}


def configured(name, ways, groups):
    """(network, training) of a case; `groups` more batches an update for one rank that stands for so many groups."""
    network, training = CASES[name]
    sections = {
        "epochs": 1,
        "optimizer": {"learning_rate": 5e-4},
        "schedule": {"scale_with_ranks": False, "warmup_epochs": 0},
        "exchange": {"groups": 1},
        **training,
        "accumulate": training.get("accumulate", 1) * groups,
        "split": {"ways": ways, "axis": training.get("split", "y")},
    }
    return NetworkConfig.model_validate(NETWORK | network), Training.model_validate(sections)


def batches(network, groups, group=None, dtype=np.float32):
    """Batches of one sample; those of all groups, one after the other, or every `groups`-th."""
    rng, first = np.random.default_rng(4), network.data_format == "channels_first"
    channels, *extent = network.input_shape
    number = 0
    while True:
        x = rng.normal(size=(1, *extent, channels))
        y = (x[..., :1] * x[..., 1:2] + 0.3 * np.roll(x[..., 2:], 9, (1, 2))).astype(np.float32)
        if group is None or number % groups == group:
            yield tuple(tf.constant(np.moveaxis(a, -1, 1) if first else a) for a in (x.astype(dtype), y))
        number += 1


def train(name, ways, groups, split=None, folder=None):
    """(weights and statistics, rows, assembly) after STEPS steps of a case, on a part or on whole samples.

    With a folder, from its checkpoint on; one is written after STOP steps.
    """
    network, training = configured(name, ways if split else 1, 1 if split else groups)
    objective = DensityObjective(training.loss, split)
    parts = assemble(network, 1, training, reduction.size(), objective, split)
    state = [*parts.model.variables, *parts.optimizer.variables]
    done = checkpoint.restore([folder], state, network).step if folder else 0
    step = make_step(parts.model, parts.optimizer, training, parts.exchange, parts.accumulation, objective)
    reduction.broadcast_state(parts.model, parts.optimizer.variables)
    read = batches(network, groups, split.group if split else None)
    if training.precision.compute == "mixed_float16":
        read = ((tf.cast(x, tf.float16), y) for x, y in read)
    if split:
        read = (tuple(split.take_part(a, network.data_format) for a in pair) for pair in read)
    plan = EpochPlan(epoch=0, first_step=1 + done, steps=STEPS, ranks=groups, steps_left=STEPS - done)
    rows = []
    read = islice(read, done, None)
    for row in train_epoch(step, read, training, plan, accumulation=parts.accumulation, objective=objective):
        rows.append([row["loss"], row["grad_norm"]])
        if folder and row["step"] == STOP and reduction.rank() == 0:
            checkpoint.save(folder, checkpoint.TrainingPosition(step=STOP), state, network, keep=3)
    return {variable.path: variable.numpy() for variable in parts.model.variables}, rows, parts


def in_float64(ways, groups, split=None):
    """Weights and statistics after STEPS steps of gradient descent, on a part or on the whole samples of all groups."""
    keras.utils.clear_session()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    network = NetworkConfig.model_validate(NETWORK | {"block_norm": True})
    model = build(network, 1, split=split)
    model = keras.Model(model.input, model.layers[-1].input)  # the output is float32
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    weights = model.trainable_variables

    @tf.function(autograph=False)
    def differentiate(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        return tape.gradient(loss, [weight.value for weight in weights])

    read = batches(network, groups, split.group if split else None, np.float64)
    for _ in range(STEPS):
        own = []
        old = [weight.numpy() for weight in model.non_trainable_variables]
        new = [0.0 for _ in old]
        for x, y in islice(read, 1 if split else groups):
            pair = (x, tf.cast(y, tf.float64))
            for variable, value in zip(model.non_trainable_variables, old, strict=True):
                variable.assign(value)
            gradients = differentiate(*(split.take_part(a, network.data_format) for a in pair) if split else pair)
            own.append(np.concatenate([gradient.numpy().ravel() for gradient in gradients]))
            new = [total + variable.numpy() for total, variable in zip(new, model.non_trainable_variables, strict=True)]
        mean = reduction.total(sum(own)) / (reduction.size() if split else groups)
        edges = np.cumsum([weight.numpy().size for weight in weights])[:-1]
        for weight, gradient in zip(weights, np.split(mean, edges), strict=True):
            weight.assign_sub(0.1 * gradient.reshape(weight.shape))
        for variable, total in zip(model.non_trainable_variables, new, strict=True):
            variable.assign(reduction.total(total) / (reduction.size() if split else groups))
    return {variable.path: variable.numpy() for variable in model.variables}


class VolumePooling(keras.layers.Layer):
    """Pooling of volumes, of which TensorFlow has none in float64."""

    def __init__(self, size, reduce, **settings):
        super().__init__(name=settings["name"])
        self.reduce = reduce

    def call(self, x):
        starts = product(range(2), repeat=3)
        return self.reduce(keras.ops.stack([x[:, z::2, y::2, x_::2] for z, y, x_ in starts]), 0)


def networks_in_float64(split, names):
    """Largest difference of a step of some of NEIGHBOURS on parts from that on whole samples, in float64.

    Of outputs, of moving averages, and of the mean over the parts of the gradients.
    """
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    rng, largest = np.random.default_rng(7), {}
    pooling = {("average", 3): keras.ops.mean, ("max", 3): keras.ops.max}
    keras_layers._POOLING |= {kind: partial(VolumePooling, reduce=reduce) for kind, reduce in pooling.items()}
    for name in names:
        config = read_network({"network": {"kind": name} | NEIGHBOURS[name]}, name)
        found = []
        x = rng.normal(size=(2, *config.input_shape[1:], config.input_shape[0]))
        wanted = None
        for each in (None, split):
            keras.utils.clear_session()
            model = build_network(config, 1, split=each)
            model = keras.Model(model.input, model.layers[-1].input)  # the output is float32
            if wanted is None:
                wanted = rng.normal(size=(2, *model.output_shape[1:]))
            has_grid = wanted.ndim == x.ndim
            pair = [tf.constant(x), tf.constant(wanted)]
            if each:
                pair = [each.take_part(a, "channels_last") if a.shape.rank == x.ndim else a for a in pair]
            with tf.GradientTape() as tape:
                maps = model(pair[0], training=True)
                loss = tf.reduce_mean(tf.square(maps - pair[1]))
            gradients = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
            flat = np.concatenate([gradient.numpy().ravel() for gradient in gradients])
            if each:
                flat = reduction.total(flat) / each.ways
            elif has_grid:
                maps = split.take_part(maps, "channels_last")
            statistics = [variable.numpy().ravel() for variable in model.non_trainable_variables]
            found.append(np.concatenate([maps.numpy().ravel(), flat, *statistics]))
        largest[name] = float(np.abs(found[0] - found[1]).max())
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    return largest


def main(out, ways, cases):
    sections = {"epochs": 1, "exchange": {"groups": 1}, "split": {"ways": ways}}
    reduction.start(Training.model_validate(sections))
    rank, groups, all_to_all = reduction.rank(), reduction.size() // ways, reduction.all_to_all
    first, sent, names = cases[0], [], []
    found = {"digests": {}, "rows": {}}
    reduction.all_to_all = metered(sent, rank % ways, names)
    for name in cases:
        case = first if name == RESTART else name
        axis = CASES[case][1].get("split", "y") if case in CASES else "y"
        split = division_of(SampleSplit(ways=ways, axis=axis))
        if name == NETWORKS or name in NEIGHBOURS:
            found["networks"] = networks_in_float64(split, NEIGHBOURS if name == NETWORKS else [name])
            (out / f"{rank}.json").write_text(json.dumps(found))
            continue
        if name == FLOAT64:
            arrays, moments = in_float64(ways, groups, split), []
        else:
            arrays, found["rows"][name], parts = train(
                case, ways, groups, split, out / "checkpoints" if case == first else None
            )
            moments = [variable.numpy() for variable in parts.optimizer.variables]
        found["digests"][name] = digest([*arrays.values(), *moments])
        if name == first:
            reduction.all_to_all = all_to_all
            network, training = configured(name, ways, 1)
            counts = count(network, training.recompute, ways, split.axis)
            neighbours = (split.part > 0) + (split.part < ways - 1)
            wanted = neighbours * counts.halo_bytes("float32") // 2 + counts.moment_bytes(ways)
            found["bytes"] = [sum(sent), STEPS * wanted]
            found["messages"] = [len(sent) / STEPS, len(names), len(set(names)), counts.exchanges]
        if rank == 0:
            np.savez(out / f"{name}.npz", **arrays)
        (out / f"{rank}.json").write_text(json.dumps(found))
    reduction.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
