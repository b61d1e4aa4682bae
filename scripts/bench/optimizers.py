"""Loss on held-out materials with layer-wise rates before Adam, after it, clipped (LARC) and without, by learning rate.

    scripts/uv run python scripts/bench/optimizers.py [--rates 5e-4 2e-3 8e-3] [--batches 2 8] [--set ...] [--json]

The samples (simulated if they are missing) and the network are those of the quickstart, on one rank and with constant
learning rates. All runs start from the same weights and have the same order of samples. Every run sees the same number
of samples, so that with a batch four times as large it makes a quarter of the steps. "ratio" is the best loss without
layer-wise rates divided by the best with layer-wise rates before Adam, the authors' choice, at the largest batch. Above
1, they help.
"""

import argparse
import itertools
import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from fcdensenet.build import build
from namsa.dataset import factory, manifest
from namsa.dataset.shards import Dataset
from train.experiment.experiment import Experiment, load
from train.experiment.sections import Optimizer
from train.input.batches import batches
from train.input.selection import epoch_share
from train.optimization import losses
from train.optimization.loop import make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import reduction

ROOT = Path(__file__).parents[2]
ARMS: dict[str, dict[str, Any]] = {
    "none": {"lars": "none"},
    "before, LARS": {"lars": "before"},
    "before, LARC": {"lars": "before", "layer_rates": "larc"},
    "after, LARS": {"lars": "after", "lars_trust": 1.0},
    "after, LARC": {"lars": "after", "layer_rates": "larc"},
}


def main() -> None:
    options = parse()
    experiment = load(options.config, options.set)
    reduction.start(experiment.training)
    directory = experiment.data.directory
    factory.produce(experiment, directory)
    table = Table(title=f"Huber on dev materials after {options.samples} samples", box=None)
    for heading in ("batch", "", *(f"rate {rate:g}" for rate in options.rates)):
        table.add_column(heading, justify="right")
    found: dict[str, dict[str, list[float]]] = {}
    with Dataset(directory) as dataset:
        for batch, arm in itertools.product(options.batches, ARMS):
            row = [trained(experiment, dataset, batch, ARMS[arm], rate, options.samples) for rate in options.rates]
            found.setdefault(str(batch), {})[arm] = row
            table.add_row(str(batch), arm, *(f"{loss:.4g}" for loss in row))
            print(batch, arm, row, flush=True)
    Console(highlight=False).print(table)
    if options.json:
        most = found[str(max(options.batches))]
        ratio = np.nanmin(most["none"]) / np.nanmin(most["before, LARS"])
        print(json.dumps({"ratio": ratio, "rates": options.rates, "huber": found}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/quickstart.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-4, 2e-3, 8e-3])
    parser.add_argument("--batches", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--samples", type=int, default=800, help="that every run learns from")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def trained(
    experiment: Experiment, dataset: Dataset, batch: int, choice: dict[str, Any], rate: float, samples: int
) -> float:
    """The mean Huber loss of the dev split's samples after training, NaN where training diverged."""
    training = experiment.training.model_copy(update={"batch_size": batch})
    experiment = experiment.model_copy(update={"training": training})
    tf.keras.utils.clear_session()
    model = build(experiment.network, experiment.seed)
    optimizer = LarsAdam(Optimizer(**choice))
    optimizer.build(model.trainable_variables)
    step = make_step(model, optimizer, training)
    delta = tf.constant(training.loss.huber_delta)
    for x, y in read(experiment, dataset, "train", samples // batch * batch):
        if not np.isfinite(step(x, y, tf.constant(rate), delta).numpy()[0]):
            return float("nan")
    answers = ((model(x, training=False), y) for x, y in read(experiment, dataset, "dev", None))
    held_out = [losses.huber(answer, y, delta, training.loss.contrast_limits()) for answer, y in answers]
    return float(np.mean(held_out))


def read(experiment: Experiment, dataset: Dataset, split: str, samples: int | None) -> Any:
    """Batches of `samples` of a split, epoch after epoch in an order that only the seed decides; None: each once."""
    entries = [e for e in manifest.present(experiment.data.directory, dataset.ids) if e.split == split]
    left = len(entries) if samples is None else samples
    for epoch in itertools.count():
        share = epoch_share(entries, experiment.seed, epoch, 0, 1, min(left, len(entries)))
        with closing(batches(dataset, share, experiment, epoch)) as pairs:
            yield from pairs
        left -= len(share)
        if left <= 0:
            return


if __name__ == "__main__":
    main()
