"""From records to batches: normalisation, layout, and each rank's share of an epoch.

Orders, symmetries and noise are drawn from seeds and the epoch's number alone, so that a resumed job sees the same
batches.

A batch is read as it lies on the disk: one copy, without the interpreter's lock, from the file's pages into memory that
TensorFlow takes over. The arithmetic is TensorFlow's, on the device that trains, so that a GPU is sent float16. All of
it happens in threads ahead of the step. A process reads a sample's header and compares its checksum only once (`Kept`):
that finds what was damaged before the job, and later epochs are little more than copies.
"""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import xxhash

from namsa.dataset.manifest import Entry
from namsa.dataset.records import Record
from namsa.dataset.shards import Dataset
from namsa.errors import InputError, WorkError
from namsa.physics.backend import available_cores
from train.experiment import symmetries
from train.experiment.channels import Channels, seen
from train.experiment.experiment import Experiment
from train.experiment.sections import Inputs
from train.input import noise
from train.input.channels_graph import seen_by_graph
from train.input.readahead import Buffers, ahead, as_tensor

Tensor = Any
Image = npt.NDArray[np.float32]
DataFormat = Literal["channels_last", "channels_first"]
Result = TypeVar("Result")


class Readable(Protocol):
    """What is needed of `namsa.dataset.shards.Dataset`; several threads call it at once."""

    def view(self, sample_id: str, check: bool = False) -> AbstractContextManager[Record]: ...


# ---- One sample -----------------------------------------------------------------------------------------------------


def load_sample(
    record: Record,
    inputs: Inputs,
    data_format: DataFormat = "channels_last",
    symmetry: int = 0,
    made: Channels | None = None,
) -> tuple[Image, Image]:
    """A record as the network sees it: x (H, W, C) and y (H, W, 1), float32; (C, H, W) and (1, H, W) channels first.

    x = gain · (I / I₀)^power, I₀ = 1 / (number of detector pixels): a pixel's part of the beam, spread evenly.
    y = density / density_scale. Layout 'detector': H, W are the detector's y, x and C the probe positions; 'scan':
    H, W are the scan's y, x and C the detector's pixels, or what `made` makes of them. `symmetry` is a number of
    `train.experiment.symmetries`; 0 is none.
    """
    sy, sx = record.header["provenance"]["scan_shape"]
    dy, dx = record.cbed.shape[1:]
    patterns, density = record.patterns().reshape(sy, sx, dy, dx), record.density
    if symmetry:
        patterns, density = symmetries.apply(symmetry, symmetries_of(record), patterns, density)
        sy, sx, dy, dx = patterns.shape
    y = density / np.float32(inputs.density_scale_e_per_angstrom2)
    if made:
        x = seen(patterns.reshape(sy, sx, dy * dx), made, inputs.power, inputs.gain)
    else:
        x = inputs.gain * (patterns * (dy * dx)) ** inputs.power
        x = x.reshape((sy * sx, dy, dx) if inputs.layout == "detector" else (sy, sx, dy * dx))
    last, wanted = 0 if inputs.layout == "detector" else -1, 0 if data_format == "channels_first" else -1
    return np.ascontiguousarray(np.moveaxis(x, last, wanted)), np.expand_dims(y, wanted)


def symmetries_of(record: Record) -> symmetries.Symmetries:
    """The symmetries that augmentation draws from. Raises InputError where the sample has none."""
    provenance = record.header["provenance"] | {"positions_angstrom": record.positions_angstrom}
    return symmetries.symmetries(provenance, record.cbed.shape[1:], record.density.shape)


def mean_target(dataset: Readable, ids: Sequence[str]) -> npt.NDArray[np.float64]:
    """The mean density over `ids`, (H, W), e/Å²: what a network that sees nothing would answer."""
    total: Any = 0.0
    for sample_id in ids:
        with dataset.view(sample_id) as record:
            total = total + record.density.astype(np.float64)
    return total / len(ids)


# ---- An epoch -------------------------------------------------------------------------------------------------------


def check_are_of(dataset: Dataset, experiment: Experiment) -> None:
    """Raises InputError where the samples in `dataset` are those of another configuration."""
    if dataset.config_hash not in (None, experiment.samples_hash()):
        raise InputError(
            f"{experiment.data.directory} holds samples of another configuration: set data.directory to another place"
        )


def too_few(samples: int, ranks: int, batch_size: int) -> str:
    """What to say where `ranks` cannot each have a batch of `samples`."""
    return (
        f"{samples} training samples are too few for {ranks} ranks with batches of {batch_size}: add materials, "
        "thicknesses or zone axes, raise training.simulate_seconds, or use fewer ranks or smaller batches"
    )


