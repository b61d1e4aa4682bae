"""The exchange between the ranks of a divided sample: `fcdensenet.split.PartSplit` by Horovod's
alltoall.

Ranks g·P to g·P + P − 1 are group g, whose rank p has part p of each of the group's samples. Every
exchange is one message between neighbours, or between all ranks of a group, in a process set of the
group. Sums are taken in the order of the ranks, so that they have the same bits on all of them and
in every run. The host's executor goes on with what does not need an exchange while that is under
way.

Names are fixed, as Horovod pairs messages by name. The graphs of all ranks are equal: at the ends
of the sample an exchange has length zero, and is not left out.

A rank reads its part of each sample without the rest. The parts of the network's image are slabs of
the patterns: of the detector in layout 'detector', of the scan in layout 'scan'. A rank reads a
slab alone where a part of the input follows from the same part of the patterns. A mirror moves the
parts, and noise is drawn for whole samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import tensorflow as tf

from namsa.base.arrays import Tensor
from namsa.base.errors import InputError, WorkError
from namsa.base.text import plural
from namsa.dataset.entry import Entry
from namsa.dataset.slabs import SampleSlab
from namsa.dataset.tiles import Slab

from ....experiment.experiment import Experiment
from ....input.division import OwnPart
from ....input.source import SampleSource, fault_of_sample
from ....ranks.connection import engine
from ....ranks.interface import Members
from .section import SampleSplit


@dataclass(frozen=True)
class RankSplit:
    """The exchange of this rank's part of a sample with the others. Every method is called by all
    ranks of the group.
    """

    ranks: int  # number of ranks of a group
    axis: int  # axis of the grid that is divided, from 0
    group: int  # number of this rank's group
    place: int  # number of this rank in its group
    copies: int = 1  # number of ranks, one after the other, that have the same part along this axis
    block: int = 0  # number of ranks, one after the other, that have all parts; 0 for the group
    further: tuple["RankSplit", ...] = ()  # exchange along further divided axes

    @property
    def ways(self) -> int:
        """Number of parts of a sample along this axis."""
        return self._block // self.copies

    @property
    def part(self) -> int:
        """Number of this rank's part along this axis."""
        return self.place % self._block // self.copies

    @property
    def _block(self) -> int:
        return self.block or self.ranks

    @property
    def members(self) -> Members:
        """The ranks of the group."""
        return tuple(range(self.group * self.ranks, (self.group + 1) * self.ranks))

    def halo(
        self, x: Tensor, before: int, after: int, axis: int, name: str, fill: float = 0.0
    ) -> Tensor:
        """See `fcdensenet.split.PartSplit`.

        The gradient of an exchange is the exchange of the gradients.
        """
        rows = x.shape[axis]

        @tf.custom_gradient
        def exchanged(x: Tensor) -> Tensor:
            top_rows = _rows(x, axis, 0, after)
            bottom_rows = _rows(x, axis, rows - before, rows)

            def gradient(halo: Tensor) -> Tensor:
                above = _rows(halo, axis, 0, before)
                below = _rows(halo, axis, before, before + after)
                to_first, to_last = self._swap(above, below, f"{name}_back")
                if rows < before + after:  # rows that both neighbours need
                    at_first = _padded(to_first, 0, rows, axis)
                    return at_first + _padded(to_last, rows - before, rows, axis)
                shape = tf.shape(x)
                rest = [rows - before - after]
                between = tf.zeros(tf.concat([shape[:axis], rest, shape[axis + 1 :]], 0), x.dtype)
                return tf.concat([to_first, between, to_last], axis)

            return tf.concat(self._swap(top_rows, bottom_rows, name, fill), axis), gradient

        return exchanged(x)

    def mean(self, x: Tensor, name: str) -> Tensor:
        return tf.reduce_mean(self._gather(x, name, range(self.ranks)), 0)

    def join(self, x: Tensor, axis: int, name: str, parts: int | None = None) -> Tensor:
        """See `fcdensenet.split.PartSplit`. Of the copies of each part, that of this one's number
        among them is taken.
        """
        block = (parts or self.ways) * self.copies
        first_rank = self.place // block * block + self.place % self.copies
        places = range(first_rank, first_rank + block, self.copies)
        return tf.concat(tf.unstack(self._gather(x, name, places)), axis)

    def widened(self, parts: int) -> "RankSplit":
        return replace(self, copies=self.copies * parts)

    def take_part(self, x: Tensor, data_format: str) -> Tensor:
        if len(x.shape) <= 2:
            return x
        for along in (self, *self.further):
            x = along._take_rows(x, data_format)
        return x

    def join_parts(self, x: Tensor, data_format: str, name: str) -> Tensor:
        for along in (self, *self.further):
            axis = along._tensor_axis(data_format)
            exchange = name if along is self else f"{name}{along.axis}"
            x = along.join(x, axis, exchange)
        return x

    def _take_rows(self, x: Tensor, data_format: str) -> Tensor:
        axis = self.axis + 1  # of labels of images, (n, y, x)
        if len(x.shape) > 3:
            axis = self._tensor_axis(data_format)
        rows = x.shape[axis] // self.ways
        return _rows(x, axis, self.part * rows, (self.part + 1) * rows)

    def own_part(
        self, source: SampleSource, experiment: Experiment, entries: Sequence[Entry]
    ) -> tuple[OwnPart | None, str]:
        section = experiment.training.split
        assert isinstance(section, SampleSplit)
        reason = section.whole_reason(experiment)
        if reason:
            return None, f"every rank reads whole samples: {reason}"
        slab = slab_of(experiment, self.axis, self.part, self.ways)
        samples = SlabOfSamples(source, slab, experiment)
        if source.has_part(entries[0].id, slab):
            return samples, f"every rank reads 1/{self.ways} of the patterns of a sample"
        tiles = [1] * 4
        tiles[slab.axis] = self.ways
        return (
            samples,
            "every rank reads whole samples, which lack tiles: simulate them with "
            f"data.tiles={tiles}",
        )

    def _tensor_axis(self, data_format: str) -> int:
        """Returns the divided axis of a tensor of maps."""
        return self.axis + (2 if data_format == "channels_first" else 1)

    def _swap(
        self, first: Tensor, last: Tensor, name: str, fill: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Sends `first` to the part before and `last` to the part after.

        Returns:
            What the part before sends, in the shape of `last`, and what the part after sends, in
            that of `first`; `fill` where there is no such part.
        """
        has_before = self.part > 0
        has_after = self.part < self.ways - 1
        # Horovod fails where a rank sends or receives nothing, so each sends itself a value, too.
        # That is no constant: TensorFlow computes what depends on constants alone while it traces,
        # and would wait for ranks that trace.
        not_empty = first if 0 in last.shape[1:] else last
        messages = {self.place: tf.reshape(not_empty, [-1])[:1]}
        if has_before:
            messages[self.place - self.copies] = first
        if has_after:
            messages[self.place + self.copies] = last
        splits = [0] * self.ranks
        flat_messages = []
        for place in sorted(messages):
            splits[place] = tf.size(messages[place])
            flat_messages.append(tf.reshape(messages[place], [-1]))
        flat = _to_wire(tf.concat(flat_messages, 0))
        arrived = engine().all_to_all(flat, tf.stack(splits), name, self.members)
        received = _from_wire(arrived, first.dtype)
        above = _filled(last, fill)
        below = _filled(first, fill)
        if has_before:
            above = tf.reshape(received[: tf.size(last)], tf.shape(last))
        if has_after:
            below = tf.reshape(received[tf.size(received) - tf.size(first) :], tf.shape(first))
        return tf.ensure_shape(above, last.shape), tf.ensure_shape(below, first.shape)

    def _gather(self, x: Tensor, name: str, places: range) -> Tensor:
        """Returns `x` of the ranks at `places`, with a new first axis.

        Its gradient is the sum of theirs.
        """

        @tf.custom_gradient
        def gathered(x: Tensor) -> Tensor:
            def gradient(parts: Tensor) -> Tensor:
                return tf.reduce_sum(self._transpose(parts, f"{name}_back", places), 0)

            return self._transpose(tf.repeat(x[None], len(places), 0), name, places), gradient

        return gathered(x)

    def _transpose(self, parts: Tensor, name: str, places: range) -> Tensor:
        """Sends `parts[i]` to the rank at `places[i]`, of which this one is one.

        Returns what they send to this one.
        """
        splits = [0] * self.ranks
        for place in places:
            splits[place] = tf.size(parts) // len(places)
        flat = _to_wire(tf.reshape(parts, [-1]))
        arrived = engine().all_to_all(flat, tf.stack(splits), name, self.members)
        received = _from_wire(arrived, parts.dtype)
        return tf.ensure_shape(tf.reshape(received, tf.shape(parts)), parts.shape)


@dataclass(frozen=True)
class SlabOfSamples:
    """The part of each sample that this rank trains on. It is a `train.input.division.OwnPart`."""

    source: SampleSource  # where it is read
    slab: Slab  # the part of the patterns
    experiment: Experiment  # the configuration
    checked: set[str] = field(default_factory=set)  # samples whose digests were compared

    @property
    def image(self) -> tuple[int, int, int]:
        return self.slab.axis % 2, self.slab.start, self.slab.stop

    def read(self, entry: Entry) -> SampleSlab:
        """Returns the part of a sample, with its part of the density. Compares digests once per
        process.

        Raises:
            WorkError: If a digest does not match, or the sample is not what the configuration says.
        """
        slab = self.source.read_part(entry.id, self.slab, entry.id not in self.checked)
        if problem := fault_of_sample(
            slab.raster, slab.density.shape, slab.patterns.dtype, self.experiment
        ):
            raise WorkError(f"{entry.id} {problem}")
        self.checked.add(entry.id)
        axis, start, stop = self.image
        density = slab.density[(slice(None),) * axis + (slice(start, stop),)]
        return SampleSlab(slab.raster, slab.scale, slab.patterns, density)


def slab_of(experiment: Experiment, axis: int, part: int, ways: int) -> Slab:
    """Returns the slab of the patterns that belongs to a part of the network's image."""
    axis += 2 if experiment.training.inputs.layout == "detector" else 0
    size = experiment.window_shapes()[0][axis] // ways
    return Slab(axis, part * size, (part + 1) * size)


def divide(section: SampleSplit, input_shape: Sequence[int]) -> RankSplit:
    """Returns this rank's place among those that divide samples. Along several axes, the ranks of a
    group are in the order of a grid, of which the last axis is contiguous.

    Args:
        input_shape: Channels of the network's input, then the extents of its grid.

    Raises:
        InputError: If the ranks do not form groups.
    """
    rank = engine().rank()
    ranks = engine().size()
    group_ranks = section.ranks
    if ranks % group_ranks:
        raise engine().reported_once(
            InputError(
                f"{section.ranks_in_words()}, and {plural(ranks, 'rank')} do not form "
                f"groups of so many: start a multiple of {group_ranks} ranks"
            )
        )
    group = rank // group_ranks
    place = rank % group_ranks
    further = []
    block = group_ranks // section.ways
    of_one_axis = RankSplit(
        group_ranks, section.axis_index(input_shape), group, place, copies=block
    )
    for axis, ways in section.further_axes(input_shape):
        copies = block // ways
        further.append(RankSplit(group_ranks, axis, group, place, copies, block))
        block = copies
    return replace(of_one_axis, further=tuple(further))


def _rows(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """Returns the rows from `start` up to `stop` along an axis."""
    keep = (slice(None),) * axis
    return x[(*keep, slice(start, stop))]


def _padded(x: Tensor, start: int, rows: int, axis: int) -> Tensor:
    """Returns `rows` rows: those of `x` from `start` on, and else zeros."""
    widths = [[0, 0]] * len(x.shape)
    widths[axis] = [start, rows - start - x.shape[axis]]
    return tf.pad(x, widths)


def _to_wire(flat: Tensor) -> Tensor:
    """Horovod sends no bfloat16, but all types of 16 bits alike."""
    if flat.dtype == tf.bfloat16:
        return tf.bitcast(flat, tf.float16)
    return flat


def _from_wire(flat: Tensor, dtype: tf.DType) -> Tensor:
    return tf.bitcast(flat, dtype) if dtype == tf.bfloat16 else flat


def _filled(like: Tensor, fill: float) -> Tensor:
    return tf.fill(tf.shape(like), tf.cast(fill, like.dtype))
