"""The exchange between the ranks of a divided sample: `fcdensenet.split.Split` by Horovod's alltoall.

Ranks g·P to g·P + P − 1 are group g, whose rank p has part p of each of the group's samples. Every exchange is one
message between neighbours, or between all ranks of a group, in a process set of the group. Sums are taken in the order
of the ranks, so that they have the same bits on all of them and in every run. The host's executor goes on with what
does not need an exchange while that is under way.

Names are fixed, as Horovod pairs messages by name. The graphs of all ranks are equal: at the ends of the sample an
exchange has length zero, and is not left out.

A rank reads its part of each sample without the rest. The parts of the network's image are slabs of the patterns: of
the detector in layout 'detector', of the scan in layout 'scan'. A rank reads a slab alone where a part of the input
follows from the same part of the patterns. A mirror moves the parts, and noise is drawn for whole samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from namsa.arrays import Tensor
from namsa.dataset.entry import Entry
from namsa.dataset.slabs import SampleSlab
from namsa.dataset.tiles import Slab
from namsa.errors import InputError, WorkError

from ....experiment.experiment import Experiment
from ....input.division import OwnPart
from ....input.source import SampleSource, fault_of_sample
from ....ranks import reduction
from .section import SampleSplit


@dataclass(frozen=True)
class RankSplit:
    """What this rank's part of a sample exchanges with the others. Every method is called by all ranks of the group."""

    ranks: int  # number of ranks of a group
    axis: int  # axis of the grid that is divided, from 0
    group: int  # number of this rank's group
    place: int  # number of this rank in its group
    copies: int = 1  # number of ranks that have the same part

    @property
    def ways(self) -> int:
        """Number of parts of a sample."""
        return self.ranks // self.copies

    @property
    def part(self) -> int:
        """Number of this rank's part."""
        return self.place // self.copies

    @property
    def members(self) -> reduction.Members:
        """The ranks of the group."""
        return tuple(range(self.group * self.ranks, (self.group + 1) * self.ranks))

    def halo(self, x: Tensor, before: int, after: int, axis: int, name: str, fill: float = 0.0) -> Tensor:
        """See `fcdensenet.split.Split`. The gradient of an exchange is the exchange of the gradients."""
        rows, keep = x.shape[axis], [slice(None)] * axis

        @tf.custom_gradient
        def exchanged(x: Tensor) -> Any:
            first, last = x[(*keep, slice(0, after))], x[(*keep, slice(rows - before, rows))]

            def gradient(halo: Tensor) -> Tensor:
                above, below = halo[(*keep, slice(0, before))], halo[(*keep, slice(before, before + after))]
                to_first, to_last = self._swap(above, below, f"{name}_back")
                if rows < before + after:  # rows that both neighbours need
                    return _padded(to_first, 0, rows, axis) + _padded(to_last, rows - before, rows, axis)
                shape = tf.concat([tf.shape(x)[:axis], [rows - before - after], tf.shape(x)[axis + 1 :]], 0)
                between = tf.zeros(shape, x.dtype)
                return tf.concat([to_first, between, to_last], axis)

            return tf.concat(self._swap(first, last, name, fill), axis), gradient

        return exchanged(x)

    def mean(self, x: Tensor, name: str) -> Tensor:
        return tf.reduce_mean(self._gather(x, name, range(self.ranks)), 0)

    def join(self, x: Tensor, axis: int, name: str, parts: int | None = None) -> Tensor:
        """See `fcdensenet.split.Split`. Of each part, the copy whose number among them is this one's is taken."""
        block = (parts or self.ways) * self.copies
        first = self.place // block * block + self.place % self.copies
        return tf.concat(tf.unstack(self._gather(x, name, range(first, first + block, self.copies))), axis)

    def widened(self, parts: int) -> "RankSplit":
        return replace(self, copies=self.copies * parts)

    def take_part(self, x: Tensor, data_format: str) -> Tensor:
        if len(x.shape) <= 2:
            return x
        axis = self.tensor_axis(data_format)
        rows = x.shape[axis] // self.ways
        return x[(*(slice(None),) * axis, slice(self.part * rows, (self.part + 1) * rows))]

    def own_part(
        self, source: SampleSource, experiment: Experiment, entries: Sequence[Entry]
    ) -> tuple[OwnPart | None, str]:
        section = experiment.training.split
        assert isinstance(section, SampleSplit)
        if reason := section.whole_reason(experiment):
            return None, f"every rank reads whole samples: {reason}"
        part = SlabOfSamples(source, slab_of(experiment, self.axis, self.part, self.ways), experiment)
        if source.has_part(entries[0].id, part.slab):
            return part, f"every rank reads 1/{self.ways} of the patterns of a sample"
        tiles = [self.ways if axis == part.slab.axis else 1 for axis in range(4)]
        return part, f"every rank reads whole samples, which lack tiles: simulate them with data.tiles={tiles}"

    def tensor_axis(self, data_format: str) -> int:
        """Returns the divided axis of a tensor of maps."""
        return self.axis + (2 if data_format == "channels_first" else 1)

    def _swap(self, first: Tensor, last: Tensor, name: str, fill: float = 0.0) -> tuple[Tensor, Tensor]:
        """Sends `first` to the part before and `last` to the part after.

        Returns:
            What the part before sends, in the shape of `last`, and what the part after sends, in that of `first`;
            `fill` where there is no such part.
        """
        has_before, has_after = self.part > 0, self.part < self.ways - 1
        # Horovod fails where a rank sends or receives nothing, so each sends itself a value, too. That is no constant:
        # TensorFlow computes what depends on constants alone while it traces, and would wait for ranks that trace.
        own = tf.reshape(last if 0 not in last.shape[1:] else first, [-1])[:1]
        messages = {self.place - self.copies: first} if has_before else {}
        messages |= {self.place: own} | ({self.place + self.copies: last} if has_after else {})
        splits = [tf.size(messages[place]) if place in messages else 0 for place in range(self.ranks)]
        flat = _to_wire(tf.concat([tf.reshape(message, [-1]) for message in messages.values()], 0))
        received = _from_wire(reduction.all_to_all(flat, tf.stack(splits), name, self.members), first.dtype)
        from_after = received[tf.size(received) - tf.size(first) :]
        above = tf.reshape(received[: tf.size(last)], tf.shape(last)) if has_before else _filled(last, fill)
        below = tf.reshape(from_after, tf.shape(first)) if has_after else _filled(first, fill)
        return tf.ensure_shape(above, last.shape), tf.ensure_shape(below, first.shape)

    def _gather(self, x: Tensor, name: str, places: range) -> Tensor:
        """Returns `x` of the ranks at `places`, with a new first axis. Its gradient is the sum of theirs."""

        @tf.custom_gradient
        def gathered(x: Tensor) -> Any:
            def gradient(parts: Tensor) -> Tensor:
                return tf.reduce_sum(self._transpose(parts, f"{name}_back", places), 0)

            return self._transpose(tf.repeat(x[None], len(places), 0), name, places), gradient

        return gathered(x)

    def _transpose(self, parts: Tensor, name: str, places: range) -> Tensor:
        """Sends `parts[i]` to the rank at `places[i]`; returns what they send to this one, which is one of them."""
        size = tf.size(parts) // len(places)
        splits = tf.stack([size if place in places else 0 for place in range(self.ranks)])
        flat = _to_wire(tf.reshape(parts, [-1]))
        received = _from_wire(reduction.all_to_all(flat, splits, name, self.members), parts.dtype)
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
        """Returns the part of a sample, with its part of the density. Compares digests once per process.

        Raises:
            WorkError: If a digest does not match, or the sample is not what the configuration says.
        """
        slab = self.source.read_part(entry.id, self.slab, entry.id not in self.checked)
        if fault := fault_of_sample(slab.raster, slab.density.shape, slab.patterns.dtype, self.experiment):
            raise WorkError(f"{entry.id} {fault}")
        self.checked.add(entry.id)
        axis, start, stop = self.image
        density = slab.density[(slice(None),) * axis + (slice(start, stop),)]
        return SampleSlab(slab.raster, slab.scale, slab.patterns, density)


