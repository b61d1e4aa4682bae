"""Reads batches ahead of the training step.

Symmetries and noise are drawn from the samples' seeds and the epoch's number alone, so that a
resumed job sees the same batches.

A batch is read as it is stored: one copy, without the interpreter's lock, from the file's pages
into memory that TensorFlow or JAX takes over. The arithmetic is theirs, on the device that trains,
so that float16 is sent to a GPU. All of it happens in threads ahead of the step. A process reads a
sample's header and compares its checksum only once (`ReadCache`). This finds samples that were
damaged before the job, and later epochs are little more than copies. `train.input.augmentation`
says what an epoch makes of a stored sample.
"""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

import numpy as np
from keras import ops

from namsa.base.arrays import Tensor
from namsa.dataset.entry import Entry

from ..execution import backend
from ..experiment.experiment import Experiment
from ..experiment.sections import Training
from ..networks import Network
from .augmentation import augment
from .division import OwnPart
from .normalisation import Batch, Normalisation, normaliser
from .readahead import ahead, read_ahead
from .views import Compose, KeptWindow, Readable, ReadCache, SampleView, find_view

Result = TypeVar("Result")
# from the entries of a batch, x, and its densities
Target = Callable[[Sequence[Entry], Tensor, Tensor], Tensor]


def batches(
    dataset: Readable,
    share: Sequence[Entry],  # this rank's entries, in their order
    experiment: Experiment,
    epoch: int,  # index of the epoch, for symmetries and noise
    cache: ReadCache | None = None,  # shared by the epochs of one `dataset` and `experiment`
    # Returns y of a batch from its entries, its x, and the densities of its windows `(n, h, w)`,
    # e/Å²; `None` for the densities as of `normalise_graph`.
    target: Target | None = None,
    # makes what an epoch takes in place of a sample; `None` takes the sample
    compose: Compose | None = None,
    # Returns this rank's part of x or y, with the order of their axes; `None` for whole samples.
    take_part: Callable[[Tensor, str], Tensor] | None = None,
    # Reads this rank's part alone, in place of `take_part`; `None` reads whole samples.
    own_part: OwnPart | None = None,
) -> Generator[tuple[Tensor, Tensor], None, None]:
    """Returns a generator of the batches of an epoch, read ahead of the step.

    Close it before `dataset`, which its threads read. Samples that do not fill a batch are left
    out.

    Returns:
        A generator of (x, y) as of `normalise_graph`, x in the type in which the network computes.
        It raises what reading a sample raises: WorkError if a checksum does not match.
    """
    training = experiment.training
    data_format = experiment.network.data_format
    dtype = training.precision.compute.removeprefix("mixed_")
    settings = Normalisation.of(training.inputs, data_format, dtype)
    if own_part:
        detector = experiment.window_shapes()[0][2:]
        settings = settings._replace(detector=detector, image_part=own_part.image)
        take_part = None
        compose = _reader_of_part(own_part)
    cache = cache or ReadCache()
    if cache.normalise is None:
        cache.normalise = normaliser(settings, experiment.channels())
    normalise = cache.normalise

    def finish(batch: Batch, entries: Sequence[Entry]) -> tuple[Tensor, Tensor]:
        x, y = normalise(batch)
        if target:
            y = target(entries, x, batch.density)
        if take_part:
            x = take_part(x, data_format)
            y = take_part(y, data_format)
        return x, y

    def kept(entries: Sequence[Entry]) -> tuple[Tensor, Tensor]:
        return kept_batch(dataset, entries, experiment, epoch, finish, cache, compose)

    if training.inputs.redraw_epochs > 1:
        return _ahead(kept, share, experiment)
    return read_batches(dataset, share, experiment, epoch, finish, cache, compose)


def _reader_of_part(own_part: OwnPart) -> Compose:
    """Returns what reads this rank's part of a sample in place of the whole."""

    def read(entry: Entry, epoch: int, find: object) -> SampleView:
        slab = own_part.read(entry)
        return SampleView(slab.patterns, slab.scale, slab.density, None)

    return read


def read_batches(
    dataset: Readable,
    share: Sequence[Entry],
    experiment: Experiment,
    epoch: int,
    finish: Callable[[Batch, Sequence[Entry]], Result],
    cache: ReadCache,
    compose: Compose | None = None,
) -> Generator[Result, None, None]:
    """Returns a generator of finish(batch, entries) for each batch of host tensors. It is called in
    threads.
    """

    def make(entries: Sequence[Entry]) -> Result:
        batch = read_batch(dataset, entries, experiment, epoch, cache, compose)
        return finish(_on_host(batch), entries)

    return _ahead(make, share, experiment)


def _on_host(batch: Batch) -> Batch:
    return Batch(*map(backend.execution().host_tensor, batch))


def _ahead(
    make: Callable[[Sequence[Entry]], Result], share: Sequence[Entry], experiment: Experiment
) -> Generator[Result, None, None]:
    """Yields make(entries) for the entries of each batch, computed ahead in threads.

    A sample costs 0.1 ms per MiB without the interpreter's lock, and with the lock 50 µs when it is
    first read and a few µs later. A batch and its delivery cost tens of µs. Small samples are
    therefore read by one thread, several batches at a time, because threads would wait for each
    other; large ones are read by all cores.
    """
    size = experiment.training.batch_size
    threads, batches_per_task, tasks_ahead = read_ahead(experiment, size)

    def read(task: Sequence[slice]) -> list[Result]:
        return [make(share[batch]) for batch in task]  # here, since entries may be waited for

    complete = [slice(start, start + size) for start in range(0, len(share) - size + 1, size)]
    tasks = []
    for start in range(0, len(complete), batches_per_task):
        tasks.append(complete[start : start + batches_per_task])
    with closing(ahead(read, tasks, threads, tasks_ahead)) as results:
        for result in results:
            yield from result


