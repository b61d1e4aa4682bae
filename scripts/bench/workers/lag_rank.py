"""One rank of `lag.py`: trains a network without and one with lag, an epoch of each in turn. Rank 0 prints JSON lines.

workers/lag_rank.py CONFIG EPOCHS SEED,SEED,... [KEY=VALUE ...]
"""

import json
import statistics
import sys
from contextlib import closing
from pathlib import Path

from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from train.experiment.experiment import load
from train.input import batches, selection, views
from train.optimization.loop import EpochPlan, make_step, train_epoch
from train.optimization.optimizers import assemble
from train.ranks import reduction
from train.tasks import task_of

LAGS = (0, 1)


def main() -> None:
    config, epochs, overrides = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[4:]
    plain = load(config, overrides)
    of = plain.training.exchange.model_dump(mode="json")
    experiments = [plain, load(config, [*overrides, f"training.exchange={json.dumps({'kind': 'lag', 'of': of})}"])]
    reduction.start(plain.training)
    with Dataset(plain.data.directory) as dataset:
        for seed in map(int, sys.argv[3].split(",")):
            networks = [Trained(experiment, dataset, seed) for experiment in experiments]
            for epoch in range(epochs):
                for lag in LAGS if epoch % 2 else reversed(LAGS):
                    row = {"seed": seed, "lag": lag, "epoch": epoch + 1} | networks[lag].train(epoch)
                    row |= {"dev": networks[lag].score("dev")}
                    if epoch + 1 == epochs:
                        row |= {"test": networks[lag].score("test")}
                    if reduction.rank() == 0:
                        print("FOUND " + json.dumps(row), flush=True)
    reduction.stop()


class Trained:
    """A network on the samples of a dataset, from the initial weights and with the orders of samples of a seed."""

    def __init__(self, experiment, dataset, seed):
        self.experiment, self.dataset, self.seed = experiment, dataset, seed
        self.task, self.training = task_of(experiment), experiment.training
        self.entries = manifest.present(experiment.data.directory, dataset.ids)
        made = assemble(experiment.network, seed, self.training, reduction.size(), self.task.objective)
        self.exchange, self.accumulation = made.exchange, made.accumulation
        self.exchange.restore(self.exchange.blank_state(), [], resumed=False)
        self.step = make_step(
            made.model, made.optimizer, self.training, self.exchange, self.accumulation, self.task.objective
        )
        self.scores, self.cache = self.task.scorer(made.model, dataset), views.ReadCache()

    def train(self, epoch):
        """Takes the steps of an epoch; returns the medians of their times, s."""
        entries, ranks = [entry for entry in self.entries if entry.split == "train"], reduction.size()
        steps = len(entries) // ranks // self.training.batch_size
        count = steps * self.training.batch_size
        own = selection.epoch_share(entries, self.seed, epoch, reduction.rank(), ranks, count=count)
        plan = EpochPlan(epoch=epoch, first_step=epoch * steps + 1, steps=steps, ranks=ranks)
        read = batches.batches(
            self.task.readable(self.dataset), own, self.experiment, epoch, self.cache, target=self.task.target
        )
        reduction.minimum(0)  # all ranks begin together
        with closing(read):
            rows = list(
                train_epoch(
                    self.step,
                    read,
                    self.training,
                    plan,
                    exchange=self.exchange,
                    accumulation=self.accumulation,
                    objective=self.task.objective,
                )
            )
        return {name: statistics.median(row[name] for row in rows) for name in ("step_s", "comm_s")}

    def score(self, split):
        """Mean Huber loss and SSIM of a split."""
        own = [entry for entry in self.entries if entry.split == split][reduction.rank() :: reduction.size()]
        means = self.task.numbers([row for rows in reduction.gather_json(self.scores(own)) for row in rows])
        return {name: means[name] for name in ("huber", "ssim")}


if __name__ == "__main__":
    main()
