"""Tests that ranks run together, each into OUT/RANK.json: two of them about collectives and faults,
four about the kinds of `training.exchange`. The weights of rank 0 go into OUT/NAME.npz.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from exchange_training import (
    RANKS,
    STEPS,
    Choice,
    Choices,
    batches,
    configured,
    digest,
    small_model,
    train,
)
from socket_bytes import sockets

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from namsa.base.errors import InputError, WorkError
from namsa.base.launcher import rank_and_size
from train.experiment.exchange import Allreduce
from train.experiment.registry import kinds, strategy
from train.optimization import precision
from train.ranks import connection, wire
from train.ranks.connection import engine
from train.ranks.exchange import make_exchange

GROUPED: Choices = {
    "plain": {"groups": 0},
    "bytes": {"groups": 3},
    "layer": {"grouping": "layer"},
    "block": {"grouping": "block"},
    "list": {
        "grouping": "list",
        "group_list": [["*/bias"], ["*down*/kernel", "*last/kernel"], ["*up*/kernel"]],
    },
    "contiguous": {"groups": 3, "contiguous": True},
}
OF_TWO: Choices = {  # choices of two ranks, whose sums no order of summation changes
    "grouped": {"groups": 2},
    "single": {"groups": 0},
    "layers": {"grouping": "layer"},
    "contiguous": {"groups": 2, "contiguous": True},
    "fp16": {"groups": 3, "compression": "fp16"},
}
AT_ONCE = 6  # groups of two tensors that are ready at the same time


def known(choices: Choices) -> Choices:
    """Those whose kind is there."""
    there = {"allreduce", *kinds("exchange")}
    return {
        name: choice for name, choice in choices.items() if choice.get("kind", "allreduce") in there
    }


TWO_NODES = {"kind": "hybrid", "node_ranks": 2, "leaders": 2}
HYBRID = (
    known(  # two nodes of two ranks; Horovod has process sets for all of them, with two leaders
        {
            "one leader": TWO_NODES | {"groups": 2, "leaders": 1},
            "two leaders": TWO_NODES | {"groups": 2},
        }
    )
)
LOCAL = {"kind": "local_sgd", "synchronise": 2}
TRAINED = known(
    {
        "groups": {"groups": 3},
        "lag": {"kind": "lag"},
        "local": LOCAL,
        "local_moments": LOCAL | {"average_moments": True},
        **{f"local_{bits}": LOCAL | {"precision": bits} for bits in (8, 16, 24)},
        "hybrid": TWO_NODES | {"groups": 3},
        "lag of hybrid": {"kind": "lag", "of": TWO_NODES}
        if known({"": TWO_NODES})
        else {"kind": "lag"},
    }
)
COUNTED = 400_001  # float64 values whose bytes are counted
# of which the least bytes count: the longer a reduction takes, the more messages agree on it
REPEATS = 5
BLOCKS = (2, 4, 4)  # variables of each block of `small_model`, the last one first


def exchange_of(choice: Choice) -> Any:
    return make_exchange(configured(choice).exchange, engine().rank(), engine().size())


def exact_means(choice: Choice, rank: int) -> float:
    """Distance of averages of whole numbers, which no order of summation rounds, from the right
    ones: 0 if none is misplaced.
    """
    names = []
    for block in "ab":
        for n in range(3):
            names.append(f"{block}_{n}/kernel")
    shapes = [(n, 3) for n in range(1, 7)]
    exchange: Any = exchange_of(
        choice | {"group_list": [["a*"], ["b*"]]} if "group_list" in choice else choice
    )
    exchange.paths = names

    @tf.function(autograph=False)
    def averages(start: tf.Tensor) -> list[tf.Tensor]:
        tensors = []
        for n, m in shapes:
            tensors.append(tf.reshape(tf.range(n * m, dtype=tf.float32), (n, m)) * 8 + start + n)
        return exchange.average(tensors, exchange.groups(tensors))

    wanted = [
        np.arange(n * m).reshape(n, m) * 8 + n + 4 * sum(range(RANKS)) / RANKS for n, m in shapes
    ]
    means = averages(tf.constant(4.0 * rank))
    return float(max(np.abs(a.numpy() - b).max() for a, b in zip(means, wanted, strict=True)))


def float64_sums(choice: Choice, rank: int) -> dict[str, float]:
    """Largest error of sums of float64 values, by the numbers of values of two tensors in one
    group.
    """
    exchange = exchange_of(choice)
    errors = {}
    for lengths in ((1, 0), (3, 2), (7, 16)):
        drawn = []
        for r in range(RANKS):
            drawn.append([np.random.default_rng([r, n]).normal(size=n) for n in lengths])

        @tf.function(autograph=False)
        def sums(*tensors: tf.Tensor) -> list[tf.Tensor]:
            return exchange.reduce(tensors, [[0, 1]])

        summed = sums(*(tf.constant(values) for values in drawn[rank]))
        wanted = [sum(values) for values in zip(*drawn, strict=True)]
        errors[str(sum(lengths))] = max(
            float(np.abs(a.numpy() - b).max(initial=0)) for a, b in zip(summed, wanted, strict=True)
        )
    return errors


def bytes_received(choice: Choice) -> Counter[int]:
    """Values that this rank gets from each other rank for one reduction of COUNTED values, as the
    kernel counts it.
    """
    exchange = exchange_of(choice)

    @tf.function(autograph=False)
    def sums(tensor: tf.Tensor) -> list[tf.Tensor]:
        return exchange.reduce([tensor], [[0]])

    tensor = tf.ones(COUNTED, tf.float64)
    sums(tensor)
    counts = []
    for _ in range(REPEATS):
        engine().minimum(0)
        before = sockets()
        sums(tensor)
        engine().minimum(0)
        after = sockets()
        counts.append(
            {
                here: count - before.get(here, (there, 0))[1]
                for here, (there, count) in after.items()
            }
        )
    places = {}
    for rank, addresses in enumerate(engine().gather_json(list(after))):
        for here in map(tuple, addresses):
            places[here] = rank
    received: Counter[int] = Counter()
    for here, (there, _) in after.items():
        if there in places:
            received[places[there]] += min(count[here] for count in counts if here in count)
    return received


def caught(work: Callable[[], object]) -> list[str] | None:
    try:
        work()
    except (InputError, WorkError, SystemExit) as error:
        return [type(error).__name__, str(error)]
    return None


def failing(on: dict[int, Exception], rank: int) -> None:
    with engine().local_work():
        if rank in on:
            raise on[rank]


def groups_at_once() -> None:
    """STEPS reductions of AT_ONCE groups of two tensors that are ready at the same time."""
    members = [[2 * group, 2 * group + 1] for group in range(AT_ONCE)]

    @tf.function(autograph=False)
    def means(start: tf.Tensor) -> Any:
        exchange: Any = make_exchange(Allreduce())
        return exchange.average([start + n for n in range(2 * AT_ONCE)], members)

    for _ in range(STEPS):
        means(tf.zeros(3))


def overflowing(ranks: int) -> list[Any]:
    """The mean of float16 messages if no gradient, but the sum of all of them is beyond
    float16.
    """
    exchange: Any = make_exchange(Allreduce(groups=1, compression="fp16"))
    largest = 60000.0 * wire.wire_divisors(ranks)[0]

    @tf.function(autograph=False)
    def means(gradient: tf.Tensor) -> Any:
        return exchange.average([gradient, 0 * gradient], [[0, 1]])

    return [mean.numpy().tolist() for mean in means(tf.constant([largest, 1.0]))]


def whole_network(rank: int) -> dict[str, Any]:
    """Two ranks that see the same samples, and drop different maps."""
    sizes = {"growth": 4, "kernel": 3, "first_kernel": 3, "first_filters": 4}
    model = build(
        NetworkConfig(input_shape=(2, 8, 12), layers=(1, 1, 1), dropout=0.5, **sizes), seed=rank
    )
    x, y = (
        np.random.default_rng(6).normal(size=(STEPS, 1, 8, 12, n)).astype(np.float32)
        for n in (2, 1)
    )
    weights, _, optimizer, _ = train({}, model, zip(tf.constant(x), tf.constant(y), strict=True))
    return {
        "weights": digest(weights),
        "moments": digest(variable.numpy() for variable in optimizer.variables),
        "statistics": digest(variable.numpy() for variable in model.non_trainable_weights),
        "generators": [
            v.numpy().tolist() for v in model.variables if v.name == "seed_generator_state"
        ],
    }


def moments_again(moments: Sequence[keras.Variable]) -> list[bool]:
    """Whether moments that differ from rank to rank come back after they are lost, and only to as
    many ranks.
    """
    own_moments = strategy("exchange", "local_sgd", "exchange")
    packing: Any = import_module("train.strategies.exchange.packing")
    packing.MESSAGE_BYTES = 1000  # so that several pieces travel
    before = [variable.numpy() for variable in moments]
    stored = own_moments.gather(moments)
    for variable in moments:
        variable.assign(tf.zeros_like(variable.value) if engine().rank() else variable.value)
    refused = not own_moments.distribute(moments, stored[1:])
    lost = not np.any(moments[0].numpy()) or engine().rank() == 0
    taken = own_moments.distribute(moments, stored)
    same = all(
        np.array_equal(variable.numpy(), value)
        for variable, value in zip(moments, before, strict=True)
    )
    return [refused, lost, taken, same]


@contextmanager
def recorded(path: Path) -> Iterator[None]:
    """Horovod's record of what is done within the context."""
    hvd.start_timeline(str(path))
    time.sleep(0.2)  # it begins at a cycle of its own
    yield
    hvd.stop_timeline()
    time.sleep(0.2)


