"""Reads batches ahead of the training step.

Symmetries and noise are drawn from the samples' seeds and the epoch's number alone, so that a resumed job sees the same
batches.

A batch is read as it is stored: one copy, without the interpreter's lock, from the file's pages into memory that
TensorFlow or JAX takes over. The arithmetic is theirs, on the device that trains, so that float16 is sent to a GPU. All
of it happens in threads ahead of the step. A process reads a sample's header and compares its checksum only once
(`ReadCache`). This finds samples that were damaged before the job, and later epochs are little more than copies.
`augment` says what an epoch makes of a stored sample.
"""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import numpy as np
from keras import ops

from namsa.arrays import Array, Integers, Tensor
from namsa.dataset.entry import Entry

from ..execution import backend
from ..experiment import symmetries
from ..experiment.experiment import Experiment
from ..experiment.inputs import Inputs
from ..experiment.sections import Training
from ..networks import Network
from . import fast_noise, imperfections, noise, windows
from .division import OwnPart
from .normalisation import Batch, Normalisation, normaliser
from .readahead import ahead, read_ahead
from .views import Compose, KeptWindow, Readable, ReadCache, SampleView, find_view

Result = TypeVar("Result")
Target = Callable[[Sequence[Entry], Tensor, Tensor], Tensor]  # from the entries of a batch, x, and its densities


def batches(
    dataset: Readable,
    share: Sequence[Entry],  # this rank's entries, in their order
    experiment: Experiment,
    epoch: int,  # index of the epoch, for symmetries and noise
    cache: ReadCache | None = None,  # shared by the epochs of one `dataset` and `experiment`
    # Returns y of a batch from its entries, its x, and the densities of its windows `(n, h, w)`, e/Å²; `None` for the
    # densities as of `normalise_graph`.
    target: Target | None = None,
    compose: Compose | None = None,  # makes what an epoch takes in place of a sample; `None` takes the sample
    # Returns this rank's part of x or y, with the order of their axes; `None` for whole samples.
    take_part: Callable[[Tensor, str], Tensor] | None = None,
    # Reads this rank's part alone, in place of `take_part`; `None` reads whole samples.
    own_part: OwnPart | None = None,
) -> Generator[tuple[Tensor, Tensor], None, None]:
    """Returns a generator of the batches of an epoch, read ahead of the step.

    Close it before `dataset`, which its threads read. Samples that do not fill a batch are left out.

    Returns:
        A generator of (x, y) as of `normalise_graph`, x in the type in which the network computes. It raises what
        reading a sample raises: WorkError if a checksum does not match.
    """
    training, channels = experiment.training, experiment.channels()
    dtype = training.precision.compute.removeprefix("mixed_")
    settings = Normalisation.of(training.inputs, experiment.network.data_format, dtype)
    if own_part:
        detector = experiment.window_shapes()[0][2:]
        settings, take_part = settings._replace(detector=detector, image_part=own_part.image), None
        read_own = own_part.read

        def compose(entry: Entry, epoch: int, find: Any) -> SampleView:
            slab = read_own(entry)
            return SampleView(slab.patterns, slab.scale, slab.density, None)

    cache = cache or ReadCache()
    normalise = cache.normalise = cache.normalise or normaliser(settings, channels)

    def finish(batch: Batch, entries: Sequence[Entry]) -> tuple[Tensor, Tensor]:
        x, density = normalise(batch)
        y = target(entries, x, batch.density) if target else density
        if take_part is None:
            return x, y
        return take_part(x, experiment.network.data_format), take_part(y, experiment.network.data_format)

    def kept(entries: Sequence[Entry]) -> tuple[Tensor, Tensor]:
        return kept_batch(dataset, entries, experiment, epoch, finish, cache, compose)

    if training.inputs.redraw_epochs > 1:
        return _ahead(kept, share, experiment)
    return read_batches(dataset, share, experiment, epoch, finish, cache, compose)


