"""One rank of `divided_memory.py`: argv WAYS ROWS.

Prints a line of JSON with what one step adds to its memory.
"""

import gc
import json
import resource
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from fcdensenet.config import NetworkConfig
from train.experiment.sections import Training
from train.input.division import division_of
from train.networks import count
from train.optimization.loop import make_step
from train.optimization.losses import DensityObjective
from train.optimization.optimizers import assemble
from train.ranks import connection
from train.ranks.connection import engine

MIB = 2**20

ways = int(sys.argv[1])
rows = int(sys.argv[2])
network = NetworkConfig(
    input_shape=(2, rows, rows + 64),
    layers=(2, 2, 2),
    growth=6,
    kernel=3,
    first_kernel=3,
    first_filters=6,
    dropout=0.0,
)
training = Training.model_validate(
    {"epochs": 1, "split": {"ways": ways}, "exchange": {"groups": 1}}
)
connection.start(training)
tf.config.threading.set_inter_op_parallelism_threads(2)
tf.config.threading.set_intra_op_parallelism_threads(1)
split = division_of(training.split, network.input_shape)
objective = DensityObjective(training.loss, split)
parts = assemble(network, 1, training, engine().size(), objective, split)
step = make_step(
    parts.model, parts.optimizer, training, parts.exchange, parts.accumulation, objective
)
channels, height, width = network.input_shape
x = np.random.default_rng(0).normal(size=(1, height // ways, width, channels)).astype(np.float32)
batch = tf.constant(x), tf.constant(x[..., :1] * x[..., 1:])

gc.collect()
before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / MIB
loss = float(step(*batch, tf.constant(1e-3), tf.constant(10.0)).numpy()[0])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB
kept = count(network, ways=ways).activation_bytes("float32") / MIB
print(json.dumps({"step_mib": peak - before, "kept_mib": kept, "loss": loss}), flush=True)
connection.stop()
