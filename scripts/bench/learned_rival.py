"""A learned rival: PtychoNN's kind of network, from one diffraction pattern to the patch of density under the probe.

    nice scripts/uv run python scripts/bench/learned_rival.py configs/CONFIG.yaml --out FILE.keras
        [--set key=value] ... [--seconds 3600 | --epochs 20] [--rates 3e-4 1e-3] [--patches 20 10] [--channels 16]
        [--positions 16] [--steps 1] [--json]

Cherukara et al. (Applied Physics Letters 117, 044103, 2020), as the authors' program builds it today
(`ReconSmallModel`): blocks of two 3 × 3 convolutions with batch normalisation and a pool, with 16, 32 and 64 channels,
decoded by blocks of two convolutions and an upsampling. Theirs gives amplitude and phase, this one the density. The
patch is as wide as the probe's window, wavelength / pixel, on the target's pixels, so that two pools are undone where
theirs undoes three. The last convolution is not normalised, since densities have no range. Loss: mean absolute error by
Adam, as theirs.

Everything else is that of our networks with the same configuration, whose samples it needs: its training split,
windows, symmetries, imperfections and noise by `train.input.batches`, powers of intensities, and errors by the contrast
of the sample where `training.loss.relative` is set. An epoch takes every sample once, and of each `--positions`
patterns in each of `--steps` steps. The rate falls with a cosine to nothing. It is the best of `--rates`, and with it
the number of pixels in a patch's middle that are learnt the best of `--patches`, on the development split, each pair
tried for a tenth of the budget. Patches are averaged over the scan, as in the paper; how much of their middle is used
is chosen on the development split. The scores there are printed four times on the way. "ratio" is the mean SSIM there.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from rivals.stacks import Image, Stack

from namsa.dataset import manifest
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.errors import InputError
from train.experiment.experiment import Experiment
from train.experiment.experiment import load as load_experiment
from train.input import batches, selection, views
from train.measure.metrics import image_metrics

BLOCKS = 3  # of the encoder; each ends in a pool, and has twice the channels of the one before
HELD_OUT = 24  # development samples that rates and the patches' middle are chosen on
TOLERANCE = 0.02  # of step and pixels, between what was learnt and what is reconstructed
Floats = npt.NDArray[np.float32]


class Learned(NamedTuple):
    """A trained network with what it needs of its configuration; `middle`: pixels of a patch that are averaged."""

    network: keras.Model
    power: float
    gain: float
    density_scale: float
    step_angstrom: tuple[float, float]
    pixel_mrad: tuple[float, float]
    middle: int


# ---- Network --------------------------------------------------------------------------------------------------------


def build(detector: Sequence[int], channels: int) -> keras.Model:
    """The network for patterns of `detector` pixels: (n, dy, dx, 1) to (n, patch, patch, 1), in density scales.

    Args:
        detector: Pixels, (y, x).
        channels: Of the first block.
    """
    widths = [channels * 2**level for level in range(BLOCKS)]
    sides = [2**BLOCKS * math.ceil(n / 2**BLOCKS) for n in detector]
    pads = [((side - n) // 2, side - n - (side - n) // 2) for n, side in zip(detector, sides, strict=True)]
    x = inputs = keras.Input((*detector, 1))
    x = keras.layers.ZeroPadding2D(tuple(pads))(x)
    for width in widths:
        x = keras.layers.MaxPooling2D()(_twice(x, width))
    for width in widths[:0:-1]:
        x = keras.layers.UpSampling2D(interpolation="bilinear")(_twice(x, width))
    return keras.Model(inputs, keras.layers.Conv2D(1, 3, padding="same")(x))


def _twice(x: Any, channels: int) -> Any:
    for _ in range(2):
        x = keras.layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
        x = keras.layers.Activation("relu")(keras.layers.BatchNormalization(momentum=0.9)(x))
    return x


# ---- Training -------------------------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """How a network is trained; `patch`: pixels of a patch's middle that are learnt, `rate`: that of Adam at the start.

    `positions` and `steps` are patterns of a sample in a step, and steps on a batch of samples.
    """

    rate: float
    patch: int
    channels: int
    positions: int
    steps: int


class Patches(NamedTuple):
    """Patterns (n, dy, dx, 1), patches of density (n, p, p, 1) and their weights, 0 beyond the sample."""

    patterns: Any
    density: Any
    weight: Any


def patches(
    patterns: Floats,
    density: Floats,
    positions: npt.NDArray[np.intp],
    size: int,
    experiment: Experiment,
    patch: int | None = None,
) -> Patches:
    """Of patterns (n, sy, sx, dy, dx), fractions of the beam, and densities (n, sy, sx): what is at `positions`.

    Args:
        patterns: Of n samples.
        density: Of the same, e/Å².
        positions: Sample, y and x of each pattern to take, (m, 3).
        size: Pixels of a patch.
        experiment: The configuration.
        patch: Pixels of the middle that have a weight; by default all.
    """
    inputs, half = experiment.training.inputs, size // 2
    sample, y, x = positions.T
    around = ((0, 0), (half, size), (half, size))
    of_mean, of_scale = experiment.training.loss.least_contrast
    spread = np.maximum(density.std(axis=(1, 2)), of_scale * inputs.density_scale_e_per_angstrom2)
    spread = np.maximum(spread, of_mean * density.mean(axis=(1, 2)))
    units = spread if experiment.training.loss.relative else np.full(len(density), inputs.density_scale_e_per_angstrom2)
    rows, columns = y[:, None, None] + np.arange(size)[:, None], x[:, None, None] + np.arange(size)
    at = sample[:, None, None], rows, columns
    wanted = np.pad(density / inputs.density_scale_e_per_angstrom2, around)[at]
    weight = (
        np.pad(np.ones_like(density), around)[at]
        * (inputs.density_scale_e_per_angstrom2 / units[sample])[:, None, None]
    )
    learnt = middle(size, patch or size)
    weight[:, : learnt.start] = weight[:, learnt.stop :] = 0
    weight[:, :, : learnt.start] = weight[:, :, learnt.stop :] = 0
    chosen = normalised(patterns[sample, y, x], inputs.power, inputs.gain)
    return Patches(chosen, wanted[..., None].astype(np.float32), weight[..., None].astype(np.float32))


def normalised(patterns: Floats, power: float, gain: float) -> Floats:
    """The network's input (n, dy, dx, 1), as `train.input.normalisation` has it."""
    return (gain * (patterns * math.prod(patterns.shape[1:])) ** power)[..., None].astype(np.float32)


