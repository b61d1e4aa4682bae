"""Takes samples from the files of the authors' programs (`namsa.exchange.stemdl`) into data.directory, once.

The mode in a file's name is the split of its samples. Without files of dev, eval or test, samples are held out by a
hash of their material, or of their own name where a file names no material.

The files say no units and no geometry. What a sample of namsa has beside them is the configuration's: energy,
semiangle, thickness, pixels. Its density is zero, and no network can have it as the target. Patterns are averaged over
squares to the detector's pixels, and potentials resized to the grid's, if the files have others.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from namsa.dataset import manifest, records
from namsa.dataset.entry import UNKNOWN, Entry, SplitName, seed_of, split_of
from namsa.dataset.failures import append_failure, read_failures
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path
from namsa.dataset.strata import space_group_numbers
from namsa.errors import InputError, WorkError
from namsa.exchange.stemdl import StemdlSample, open_stemdl
from namsa.exchange.stemdl_export import NAME, SPLITS, resized
from namsa.files import make_folder
from namsa.pixels import binned
from namsa.sample import Sample
from namsa.text import plural, shorten

from ....experiment.experiment import Experiment
from ....input.source import OnProgress, Preparation, SampleSource
from ....reports.markdown import times

PER_COMMIT = 16  # samples


class StoredSample(NamedTuple):
    """Where a sample is, and its entry in the manifest."""

    file: Path
    name: str  # in the file
    entry: Entry


class Source(SampleSource):
    """Samples of the authors' files."""

    def prepare(self, job: Preparation) -> Collection[str] | None:
        if not job.simulate:
            return None
        experiment, directory, layout = self.experiment, self.experiment.data.directory, job.layout
        with job.ranks.together():
            files = batch_files(self.section.folder)
            listed = list_samples(files, experiment) if layout.rank == 0 else []
            if layout.rank == 0:
                job.check_listed([each.entry for each in listed])
                make_folder(directory)
                entries = tuple(each.entry for each in listed)
                manifest.ensure_entries(directory, experiment, _digest(files, entries, experiment), lambda: entries)
        with job.ranks.together(), job.progress("rank 0 takes samples") as on_sample:
            own = files[layout.rank :: layout.size]
            changes = take(list_samples(own, experiment, files), experiment, layout.rank, on_sample)
        parts = job.ranks.gather_json([changes, len(own)])
        taken, failed = (sum(part[0][key] for part in parts) for key in ("taken", "failed"))
        what = sorted({text for part in parts for text in part[0]["changes"]})
        lost = f", {failed} failed and left out (reasons: {directory}/failed-*.jsonl)" if failed else ""
        job.log_line("; ".join([f"samples: {taken} taken from {plural(len(files), 'file')}{lost}", *what]))
        return None


def batch_files(folder: Path) -> list[Path]:
    """Returns the files in a folder and its folders, sorted. Raises InputError for none, or two of one name."""
    found = sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern) if NAME.fullmatch(path.name))
    if not found:
        raise InputError(
            f"data.source.folder {folder} has no batch_<mode>_<rank>.db or .h5 with mode train, dev or test"
        )
    if len(names := {path.stem for path in found}) < len(found):
        raise InputError(f"data.source.folder {folder} has {len(found)} files of {len(names)} names: rename some")
    return found


def list_samples(files: Sequence[Path], experiment: Experiment, beside: Sequence[Path] = ()) -> list[StoredSample]:
    """Returns the samples of some files among all of the job, of which arrays are not read."""
    modes = {NAME.fullmatch(path.name)[1] for path in beside or files}  # type: ignore[index]
    symbols = {str(number): symbol for symbol, number in reversed(space_group_numbers().items())}
    thickness = experiment.specimen.thickness_angstrom[0]
    found = []
    for path in files:
        mode = NAME.fullmatch(path.name)[1]  # type: ignore[index]
        with open_stemdl(path) as file:
            for name in file.names:
                attributes = file.attributes(name)
                sample_id = f"{path.stem}-{_plain(name)}"
                material = _plain(str(attributes.get("material") or name.rpartition("/")[0]))  # the outer group
                split = cast(SplitName, SPLITS.get(mode, mode))
                if modes == {"train"}:
                    split = split_of(material or sample_id, experiment.split)
                group = str(attributes.get("space_group", UNKNOWN)).removesuffix(".0")
                found.append(
                    StoredSample(
                        path,
                        name,
                        Entry(
                            id=sample_id,
                            material=material or UNKNOWN,
                            formula=shorten(str(attributes.get("formula", UNKNOWN))),
                            space_group=symbols.get(group, shorten(group)),
                            zone_axis=(0, 0, 0),
                            thickness_angstrom=thickness,
                            seed=seed_of(experiment.seed, sample_id),
                            split=split,
                            source="stemdl",
                        ),
                    )
                )
    if len(ids := {each.entry.id for each in found}) < len(found):
        raise InputError(f"the files of data.source.folder have {len(found)} samples of {len(ids)} names: rename some")
    return found


