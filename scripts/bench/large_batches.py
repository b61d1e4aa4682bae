"""Held-out error after training with large batches: LARS before and after Adam, Adam alone, LAMB; by rule of the rate.

    scripts/uv run python scripts/bench/large_batches.py --out runs/large_batches.jsonl [--batches 2 96 512 4096]
        [--updates 60 | --samples 8640] [--rules linear root same] [--set KEY=VALUE] [--json] [--plot curves.png]

The samples (simulated if they are missing) are the quickstart's; a small network on virtual detectors makes a run take
about a minute. A batch of B samples stands for B / 2 ranks with the quickstart's batch of 2: gradients of parts are
added up, as `training.accumulate` does, and the rate of one rank is multiplied by the number of ranks ("linear", the
paper's rule), by its root ("root"), or not at all ("same"). "default" is the configuration's own rule. Every run has
the quickstart's schedule, stretched over its updates. It makes `--updates` updates, or sees `--samples` samples.
Samples are augmented and used again as often as needed.

Every finished run is one line of `--out`. The same command continues after an interruption. "ratio" is the SSIM of the
paper's optimizer with the paper's rule at the largest batch divided by the best of that batch.
"""

import argparse
import itertools
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from fcdensenet.build import build
from namsa.dataset import factory, manifest
from namsa.dataset.shards import Dataset
from train.experiment.experiment import Experiment, load
from train.experiment.sections import Optimizer, Schedule
from train.input.batches import batches
from train.measure.metrics import image_metrics, mean_metrics
from train.optimization import losses
from train.optimization.gradients import Accumulation
from train.optimization.loop import learning_rate, make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import reduction

ROOT = Path(__file__).parents[2]
SMALL = (  # a sample takes half a millisecond
    "training.inputs.channels=virtual",
    "network={input_shape: [6, 24, 24], layers: [1, 1, 1], growth: 8, kernel: 3, first_kernel: 3, first_filters: 16, "
    "dropout: 0.1}",
)
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "LARS before Adam": {"lars": "before"},
    "LARS after Adam": {"lars": "after", "lars_trust": 1.0},
    "Adam": {"lars": "none"},
    "LAMB": {},  # Keras' own
}
PAPER = ("LARS before Adam", "linear")
SHOWN = ("train_huber", "huber", "mae", "ssim")
DRAWINGS = 8  # of each sample, as augmentation has them
PART = 128  # samples whose gradient is computed at once

Row = dict[str, Any]
Images = tuple[Any, Any]  # inputs and targets


