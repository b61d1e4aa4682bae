"""The memory of a training step, as TensorFlow's allocator counts it, beside the sum that
`--dry-run` states.

    TF_ENABLE_ONEDNN_OPTS=1 scripts/uv run python scripts/bench/step_memory.py CONFIG ...
        [--batch-sizes 2 16] [--compute float32 mixed_float16] [--set key.path=value]

Counted are the variables, the batch, and what a step adds at its peak, the median of seven: the
order of parallel operations differs between steps. TensorFlow runs two operations at once, which
the sum assumes, unless TF_NUM_INTEROP_THREADS says otherwise. Samples are random, on one rank,
without read-ahead. On processors TensorFlow counts with oneDNN alone; on a GPU it does not count
what libraries take. "ratio" is the estimate over the measurement that is furthest from 1.
"""

import math
import os
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import frame

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")

import tensorflow as tf
from keras import ops

from train.experiment.experiment import Experiment, load
from train.input.batches import random_batch
from train.optimization.loop import make_step
from train.optimization.optimizers import assemble
from train.scaling.memory import StepMemory, step_memory
from train.tasks import task_of

STEPS = 7
MIB = 2**20


def main() -> int:
    parser = frame.parser(__doc__)
    parser.add_argument("configs", type=Path, nargs="+")
    parser.add_argument(
        "--batch-sizes", type=int, nargs="+", help="by default that of the configuration"
    )
    parser.add_argument(
        "--compute", nargs="+", help="float32, mixed_float16; by default as the configuration says"
    )
    frame.add_overrides(parser)
    options = parser.parse_args()
    rows = []
    for config, size, compute in product(
        options.configs, options.batch_sizes or [0], options.compute or [""]
    ):
        words = [*options.overrides]
        if size:
            words.append(f"training.batch_size={size}")
        if compute:
            words.append(f"training.precision.compute={compute}")
        experiment = load(config, words)
        rows.append(compared(experiment) | {"config": config.stem})
        show(rows[-1])
    ratio = max((row["ratio"] for row in rows), key=lambda ratio: abs(math.log(ratio)))
    frame.finish(options, {"rows": rows, "ratio": ratio})
    return 0


def compared(experiment: Experiment) -> dict[str, Any]:
    """Returns the measured and the estimated memory of a step, MiB."""
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    parts = step_memory(experiment, 1, on_gpu)._replace(read_ahead=0, libraries=0)
    measured = measured_bytes(experiment, "GPU:0" if on_gpu else "CPU:0")
    training = experiment.training
    return {
        "compute": training.precision.compute,
        "batch_size": training.batch_size,
        "measured_mib": measured / MIB,
        "estimated_mib": sum(parts) / MIB,
        "ratio": sum(parts) / measured,
        "parts_mib": {name: size / MIB for name, size in parts._asdict().items()},
    }


def measured_bytes(experiment: Experiment, device: str = "CPU:0") -> int:
    """Returns the memory of a step that TensorFlow counts."""
    task = task_of(experiment)
    training = experiment.training
    model, optimizer, exchange, accumulation = assemble(
        experiment.network, experiment.seed, training, objective=task.objective
    )
    step = make_step(model, optimizer, training, exchange, accumulation, task.objective)
    x, y = random_batch(experiment.network, training, experiment.images_per_sample())
    batch = x, task.random_target((x, y))
    numbers = [ops.convert_to_tensor(number, "float32") for number in (0.0, 10.0)]
    added = []
    for _ in range(STEPS):
        tf.config.experimental.reset_memory_stats(device)
        bytes_before = tf.config.experimental.get_memory_info(device)["current"]
        step(*batch, *numbers)
        added.append(tf.config.experimental.get_memory_info(device)["peak"] - bytes_before)
    variables = sum(math.prod(variable.shape) * 4 for variable in exchange.state())
    return int(statistics.median(added)) + variables + x.dtype.size * math.prod(x.shape)


def show(row: dict[str, Any]) -> None:
    table = frame.table(
        row["config"], "compute", "batch", *StepMemory._fields[:5], "sum", "measured", "ratio"
    )
    parts = (f"{row['parts_mib'][name]:.1f}" for name in StepMemory._fields[:5])
    sums = f"{row['estimated_mib']:.1f}", f"{row['measured_mib']:.1f}", f"{row['ratio']:.2f}"
    table.add_row("", row["compute"], str(row["batch_size"]), *parts, *sums)
    frame.show(table)


if __name__ == "__main__":
    raise SystemExit(main())
