"""Samples divided over ranks: what the job asks of a division, which is a strategy
(`train.experiment.registry`).

A group of ranks divides the samples of one rank. The network passes rows on between them
(`fcdensenet.split.PartSplit`). Reading takes this rank's part of a whole sample, or reads it alone.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from fcdensenet.split import PartSplit
from namsa.base.arrays import Tensor
from namsa.dataset.entry import Entry
from namsa.dataset.slabs import SampleSlab
from namsa.dataset.tiles import Slab

from ..experiment import registry
from ..experiment.division import DivisionSection
from ..experiment.experiment import Experiment


class OwnPart(Protocol):
    """The part of each sample that this rank trains on, read alone."""

    @property
    def slab(self) -> Slab:
        """The part of the patterns."""
        ...

    @property
    def image(self) -> tuple[int, int, int]:
        """The divided axis of the image, and the first and the last index and one."""
        ...

    def read(self, entry: Entry) -> SampleSlab:
        """Returns the part of a sample, with its part of the density."""
        ...


class RankDivision(PartSplit, Protocol):
    """This rank's place among the ranks that divide samples."""

    @property
    def group(self) -> int:
        """Number of this rank's group."""
        ...

    @property
    def ranks(self) -> int:
        """Number of ranks of a group."""
        ...

    @property
    def place(self) -> int:
        """Number of this rank in its group."""
        ...

    @property
    def part(self) -> int:
        """Number of this rank's part along the first divided axis."""
        ...

    def take_part(self, x: Tensor, data_format: str) -> Tensor:
        """Returns this rank's part of the maps of whole samples, `(n, y, x, channels)` or `(n,
        channels, y, x)`.

        Numbers of whole samples, `(n,)` or `(n, k)`, are returned themselves.
        """
        ...

    def join_parts(self, x: Tensor, data_format: str, name: str) -> Tensor:
        """Returns the maps of whole samples from those of this rank's part.

        Args:
            name: A name that is unique among the exchanges.
        """
        ...

    def own_part(
        self, source: Any, experiment: Experiment, entries: Sequence[Entry]
    ) -> tuple[OwnPart | None, str]:
        """Returns what reads this rank's part of a sample alone from a `SampleSource`, and a line
        about it.

        The first is `None` if samples must be read whole.
        """
        ...


def division_of(section: DivisionSection, input_shape: Sequence[int]) -> RankDivision | None:
    """Returns this rank's place among those that divide samples, if any.

    Args:
        input_shape: Channels of the network's input, then the extents of its grid.

    Raises:
        InputError: If the ranks do not form groups.
    """
    if section.ways == 1:
        return None
    kind = type(section).__module__.split(".")[-2]
    division: RankDivision = registry.strategy("division", kind, "division").divide(
        section, input_shape
    )
    return division