def main() -> None:
    options = parse()
    experiment = load(options.config, [*SMALL, *options.set])
    reduction.start(experiment.training)
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    factory.produce(experiment, experiment.data.directory)
    with Dataset(experiment.data.directory) as dataset:
        training, held_out = images(experiment, dataset, DRAWINGS), images(experiment, dataset, 0)
    done = [json.loads(line) for line in lines(options.out)]
    cases = list(itertools.product(options.batches, options.rules, options.optimizers, options.seeds))
    rows = []
    for batch, rule, optimizer, seed in cases:
        updates = options.updates or max(1, options.samples // batch)
        case = {"batch": batch, "optimizer": optimizer, "rule": rule, "seed": seed, "updates": updates}
        row = next((row for row in done if row.items() >= case.items()), None)
        if row is None:
            row = case | trained(experiment, training, held_out, case)
            options.out.parent.mkdir(parents=True, exist_ok=True)
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
        rows.append(row)
    show(rows)
    if options.plot:
        figure(rows).savefig(options.plot, dpi=150)
    if options.json:
        largest = [row for row in rows if row["batch"] == max(options.batches)]
        paper = [row["ssim"] or 0 for row in largest if (row["optimizer"], row["rule"]) == PAPER]
        best = max(row["ssim"] or 0 for row in largest)
        print(json.dumps({"ratio": paper[0] / best if paper else None, "rows": rows}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/quickstart.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=Path("runs/large_batches.jsonl"), help="a line for each run")
    parser.add_argument("--batches", type=int, nargs="+", default=[2, 96, 512, 4096])
    parser.add_argument("--rules", nargs="+", default=["linear", "root", "8", "default"])
    parser.add_argument("--optimizers", nargs="+", choices=list(OPTIMIZERS), default=list(OPTIMIZERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the initial weights and the order")
    number = parser.add_mutually_exclusive_group()
    number.add_argument("--updates", type=int, default=60, help="of every run")
    number.add_argument("--samples", type=int, default=0, help="that every run sees, instead")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot", type=Path, metavar="PNG", help="SSIM over the batch")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    options.updates = 0 if options.samples else options.updates
    return options


def lines(path: Path) -> list[str]:
    """The finished runs; a line that an interruption cut is left out."""
    return [line for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []


# ---- Samples --------------------------------------------------------------------------------------------------------


def images(experiment: Experiment, dataset: Dataset, drawings: int) -> Images:
    """All training samples as `drawings` epochs augment them, or all held-out samples as they are."""
    present = manifest.present(experiment.data.directory, dataset.ids)
    entries = [entry for entry in present if (entry.split == "train") == bool(drawings)]
    inputs = experiment.training.inputs.model_copy(update={"augment": bool(drawings)})
    training = experiment.training.model_copy(update={"inputs": inputs, "batch_size": 1})
    found: list[Images] = []
    for epoch in range(drawings or 1):
        with closing(batches(dataset, entries, experiment.model_copy(update={"training": training}), epoch)) as pairs:
            found += [(x.numpy(), y.numpy()) for x, y in pairs]
    return np.concatenate([x for x, _ in found]), np.concatenate([y for _, y in found])


def parts(data: Images, batch: int, seed: int) -> Iterator[Images]:
    """Parts of batches without end, in an order that only the seed decides. Each pass uses every image once."""
    x, y = data
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(x))])
    size = min(batch, PART)
    while True:
        while len(order) < size:
            order = np.concatenate([order, rng.permutation(len(x))])
        chosen, order = order[:size], order[size:]
        yield tf.constant(x[chosen]), tf.constant(y[chosen])


# ---- Runs -----------------------------------------------------------------------------------------------------------


def trained(experiment: Experiment, data: Images, held_out: Images, case: Row) -> Row:
    """What a run reaches on held-out materials; None where it has diverged."""
    started, batch = time.perf_counter(), case["batch"]
    training, number = experiment.training, max(1, batch // PART)
    training = training.model_copy(update={"accumulate": number})
    ranks = batch / training.batch_size
    base = training.optimizer.learning_rate
    keras.utils.clear_session()
    model = build(experiment.network, case["seed"])
    choice = OPTIMIZERS[case["optimizer"]]
    optimizer = LarsAdam(Optimizer(**choice)) if choice else keras.optimizers.Lamb(epsilon=1e-8)
    optimizer.build(model.trainable_variables)
    accumulation = Accumulation(model, optimizer, training) if number > 1 else None
    step = make_step(model, optimizer, training, accumulation=accumulation)
    stream = parts(data, batch, case["seed"])
    huber, rates = [], []
    for update in range(case["updates"]):
        epoch = training.epochs * update / case["updates"]
        rates.append(rate(training.schedule, base, ranks, epoch, case["rule"]))
        delta = tf.constant(losses.huber_delta(training.loss, int(epoch)))
        for _ in range(number - 1 if accumulation else 0):
            accumulation.add(*next(stream), delta)
        huber.append(float(step(*next(stream), tf.constant(rates[-1], tf.float32), delta).numpy()[0]))
        if not math.isfinite(huber[-1]):
            break
    scores = scored(model, experiment, held_out) if math.isfinite(huber[-1]) else None
    return {
        "samples": case["updates"] * batch,
        "peak_rate": max(rates),
        "train_huber": float(np.mean(huber[-max(1, len(huber) // 10) :])) if scores else None,
        "first_huber": huber[0],
        "worst_huber": float(np.max(huber)) if scores else None,
        **{name: scores[name] if scores else None for name in ("huber", "mae", "ssim", "pearson")},
        "diverged_at": None if scores else len(huber),
        "seconds": time.perf_counter() - started,
    }


def rate(schedule: Schedule, base: float, ranks: float, epoch: float, rule: str) -> float:
    """The learning rate of one rule; warm-up and stairs are the configuration's in all of them."""
    if rule == "default":
        return learning_rate(schedule, base, round(ranks), epoch)
    factor = math.sqrt(ranks) if rule == "root" else ranks if rule == "linear" else min(ranks, float(rule))
    warmed = min(1.0, epoch / schedule.warmup_epochs) if schedule.warmup_epochs else 1.0
    return base * (1 + warmed * (factor - 1)) * schedule.decay ** math.floor(epoch / schedule.decay_every_epochs)


def scored(model: keras.Model, experiment: Experiment, held_out: Images) -> Row | None:
    """Means of the metrics over the held-out samples."""
    x, y = held_out
    answers = np.concatenate([model(x[at : at + PART], training=False).numpy() for at in range(0, len(x), PART)])
    if not np.isfinite(answers).all():
        return None
    training = experiment.training
    scale, delta = training.inputs.density_scale_e_per_angstrom2, training.loss.huber_delta
    pairs = zip(answers[..., 0] * scale, y[..., 0] * scale, strict=True)
    return mean_metrics(
        image_metrics(answer, truth, huber_delta=delta, density_scale=scale, limits=training.loss.contrast_limits())
        for answer, truth in pairs
    )


def show(rows: list[Row]) -> None:
    table = Table("batch", "updates", "optimizer", "rule", "peak rate", *SHOWN, "seconds")
    for row in rows:
        scores = [f"{row[name]:.3g}" if row[name] is not None else "–" for name in SHOWN]
        facts = (f"{row['batch']}", f"{row['updates']}", row["optimizer"], row["rule"], f"{row['peak_rate']:.3g}")
        table.add_row(*facts, *scores, f"{row['seconds']:.0f}")
    Console(width=140).print(table)


def figure(rows: list[Row]) -> Figure:
    """SSIM on held-out materials over the batch, a panel per rule; bars are the lowest and highest of the seeds."""
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    picture = Figure(figsize=(3.6 * len(rules), 3.2), layout="constrained")
    for axes, rule in zip(picture.subplots(1, len(rules), sharey=True, squeeze=False)[0], rules, strict=True):
        for optimizer in dict.fromkeys(row["optimizer"] for row in rows):
            chosen = [row for row in rows if (row["rule"], row["optimizer"]) == (rule, optimizer)]
            batches = sorted({row["batch"] for row in chosen})
            found = [[row["ssim"] or 0.0 for row in chosen if row["batch"] == batch] for batch in batches]
            means = [float(np.mean(values)) for values in found]
            reach = [[mean - min(v), max(v) - mean] for mean, v in zip(means, found, strict=True)]
            axes.errorbar(batches, means, np.transpose(reach), marker="o", capsize=3, label=optimizer)
        axes.set(xscale="log", xlabel="batch", ylim=(0, 1), title=f"rate: {rule}")
        ticks = sorted({row["batch"] for row in rows})
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
    picture.axes[0].set_ylabel("SSIM")
    picture.axes[0].legend(fontsize=8)
    return picture


if __name__ == "__main__":
    main()
