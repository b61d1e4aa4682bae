"""Two ranks that own half of the masters each: OUT/rank.json, OUT/CASE.npz, OUT/checkpoints; `test_shards.py`."""

import json
import sys
from itertools import islice
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from two_ranks import digest, metered, pairs

from fcdensenet.config import NetworkConfig
from train.experiment.sections import Training
from train.optimization import checkpoint, precision
from train.optimization.loop import make_step
from train.optimization.optimizers import make_optimizer
from train.ranks import reduction
from train.ranks.exchange import make_exchange

STOP = 3
NETWORK = NetworkConfig(input_shape=(2, 8, 8), layers=(1, 1, 1))  # for the headers of checkpoints
SHARDED = {"kind": "sharded", "groups": 2}
# All steps count, the first has no rate: two bytes after step 3, three after step 5.
ADAPTIVE = {"precision": "adaptive", "threshold": 1.0, "interval": 2}
CASES = {
    "adam": ({}, {"exchange": {"groups": 2}}),
    "adam, sharded": ({}, {"exchange": SHARDED}),
    # Each gradient is a group of its own, of which one rank owns nothing.
    "adaptive": ({}, {"exchange": SHARDED | {"groups": 0, "transfer": ADAPTIVE}}),
    "float16": (
        {"kind": "momentum"},
        {
            "exchange": SHARDED | {"compression": "fp16", "transfer": {"precision": 16}},
            "precision": {"compute": "mixed_float16", "initial_loss_scale": 1024.0},
        },
    ),
}


def plain_model():
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    layers = keras.layers
    inner = [layers.Conv2D(filters, 3, padding="same", activation="relu") for filters in (5, 4, 3)]
    return keras.Sequential([keras.Input((6, 8, 2)), *inner, layers.BatchNormalization(), layers.Conv2D(1, 1)])


class Job:
    """The network of a case, and what updates it, on this rank."""

    def __init__(self, name):
        optimizer, sections = CASES[name]
        rate = {"learning_rate": 1e-2}
        self.training = Training.model_validate({"epochs": 1, "optimizer": rate | optimizer} | sections)
        with precision.policy(self.training.precision.compute):
            self.model = plain_model()
            self.optimizer = precision.with_loss_scale(make_optimizer(self.training.optimizer), self.training)
            self.exchange = make_exchange(self.training.exchange, reduction.rank(), reduction.size())
            self.exchange.begin(self.model, self.optimizer)
        self.step = make_step(self.model, self.optimizer, self.training, self.exchange)

    def start(self, folder=None):
        """Begins, or goes on from the checkpoint in `folder`; returns the steps that were taken before."""
        state = self.exchange.blank_state()
        done = checkpoint.restore([folder], state, NETWORK).step if folder else 0
        self.exchange.restore(state, [], resumed=done > 0)
        return done

    def save(self, folder, step):
        whole = self.exchange.state()
        if reduction.rank() == 0:
            checkpoint.save(folder, checkpoint.TrainingPosition(step=step), whole, NETWORK, keep=9)

    def arrays(self):
        return [np.asarray(variable) for variable in self.model.variables if "float" in variable.dtype]


def train(name, sent, poison=None, folder=None):
    """(the job, its rows of numbers, [bits before the step, bytes sent in it]) after all steps."""
    job, rank, rows, moved = Job(name), reduction.rank(), [], []
    done = job.start(folder)
    for index, (x, y) in islice(enumerate(pairs()), done, None):
        factor = np.inf if (index, rank) == (poison, 1) else 1
        bits = job.exchange.states.bits.numpy().tolist() if hasattr(job.exchange, "states") else []
        sent.clear()
        both = (tf.constant(each[rank : rank + 1]) for each in (factor * x, y))
        rows.append(job.step(*both, tf.constant(1e-2), tf.constant(2.0)).numpy().tolist())
        moved.append([bits, sum(sent)])
        if folder and index + 1 == STOP:
            job.save(folder, STOP)
    return job, rows, moved


def main(out):
    reduction.start()
    rank, sent, found = reduction.rank(), [], {}
    reduction.all_to_all = metered(sent, rank, [])
    for name, folder, poison in (
        ("adam", None, None),
        ("adam, sharded", None, None),
        ("adaptive", out / "checkpoints", None),
        ("adaptive", out / "checkpoints", None),  # from the checkpoint of the one before
        ("float16", None, 2),
    ):
        job, rows, moved = train(name, sent, poison, folder)
        held = sum(each.value.shape.num_elements() for each in job.optimizer.variables if len(each.shape))
        held += sum(each.value.shape.num_elements() for each in getattr(job.exchange, "masters", ()))
        row = job.exchange.end_epoch(5, 0, whole=True)
        said = {"digest": digest(job.arrays()), "rows": rows, "moved": moved, "held": held, "epoch": row}
        found[name + ", again" * (name in found)] = said
        if rank == 0:
            np.savez(out / f"{name}.npz", *job.arrays())
    (out / f"{rank}.json").write_text(json.dumps(found))
    reduction.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
