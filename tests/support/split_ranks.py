"""Samples that are divided over ranks, into OUT; `test_split.py` starts it with groups of WAYS ranks.

Every case is trained here by all ranks, and by the test in one process that knows of no parts.
"""

import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from two_ranks import digest

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from train.experiment.sections import Reduction, SampleSplit, Training
from train.optimization.assembly import assemble
from train.optimization.loop import EpochPlan, make_step, train_epoch
from train.ranks import reduction
from train.ranks.split import rank_split

STEPS = 5
NETWORK = {
    "input_shape": (3, 32, 48),
    "layers": (1, 2, 1),
    "growth": 4,
    "kernel": 5,
    "first_kernel": 3,
    "first_filters": 6,
    "dropout": 0.0,
}
CASES = {
    "pooled": ({}, {}),
    "strided, x": ({"transitions": "strided", "transition_up_kernel": 3}, {"split": "x", "recompute": True}),
    "relative": ({"output_channels": 2}, {"loss": {"relative": True, "likelihood": "laplace", "l2": 1e-2}}),
    "channels first": ({"data_format": "channels_first", "kernel": 3}, {"accumulate": 2}),
    "float16": ({"kernel": 3}, {"precision": {"compute": "mixed_float16", "initial_loss_scale": 1024.0}}),
}


def configured(name, ways, groups):
    """(network, training) of a case; `groups` more batches an update for one rank that stands for so many groups."""
    network, training = CASES[name]
    sections = {
        "epochs": 1,
        "optimizer": {"learning_rate": 3e-3},
        "schedule": {"scale_with_ranks": False, "warmup_epochs": 0},
        "reduction": {"groups": 1},
        **training,
        "accumulate": training.get("accumulate", 1) * groups,
        "split": {"ways": ways, "axis": training.get("split", "y")},
    }
    return NetworkConfig.model_validate(NETWORK | network), Training.model_validate(sections)


def batches(network, groups, group=None):
    """Batches of one sample; those of all groups, one after the other, or every `groups`-th."""
    rng, first = np.random.default_rng(4), network.data_format == "channels_first"
    dtype = keras.config.dtype_policy().compute_dtype
    channels, *extent = network.input_shape
    number = 0
    while True:
        x = rng.normal(size=(1, *extent, channels))
        y = (x[..., :1] * x[..., 1:2] + 0.3 * np.roll(x[..., 2:], 9, (1, 2))).astype(np.float32)
        if group is None or number % groups == group:
            yield tuple(tf.constant(np.moveaxis(a, -1, 1) if first else a) for a in (x.astype(dtype), y))
        number += 1


def train(name, ways, groups, split=None):
    """(weights and statistics, losses, optimizer) after STEPS steps of a case, on a part or on whole samples."""
    network, training = configured(name, ways if split else 1, 1 if split else groups)
    parts = assemble(network, 1, training, reduction.size(), split)
    step = make_step(parts.model, parts.optimizer, training, parts.buffers, parts.accumulation, split)
    reduction.broadcast_state(parts.model, parts.optimizer)
    read = batches(network, groups, split.group if split else None)
    if training.precision.compute == "mixed_float16":
        read = ((tf.cast(x, tf.float16), y) for x, y in read)
    if split:
        read = (tuple(split.take_part(a, network.data_format) for a in pair) for pair in read)
    plan = EpochPlan(epoch=0, first_step=1, steps=STEPS, ranks=groups)
    rows = list(train_epoch(step, read, training, plan, accumulation=parts.accumulation))
    arrays = {variable.path: variable.numpy() for variable in parts.model.variables}
    return arrays, [[row["loss"], row["grad_norm"]] for row in rows], parts


def in_float64(split):
    """The largest difference of weights between parts and whole samples after STEPS steps of gradient descent."""
    keras.utils.clear_session()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    network = NetworkConfig.model_validate(NETWORK)
    models = [build(network, 1, split=each) for each in (split, None)]
    models = [keras.Model(model.input, model.layers[-1].input) for model in models]  # the output is float32
    differences = [0.0]

    @tf.function(autograph=False)
    def gradients(model, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - tf.cast(y, tf.float64)))
        return tape.gradient(loss, [weight.value for weight in model.trainable_variables])

    for _, (x, y) in zip(range(STEPS), batches(network, 1), strict=False):
        part = [split.take_part(tf.cast(a, tf.float64), network.data_format) for a in (x, y)]
        own = [gradient.numpy() for gradient in gradients(models[0], *part)]
        flat = reduction.total(np.concatenate([gradient.ravel() for gradient in own])) / reduction.size()
        means = np.split(flat, np.cumsum([gradient.size for gradient in own])[:-1])
        for weight, mean in zip(models[0].trainable_variables, means, strict=True):
            weight.assign_sub(0.1 * mean.reshape(weight.shape))
        for weight, gradient in zip(models[1].trainable_variables, gradients(models[1], x, y), strict=True):
            weight.assign_sub(0.1 * gradient)
    for found, wanted in zip(models[0].weights, models[1].weights, strict=True):
        differences.append(float(np.abs(found.numpy() - wanted.numpy()).max()))
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    return max(differences)


def main(out, ways, cases):
    process_set = reduction.start(Reduction(groups=1), ways)
    rank, groups = reduction.rank(), reduction.size() // ways
    sent, messages, all_to_all = [], [], reduction.all_to_all

    def counted(flat, splits, name, process_set):
        def add(size):
            sent.append(int(size))
            return size

        messages.append(name)
        with tf.control_dependencies(
            [tf.py_function(add, [(tf.size(flat) - splits[rank % ways]) * flat.dtype.size], tf.int32)]
        ):
            return all_to_all(tf.identity(flat), splits, name, process_set)

    found = {"digests": {}, "rows": {}}
    for name in cases:
        split = rank_split(SampleSplit(ways=ways, axis=CASES[name][1].get("split", "y")), process_set)
        arrays, found["rows"][name], parts = train(name, ways, groups, split)
        found["digests"][name] = digest(arrays.values())
        moments = [variable.numpy() for variable in parts.optimizer.variables]
        found["digests"][f"{name}, moments"] = digest(moments)
        if rank == 0:
            np.savez(out / f"{name}.npz", **arrays)
    first = cases[0]
    again, _, _ = train(first, ways, groups, rank_split(SampleSplit(ways=ways), process_set))
    found["again"] = digest(again.values())
    found["float64"] = in_float64(rank_split(SampleSplit(ways=ways), process_set))

    reduction.all_to_all = counted  # one step with a meter
    network, training = configured("strided, x", ways, 1)
    split = rank_split(training.split, process_set)
    parts = assemble(network, 1, training, reduction.size(), split)
    step = make_step(parts.model, parts.optimizer, training, split=split)
    x, y = (split.take_part(a, network.data_format) for a in next(batches(network, 1)))
    messages.clear()
    step(x, y, tf.constant(1e-3), tf.constant(10.0))
    counts = count(network, ways=ways, axis=split.axis)
    found["bytes"] = [sum(sent), counts.halo_bytes("float32"), len(sent), counts.exchanges]
    found["names"] = len(messages) == len(set(messages))
    found["part"] = split.part
    (out / f"{rank}.json").write_text(json.dumps(found))
    reduction.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(CASES))