def samples(dataset: Dataset, share: Sequence[Entry], experiment: Experiment, epoch: int) -> Iterator[Any]:
    """Batches of patterns, as fractions of the beam, and densities, augmented as for our networks."""

    def on_host(batch: Any, _: Any) -> tuple[Floats, Floats]:
        return batch.patterns.numpy().astype(np.float32) / batch.scale.numpy()[..., None], batch.density.numpy()

    with closing(batches.read_batches(dataset, share, experiment, epoch, on_host, views.ReadCache())) as found:
        yield from found


def fit(
    dataset: Dataset,
    entries: list[Entry],
    experiment: Experiment,
    settings: Settings,
    part: Callable[[int, float], float],
    judge: Callable[[keras.Model], Any] = lambda network: None,
) -> keras.Model:
    """A network trained until part(samples, seconds) of the budget is 1.

    Args:
        dataset: The samples.
        entries: Those to learn.
        experiment: The configuration.
        settings: How it is trained.
        part: The part of the budget that is used up.
        judge: Called at a quarter, a half and three quarters of the budget. Its time does not count.
    """
    keras.utils.set_random_seed(experiment.seed)
    network = build(experiment.window_shapes()[0][2:], settings.channels)
    optimizer, size = keras.optimizers.Adam(settings.rate), network.output_shape[1]
    rng = np.random.default_rng(experiment.seed)

    @tf.function
    def step(given: Patches) -> Any:
        with tf.GradientTape() as tape:
            error = tf.abs(network(given.patterns, training=True) - given.density)
            loss = tf.reduce_sum(given.weight * error) / tf.reduce_sum(tf.cast(given.weight > 0, tf.float32))
        optimizer.apply(tape.gradient(loss, network.trainable_variables), network.trainable_variables)
        return loss

    done, epoch, started, quarters = 0, 0, time.perf_counter(), 0
    while True:
        share = selection.epoch_share(entries, experiment.seed, epoch, 0, 1, len(entries))
        for patterns, density in samples(dataset, share, experiment, epoch):
            progress = part(done, time.perf_counter() - started)
            if progress >= 1:
                return network
            if progress >= (quarters + 1) / 4:
                paused, quarters = time.perf_counter(), quarters + 1
                judge(network)
                started += time.perf_counter() - paused
            optimizer.learning_rate = settings.rate * 0.5 * (1 + math.cos(math.pi * progress))
            for _ in range(settings.steps):
                drawn = [rng.integers(0, n, len(patterns) * settings.positions) for n in density.shape[1:]]
                chosen = np.stack([np.repeat(np.arange(len(patterns)), settings.positions), *drawn], axis=1)
                step(Patches(*map(tf.constant, patches(patterns, density, chosen, size, experiment, settings.patch))))
            done += len(patterns)
        epoch += 1


