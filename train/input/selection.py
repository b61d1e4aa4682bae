"""Samples that are trained on: the common order of an epoch, and each rank's share of it.

Orders are drawn from the seed and the epoch's number alone, so that a resumed job uses the same
batches.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from namsa.base.errors import InputError
from namsa.base.text import plural
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset

from ..experiment.experiment import Experiment


def check_configuration(dataset: Dataset, experiment: Experiment) -> None:
    """Raises InputError if the samples in `dataset` are those of another configuration."""
    if dataset.config_hash not in (None, experiment.samples_hash()):
        raise InputError(
            f"{experiment.data.directory} holds samples of another configuration, or of a version "
            "of namsa that gives them other values: set data.directory to another place"
        )


def too_few_samples(samples: int, ranks: int, batch_size: int) -> InputError:
    """Returns the error to raise if `samples` do not give each of `ranks` one batch."""
    return InputError(
        f"{samples} training samples are too few for {plural(ranks, 'rank')} with batches of "
        f"{batch_size}: add materials, thicknesses or zone axes, raise training.simulate_seconds, "
        "or use fewer ranks or smaller batches"
    )


def limit(entries: Sequence[Entry], count: int | None) -> list[Entry]:
    """Selects at most `count` entries, the first by a hash of the id: a smaller selection is part
    of a larger.
    """
    if count is None or count >= len(entries):
        return list(entries)
    chosen = {
        entry.id
        for entry in sorted(entries, key=lambda e: xxhash.xxh3_128_digest(e.id.encode()))[:count]
    }
    return [entry for entry in entries if entry.id in chosen]


def digest_ids(entries: Sequence[Entry]) -> str:
    """Returns a digest of the entries' ids in their order, on which the ranks' shares depend."""
    return xxhash.xxh3_64_hexdigest("\n".join(entry.id for entry in entries).encode())


def epoch_order(samples: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Returns the common order of an epoch: indices of the samples."""
    return np.random.default_rng([seed, epoch]).permutation(samples)


def share_of(
    entries: Sequence[Entry],
    order: npt.NDArray[np.int64],
    rank: int,
    ranks: int,
    count: int,
    taken: int = 0,
) -> list[Entry]:
    """Returns the entries of one rank in an epoch: every `ranks`-th of a common order, so that none
    is used twice.

    A step takes the next samples of the common order, some for each rank. The part of an epoch that
    is done is therefore a number of samples, `taken`, also if a different number of ranks took
    them.
    """
    return [entries[index] for index in order[taken:][rank::ranks][:count]]


def epoch_share(
    entries: Sequence[Entry],
    seed: int,
    epoch: int,
    rank: int,
    ranks: int,
    count: int,
    taken: int = 0,
) -> list[Entry]:
    """Returns `share_of` the order that a seed gives an epoch.

    The samples that are left over because all ranks take equally many steps are different ones in
    each epoch.
    """
    return share_of(entries, epoch_order(len(entries), seed, epoch), rank, ranks, count, taken)