def limited(entries: Sequence[Entry], count: int | None) -> list[Entry]:
    """`count` of `entries`, or all, in their order: the first by a hash of the id, so that fewer are among more."""
    if count is None or count >= len(entries):
        return list(entries)
    chosen = {entry.id for entry in sorted(entries, key=lambda e: xxhash.xxh3_128_digest(e.id.encode()))[:count]}
    return [entry for entry in entries if entry.id in chosen]


def digest(entries: Sequence[Entry]) -> str:
    """Of the entries' ids in their order, which is what shares are cut from."""
    return xxhash.xxh3_64_hexdigest("\n".join(entry.id for entry in entries).encode())


def epoch_share(
    entries: Sequence[Entry], seed: int, epoch: int, rank: int, ranks: int, count: int, taken: int = 0
) -> list[Entry]:
    """The `count` entries of `rank` in `epoch`: every `ranks`-th of a common order, so that none is taken twice.

    A step takes the next samples of that order, some for each rank; so what is done is a number of samples, `taken`,
    also where other ranks did it. What `count` leaves over, so that all ranks take equally many steps, is another part
    of the samples each epoch.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(entries))
    return [entries[index] for index in order[taken:][rank::ranks][:count]]


class Place(NamedTuple):
    """Where a sample lies, as its header says: views of its shard.

    patterns: (sy, sx, dy, dx), fractions of the beam times `scale`
    density: (ty, tx), e/Å²
    symmetries: that augmentation draws from; None without it
    """

    patterns: npt.NDArray[Any]
    scale: float
    density: npt.NDArray[np.float32]
    symmetries: symmetries.Symmetries | None


class Kept:
    """What a job keeps between epochs: the places of samples it found undamaged, and memory for batches."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.buffers = Buffers()


class Batch(NamedTuple):
    """n samples as they lie in their records, augmented.

    patterns: (n, sy, sx, dy, dx), fractions of the beam times `scale`; float16 or float32
    scale: (n, 1, 1, 1) float32
    density: (n, ty, tx) float32, e/Å²
    """

    patterns: Any
    scale: Any
    density: Any


def batches(
    dataset: Readable,
    share: Sequence[Entry],
    experiment: Experiment,
    epoch: int,
    kept: Kept | None = None,
) -> Generator[tuple[Tensor, Tensor], None, None]:
    """(x, y) batches of `share` in its order, ready ahead of the step.

    As `load_sample`, with a leading axis of the batch, x in the type in which the network computes. What fills no
    batch is left out. Raises what reading a sample raised: WorkError where its checksum does not match. To be closed
    before `dataset` is, for threads read it. Epochs of one `dataset` and `experiment` share `kept`.
    """
    inputs = experiment.training.inputs
    settings = (inputs.power, inputs.gain, inputs.density_scale_e_per_angstrom2, inputs.layout)
    dtype, made = experiment.training.precision.compute.removeprefix("mixed_"), experiment.channels()

    def ready(batch: Batch) -> tuple[Tensor, Tensor]:
        return prepare(*batch, *settings, experiment.network.data_format, dtype, made)

    return read_batches(dataset, share, experiment, epoch, ready, kept or Kept())


