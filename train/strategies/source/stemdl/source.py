"""Takes samples from the files of the authors' programs (`namsa.exchange.stemdl`) into
data.directory, once.

The mode in a file's name is the split of its samples. Without files of dev, eval or test, samples
are held out by a hash of their material, or of their own name where a file names no material.

The files say no units and no geometry. What a sample of namsa has beside them is the
configuration's: energy, semiangle, thickness, pixels. Its density is zero, and no network can have
it as the target. Patterns are averaged over squares to the detector's pixels, and potentials
resized to the grid's, if the files have others.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from namsa.base.errors import InputError, WorkError
from namsa.base.files import make_folder
from namsa.base.text import plural, shorten
from namsa.dataset import manifest, records
from namsa.dataset.entry import UNKNOWN, Entry, SplitName, seed_of, split_of
from namsa.dataset.failures import append_failure, read_failures
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path
from namsa.dataset.strata import space_group_numbers
from namsa.exchange.stemdl import StemdlSample, open_stemdl
from namsa.exchange.stemdl_export import NAME, SPLITS

from ....experiment.experiment import Experiment
from ....input.source import OnProgress, Preparation, SampleSource
from ....ranks.interface import Ranks
from .conversion import as_sample, stated_number
from .file_digests import FileDigest, check_unchanged, file_digests

PER_COMMIT = 16  # samples
PER_MESSAGE = 20_000  # entries of a few hundred bytes that a rank sends at once


class ListedSample(NamedTuple):
    """Place of a sample, and its entry in the manifest."""

    file: Path
    name: str  # in the file
    entry: Entry


EntriesOfFiles = dict[str, list[Entry]]  # by the names of files


class StemdlSource(SampleSource):
    """Samples of the authors' files."""

    def listed(self) -> Sequence[Entry]:
        samples = list_samples(batch_files(self.section.folder), self.experiment)
        return [sample.entry for sample in samples]

    def prepare(self, job: Preparation) -> Collection[str] | None:
        if not job.simulate:
            return None
        experiment = self.experiment
        directory = self.experiment.data.directory
        layout = job.layout
        with job.ranks.local_work():
            files = batch_files(self.section.folder)
            own_files = files[layout.rank :: layout.size]
            digests = file_digests(directory, own_files)
            own_samples = list_samples(own_files, experiment, files)
        digests_of_ranks = job.ranks.gather_json(digests)
        lists = _lists_on_rank_0(own_samples, job.ranks)
        with job.ranks.local_work():
            if layout.rank == 0:
                entries = _in_order_of_files(files, lists)
                self._prepare_manifest(job, files, entries, digests_of_ranks)
        with job.ranks.local_work(), job.progress("rank 0 takes samples") as on_sample:
            own_changes = take(own_samples, experiment, layout.rank, on_sample)
        changes = job.ranks.gather_json(own_changes)
        taken = sum(of_rank["taken"] for of_rank in changes)
        failed = sum(of_rank["failed"] for of_rank in changes)
        what = sorted(set().union(*(of_rank["changes"] for of_rank in changes)))
        if failed:
            lost = f", {failed} failed and left out (reasons: {directory}/failed-*.jsonl)"
        else:
            lost = ""
        job.log_line(
            "; ".join([f"samples: {taken} taken from {plural(len(files), 'file')}{lost}", *what])
        )
        return None

    def _prepare_manifest(
        self,
        job: Preparation,
        files: Sequence[Path],
        entries: tuple[Entry, ...],
        digests_of_ranks: Sequence[dict[str, FileDigest]],
    ) -> None:
        """Compares the files with those of the samples that are there, and lists all samples."""
        directory = self.experiment.data.directory
        job.check_listed(list(entries))
        make_folder(directory)
        digests: dict[str, FileDigest] = {}
        for of_rank in digests_of_ranks:
            digests |= of_rank
        check_unchanged(directory, digests)
        list_digest = _digest(files, entries, self.experiment)
        manifest.ensure_entries(directory, self.experiment, list_digest, lambda: entries)


def batch_files(folder: Path) -> list[Path]:
    """Returns the files in a folder and its folders, sorted. Raises InputError for none, or two of
    one name.
    """
    paths = sorted(
        path
        for pattern in ("*", "*/*")
        for path in folder.glob(pattern)
        if NAME.fullmatch(path.name)
    )
    if not paths:
        raise InputError(
            f"data.source.folder {folder} has no batch_<mode>_<rank>.db or .h5 with mode train, "
            "dev or test"
        )
    if len(names := {path.stem for path in paths}) < len(paths):
        raise InputError(
            f"data.source.folder {folder} has {len(paths)} files of {len(names)} names: rename some"
        )
    return paths


