"""This rank's part of each sample, read without the rest.

The parts of the network's image are slabs of the patterns: of the detector in layout 'detector', of the scan in layout
'scan'. A rank reads a slab alone where a part of the input follows from the same part of the patterns. A mirror moves
the parts, and noise is drawn for whole samples.
"""

from dataclasses import dataclass, field

from namsa.dataset.entry import Entry
from namsa.dataset.slabs import SampleSlab
from namsa.dataset.tiles import Slab
from namsa.errors import WorkError

from ....experiment.experiment import Experiment
from ....input.division import PartSource
from ....input.source import fault_of_sample


@dataclass(frozen=True)
class SlabOfSamples:
    """The part of each sample that this rank trains on. It is a `train.input.division.OwnPart`."""

    source: PartSource  # where it is read
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
    """Returns the slab of the patterns that belongs to a part of the network's image.

    Args:
        experiment: The configuration, of which parts are read alone.
        axis: Divided axis of the image.
    """
    axis += 2 if experiment.training.inputs.layout == "detector" else 0
    size = experiment.window_shapes()[0][axis] // ways
    return Slab(axis, part * size, (part + 1) * size)
