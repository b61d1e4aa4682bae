"""This rank's part of each sample from an HDF5 file. Whole samples are those of another source."""

from namsa.dataset.slab_file_reader import SlabFile
from namsa.dataset.slabs import SampleSlab
from namsa.dataset.tiles import Slab
from namsa.errors import InputError
from namsa.text import shorten

from ....experiment.experiment import Experiment
from ....input.source import LayeredSource, TrainingSet, fault_of_sample
from .section import Slabs

EXPORT = "write it with namsa export DATASET --tiles"


class Source(LayeredSource):
    """Samples of which ranks read their parts from a file."""

    _file: SlabFile | None = None

    def __init__(self, section: Slabs, experiment: Experiment) -> None:
        super().__init__(section, experiment)
        self._path = section.file

    def open(self, training: TrainingSet) -> str:
        """Opens the file; refuses one that does not hold the parts of all samples that are trained on."""
        super().open(training)
        ranks, division = training.ranks, training.division
        assert division
        with ranks.together():
            self._file = SlabFile(self._path, ranks.size())
            self._check(training, self._file)
            part, line = division.own_part(self, self.experiment, training.entries)
            if part is None or not self.has_part(training.entries[0].id, part.slab):
                tiles = f" has tiles {list(self._file.layout.tiling.counts)}," if part else ""
                raise InputError(f"data.source.file {self._path}{tiles} is for ranks that read parts alone, and {line}")
        return f"parts of samples are read from {self._path}"

    def _check(self, training: TrainingSet, file: SlabFile) -> None:
        """Raises InputError if a sample is missing, or the samples are not those that the configuration describes."""
        named, layout = f"data.source.file {file.path}", file.layout
        if file.config_hash != training.dataset.config_hash:
            raise InputError(
                f"{named} holds samples of another configuration than data.directory: {EXPORT} of that one"
            )
        missing = [entry.id for entry in training.entries if entry.id not in file.scales]
        if missing:
            count = f"{len(missing)} of {len(training.entries)} training samples"
            raise InputError(f"{named} lacks {count}, as {shorten(missing[0])}: {EXPORT} again")
        if fault := fault_of_sample(layout.tiling.patterns, layout.image, layout.dtype, self.experiment):
            raise InputError(f"{named} {fault}")

    def has_part(self, sample_id: str, part: Slab) -> bool:
        assert self._file
        return self._file.has(sample_id, part)

    def read_part(self, sample_id: str, part: Slab, check: bool = True) -> SampleSlab:
        assert self._file
        return self._file.read(sample_id, part, check)

    def close(self) -> None:
        super().close()
        if self._file:
            self._file.close()