# ---- Reconstruction -------------------------------------------------------------------------------------------------


def middle(size: int, count: int) -> slice:
    """The `count` pixels in the middle of `size`; pixel size // 2 is the probe's."""
    first = size // 2 - count // 2
    return slice(first, first + count)


def stitched(network: keras.Model, x: Floats, scan: Sequence[int], middles: Sequence[int]) -> list[Image]:
    """The means (sy, sx) of the patches' middles of several sizes, of all patterns (n, dy, dx, 1) of a scan."""
    found = np.concatenate(
        [network(x[at : at + 1024], training=False).numpy()[..., 0] for at in range(0, len(x), 1024)]
    )
    size = found.shape[1]
    images = []
    for pixels in middles:
        chosen = range(size)[middle(size, pixels)]
        total, count = (np.zeros(np.add(scan, 2 * size)) for _ in range(2))
        grid = found.reshape(*scan, size, size)
        for i in chosen:
            for j in chosen:
                at = slice(size // 2 + i, size // 2 + i + scan[0]), slice(size // 2 + j, size // 2 + j + scan[1])
                total[at] += grid[:, :, i, j]
                count[at] += 1
        inside = slice(size, size + scan[0]), slice(size, size + scan[1])
        images.append(total[inside] / np.maximum(count[inside], 1))
    return images


def reconstruct(model: Learned, stack: Stack) -> tuple[Image, float]:
    """The density (sy, sx) of a stack, e/Å², and the CPU seconds of all threads, with those to read the stack.

    Raises:
        InputError: If the scan or the detector are not those that were learnt.
    """
    known = zip(
        (*stack.frame.step, *stack.provenance["detector_sampling_mrad"]),
        (*model.step_angstrom, *model.pixel_mrad),
        strict=True,
    )
    if stack.patterns.shape[1:] != model.network.input_shape[1:3] or any(abs(a / b - 1) > TOLERANCE for a, b in known):
        raise InputError(f"{stack.id} has another scan or detector than the network has learnt")
    started = time.process_time()
    x = normalised(stack.patterns, model.power, model.gain)
    (image,) = stitched(model.network, x, stack.provenance["scan_shape"], [model.middle])
    return model.density_scale * image, stack.read_seconds + time.process_time() - started


def load(path: Path) -> Learned:
    """A network that this script has written."""
    known = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    return Learned(keras.models.load_model(path), **known["model"])


# ---- The script -----------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="the configuration of our network, with its dataset")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for `python -m train`")
    parser.add_argument("--out", type=Path, required=True, help="where the network goes, NAME.keras")
    parser.add_argument("--seconds", type=float, help="of training")
    parser.add_argument("--epochs", type=float, help="of training, in place of --seconds")
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-4, 1e-3])
    parser.add_argument("--patches", type=int, nargs="+", help="pixels of a patch's middle that are learnt; all")
    parser.add_argument("--channels", type=int, default=16, help="of the first block")
    parser.add_argument("--positions", type=int, default=16, help="patterns of a sample that a step takes")
    parser.add_argument("--steps", type=int, default=1, help="steps on a batch of samples, of other patterns each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    if (options.seconds is None) == (options.epochs is None):
        parser.error("give --seconds or --epochs")
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    experiment = load_experiment(options.config, options.set)
    size = build(experiment.window_shapes()[0][2:], options.channels).output_shape[1]
    if bad := [patch for patch in options.patches or [] if not 2 <= patch <= size]:
        parser.error(f"--patches {bad[0]}: a patch has {size} pixels, so give 2 to {size}")
    choices = [
        Settings(rate, patch, options.channels, options.positions, options.steps)
        for patch in options.patches or [size]
        for rate in options.rates
    ]
    with Dataset(experiment.data.directory) as dataset:
        selection.check_configuration(dataset, experiment)
        present = manifest.present(experiment.data.directory, dataset.ids)
        entries = selection.limit([entry for entry in present if entry.split == "train"], experiment.training.samples)
        held_out = selection.limit([entry for entry in present if entry.split == "dev"], HELD_OUT)
        if len(entries) < experiment.training.batch_size or not held_out:
            raise InputError(
                f"{experiment.data.directory} has too few samples: {len(entries)}, and {len(held_out)} dev"
            )

        def budget(share: float) -> Callable[[int, float], float]:
            if options.seconds:
                return lambda _, seconds: seconds / (share * options.seconds)
            return lambda done, _: done / (share * options.epochs * len(entries))

        def judge(settings: Settings, network: keras.Model) -> dict[int, float]:
            found = judged(network, dataset, held_out, experiment, settings.patch)
            print(json.dumps({**settings._asdict(), "dev_ssim_by_middle": found}), flush=True)
            return found

        tried = {}
        for settings in choices if len(choices) > 1 else []:
            network = fit(dataset, entries, experiment, settings, budget(0.1))
            tried[settings] = max(judge(settings, network).values())
        settings = max(tried, key=lambda each: tried[each], default=choices[0])
        network = fit(dataset, entries, experiment, settings, budget(1.0), partial(judge, settings))
        by_middle = judge(settings, network)
    best = max(by_middle, key=lambda pixels: by_middle[pixels])
    write(options.out, network, experiment, best, {**settings._asdict(), "dev_ssim_by_middle": by_middle})
    print(f"{network.count_params():,} parameters, {settings}, middle {best}: SSIM {by_middle[best]:.3f} (dev)")
    if options.json:
        print(json.dumps({"ratio": by_middle[best], **settings._asdict(), "middle": best}))


def judged(
    network: keras.Model, dataset: Dataset, held_out: list[Entry], experiment: Experiment, patch: int
) -> dict[int, float]:
    """The mean SSIM of development samples, imperfect and noisy as those of training are, by the patches' middle."""
    training = experiment.training.model_copy(update={"batch_size": 1})
    inputs, single = training.inputs, experiment.model_copy(update={"training": training})
    middles = sorted({2, max(2, patch // 4 // 2 * 2), max(2, patch // 2 // 2 * 2), patch})
    scores: dict[int, list[float]] = {pixels: [] for pixels in middles}
    for patterns, density in samples(dataset, held_out, single, epoch=0):
        for stack, truth in zip(patterns, density, strict=True):
            x = normalised(stack.reshape(-1, *stack.shape[2:]), inputs.power, inputs.gain)
            for pixels, image in zip(middles, stitched(network, x, truth.shape, middles), strict=True):
                scaled = image * inputs.density_scale_e_per_angstrom2
                scores[pixels].append(image_metrics(scaled, truth, huber_delta=1.0)["ssim"] or 0.0)
    return {pixels: mean(values) for pixels, values in scores.items()}


def write(path: Path, network: keras.Model, experiment: Experiment, pixels: int, chosen: dict[str, Any]) -> None:
    inputs, conditions = experiment.training.inputs, experiment.conditions()
    model = {
        "power": inputs.power,
        "gain": inputs.gain,
        "density_scale": inputs.density_scale_e_per_angstrom2,
        "step_angstrom": conditions.scan_step_angstrom,
        "pixel_mrad": conditions.pixel_mrad,
        "middle": pixels,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    network.save(path)
    path.with_suffix(".json").write_text(json.dumps({"model": model, "chosen": chosen}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
