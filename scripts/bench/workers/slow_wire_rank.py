"""One rank of `slow_wire.py`: argv OUT CONFIG BITS STEPS. OUT/RANK.json has the times of steps and the bytes of one."""

import json
import sys
import time
from pathlib import Path

import tensorflow as tf

from train.experiment.experiment import load
from train.experiment.sections import Training
from train.input.batches import random_batch
from train.optimization.loop import make_step
from train.optimization.optimizers import assemble
from train.ranks import reduction

out, config, bits, steps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
experiment = load(config)
section = {"kind": "sharded", "transfer": {"precision": bits}, "groups": 1}
training = Training.model_validate(experiment.training.model_dump() | {"exchange": section})
reduction.start(training)
parts = assemble(experiment.network, 1, training, reduction.size(), rank=reduction.rank())
exchange = parts.exchange
step = make_step(parts.model, parts.optimizer, training, exchange)
exchange.restore(exchange.blank_state(), [], resumed=False)
batch = random_batch(experiment.network, training, experiment.images_per_sample())
times = []
for _ in range(steps + 1):
    started = time.perf_counter()
    step(*batch, tf.constant(0.0), tf.constant(1.0)).numpy()
    times.append(time.perf_counter() - started)
sent = exchange.sent_bytes([bits] * len(exchange.layers))
(out / f"{reduction.rank()}.json").write_text(json.dumps({"steps": times[1:], "bytes": sent}))
reduction.stop()