def kept_window_bytes(experiment: Experiment) -> int:
    """Returns the memory of a sample's window that `kept_batch` keeps between epochs; 0 if none is
    kept.
    """
    if experiment.training.inputs.redraw_epochs == 1:
        return 0
    x = experiment.images_per_sample() * math.prod(experiment.network.input_shape)
    y = math.prod(experiment.window_shapes()[1])
    stored = x * np.dtype(experiment.data.dtype).itemsize + y * np.dtype(np.float32).itemsize
    return stored // experiment.training.split.ranks


def kept_batch(
    dataset: Readable,
    entries: Sequence[Entry],
    experiment: Experiment,
    epoch: int,
    finish: Callable[[Batch, Sequence[Entry]], tuple[Tensor, Tensor]],
    cache: ReadCache,
    compose: Compose | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns a batch of windows, of which those drawn in earlier epochs are taken from `cache`.

    A sample's window is drawn anew every `redraw_epochs` epochs, a part of the samples in each
    epoch. It depends on the sample's seed and the number of the draw alone, so that a resumed job
    finds the same one.
    """
    every = experiment.training.inputs.redraw_epochs
    windows_of_batch = []
    for entry in entries:
        draw = (epoch + entry.seed % every) // every
        window = cache.kept.get(entry.id)
        if window is None or window.draw != draw:
            # One by one, so that the numbers do not depend on which samples are drawn together.
            stored = read_batch(dataset, [entry], experiment, draw, cache, compose)
            x, y = finish(_on_host(stored), [entry])
            window = cache.kept[entry.id] = KeptWindow(draw, ops.cast(x, experiment.data.dtype), y)
        windows_of_batch.append(window)
    dtype = experiment.training.precision.compute.removeprefix("mixed_")
    x = ops.cast(ops.concatenate([window.x for window in windows_of_batch], 0), dtype)
    return x, ops.concatenate([window.y for window in windows_of_batch], 0)


def read_batch(
    dataset: Readable,
    entries: Sequence[Entry],
    experiment: Experiment,
    epoch: int,
    cache: ReadCache,
    compose: Compose | None = None,
) -> Batch:
    """Returns the samples of `entries`, each copied once, in arrays of `cache.buffers`."""
    inputs = experiment.training.inputs
    find = partial(find_view, dataset, experiment, cache)
    views = []
    for entry in entries:
        views.append(compose(entry, epoch, find) if compose else find(entry.id))
    is_cut = experiment.window_shapes() != experiment.sample_shapes()
    is_disturbed = bool(inputs.dose_electrons_per_pattern or inputs.imperfections)
    is_changed = inputs.augment or is_disturbed or is_cut
    if is_changed:
        patterns_shape: tuple[int, ...] = experiment.window_shapes()[0]
        density_shape = (*experiment.bins_shape(), *experiment.window_shapes()[1])
    else:  # whole samples, or parts of them
        patterns_shape = views[0].patterns.shape
        density_shape = views[0].density.shape
    dtype = "float32" if is_disturbed else experiment.data.dtype
    batch = Batch(
        cache.buffers.empty((len(entries), *patterns_shape), dtype),
        cache.buffers.empty((len(entries), 1, 1, 1), "float32"),
        cache.buffers.empty((len(entries), *density_shape), "float32"),
    )
    if not is_changed and not inputs.held_out_positions:
        _copy_views(views, batch)
        return batch
    margin = _margin_in_sample(experiment)
    for index, (view, entry) in enumerate(zip(views, entries, strict=True)):
        out = Batch(batch.patterns[index], batch.scale[index], batch.density[index])
        augment(view, inputs, entry.seed, epoch, out, margin, cache.buffers.empty)
    return batch


def _copy_views(views: Sequence[SampleView], batch: Batch) -> None:
    """Copies samples as they are into a batch.

    One call for many samples: between them it holds the interpreter's lock for less than a
    microsecond.
    """
    rows = batch.patterns.reshape(-1, *batch.patterns.shape[2:])
    np.concatenate([view.patterns for view in views], out=rows)
    density_rows = batch.density.reshape(-1, *batch.density.shape[2:])
    np.concatenate([view.density for view in views], out=density_rows)
    batch.scale[:, 0, 0, 0] = [view.scale for view in views]


def _margin_in_sample(experiment: Experiment) -> tuple[int, int]:
    """Returns the positions (y, x) around a window for which a sample has room.

    A configuration's samples have room for its margin; larger imperfections see the scan's edge
    repeated.
    """
    scan = experiment.sample_shapes()[0][:2]
    window = experiment.window_shapes()[0][:2]
    margin_y, margin_x = experiment.window_margin()
    return min(margin_y, (scan[0] - window[0]) // 2), min(margin_x, (scan[1] - window[1]) // 2)


def random_batch(
    network: Network, training: Training, images_per_sample: int = 1
) -> tuple[Tensor, Tensor]:
    """Returns random patterns and densities, as `batches` yields them of samples of so many
    images.
    """
    channels, *image = network.input_shape
    rng = np.random.default_rng(0)

    def images(channels: int) -> Tensor:
        size = training.batch_size * images_per_sample
        shape = (size, *image, channels)
        if network.data_format == "channels_first":
            shape = (size, channels, *image)
        return rng.random(shape, np.float32)

    compute_dtype = training.precision.compute.removeprefix("mixed_")
    return ops.cast(images(channels), compute_dtype), ops.convert_to_tensor(images(1))
