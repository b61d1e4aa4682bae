"""Takes training steps on random patterns for step_backends.py, by the backend of KERAS_BACKEND.

    python scripts/bench/workers/step_backend.py CONFIG CORES [KEY=VALUE ...]

Reads one JSON object per line, {"steps": N}, takes so many steps, and answers with one line: their
wall and processor seconds, the samples of a step, and the loss of the last.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    config, cores, *overrides = sys.argv[1:]
    # before libraries count the cores for their threads
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    step, arguments, samples = prepare(Path(config), overrides)
    for line in sys.stdin:
        wanted = json.loads(line)["steps"]
        began = time.perf_counter(), time.process_time()
        for _ in range(wanted):
            numbers = step(*arguments)
        loss = float(numbers[0])
        wall_s, processor_s = time.perf_counter() - began[0], time.process_time() - began[1]
        answer = {"wall_s": wall_s, "processor_s": processor_s, "samples": samples, "loss": loss}
        print(json.dumps(answer), flush=True)


def prepare(config: Path, overrides: list[str]) -> tuple[Any, list[Any], int]:
    """Returns the step of a configuration, its arguments, and the samples of a batch."""
    from keras import ops

    from train.experiment.experiment import load
    from train.input.batches import random_batch
    from train.optimization.loop import make_step
    from train.optimization.optimizers import assemble
    from train.tasks import task_of

    experiment = load(config, overrides)
    training = experiment.training
    objective = task_of(experiment).objective
    model, optimizer, exchange, sums = assemble(
        experiment.network, 1, training, objective=objective
    )
    step = make_step(model, optimizer, training, exchange, sums, objective)
    batch = random_batch(experiment.network, training)
    arguments = [ops.convert_to_tensor(array) for array in batch]
    arguments += [ops.convert_to_tensor(number, "float32") for number in (1e-4, 10)]
    return step, arguments, training.batch_size


if __name__ == "__main__":
    main()
