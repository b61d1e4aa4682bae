"""This rank's part of each sample from an HDF5 file: `data.slabs_from`."""

from collections.abc import Sequence
from typing import Protocol

from namsa.dataset.entry import Entry
from namsa.dataset.slab_file_reader import SlabFile
from namsa.errors import InputError
from namsa.text import shorten

from ..experiment.experiment import Experiment
from .slabs import Division, OwnPart, fault_of_sample, slab_of, tiles_for, whole_reason


class Hashed(Protocol):
    """What is needed of `namsa.dataset.shards.Dataset`."""

    @property
    def config_hash(self) -> str | None:
        """The hash of what decided the samples' bits."""
        ...


def check_parts_are_read(experiment: Experiment) -> None:
    """Raises InputError if `data.slabs_from` is given, and the job needs whole samples."""
    if reason := whole_reason(experiment):
        raise InputError(
            f"data.slabs_from gives parts of samples, and {reason}, which needs whole ones: unset one of them"
        )


def own_part_of(
    file: SlabFile, experiment: Experiment, split: Division, entries: Sequence[Entry], dataset: Hashed
) -> tuple[OwnPart, str]:
    """Returns what reads this rank's part of a sample from a file, and a line about it.

    Args:
        file: The file.
        experiment: The configuration, for which `whole_reason` is `None`.
        split: The rank's part.
        entries: The samples that are trained on.
        dataset: The job's samples, which the file's are compared with.

    Raises:
        InputError: If a sample is missing, or the file's samples are not those that the configuration describes.
    """
    said, export = f"data.slabs_from {file.path}", "write it with namsa export DATASET --tiles"
    if file.config_hash != dataset.config_hash:
        raise InputError(f"{said} holds samples of another configuration than data.directory: {export} of that one")
    missing = [entry.id for entry in entries if entry.id not in file.scales]
    if missing:
        raise InputError(
            f"{said} lacks {len(missing)} of {len(entries)} training samples, as {shorten(missing[0])}: {export} again"
        )
    layout = file.layout
    if fault := fault_of_sample(layout.tiling.patterns, layout.image, layout.dtype, experiment):
        raise InputError(f"{said} {fault}")
    part = OwnPart(file, slab_of(experiment, split))
    if not file.has(entries[0].id, part.slab):
        raise InputError(
            f"{said} has tiles {list(layout.tiling.counts)}, which do not make up {split.ways} parts along axis "
            f"{part.slab.axis}: simulate with data.tiles={tiles_for(part.slab, split)}, and {export}"
        )
    return part, f"every rank reads 1/{split.ways} of the patterns of a sample from {file.path}"