def list_samples(
    files: Sequence[Path], experiment: Experiment, beside: Sequence[Path] = ()
) -> list[ListedSample]:
    """Returns the samples of some files among all of the job, of which arrays are not read."""
    modes = {NAME.fullmatch(path.name)[1] for path in beside or files}  # type: ignore[index]
    symbols = {
        str(group_number): symbol
        for symbol, group_number in reversed(space_group_numbers().items())
    }
    thickness = experiment.specimen.thickness_angstrom[0]
    samples = []
    for path in files:
        mode = NAME.fullmatch(path.name)[1]  # type: ignore[index]
        with open_stemdl(path) as file:
            for name in file.names:
                attributes = file.attributes(name)
                sample_id = f"{path.stem}-{_plain(name)}"
                outer_group = name.rpartition("/")[0]
                material = _plain(str(attributes.get("material") or outer_group))
                split = cast(SplitName, SPLITS.get(mode, mode))
                if modes == {"train"}:
                    split = split_of(material or sample_id, experiment.split)
                group = str(attributes.get("space_group", UNKNOWN)).removesuffix(".0")
                entry = Entry(
                    id=sample_id,
                    material=material or UNKNOWN,
                    formula=shorten(str(attributes.get("formula", UNKNOWN))),
                    space_group=symbols.get(group, shorten(group)),
                    zone_axis=(0, 0, 0),
                    thickness_angstrom=stated_number(attributes, "slab_t") or thickness,
                    seed=seed_of(experiment.seed, sample_id),
                    split=split,
                    source="stemdl",
                )
                samples.append(ListedSample(path, name, entry))
    _check_names([sample.entry for sample in samples])
    return samples


def _check_names(entries: Sequence[Entry]) -> None:
    """Raises InputError if two samples have one name."""
    names = {entry.id for entry in entries}
    if len(names) < len(entries):
        raise InputError(
            f"the files of data.source.folder have {len(entries)} samples of {len(names)} names: "
            "rename some"
        )


def _lists_on_rank_0(samples: Sequence[ListedSample], ranks: Ranks) -> list[EntriesOfFiles]:
    """Sends the entries of each rank's samples to rank 0. Collective.

    Returns:
        The entries by file, for each rank; without any on the other ranks.
    """
    lists: list[EntriesOfFiles] = [{} for _ in range(ranks.size())]
    counts = ranks.gather_json(len(samples))
    for start in range(0, max(counts), PER_MESSAGE):
        lines = []
        for sample in samples[start : start + PER_MESSAGE]:
            lines.append([sample.file.name, sample.entry.to_json()])
        message = np.frombuffer(json.dumps(lines).encode(), np.uint8)
        outgoing = [message] + [message[:0]] * (ranks.size() - 1)
        received = ranks.exchange_bytes(outgoing)
        if ranks.rank():
            continue
        for of_rank, data in zip(lists, received, strict=True):
            for name, line in json.loads(data.tobytes()):
                of_rank.setdefault(name, []).append(Entry.from_json(line, f"a sample of {name}"))
    return lists


def _in_order_of_files(files: Sequence[Path], lists: Sequence[EntriesOfFiles]) -> tuple[Entry, ...]:
    """Returns the entries of all files in their order. Raises InputError if two have one name."""
    by_file: EntriesOfFiles = {}
    for of_rank in lists:
        by_file |= of_rank
    entries: list[Entry] = []
    for path in files:
        entries += by_file.get(path.name, [])
    _check_names(entries)
    return tuple(entries)


def take(
    samples: Sequence[ListedSample], experiment: Experiment, rank: int, on_sample: OnProgress
) -> dict[str, object]:
    """Writes the samples that are not there into the shard of a rank.

    Returns:
        The numbers "taken" and "failed", and "changes": texts about what was averaged or resized.

    Raises:
        InputError: If a file cannot be read, or holds what the configuration does not take.
    """
    directory = experiment.data.directory
    samples_hash = experiment.samples_hash()
    with Dataset(directory) as dataset:
        done = frozenset(dataset.ids) | read_failures(directory, samples_hash).keys()
    missing = [sample for sample in samples if sample.entry.id not in done]
    changes: set[str] = set()
    failed = 0
    if missing:
        with ShardWriter(shard_path(directory, rank), PER_COMMIT) as writer:
            for count, (stored, entry) in enumerate(_read(missing), 1):
                try:
                    sample = as_sample(stored, entry, experiment, changes)
                    writer.put(
                        entry.id,
                        records.encode(sample, experiment.data.dtype, experiment.data.tiles),
                    )
                except WorkError as error:  # of numbers that are not finite
                    append_failure(directory, rank, samples_hash, entry.id, error)
                    failed += 1
                on_sample(count, len(missing))
    return {"taken": len(missing) - failed, "failed": failed, "changes": sorted(changes)}


def _read(samples: Sequence[ListedSample]) -> Iterator[tuple[StemdlSample, Entry]]:
    """Yields samples, which are in the order of their files."""
    for path in dict.fromkeys(sample.file for sample in samples):
        with open_stemdl(path) as file:
            for sample in samples:
                if sample.file == path:
                    yield file.read(sample.name), sample.entry


def _digest(files: Sequence[Path], entries: Sequence[Entry], experiment: Experiment) -> str:
    """Returns 16 hex digits that change with the sizes of the files, the list, or what decides a
    sample.
    """
    sizes = [(path / "data.mdb" if path.is_dir() else path).stat().st_size for path in files]
    decisive = [experiment.samples_hash(), sizes, [entry.to_json() for entry in entries]]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]


def _plain(name: str) -> str:
    """Returns a name as samples and materials may have it."""
    return re.sub(r"[^\w.+-]+", "-", name).lstrip(".")[:150]


SOURCE = StemdlSource