def take(samples: Sequence[StoredSample], experiment: Experiment, rank: int, on_sample: OnProgress) -> dict[str, Any]:
    """Writes the samples that are not there into the shard of a rank.

    Returns:
        The numbers "taken" and "failed", and "changes": texts about what was averaged or resized.

    Raises:
        InputError: If a file cannot be read, or holds what the configuration does not take.
    """
    directory, samples_hash = experiment.data.directory, experiment.samples_hash()
    with Dataset(directory) as dataset:
        done = frozenset(dataset.ids) | read_failures(directory, samples_hash).keys()
    missing = [sample for sample in samples if sample.entry.id not in done]
    changes: set[str] = set()
    failed = 0
    if missing:
        with ShardWriter(shard_path(directory, rank), PER_COMMIT) as writer:
            for number, (stored, entry) in enumerate(_read(missing), 1):
                try:
                    sample = as_sample(stored, entry, experiment, changes)
                    writer.put(entry.id, records.encode(sample, experiment.data.dtype, experiment.data.tiles))
                except WorkError as error:  # of numbers that are not finite
                    append_failure(directory, rank, samples_hash, entry.id, error)
                    failed += 1
                on_sample(number, len(missing))
    return {"taken": len(missing) - failed, "failed": failed, "changes": sorted(changes)}


def as_sample(stored: StemdlSample, entry: Entry, experiment: Experiment, changes: set[str]) -> Sample:
    """Returns a sample of namsa; adds to `changes` what was averaged or resized.

    Raises:
        InputError: If its shapes or numbers do not fit the configuration.
    """
    (sy, sx, dy, dx), image = experiment.sample_shapes()
    patterns = stored.patterns.reshape(-1, *stored.patterns.shape[-2:])
    if len(patterns) != sy * sx:
        raise InputError(
            f"{entry.id} has {len(patterns)} patterns, and scan.shape {[sy, sx]} has {sy * sx}: set it to their rows "
            "and columns"
        )
    side = patterns.shape[1] // dy
    if patterns.shape[1:] != (side * dy, side * dx):
        raise InputError(
            f"{entry.id} has patterns of {times(patterns.shape[1:])} pixels, which are no squares of the detector's "
            f"{times((dy, dx))}: set detector.shape, or simulation.grid_shape without a detector, to theirs"
        )
    if patterns.min() < 0 and experiment.training.inputs.normalisation != "standardised":
        raise InputError(
            f"{entry.id} has negative numbers, as patterns have that are standardised already: set "
            "training.inputs.normalisation=standardised"
        )
    if side > 1:
        patterns = binned(patterns, side) / side**2
        changes.add(f"patterns averaged over {side}×{side} pixels")
    potential = np.zeros((1, 1), np.float32)
    if stored.potential is not None:
        potential = stored.potential.reshape(-1, *stored.potential.shape[-2:]).astype(np.float32)
        if len(potential) > 1:
            raise InputError(f"{entry.id} has {len(potential)} potentials, and one is read")
        potential = potential[0]
        if potential.shape != image and np.isfinite(potential).all():
            changes.add(f"potentials resized from {times(potential.shape)} to {times(image)}")
            potential = resized(potential, image)
    elif experiment.training.task == "density":
        raise InputError(f"{entry.id} has no potential: training.task density cannot learn from it")
    trained, extent = experiment.conditions(), experiment.specimen.lateral_angstrom
    step = np.array(trained.scan_step_angstrom)
    positions = np.stack(np.meshgrid(np.arange(sy), np.arange(sx), indexing="ij"), -1).reshape(-1, 2) * step
    provenance = {
        "id": entry.id,
        "material": entry.material,
        "formula": entry.formula,
        "space_group": entry.space_group,
        "source": f"stemdl {stored.name}",
        "split": entry.split,
        "config_hash": experiment.samples_hash(),
        "attributes": stored.attributes,
        "energy_ev": trained.energy_ev,
        "semiangle_mrad": trained.semiangle_mrad,
        "thickness_angstrom": entry.thickness_angstrom,
        "extent_angstrom": list(extent),
        "grid_shape": list(potential.shape),
        "detector_sampling_mrad": list(trained.detector_pixels.step),
        "detector_origin_mrad": list(trained.detector_pixels.origin),
        "density_sampling_angstrom": [side / n for side, n in zip(extent, image, strict=True)],
        "density_origin_angstrom": [0.0, 0.0],
        "scan_shape": [sy, sx],
        "positions_angstrom": positions.tolist(),
    }
    return Sample(patterns, np.zeros(image, np.float32), potential, provenance)


def _read(samples: Sequence[StoredSample]) -> Iterator[tuple[StemdlSample, Entry]]:
    """Yields samples, which are in the order of their files."""
    for path in dict.fromkeys(sample.file for sample in samples):
        with open_stemdl(path) as file:
            for sample in samples:
                if sample.file == path:
                    yield file.read(sample.name), sample.entry


def _digest(files: Sequence[Path], entries: Sequence[Entry], experiment: Experiment) -> str:
    """Returns 16 hex digits that change with the sizes of the files, the list, or what decides a sample."""
    sizes = [(path / "data.mdb" if path.is_dir() else path).stat().st_size for path in files]
    decisive = [experiment.samples_hash(), sizes, [entry.to_json() for entry in entries]]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]


def _plain(name: str) -> str:
    """Returns a name as samples and materials may have it."""
    return re.sub(r"[^\w.+-]+", "-", name).lstrip(".")[:150]
