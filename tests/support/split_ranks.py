"""Samples that are divided over groups of WAYS ranks: OUT/rank.json, OUT/CASE.npz; `test_split.py`.

    python tests/support/split_ranks.py OUT WAYS CASE...

WAYS may be two numbers, as 2x2: along the first two axes of the grid.

Every case is trained here by all ranks, and by the test in one process that knows of no parts. A
case may be one of NETWORKS, which is compared here in float64.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from exchange_training import digest
from timelines import metered

from fcdensenet import keras_layers
from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from train.experiment.sections import Training
from train.input.division import RankDivision, division_of
from train.networks import build as build_network
from train.networks import read_network
from train.optimization import checkpoint
from train.optimization.loop import EpochPlan, make_step, train_epoch
from train.optimization.losses import DensityObjective
from train.optimization.optimizers import assemble
from train.ranks import connection
from train.ranks.connection import engine
from train.strategies.division.parts.section import SampleSplit

STEPS = 5
STOP = 3
RESTART = "restart"  # beside CASES, it continues the first case from a checkpoint
NETWORK: dict[str, Any] = {
    "input_shape": (3, 32, 48),
    "layers": (1, 2, 1),
    "growth": 4,
    "kernel": 5,
    "first_kernel": 3,
    "first_filters": 6,
    "dropout": 0.0,
}
NETWORKS: dict[str, dict[str, Any]] = {
    "fcdensenet": {"block_norm": True, **NETWORK},
    "strided": {
        "kind": "fcdensenet",
        "transitions": "strided",
        "transition_up_kernel": 3,
        **NETWORK,
    },
    "deeplabv3plus": {
        "input_shape": (2, 64, 64),
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
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pooled": ({}, {}),
    "x, recomputed": ({"transition_up_kernel": 3}, {"split": "x", "recompute": True}),
}


def configured(name: str, ways: int, groups: int) -> tuple[NetworkConfig, Training]:
    """(network, training) of a case; `groups` more batches an update for one rank that stands for
    so many groups.
    """
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


def batches(
    network: NetworkConfig, groups: int, group: int | None = None
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """Batches of one sample; those of all groups, one after the other, or every `groups`-th."""
    rng = np.random.default_rng(4)
    channels, *extent = network.input_shape
    batch_number = 0
    while True:
        x = rng.normal(size=(1, *extent, channels))
        y = (x[..., :1] * x[..., 1:2] + 0.3 * np.roll(x[..., 2:], 9, (1, 2))).astype(np.float32)
        if group is None or batch_number % groups == group:
            yield tf.constant(x, tf.float32), tf.constant(y)
        batch_number += 1


def train(
    name: str, ways: int, groups: int, split: RankDivision | None = None, folder: Path | None = None
) -> tuple[dict[str, Any], list[list[float]], Any]:
    """(weights and statistics, rows, assembly) after STEPS steps of a case, on a part or on whole
    samples.

    With a folder, from its checkpoint on; one is written after STOP steps.
    """
    network, training = configured(name, ways if split else 1, 1 if split else groups)
    objective = DensityObjective(training.loss, split)
    parts = assemble(network, 1, training, engine().size(), objective, split)
    state = [*parts.model.variables, *parts.optimizer.variables]
    done = checkpoint.restore([folder], state, network).position.step if folder else 0
    step = make_step(
        parts.model, parts.optimizer, training, parts.exchange, parts.accumulation, objective
    )
    engine().broadcast_state(parts.model, parts.optimizer.variables)
    read = batches(network, groups, split.group if split else None)
    if split:
        read = (tuple(split.take_part(a, network.data_format) for a in pair) for pair in read)
    plan = EpochPlan(
        epoch=0, first_step=1 + done, steps=STEPS, ranks=groups, steps_left=STEPS - done
    )
    rows = []
    read = islice(read, done, None)
    for row in train_epoch(
        step, read, training, plan, accumulation=parts.accumulation, objective=objective
    ):
        rows.append([row["loss"], row["grad_norm"]])
        if folder and row["step"] == STOP and engine().rank() == 0:
            checkpoint.save(folder, checkpoint.TrainingPosition(step=STOP), state, network, keep=3)
    return {variable.path: variable.numpy() for variable in parts.model.variables}, rows, parts


class VolumePooling(keras.layers.Layer):
    """Pooling of volumes, of which TensorFlow has none in float64."""

    def __init__(self, size: object, reduce: Callable[..., Any], **settings: Any) -> None:
        super().__init__(name=settings["name"])
        self.reduce = reduce

    def call(self, x: tf.Tensor) -> tf.Tensor:
        starts = product(range(2), repeat=3)
        return self.reduce(keras.ops.stack([x[:, z::2, y::2, x_::2] for z, y, x_ in starts]), 0)


def in_float64(name: str, split: RankDivision) -> float:
    """Largest difference of gradient descent on parts from that on the whole samples of all groups,
    in float64.

    Of outputs, weights and moving averages of one of NETWORKS; averages of a step are the mean over
    the groups.
    """
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    pooling = {("average", 3): keras.ops.mean, ("max", 3): keras.ops.max}
    for kind, reduce in pooling.items():
        keras_layers._POOLING[kind] = partial(VolumePooling, reduce=reduce)
    config = read_network({"network": {"kind": name} | NETWORKS[name]}, name)
    size = (2, *config.input_shape[1:], config.input_shape[0])
    shape = None
    groups = engine().size() // split.ranks
    results = []
    for division in (None, split):
        keras.utils.clear_session()
        model = build_network(config, 1, split=division)
        model = keras.Model(model.input, model.layers[-1].input)  # the output is float32
        shape = shape or (2, *model.output_shape[1:])
        rng = np.random.default_rng(7)
        has_grid = len(shape) == len(size)
        variables = [*model.trainable_variables, *model.non_trainable_variables]
        weights = len(model.trainable_variables)
        for _ in range(STEPS if name == "fcdensenet" else 1):
            old = [variable.numpy() for variable in variables]
            sums: Any = 0.0
            for group in range(groups):
                pair = [rng.normal(size=size), rng.normal(size=shape)]
                if division and group != split.group:
                    continue
                if division:
                    for index, array in enumerate(pair):
                        if array.ndim == len(size):
                            pair[index] = split.take_part(array, "channels_last")
                x, wanted = map(tf.constant, pair)
                for variable, value in zip(variables, old, strict=True):
                    variable.assign(value)
                with tf.GradientTape() as tape:
                    maps = model(x, training=True)
                    loss = tf.reduce_mean(tf.square(maps - wanted))
                gradients = tape.gradient(loss, [weight.value for weight in variables[:weights]])
                changed = (*gradients, *variables[weights:])
                sums += np.concatenate([a.numpy().ravel() for a in changed])
                if group == split.group:
                    if division or not has_grid:
                        outputs = maps
                    else:
                        outputs = split.take_part(maps, "channels_last")
            mean = engine().total(sums) / engine().size() / (1 if division else groups)
            edges = np.cumsum([value.size for value in old])[:-1]
            for index, (variable, flat) in enumerate(
                zip(variables, np.split(mean, edges), strict=True)
            ):
                new = flat.reshape(variable.shape)
                variable.assign(old[index] - 0.1 * new if index < weights else new)
        results.append(np.concatenate([np.ravel(a) for a in (outputs, *variables)]))
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    return float(np.abs(results[0] - results[1]).max())


def main(out: Path, numbers: list[int], cases: list[str]) -> None:
    sections: dict[str, Any] = {"epochs": 1, "exchange": {"groups": 1}}
    sections["split"] = {"ways": numbers[0]}
    if len(numbers) > 1:
        sections["split"]["further"] = {"x": numbers[1]}
    ways = math.prod(numbers)
    connection.start(Training.model_validate(sections))
    rank = engine().rank()
    groups = engine().size() // ways
    all_to_all = engine().all_to_all
    first_case = cases[0]
    sent: list[int] = []
    names: list[str] = []
    results: dict[str, Any] = {"digests": {}, "rows": {}, "float64": {}}
    engine().all_to_all = metered(sent, rank % ways, names)  # type: ignore[method-assign]
    for name in cases:
        case = first_case if name == RESTART else name
        shape = NETWORKS.get(name, NETWORK)["input_shape"]
        axis = "z" if len(shape) == 4 else "y"
        if case in CASES:
            axis = CASES[case][1].get("split", axis)
        section = SampleSplit(ways=numbers[0], axis=axis)
        if len(numbers) > 1:
            second = "y" if axis == "z" else "x"
            section = SampleSplit(ways=numbers[0], axis=axis, further={second: numbers[1]})
        split = division_of(section, shape)
        if name in NETWORKS:
            assert split is not None
            results["float64"][name] = in_float64(name, split)
            continue
        arrays, results["rows"][name], parts = train(
            case, ways, groups, split, out / "checkpoints" if case == first_case else None
        )
        moments = [variable.numpy() for variable in parts.optimizer.variables]
        results["digests"][name] = digest([*arrays.values(), *moments])
        if name == first_case:
            engine().all_to_all = all_to_all  # type: ignore[method-assign]
            assert split is not None
            network, training = configured(name, ways, 1)
            counts = count(network, training.recompute, ways, split.axis)
            neighbours = (split.part > 0) + (split.part < ways - 1)
            wanted = neighbours * counts.halo_bytes("float32") // 2 + counts.moment_bytes(ways)
            results["bytes"] = [sum(sent), STEPS * wanted]
            results["messages"] = [len(sent) / STEPS, len(names), len(set(names)), counts.exchanges]
        if rank == 0:
            np.savez(out / f"{name}.npz", **arrays)
    (out / f"{rank}.json").write_text(json.dumps(results))
    connection.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(ways) for ways in sys.argv[2].split("x")], sys.argv[3:])
