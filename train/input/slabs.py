"""This rank's part of each sample of `training.split`, read without the rest.

The parts of the network's image are slabs of the patterns: of the detector in layout 'detector', of the scan in layout
'scan'. A rank reads a slab alone where a part of the input follows from the same part of the patterns. A mirror moves
the parts, and noise is drawn for whole samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from namsa.dataset.entry import Entry
from namsa.dataset.slabs import SampleSlab, SlabReader
from namsa.dataset.tiles import Slab
from namsa.errors import WorkError

from ..experiment.experiment import Experiment


class SlabSource(Protocol):
    """Where slabs are read. Several threads call it at once."""

    def read(self, sample_id: str, slab: Slab, check: bool = True) -> SampleSlab:
        """Returns a slab; compares its digests if `check` is set."""
        ...


def whole_reason(experiment: Experiment) -> str | None:
    """Returns which setting makes every rank read whole samples; `None` if a rank can read its part alone."""
    inputs = experiment.training.inputs
    reasons = {
        f"layout {inputs.layout}": inputs.layout not in ("detector", "scan"),
        f"task {experiment.training.task}": experiment.training.task != "density",
        "inputs.augment": inputs.augment,
        "inputs.dose_electrons_per_pattern": inputs.dose_electrons_per_pattern,
        "inputs.imperfections": inputs.imperfections,
        "inputs.guess dpc": inputs.guess == "dpc",
        "inputs.redraw_epochs": inputs.redraw_epochs > 1,
        "target.depth_bins": experiment.bins_shape(),
        "a window of the scan": experiment.window_shapes() != experiment.sample_shapes(),
    }
    return next((f"training has {name}" for name, applies in reasons.items() if applies), None)


@dataclass(frozen=True)
class OwnPart:
    """The part of each sample that this rank trains on.

    Attributes:
        source: Where it is read.
        slab: The part of the patterns.
        checked: Samples whose digests were compared.
    """

    source: SlabSource
    slab: Slab
    checked: set[str] = field(default_factory=set)

    @property
    def image(self) -> tuple[int, int, int]:
        """The divided axis of the image, and the first and the last index and one."""
        return self.slab.axis % 2, self.slab.start, self.slab.stop

    def read(self, entry: Entry, experiment: Experiment) -> SampleSlab:
        """Returns the part of a sample, with its part of the density. Compares digests once per process.

        Raises:
            WorkError: If a digest does not match, or the sample is not what the configuration says.
        """
        slab = self.source.read(entry.id, self.slab, entry.id not in self.checked)
        if fault := fault_of_sample(slab.raster, slab.density.shape, slab.patterns.dtype, experiment):
            raise WorkError(f"{entry.id} {fault}")
        self.checked.add(entry.id)
        axis, start, stop = self.image
        density = slab.density[(slice(None),) * axis + (slice(start, stop),)]
        return SampleSlab(slab.raster, slab.scale, slab.patterns, density)


def fault_of_sample(
    raster: tuple[int, ...], image: tuple[int, ...], dtype: npt.DTypeLike, experiment: Experiment
) -> str | None:
    """Returns why stored samples are not those of a configuration; `None` if they are.

    Args:
        raster: Shape (sy, sx, dy, dx) of their patterns.
        image: Shape (ty, tx) of their densities.
        dtype: Type of the stored patterns.
        experiment: The configuration.
    """
    shapes = experiment.sample_shapes()
    if (raster, image) != shapes:
        return (
            f"holds patterns {raster} and density {image}, where the configuration has {shapes[0]} and {shapes[1]}: "
            "give its samples another data.directory"
        )
    if not np.can_cast(dtype, experiment.data.dtype):
        return f"holds {np.dtype(dtype)} patterns: set data.dtype={np.dtype(dtype)}"
    return None


class Division(Protocol):
    """What is needed of `train.ranks.split.RankSplit`."""

    @property
    def ways(self) -> int:
        """Number of parts."""
        ...

    @property
    def axis(self) -> int:
        """Divided axis of the image."""
        ...

    @property
    def part(self) -> int:
        """Number of this rank's part."""
        ...


def own_part(
    reader: SlabReader, experiment: Experiment, split: Division, entries: Sequence[Entry]
) -> tuple[OwnPart | None, str]:
    """Returns what reads this rank's part of a sample, and a line about it.

    Args:
        reader: Reads the job's samples.
        experiment: The configuration.
        split: The rank's part.
        entries: The samples that are trained on.

    Returns:
        `None` in place of the first if samples must be read whole.
    """
    if reason := whole_reason(experiment):
        return None, f"every rank reads whole samples: {reason}"
    part = OwnPart(reader, slab_of(experiment, split))
    if reader.has(entries[0].id, part.slab):
        return part, f"every rank reads 1/{split.ways} of the patterns of a sample"
    tiles = tiles_for(part.slab, split)
    return part, f"every rank reads whole samples, which lack tiles: simulate them with data.tiles={tiles}"


def tiles_for(slab: Slab, split: Division) -> list[int]:
    """Returns `data.tiles` with as many tiles along a slab's axis as there are parts."""
    return [split.ways if axis == slab.axis else 1 for axis in range(4)]


def slab_of(experiment: Experiment, split: Division) -> Slab:
    """Returns the slab of the patterns that belongs to a part of the network's image.

    Args:
        experiment: The configuration, for which `whole_reason` is `None`.
        split: The part.
    """
    axis = split.axis + (2 if experiment.training.inputs.layout == "detector" else 0)
    size = experiment.window_shapes()[0][axis] // split.ways
    return Slab(axis, split.part * size, (split.part + 1) * size)
