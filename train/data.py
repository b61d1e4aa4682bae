"""From records to batches: normalisation, layout, and each rank's share of an epoch.

Orders and symmetries are drawn from seeds and the epoch's number alone, so that a resumed job sees the same batches.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from namsa.manifest import Entry
from namsa.records import Record
from train import symmetries
from train.config import Experiment, Inputs

Tensor = Any
Image = npt.NDArray[np.float32]
DataFormat = Literal["channels_last", "channels_first"]

READERS = 4  # samples read at once; at the paper's size each is a gigabyte
PREFETCHED = 2  # batches that wait for the step


class Readable(Protocol):
    """What is needed of `namsa.shards.Dataset`; several threads call it at once."""

    def view(self, sample_id: str, check: bool = False) -> AbstractContextManager[Record]: ...


# ---- One sample -----------------------------------------------------------------------------------------------------


def load_sample(
    record: Record, inputs: Inputs, data_format: DataFormat = "channels_last", symmetry: int = 0
) -> tuple[Image, Image]:
    """A record as the network sees it: x (H, W, C) and y (H, W, 1), float32; (C, H, W) and (1, H, W) channels first.

    x = gain · (I / I₀)^power, I₀ = 1 / (number of detector pixels): a pixel's part of the beam, spread evenly.
    y = density / density_scale. Layout 'detector': H, W are the detector's y, x and C the probe positions; 'scan':
    H, W are the scan's y, x and C the detector's pixels. `symmetry` is a number of `train.symmetries`; 0 is none.
    """
    sy, sx = record.header["provenance"]["scan_shape"]
    dy, dx = record.cbed.shape[1:]
    patterns, density = record.patterns().reshape(sy, sx, dy, dx), record.density
    if symmetry:
        patterns, density = symmetries.apply(symmetry, symmetries_of(record), patterns, density)
        sy, sx, dy, dx = patterns.shape
    x = inputs.gain * (patterns * (dy * dx)) ** inputs.power
    y = density / np.float32(inputs.density_scale_e_per_angstrom2)
    shape, channels = ((sy * sx, dy, dx), 0) if inputs.layout == "detector" else ((sy, sx, dy * dx), -1)
    wanted = 0 if data_format == "channels_first" else -1
    return np.ascontiguousarray(np.moveaxis(x.reshape(shape), channels, wanted)), np.expand_dims(y, wanted)


def symmetries_of(record: Record) -> symmetries.Symmetries:
    """The symmetries that augmentation draws from. Raises InputError where the sample has none."""
    return symmetries.symmetries(record.provenance, record.cbed.shape[1:], record.density.shape)


def mean_target(dataset: Readable, ids: Sequence[str]) -> npt.NDArray[np.float64]:
    """The mean density over `ids`, (H, W), e/Å²: what a network that sees nothing would answer."""
    total: Any = 0.0
    for sample_id in ids:
        with dataset.view(sample_id) as record:
            total = total + record.density.astype(np.float64)
    return total / len(ids)


# ---- An epoch -------------------------------------------------------------------------------------------------------


def too_few(samples: int, ranks: int, batch_size: int) -> str:
    """What to say where `ranks` cannot each have a batch of `samples`."""
    return (
        f"{samples} training samples are too few for {ranks} ranks with batches of {batch_size}: add materials, "
        "thicknesses or zone axes, raise training.simulate_seconds, or use fewer ranks or smaller batches"
    )


def epoch_share(entries: Sequence[Entry], seed: int, epoch: int, rank: int, ranks: int, count: int) -> list[Entry]:
    """The `count` entries of `rank` in `epoch`: every `ranks`-th of a common order, so that none is taken twice.

    What `count` leaves over, so that all ranks take equally many steps, is another part of the samples each epoch.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(entries))
    return [entries[index] for index in order[rank::ranks][:count]]


def batches(
    dataset: Readable, share: Sequence[Entry], experiment: Experiment, epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """(x, y) batches of `share` in its order, read ahead; as `load_sample`, with a leading axis of the batch.

    Raises what reading a sample raised, WorkError where its checksum does not match.
    """
    training, data_format = experiment.training, experiment.network.data_format
    failures: list[Exception] = []  # TensorFlow makes one kind of error of all, and a page of text

    def load(index: Any) -> tuple[Image, Image]:
        entry = share[int(index)]
        try:
            with dataset.view(entry.id, check=True) as record:
                symmetry = 0
                if training.inputs.augment:
                    choices = symmetries_of(record).order
                    symmetry = int(np.random.default_rng([entry.seed, epoch]).integers(choices))
                return load_sample(record, training.inputs, data_format, symmetry)
        except Exception as error:
            failures.append(error)
            raise

    channels, height, width = experiment.network.input_shape
    shapes = ((height, width, channels), (height, width, 1))
    if data_format == "channels_first":
        shapes = ((channels, height, width), (1, height, width))

    def read(index: tf.Tensor) -> tuple[tf.Tensor, ...]:
        images = tf.numpy_function(load, [index], (tf.float32, tf.float32), stateful=False)
        return tuple(tf.ensure_shape(image, shape) for image, shape in zip(images, shapes, strict=True))

    samples = tf.data.Dataset.range(len(share)).map(read, num_parallel_calls=READERS, deterministic=True)
    try:
        yield from samples.batch(training.batch_size, drop_remainder=True).prefetch(PREFETCHED)
    except tf.errors.OpError as error:
        raise (failures[0] if failures else error) from None