def trained(
    choices: Choices, rank: int, ranks: int, out: Path, results: dict[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Trains with each choice, from weights of the rank's own; yields name, optimizer and
    exchange.
    """
    results |= {"digest": {}, "huber": {}}
    for name, choice in choices.items():
        weights, rows, optimizer, exchange = train(
            choice, small_model(rank), batches(slice(rank, rank + 1), ranks)
        )
        results["digest"][name], results["huber"][name] = (
            digest(weights),
            [row["huber"] for row in rows],
        )
        if rank == 0:
            np.savez(out / f"{name}.npz", *weights)
        yield name, optimizer, exchange


def of_two(rank: int, out: Path) -> dict[str, Any]:
    with recorded(out / "timeline.json"):
        groups_at_once()
    results = {
        "ranks": [rank, engine().size()],
        "gathered": engine().gather_json({"rank": rank, "text": "Å" * (3 * rank + 1)}),
        "lowest": engine().minimum(7 - rank),
        "total": engine().total(np.array([0.1, rank])).tolist(),
        "same": caught(lambda: engine().check_same({"a": 1}, "it")),
        "differs": caught(lambda: engine().check_same(rank, "the number")),
        "failed on 1": caught(lambda: failing({1: InputError("bad")}, rank)),
        "failed on both": caught(
            lambda: failing({0: WorkError("zero"), 1: InputError("one")}, rank)
        ),
        "failed on none": caught(lambda: failing({}, rank)),
        "overflow": overflowing(engine().size()),
        "whole network": whole_network(rank),
    }
    list(trained(OF_TWO, rank, 2, out, results))

    def own(change: Callable[[int, tf.Tensor], tf.Tensor]) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        for index, (x, y) in enumerate(batches(slice(rank, rank + 1), 2)):
            yield change(index, x), y

    poisoned = own(lambda index, x: x * np.inf if (index, rank) == (2, 1) else x)
    scaled = {"compute": "mixed_float16", "initial_loss_scale": 1024.0}
    with precision.policy("mixed_float16"):
        model = small_model()
    weights, rows, optimizer, _ = train({}, model, poisoned, precision=scaled)
    results["poisoned"] = {
        "scales": [row["loss_scale"] for row in rows],
        "iterations": int(optimizer.iterations),
        "digest": digest(weights),
        "finite": bool(all(np.isfinite(weight).all() for weight in weights)),
    }

    def late(index: int, x: tf.Tensor) -> tf.Tensor:
        if (index, rank) == (3, 1):
            time.sleep(0.5)
        return x

    results["comm_s"] = [row["comm_s"] for row in train({}, small_model(), own(late))[1]]
    return results


def of_four(rank: int, out: Path) -> dict[str, Any]:
    with recorded(out / "timeline.json"):
        train(GROUPED["block"], small_model(), batches())
    if "local_moments" in TRAINED:
        with recorded(out / "synchronisations.json"):
            train(TRAINED["local_moments"], small_model(0), batches(slice(0, 1)))
    results: dict[str, Any] = {
        "exact": {name: exact_means(choice, rank) for name, choice in (GROUPED | HYBRID).items()},
        "moments": {},
    }
    results["float64"] = {name: float64_sums(choice, rank) for name, choice in HYBRID.items()}
    results["received"] = {
        name: bytes_received(choice) for name, choice in ({"flat": {"groups": 1}} | HYBRID).items()
    }
    for name, optimizer, exchange in trained(TRAINED, rank, RANKS, out, results):
        results["moments"][name] = digest(variable.numpy() for variable in optimizer.moments)
        if name == "local":
            results["moments_again"] = moments_again(exchange.own)
        if name == "lag":
            results["waiting"] = [digest(variable.numpy() for variable in exchange.waiting)]
            exchange.end_epoch(STEPS, 0, whole=True)
            results["waiting"].append(digest(variable.numpy() for variable in exchange.waiting))
    return results


def main(out: Path) -> None:
    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    rank, ranks = rank_and_size()
    # Two ranks fuse groups, four do not.
    connection.start(
        None if ranks == 2 else configured((TWO_NODES if HYBRID else {}) | {"fuse_groups": False})
    )
    results = (of_two if ranks == 2 else of_four)(rank, out)
    (out / f"{rank}.json").write_text(json.dumps(results))
    connection.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
