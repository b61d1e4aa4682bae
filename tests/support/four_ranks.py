"""What four ranks find out about the kinds of `training.exchange`, into OUT; `tests/train/conftest.py` starts it."""

import json
import os
import socket
import stat
import struct
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from two_ranks import digest, training

from train.experiment.registry import kinds, strategy
from train.optimization import losses
from train.optimization.loop import EpochPlan, make_step, train_epoch
from train.optimization.optimizers import LarsAdam
from train.ranks import reduction
from train.ranks.exchange import make_exchange

RANKS, STEPS, RATE = 4, 5, 1e-2

GROUPED = {
    "plain": {"groups": 0},
    "bytes": {"groups": 3},
    "layer": {"grouping": "layer"},
    "block": {"grouping": "block"},
    "list": {"grouping": "list", "group_list": [["*/bias"], ["*down*/kernel", "*last/kernel"], ["*up*/kernel"]]},
    "contiguous": {"groups": 3, "contiguous": True},
}


def known(choices):
    """Those whose kind is there."""
    there = {"allreduce", *kinds("exchange")}
    return {name: choice for name, choice in choices.items() if choice.get("kind", "allreduce") in there}


TWO_NODES = {"kind": "hybrid", "node_ranks": 2, "leaders": 2}
HYBRID = known(  # two nodes of two ranks; Horovod has process sets for all of them, with two leaders
    {"one leader": TWO_NODES | {"groups": 2, "leaders": 1}, "two leaders": TWO_NODES | {"groups": 2}}
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
        "lag of hybrid": {"kind": "lag", "of": TWO_NODES} if known({"": TWO_NODES}) else {"kind": "lag"},
    }
)
COUNTED = 400_001  # float64 values whose bytes are counted
REPEATS = 5  # of which the least bytes count: the longer a reduction takes, the more messages agree on it
BLOCKS = (2, 4, 4)  # variables of each block of `small_model`, the last one first


def small_model(seed=1):
    """No dropout and no normalisation, so that the mean over ranks is the mean over a larger batch."""
    keras.utils.set_random_seed(seed)
    names = ("down1_conv1", "down1_conv2", "up1_conv1", "up1_conv2")
    convolutions = [keras.layers.Conv2D(4, 3, padding="same", activation="relu", name=name) for name in names]
    last = keras.layers.Conv2D(1, 1, name="last")
    return keras.Sequential([keras.Input((6, 8, 2)), *convolutions, last])


def batches(samples=slice(None)):
    """STEPS batches of RANKS samples, or those of them that a rank has."""
    rng = np.random.default_rng(4)
    for _ in range(STEPS):
        x = rng.normal(size=(RANKS, 6, 8, 2)).astype(np.float32)
        yield tf.constant(x[samples]), tf.constant((x[..., :1] * x[..., 1:]).astype(np.float32)[samples])


def configured(choice):
    """A constant rate, and float32 throughout."""
    schedule = {"scale_with_ranks": False, "warmup_epochs": 0}
    return training(optimizer={"learning_rate": RATE}, schedule=schedule, exchange=choice)


def train(choice, seed, samples):
    """(weights, losses, the optimizer and the exchange) after STEPS steps."""
    config, model = configured(choice), small_model(seed)
    optimizer = LarsAdam(config.optimizer)
    exchange = make_exchange(config.exchange, reduction.rank(), reduction.size())
    exchange.begin(model, optimizer)
    exchange.restore(exchange.blank_state(), [], resumed=False)
    step = make_step(model, optimizer, config, exchange)
    plan = EpochPlan(epoch=0, first_step=1, steps=STEPS, ranks=reduction.size())
    rows = list(train_epoch(step, batches(samples), config, plan, exchange=exchange))
    weights = [weight.numpy() for weight in model.trainable_variables]
    return weights, [row["huber"] for row in rows], optimizer, exchange


class Alone:
    """One process that trains with nothing of `train.ranks` or `make_step`."""

    def __init__(self):
        self.training = configured({})
        self.model = small_model(seed=0)
        self.weights = self.model.trainable_variables
        self.optimizer = LarsAdam(self.training.optimizer)
        self.optimizer.build(self.weights)

    def gradients(self, x, y):
        """Those of the loss; `huber` is its part that depends on the samples."""
        with tf.GradientTape() as tape:
            huber = losses.huber(self.model(x, training=True), y, losses.huber_delta(self.training.loss, 0))
            loss = huber + losses.l2(losses.kernels(self.weights), self.training.loss.l2)
        self.huber = float(huber)
        return tape.gradient(loss, [weight.value for weight in self.weights])


def assert_close(out, name, weights, tolerance=2e-6):
    """The weights of TRAINED[name] are `weights`."""
    with np.load(out / f"{name}.npz") as file:
        for found, wanted in zip(file.values(), weights, strict=True):
            np.testing.assert_allclose(found, wanted, atol=tolerance)


def exchange_of(choice):
    return make_exchange(configured(choice).exchange, reduction.rank(), reduction.size())


def exact_means(choice, rank):
    """How far averages of whole numbers, which no order of summation rounds, are from right: 0 if none is misplaced."""
    names, shapes = [f"{block}_{n}/kernel" for block in "ab" for n in range(3)], [(n, 3) for n in range(1, 7)]
    exchange = exchange_of(choice | {"group_list": [["a*"], ["b*"]]} if "group_list" in choice else choice)
    exchange.paths = names

    @tf.function(autograph=False)
    def averages(start):
        tensors = [tf.reshape(tf.range(n * m, dtype=tf.float32), (n, m)) * 8 + start + n for n, m in shapes]
        return exchange.average(tensors, exchange.groups(tensors))

    wanted = [np.arange(n * m).reshape(n, m) * 8 + n + 4 * sum(range(RANKS)) / RANKS for n, m in shapes]
    found = averages(tf.constant(4.0 * rank))
    return float(max(np.abs(a.numpy() - b).max() for a, b in zip(found, wanted, strict=True)))