def slab_of(experiment: Experiment, axis: int, part: int, ways: int) -> Slab:
    """Returns the slab of the patterns that belongs to a part of the network's image."""
    axis += 2 if experiment.training.inputs.layout == "detector" else 0
    size = experiment.window_shapes()[0][axis] // ways
    return Slab(axis, part * size, (part + 1) * size)


def divide(section: SampleSplit) -> RankSplit:
    """Returns this rank's place among those that divide samples. Raises InputError if the ranks do not form groups."""
    rank, ranks, ways = reduction.rank(), reduction.size(), section.ways
    if ranks % ways:
        raise reduction.reported_once(
            InputError(
                f"training.split.ways is {ways}, and {ranks} rank{'s' * (ranks > 1)} do not form groups of so many: "
                f"start a multiple of {ways} ranks"
            )
        )
    return RankSplit(ways, section.axis_index, rank // ways, rank % ways)


def _padded(x: Tensor, start: int, rows: int, axis: int) -> Tensor:
    """Returns `rows` rows: those of `x` from `start` on, and else zeros."""
    widths = [[0, 0]] * len(x.shape)
    widths[axis] = [start, rows - start - x.shape[axis]]
    return tf.pad(x, widths)


def _to_wire(flat: Tensor) -> Tensor:
    """Horovod sends no bfloat16, but all types of 16 bits alike."""
    return tf.bitcast(flat, tf.float16) if flat.dtype == tf.bfloat16 else flat


def _from_wire(flat: Tensor, dtype: tf.DType) -> Tensor:
    return tf.bitcast(flat, dtype) if dtype == tf.bfloat16 else flat


def _filled(like: Tensor, fill: float) -> Tensor:
    return tf.fill(tf.shape(like), tf.cast(fill, like.dtype))