def read_batches(
    dataset: Readable,
    share: Sequence[Entry],
    experiment: Experiment,
    epoch: int,
    finish: Callable[[Batch, Sequence[Entry]], Result],
    cache: ReadCache,
    compose: Compose | None = None,
) -> Generator[Result, None, None]:
    """Returns a generator of finish(batch, entries) for each batch of host tensors. It is called in threads."""

    def make(entries: Sequence[Entry]) -> Result:
        return finish(_on_host(read_batch(dataset, entries, experiment, epoch, cache, compose)), entries)

    return _ahead(make, share, experiment)


def _on_host(batch: Batch) -> Batch:
    return Batch(*map(backend.execution().host_tensor, batch))


def _ahead(
    make: Callable[[Sequence[Entry]], Result], share: Sequence[Entry], experiment: Experiment
) -> Generator[Result, None, None]:
    """Yields make(entries) for the entries of each batch, computed ahead in threads.

    A sample costs 0.1 ms per MiB without the interpreter's lock, and with the lock 50 µs when it is first read and a
    few µs later. A batch and its delivery cost tens of µs. Small samples are therefore read by one thread, several
    batches at a time, because threads would wait for each other; large ones are read by all cores.
    """
    size = experiment.training.batch_size
    threads, batches_per_task, tasks_ahead = read_ahead(experiment, size)

    def read(task: Sequence[slice]) -> list[Result]:
        return [make(share[part]) for part in task]  # here, since entries may be waited for

    complete = [slice(at, at + size) for at in range(0, len(share) - size + 1, size)]
    tasks = [complete[at : at + batches_per_task] for at in range(0, len(complete), batches_per_task)]
    with closing(ahead(read, tasks, threads, tasks_ahead)) as results:
        for result in results:
            yield from result