def float64_sums(choice, rank):
    """Largest error of sums of float64 values, by the numbers of values of two tensors in one group."""
    exchange = exchange_of(choice)
    errors = {}
    for lengths in ((1, 0), (3, 2), (7, 16)):
        drawn = [[np.random.default_rng([r, n]).normal(size=n) for n in lengths] for r in range(RANKS)]

        @tf.function(autograph=False)
        def sums(*own):
            return exchange.reduce(own, [[0, 1]])

        found = sums(*(tf.constant(values) for values in drawn[rank]))
        wanted = [sum(values) for values in zip(*drawn, strict=True)]
        errors[str(sum(lengths))] = max(
            float(np.abs(a.numpy() - b).max(initial=0)) for a, b in zip(found, wanted, strict=True)
        )
    return errors


def bytes_received(choice):
    """What this rank gets from each other rank for one reduction of COUNTED values, as the kernel counts it."""
    exchange = exchange_of(choice)

    @tf.function(autograph=False)
    def sums(own):
        return exchange.reduce([own], [[0]])

    own = tf.ones(COUNTED, tf.float64)
    sums(own)
    counts = []
    for _ in range(REPEATS):
        reduction.minimum(0)
        before = sockets()
        sums(own)
        reduction.minimum(0)
        after = sockets()
        counts.append({here: count - before.get(here, (there, 0))[1] for here, (there, count) in after.items()})
    places = {here: rank for rank, found in enumerate(reduction.gather_json(list(after))) for here in map(tuple, found)}
    received = Counter()
    for here, (there, _) in after.items():
        if there in places:
            received[places[there]] += min(count[here] for count in counts if here in count)
    return received


def sockets():
    """Of each connection of this process, by its own address: the other's address and the bytes that it sent."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                here, there = copy.getsockname(), copy.getpeername()
                details = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
        except OSError:
            continue
        found[here] = (there, struct.unpack_from("Q", details, 128)[0])  # tcpi_bytes_received
    return found


def moments_again(moments):
    """Whether moments that differ from rank to rank come back after they are lost, and only to as many ranks."""
    own_moments = strategy("exchange", "local_sgd", "exchange")
    import_module("train.strategies.exchange.packing").MESSAGE_BYTES = 1000  # so that several pieces travel
    before = [variable.numpy() for variable in moments]
    stored = own_moments.gather(moments)
    for variable in moments:
        variable.assign(tf.zeros_like(variable.value) if reduction.rank() else variable.value)
    refused = not own_moments.distribute(moments, stored[1:])
    lost = not np.any(moments[0].numpy()) or reduction.rank() == 0
    taken = own_moments.distribute(moments, stored)
    same = all(np.array_equal(variable.numpy(), value) for variable, value in zip(moments, before, strict=True))
    return [refused, lost, taken, same]


def synchronisations(path):
    """Horovod's record of STEPS steps of local SGD, from the first on."""
    hvd.start_timeline(str(path))
    time.sleep(0.2)
    train(TRAINED["local_moments"], 0, slice(0, 1))
    hvd.stop_timeline()
    time.sleep(0.2)


def timeline(choice, path):
    """Horovod's record of STEPS steps from the first on."""
    config, model = configured(choice), small_model()
    optimizer = LarsAdam(config.optimizer)
    optimizer.build(model.trainable_variables)
    step = make_step(model, optimizer, config)
    hvd.start_timeline(str(path))
    time.sleep(0.2)  # it begins at a cycle of its own
    for x, y in batches():
        step(x, y, tf.constant(RATE), tf.constant(2.0))
    hvd.stop_timeline()
    time.sleep(0.2)


def main(out):
    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    reduction.start(configured((TWO_NODES if HYBRID else {}) | {"fuse_groups": False}))  # the two ranks fuse groups
    rank = reduction.rank()
    timeline(GROUPED["block"], out / "timeline.json")
    if "local_moments" in TRAINED:
        synchronisations(out / "synchronisations.json")
    found = {"exact": {name: exact_means(choice, rank) for name, choice in GROUPED.items()}}
    found["exact"] |= {name: exact_means(choice, rank) for name, choice in HYBRID.items()}
    found |= {"digest": {}, "huber": {}, "moments": {}}
    found["float64"] = {name: float64_sums(choice, rank) for name, choice in HYBRID.items()}
    found["received"] = {name: bytes_received(choice) for name, choice in ({"flat": {"groups": 1}} | HYBRID).items()}
    for name, choice in TRAINED.items():
        weights, found["huber"][name], optimizer, exchange = train(choice, rank, slice(rank, rank + 1))
        found["digest"][name] = digest(weights)
        found["moments"][name] = digest(variable.numpy() for variable in optimizer.moments)
        if name == "local":
            found["moments_again"] = moments_again(exchange.own)
        if name == "lag":
            found["waiting"] = [digest(variable.numpy() for variable in exchange.waiting)]
            exchange.end_epoch(STEPS, 0, whole=True)
            found["waiting"].append(digest(variable.numpy() for variable in exchange.waiting))
        if rank == 0:
            np.savez(out / f"{name}.npz", *weights)
    (out / f"{rank}.json").write_text(json.dumps(found))
    reduction.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