def read_batches(
    dataset: Readable,
    share: Sequence[Entry],
    experiment: Experiment,
    epoch: int,
    ready: Callable[[Batch], Result],
    kept: Kept,
) -> Generator[Result, None, None]:
    """ready(batch), called in threads, of the host's tensors of each batch; see `batches`.

    A sample costs 0.1 ms a MiB without the interpreter's lock, and under it 50 µs when it is first read, few later;
    a batch, and handing it over, tens. So small ones are read by one thread, and several batches at a time, as threads
    would wait for each other; large ones by all cores.
    """
    inputs, size = experiment.training.inputs, experiment.training.batch_size
    pixels, cores = math.prod(experiment.sample_shapes()[0]), available_cores()
    threads = cores if inputs.dose_electrons_per_pattern else min(cores, 1 + pixels // 2**20)
    # At its largest a batch is what was read, float32 in between, and what the network takes: up to 12 bytes a pixel.
    batch_bytes = 12 * size * pixels
    together = max(1, min(16, 2**25 // batch_bytes))
    waiting = max(2, min(2 * threads, int(inputs.read_ahead_gib * 2**30 / (together * batch_bytes))))

    def read(batches: Sequence[Sequence[Entry]]) -> list[Result]:
        found = (read_batch(dataset, entries, experiment, epoch, kept) for entries in batches)
        return [ready(Batch(*map(as_tensor, arrays))) for arrays in found]

    whole = [share[at : at + size] for at in range(0, len(share) - size + 1, size)]
    tasks = [whole[at : at + together] for at in range(0, len(whole), together)]
    with closing(ahead(read, tasks, threads, waiting)) as done:
        for task in done:
            yield from task


def read_batch(dataset: Readable, entries: Sequence[Entry], experiment: Experiment, epoch: int, kept: Kept) -> Batch:
    """The samples of `entries`, each copied once, into arrays of `kept.buffers`."""
    inputs, patterns_shape, image_shape = experiment.training.inputs, *experiment.sample_shapes()
    dtype = "float32" if inputs.dose_electrons_per_pattern else experiment.data.dtype
    places = [kept.places.get(entry.id) or _find(dataset, entry.id, experiment, kept) for entry in entries]
    batch = Batch(
        kept.buffers.empty((len(entries), *patterns_shape), dtype),
        kept.buffers.empty((len(entries), 1, 1, 1), "float32"),
        kept.buffers.empty((len(entries), *image_shape), "float32"),
    )
    if inputs.augment or inputs.dose_electrons_per_pattern:
        for place, entry, *out in zip(places, entries, *batch, strict=True):
            _draw(place, inputs, entry.seed, epoch, *out)
    else:  # one call for many samples: between them it holds the interpreter's lock for less than a microsecond
        np.concatenate([place.patterns for place in places], out=batch.patterns.reshape(-1, *patterns_shape[1:]))
        np.concatenate([place.density for place in places], out=batch.density.reshape(-1, *image_shape[1:]))
        batch.scale[:, 0, 0, 0] = [place.scale for place in places]
    return batch


def _find(dataset: Readable, sample_id: str, experiment: Experiment, kept: Kept) -> Place:
    """The place of a sample, read from its header, its checksum compared; `kept` from now on."""
    inputs, patterns_shape, image_shape = experiment.training.inputs, *experiment.sample_shapes()
    with dataset.view(sample_id, check=True) as record:
        found = (*record.header["provenance"]["scan_shape"], *record.cbed.shape[1:])
        if (found, record.density.shape) != (patterns_shape, image_shape):
            raise WorkError(
                f"{sample_id} holds patterns {found} and density {record.density.shape}, where the configuration has "
                f"{patterns_shape} and {image_shape}: give its samples another data.directory"
            )
        if inputs.dose_electrons_per_pattern:
            noise.check_noiseless(record.header["provenance"])
        elif not np.can_cast(record.cbed.dtype, experiment.data.dtype):
            raise WorkError(f"{sample_id} holds {record.cbed.dtype} patterns: set data.dtype={record.cbed.dtype}")
        place = kept.places[sample_id] = Place(
            record.cbed.reshape(found),
            record.header["arrays"]["cbed"]["scale"],
            record.density,
            symmetries_of(record) if inputs.augment else None,
        )
    return place


def _draw(place: Place, inputs: Inputs, seed: int, epoch: int, out: Any, scale: Any, density: Any) -> None:
    """Writes a sample's patterns, their scale and its density with the noise and the symmetry of `seed` in `epoch`."""
    patterns, scale[:] = place.patterns, place.scale
    if inputs.dose_electrons_per_pattern:
        electrons = noise.electrons(inputs.dose_electrons_per_pattern, seed, epoch)
        patterns = noise.counted(patterns, place.scale, electrons, seed, epoch)
        scale[:] = 1
    symmetry = int(np.random.default_rng([seed, epoch]).integers(place.symmetries.order)) if place.symmetries else 0
    if place.symmetries and symmetry:
        symmetries.place(symmetry, place.symmetries, patterns, place.density, out, density)
    else:
        np.copyto(out, patterns)
        np.copyto(density, place.density)


@tf.function(autograph=False)
def prepare(
    patterns: Tensor,
    scale: Tensor,
    density: Tensor,
    power: float,
    gain: float,
    density_scale: float,
    layout: str,
    data_format: DataFormat,
    dtype: str,
    made: Channels | None = None,
) -> tuple[Tensor, Tensor]:
    """`load_sample` of a `Batch` in TensorFlow's arithmetic, on its device: x in `dtype`, y in float32."""
    _, sy, sx, dy, dx = patterns.shape
    y = tf.expand_dims(density / density_scale, 1 if data_format == "channels_first" else -1)
    if made:
        x = seen_by_graph(tf.reshape(patterns, (-1, sy, sx, dy * dx)), scale, made, power, gain)
        return tf.cast(tf.transpose(x, (0, 3, 1, 2)) if data_format == "channels_first" else x, dtype), y
    x = tf.reshape(patterns, (-1, sy * sx, dy, dx) if layout == "detector" else (-1, sy, sx, dy * dx))
    wanted = "channels_first" if layout == "detector" else "channels_last"
    if data_format != wanted:  # while it is small
        x = tf.transpose(x, (0, 2, 3, 1) if data_format == "channels_last" else (0, 3, 1, 2))
    x = tf.cast(x, tf.float32) * (dy * dx / scale)
    if power != 1:
        x = tf.sqrt(x) if power == 0.5 else x**power
    if gain != 1:
        x = gain * x
    return tf.cast(x, dtype), y