def kept_window_bytes(experiment: Experiment) -> int:
    """Returns the memory of a sample's window that `kept_batch` keeps between epochs; 0 if none is kept."""
    if experiment.training.inputs.redraw_epochs == 1:
        return 0
    x = experiment.images_per_sample() * math.prod(experiment.network.input_shape)
    y = math.prod(experiment.window_shapes()[1])
    stored = x * np.dtype(experiment.data.dtype).itemsize + y * np.dtype(np.float32).itemsize
    return stored // experiment.training.split.ways


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

    A sample's window is drawn anew every `redraw_epochs` epochs, a part of the samples in each epoch. It depends on
    the sample's seed and the number of the draw alone, so that a resumed job finds the same one.
    """
    every, windows_of_batch = experiment.training.inputs.redraw_epochs, []
    for entry in entries:
        number = (epoch + entry.seed % every) // every
        window = cache.kept.get(entry.id)
        if window is None or window.number != number:
            # One by one, so that the numbers do not depend on which samples are drawn together.
            stored = read_batch(dataset, [entry], experiment, number, cache, compose)
            x, y = finish(_on_host(stored), [entry])
            window = cache.kept[entry.id] = KeptWindow(number, ops.cast(x, experiment.data.dtype), y)
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
    inputs, patterns_shape, image_shape = experiment.training.inputs, *experiment.window_shapes()
    cut = (patterns_shape, image_shape) != experiment.sample_shapes()
    changed = inputs.dose_electrons_per_pattern or inputs.imperfections
    target_shape = (*experiment.bins_shape(), *image_shape)
    dtype = "float32" if changed else experiment.data.dtype
    find = partial(find_view, dataset, experiment, cache)
    views = [compose(entry, epoch, find) if compose else find(entry.id) for entry in entries]
    shapes: Any = patterns_shape, target_shape
    if not (inputs.augment or changed or cut):
        shapes = views[0].patterns.shape, views[0].density.shape  # of samples, or of parts of them
    batch = Batch(
        cache.buffers.empty((len(entries), *shapes[0]), dtype),
        cache.buffers.empty((len(entries), 1, 1, 1), "float32"),
        cache.buffers.empty((len(entries), *shapes[1]), "float32"),
    )
    if inputs.augment or changed or cut or inputs.held_out_positions:
        # A configuration's samples have room for its margin; larger imperfections see the scan's edge repeated.
        sizes = zip(experiment.window_margin(), experiment.sample_shapes()[0], patterns_shape, strict=False)
        margin_y, margin_x = (min(margin, (n - w) // 2) for margin, n, w in sizes)
        for view, entry, *out in zip(views, entries, *batch, strict=True):
            augment(view, inputs, entry.seed, epoch, Batch(*out), (margin_y, margin_x), cache.buffers.empty)
    else:  # one call for many samples: between them it holds the interpreter's lock for less than a microsecond
        np.concatenate([view.patterns for view in views], out=batch.patterns.reshape(-1, *shapes[0][1:]))
        np.concatenate([view.density for view in views], out=batch.density.reshape(-1, *shapes[1][1:]))
        batch.scale[:, 0, 0, 0] = [view.scale for view in views]
    return batch


def augment(
    view: SampleView,
    inputs: Inputs,
    seed: int,
    epoch: int,
    out: Batch,
    margin: tuple[int, int],
    empty: imperfections.Empty,
) -> None:
    """Writes a sample into `out`, one sample of a batch, as `seed` and `epoch` determine it.

    These are the window, the imperfections, the noise and the symmetry. The symmetry is applied last, so that the
    window and all imperfections are mirrored with the specimen.
    """
    patterns, out.scale[:], density = view.patterns, view.scale, view.density
    scan, window = (patterns.shape[0], patterns.shape[1]), (out.patterns.shape[0], out.patterns.shape[1])
    corner, taken, drawn = (0, 0), None, None
    if inputs.held_out_positions:
        held_out = windows.held_out_positions(scan, inputs.held_out_positions, seed)
        corner, taken = windows.draw_training_window(held_out, window, margin, seed, epoch)
    elif scan != window:
        corner = windows.draw_corner(scan, window, margin, seed, epoch)
    if scan != window:
        density = density[..., corner[0] : corner[0] + window[0], corner[1] : corner[1] + window[1]]
    if inputs.imperfections and view.geometry:
        drawn = imperfections.draw(inputs.imperfections, seed, epoch)
        first = [0, 0] if view.geometry.periodic else [c - m for c, m in zip(corner, margin, strict=True)]
        last = scan if view.geometry.periodic else [c + w + m for c, w, m in zip(corner, window, margin, strict=True)]
        around = patterns[first[0] : last[0], first[1] : last[1]]
        place = corner[0] - first[0], corner[1] - first[1]
        patterns = imperfections.apply(around, drawn, view.geometry, place, window, empty)
    elif scan != window:
        patterns = np.ascontiguousarray(patterns[corner[0] :, corner[1] :][: window[0], : window[1]])
    if taken is not None:
        patterns, density = (_taken(array, taken) for array in (patterns, density))
    if inputs.dose_electrons_per_pattern:
        electrons = noise.draw_electrons(inputs.dose_electrons_per_pattern, seed, epoch)
        count = fast_noise.count_electrons if drawn else noise.count_electrons  # the exact one where it was used before
        patterns = count(patterns, view.scale, electrons, seed, epoch)
        out.scale[:] = 1
    if drawn:
        patterns = imperfections.damage(patterns, drawn)
    symmetry = int(np.random.default_rng([seed, epoch]).integers(view.symmetries.order)) if view.symmetries else 0
    if view.symmetries and symmetry:
        symmetries.apply_into(symmetry, view.symmetries, patterns, density, out.patterns, out.density)
    else:
        np.copyto(out.patterns, patterns)
        np.copyto(out.density, density)


def _taken(array: Array, taken: Integers) -> Array:
    """Returns an array over the positions of a window with others in their places, see `windows`."""
    return array.reshape(-1, *array.shape[2:])[taken].reshape(array.shape)


def random_batch(network: Network, training: Training, images_per_sample: int = 1) -> tuple[Any, Any]:
    """Returns random patterns and densities, as `batches` yields them of samples of so many images."""
    channels, *image = network.input_shape
    rng = np.random.default_rng(0)

    def images(channels: int) -> Any:
        first = network.data_format == "channels_first"
        size = training.batch_size * images_per_sample
        shape = (size, channels, *image) if first else (size, *image, channels)
        return rng.random(shape, np.float32)

    compute_dtype = training.precision.compute.removeprefix("mixed_")
    return ops.cast(images(channels), compute_dtype), ops.convert_to_tensor(images(1))
