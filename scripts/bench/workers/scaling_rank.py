"""One rank of `weak_scaling.py`, on one core: runs steps in blocks, and stops itself after each until it is continued.

argv: the directory of the results, the configuration, the number of samples per block and of steps per block, whether
it trains "together" with the other ranks or "alone" (the samples are divided alike), and changes to the configuration.
The environment names the cores. A line of RANK.jsonl is a block: the times of its steps in s, and the losses.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

out, config, samples, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
cores = [int(core) for core in os.environ["BENCH_CORES"].split()]
rank, ranks = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
if sys.argv[5] == "alone":  # what a process without a launcher is
    for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
        del os.environ[name]

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from fcdensenet.build import build  # noqa: E402
from train.experiment.experiment import load  # noqa: E402
from train.optimization.loop import make_step  # noqa: E402
from train.optimization.optimizers import LarsAdam  # noqa: E402
from train.ranks import reduction  # noqa: E402

for thread in os.listdir("/proc/self/task"):  # and, from now on, those that they start
    os.sched_setaffinity(int(thread), {cores[rank]})
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
experiment = load(Path(config), sys.argv[6:])
training = experiment.training
reduction.start(training)
model = build(experiment.network.model_copy(update={"dropout": 0.0}), seed=0)
optimizer = LarsAdam(training.optimizer)
optimizer.build(model.trainable_variables)
reduction.broadcast_state(model, optimizer.variables)
step = make_step(model, optimizer, training)

rng = np.random.default_rng(0)
channels, height, width = experiment.network.input_shape
x = rng.random((samples, height, width, channels), np.float32)
y = x[..., :1] * x[..., 1:2] + x.mean(-1, keepdims=True)
share = slice(rank * samples // ranks, (rank + 1) * samples // ranks)
batch = tf.constant(x[share]), tf.constant(y[share]), tf.constant(5e-4), tf.constant(1.0)

step(*batch)
with (out / f"{rank}.jsonl").open("w") as file:
    while True:
        time.sleep(0.3)  # others may still be at the end of the last step
        os.kill(os.getpid(), signal.SIGSTOP)
        times, losses = [], []
        for _ in range(steps):
            started = time.perf_counter()
            numbers = step(*batch).numpy()
            times.append(time.perf_counter() - started)
            losses.append(float(numbers[0]))
        file.write(json.dumps({"pid": os.getpid(), "times": times, "losses": losses}) + "\n")
        file.flush()
