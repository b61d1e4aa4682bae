"""Shares of the samples that the ranks keep for the whole training.

Yoginath et al. (2019) divide the files of samples almost equally among the ranks. A rank learns
from its own files alone and shuffles their order in each epoch. By default all samples are dealt
anew in each epoch.
"""

import numpy as np
import numpy.typing as npt

from ....input.source import LayeredSource, TrainingSet


class FixedShareSource(LayeredSource):
    """Samples of which share s of N always takes number s, s + N, s + 2N ... of the list."""

    def open(self, training: TrainingSet) -> str:
        super().open(training)
        shares = training.ranks.size() // (training.division.ranks if training.division else 1)
        earlier_shares = training.ranks_before or shares
        if earlier_shares == shares:
            changed = ""
        else:
            changed = f", other ones than those of the {earlier_shares} ranks before"
        return f"every rank has its own samples in all epochs{changed}"

    def epoch_order(self, samples: int, epoch: int, shares: int) -> npt.NDArray[np.int64]:
        """Returns a common order in which every `shares`-th sample is of the same share."""
        random = np.random.default_rng([self.experiment.seed, epoch]).random(samples)
        share = np.arange(samples) % shares
        shuffled_within_shares = np.lexsort((random, share))
        order = np.empty(samples, np.int64)
        order[np.argsort(share, kind="stable")] = shuffled_within_shares
        return order


SOURCE = FixedShareSource
