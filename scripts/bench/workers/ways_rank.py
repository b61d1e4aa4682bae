"""One rank of `ways.py`: argv OUT CONFIG STEPS CORES, and the control groups' folders behind them, one for each rank.

Trains on random data with all ranks as one group, and then times exchanges. OUT/RANK.json has the times of steps and of
exchanges of some sizes, s.
"""

import json
import os
import sys
import time
from pathlib import Path

out, config, steps, cores = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
rank, ranks, groups = int(os.environ.get("HOROVOD_RANK", "0")), int(os.environ.get("HOROVOD_SIZE", "1")), sys.argv[5:]
if groups:
    Path(groups[rank], "cgroup.procs").write_text(str(os.getpid()))

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from namsa.config.loading import read_yaml, validate  # noqa: E402
from train.experiment.sections import Training  # noqa: E402
from train.input.batches import random_batch  # noqa: E402
from train.input.division import division_of  # noqa: E402
from train.networks import read_network  # noqa: E402
from train.optimization.loop import make_step  # noqa: E402
from train.optimization.losses import DensityObjective  # noqa: E402
from train.optimization.optimizers import assemble  # noqa: E402
from train.ranks import reduction  # noqa: E402

SIZES = (1, 2**14, 2**16, 2**18)  # float32 values of a message to each rank
EXCHANGES = 30

core = sorted(os.sched_getaffinity(0))[rank % cores]
for thread in os.listdir("/proc/self/task"):  # and, from now on, those that they start
    os.sched_setaffinity(int(thread), {core})
tf.config.threading.set_inter_op_parallelism_threads(2)  # an exchange and what goes on meanwhile
tf.config.threading.set_intra_op_parallelism_threads(1)
tree = read_yaml(config, [f"training.split.ways={ranks}"])
network, training = read_network(tree, str(config)), validate(Training, tree["training"], str(config))
reduction.start(training)
split = division_of(training.split)
objective = DensityObjective(training.loss, split)
parts = assemble(network, 1, training, reduction.size(), objective, split)
step = make_step(parts.model, parts.optimizer, training, parts.exchange, parts.accumulation, objective)
reduction.broadcast_state(parts.model, parts.optimizer.variables)
batch = random_batch(network, training)
if split:
    batch = tuple(split.take_part(maps, network.data_format) for maps in batch)


def timed(work, number):
    times = []
    for _ in range(number):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return times


found = {"steps": timed(lambda: step(*batch, tf.constant(1e-4), tf.constant(1.0)).numpy(), steps + 2)[2:]}
found["exchanges"] = {}
for size in SIZES if split else ():
    flat = tf.constant(np.zeros(size * ranks, np.float32))

    @tf.function(autograph=False)
    def exchange(flat=flat, size=size):
        return reduction.all_to_all(flat, tf.fill([ranks], size), f"ping_{size}")

    found["exchanges"][4 * size] = timed(lambda: exchange(flat), EXCHANGES)[5:]  # noqa: B023 - called at once
(out / f"{rank}.json").write_text(json.dumps(found))
reduction.stop()
