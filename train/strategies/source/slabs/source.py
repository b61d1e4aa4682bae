"""This rank's part of each sample from an HDF5 file. Whole samples are those of another source."""

from collections.abc import Sequence

from namsa.base.errors import InputError
from namsa.base.identity import Difference, digest_of, refusal
from namsa.base.text import plural, shorten
from namsa.dataset.entry import Entry
from namsa.dataset.record_header import tiling_of
from namsa.dataset.shards import Dataset
from namsa.dataset.slab_file_reader import SlabFile
from namsa.dataset.slabs import SampleSlab
from namsa.dataset.tiles import Slab, digests

from ....experiment.experiment import Experiment
from ....input.source import LayeredSource, TrainingSet, fault_of_sample
from .section import Slabs

EXPORT = "write it with namsa export DATASET --tiles"
MOST_SHOWN = 8  # samples in a message


class SlabSource(LayeredSource):
    """Samples of which ranks read their parts from a file."""

    _file: SlabFile | None = None

    def __init__(self, section: Slabs, experiment: Experiment) -> None:
        super().__init__(section, experiment)
        self._path = section.file

    def open(self, training: TrainingSet) -> str:
        """Opens the file; refuses one that does not hold the parts of all samples that are trained
        on.
        """
        super().open(training)
        ranks = training.ranks
        division = training.division
        assert division
        with ranks.local_work():
            self._file = SlabFile(self._path, ranks.size())
            self._check(training, self._file)
            rank_entries = training.entries[ranks.rank() :: ranks.size()]
            self._check_contents(training.dataset, rank_entries, self._file)
            own_part, line = division.own_part(self, self.experiment, training.entries)
            named = f"data.source.file {self._path}"
            if own_part is None:
                raise InputError(f"{named} is for ranks that read parts alone, and {line}")
            if not self.has_part(training.entries[0].id, own_part.slab):
                tiles = list(self._file.layout.tiling.counts)
                raise InputError(
                    f"{named} has tiles {tiles}, is for ranks that read parts alone, and {line}"
                )
        return f"parts of samples are read from {self._path}"

    def _check(self, training: TrainingSet, file: SlabFile) -> None:
        """Raises InputError if a sample is missing, or the samples are not those that the
        configuration describes.
        """
        named = f"data.source.file {file.path}"
        layout = file.layout
        if file.config_hash != training.dataset.config_hash:
            raise InputError(
                f"{named} holds samples of another configuration than data.directory: {EXPORT} of "
                "that one"
            )
        missing = [entry.id for entry in training.entries if entry.id not in file.scales]
        if missing:
            count = f"{len(missing)} of {len(training.entries)} training samples"
            raise InputError(f"{named} lacks {count}, as {shorten(missing[0])}: {EXPORT} again")
        if problem := fault_of_sample(
            layout.tiling.patterns, layout.image, layout.dtype, self.experiment
        ):
            raise InputError(f"{named} {problem}")

    def _check_contents(self, dataset: Dataset, entries: Sequence[Entry], file: SlabFile) -> None:
        """Raises DifferentError if the file holds other values than data.directory has."""
        differences = []
        for entry in entries:
            with dataset.view(entry.id, check=False) as record:
                arrays = record.header["arrays"]
                digests_now = [*arrays["cbed"].get("digests", []), *digests(record.density)]
            exported = file.digests(entry.id)
            if tiling_of(record.header) != file.layout.tiling:  # other tiles, or none
                exported = exported[-1:]
                digests_now = digests_now[-1:]
            if exported != digests_now:
                differences.append(
                    Difference(entry.id, digest_of(exported), digest_of(digests_now))
                )
        if differences:
            raise refusal(
                f"data.source.file {file.path}, with {plural(len(differences), 'other sample')} "
                f"than data.directory,",
                differences[:MOST_SHOWN],
                f"{EXPORT} again",
            )

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


SOURCE = SlabSource
