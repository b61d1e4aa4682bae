"""The order in which a rank draws and uses samples. It does not depend on the speed of the
simulator.

An epoch's samples of a rank are numbered in the order of their draws. `window` of them after each
other form a block, the last block of an epoch being shorter. A block is used `reuse` times, each
time in another random order, then the next one. A job that is resumed leaves out the uses that are
done.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_ORDER = 13  # stream of random numbers
Key = tuple[int, int]  # epoch and number of a sample in it


@dataclass(frozen=True)
class Order:
    """The samples of a rank."""

    seed: int  # of the experiment
    share: int  # number of this rank
    shares: int  # number of ranks
    epochs: int  # epochs of the job
    # that all ranks draw in an epoch; each rank draws as many of them, and some are left over
    specimens: int
    per_specimen: int  # samples of a specimen
    window: int  # samples of a block
    reuse: int  # uses of a sample
    # the first epoch that is trained, and the uses of it that are done
    first: tuple[int, int] = (0, 0)

    @property
    def samples(self) -> int:
        """Samples of this rank in an epoch."""
        return self.specimens // self.shares * self.per_specimen

    @property
    def uses(self) -> int:
        """Uses of samples of this rank in an epoch."""
        return self.samples * self.reuse

    def use(self, epoch: int, place: int) -> tuple[Key, int]:
        """Returns the sample of a place in an epoch, and how often the epoch has used it before."""
        block, within = divmod(place, self.window * self.reuse)
        size = self._size(block)
        turn, index = divmod(within, size)
        return (
            epoch,
            block * self.window + int(self._permutation(epoch, block, turn)[index]),
        ), turn

    def draws(self) -> Iterator[tuple[int, Key]]:
        """Yields the numbers of this rank's draws that are still used, each with its first sample,
        in their order.
        """
        for epoch in range(self.first[0], self.epochs):
            for specimen in range(self.specimens // self.shares):
                start = specimen * self.per_specimen
                if any(
                    self.uses_left((epoch, start + index)) for index in range(self.per_specimen)
                ):
                    yield (
                        epoch * self.specimens + specimen * self.shares + self.share,
                        (epoch, start),
                    )

    def uses_left(self, key: Key) -> int:
        """Returns how often this job uses a sample."""
        epoch, sample = key
        block, index = divmod(sample, self.window)
        turns, within = self._done(epoch, block)
        used_again = within and index in self._permutation(epoch, block, turns)[:within]
        return self.reuse - turns - bool(used_again)

    def block(self, key: Key) -> int:
        """Returns the number of a sample's block among those of all epochs."""
        return key[0] * self._blocks + key[1] // self.window

    def used_samples(self, block: int) -> int:
        """Returns how many samples of a block, numbered over all epochs, this job uses."""
        epoch, block = divmod(block, self._blocks)
        turns, within = self._done(epoch, block)
        return self._size(block) * (turns < self.reuse) - within * (turns == self.reuse - 1)

    @property
    def _blocks(self) -> int:
        return -(-self.samples // self.window)

    def _size(self, block: int) -> int:
        """Returns the samples of a block of an epoch."""
        return min(self.window, self.samples - block * self.window)

    def _done(self, epoch: int, block: int) -> tuple[int, int]:
        """Returns how often a block was used as a whole before this job, and the uses of it
        since.
        """
        if epoch != self.first[0]:
            return 0, 0
        size = self._size(block)
        done = self.first[1] - block * self.window * self.reuse
        return divmod(min(max(done, 0), size * self.reuse), size)

    def _permutation(self, epoch: int, block: int, turn: int) -> npt.NDArray[np.int64]:
        """Returns the order in which a block is used for one time."""
        rng = np.random.default_rng([self.seed, _ORDER, epoch, block, turn])
        return rng.permutation(self._size(block))
