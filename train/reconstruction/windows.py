"""From strips of patterns to images: the network's answers to windows of the scan, blended."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError
from namsa.text import plural
from train.experiment.conditions import Conditions
from train.reconstruction import ensemble, tiles
from train.reconstruction import resampling as fit
from train.reconstruction.models import Model
from train.reconstruction.trust import Refine, Trust

Array = npt.NDArray[Any]
Say = Callable[[str], None]

BATCH_BYTES = 128 * 2**20  # of windows that the network is given at once
NEGATIVE = 0.01  # of the intensity: what a subtracted dark level may leave
MARGIN = 1 / 8  # of a window's side, where the network sees the padding behind the window's edge most


@dataclass(frozen=True)
class Images:
    """What comes out, on the network's scan positions.

    density: e/Å²; uncertainty: e/Å², one standard deviation, None where there is no ensemble
    trust: `train.reconstruction.trust` of the window that a position is in, None where nobody was asked
    bright_field: fraction of the beam in the disk
    """

    density: Array
    uncertainty: Array | None
    trust: Array | None
    bright_field: Array


@dataclass(frozen=True)
class Network:
    """A network made ready for a scan: its window (y, x), where one may begin, and how many answers it gives to each.

    whole: whether it takes the whole scan at once and answers with an image of another shape (layout detector)
    """

    predict: ensemble.Predict
    window: tuple[int, int]
    multiple: int
    answers: int
    image: tuple[int, int]
    whole: bool


def ready(
    scan: tuple[int, int], plan: fit.Plan, model: Model, trained: Conditions, passes: int | None, say: Say
) -> Network:
    """`model` for a scan of so many positions (y, x). Raises InputError where it does not fit."""
    whole = model.experiment.training.inputs.layout == "detector"
    window, multiple = _window(scan, model, trained, whole)
    image = trained.detector_shape if whole else window
    chosen, passes = ensemble.guises(model, window, plan.step_angstrom, passes)
    predict = ensemble.members(ensemble.network(model, image), model, chosen, passes)
    say(
        f"{model.name}: windows of {window[0]}×{window[1]} positions, "
        f"{plural(len(chosen) * max(1, passes), 'prediction')} of each: {len(chosen)} by symmetry"
        + (f", times {passes} with dropout" if passes else ", without dropout")
    )
    return Network(predict, window, multiple, len(chosen) * max(1, passes), image, whole)


def _window(scan: tuple[int, int], model: Model, trained: Conditions, whole: bool) -> tuple[tuple[int, int], int]:
    """A window's shape, and the multiple of positions at which it may begin."""
    if whole:
        if scan != trained.scan_shape:
            raise InputError(
                f"{model.name} takes exactly {trained.scan_shape[0]}×{trained.scan_shape[1]} positions at once "
                f"(layout detector), not {scan[0]}×{scan[1]}: use a network of layout scan"
            )
        return scan, 1
    multiple = 2**model.experiment.network.pools
    y, x = (tiles.side(n, size, multiple) for n, size in zip(scan, trained.scan_shape, strict=True))
    return (y, x), multiple


def images(
    bands: Iterator[Array],
    plan: fit.Plan,
    network: Network,
    trained: Conditions,
    trust: Trust | None,
    improve: Refine | None,
    say: Say,
) -> Images:
    """What comes out of all windows; trust and refinement are of some and of all of them.

    bands: the scan's rows as `train.reconstruction.reading.bands` gives them

    Raises InputError where too much of the intensity is negative.
    """
    scan = (plan.down.shape[0], plan.along.shape[0])
    rows, columns = (tiles.windows(n, side, network.multiple) for n, side in zip(scan, network.window, strict=True))
    asked = {(y, x) for y in tiles.apart(rows) for x in tiles.apart(columns)} if trust else set()
    margin = 0 if network.whole else int(MARGIN * min(network.window))
    shape = network.image if network.whole else scan
    blend, scores = tiles.Blend(shape, margin), tiles.Blend(shape, 0)
    disk, bright = fit.bright(trained), np.zeros(scan, np.float32)
    dark = light = 0.0
    for y, (row, strip) in enumerate(zip(rows, tiles.strips(bands, plan.down, rows), strict=True)):
        dark -= float(strip[strip < 0].sum(dtype=np.float64))
        light += float(strip.sum(dtype=np.float64))
        if dark > NEGATIVE * light:
            raise InputError(
                f"more than {100 * NEGATIVE:g} % of the intensity is negative: subtract no more than the dark level"
            )
        bright[row] = strip[..., disk].sum(axis=-1)
        patterns = np.maximum(strip, 0).reshape(*strip.shape[:2], *trained.detector_shape)
        for x, answer in _answers(patterns, columns, network.predict):
            place = (slice(0, shape[0]), slice(0, shape[1])) if network.whole else (row, columns[x])
            if improve:
                estimate = answer.mean(axis=0)
                answer = answer + (improve(estimate, patterns[:, columns[x]]) - estimate)  # noqa: PLW2901
            blend.add(place, answer)
            if trust and (y, x) in asked:
                score = trust(answer.mean(axis=0), patterns[:, columns[x]])
                scores.add(place, np.full(answer.shape[1:], score)[None])
    if dark:
        say(f"negative intensities, {100 * dark / light:.2g} % of all, counted as none")
    spread = blend.deviation() if network.answers > 1 else None
    return Images(blend.mean(), spread, scores.mean() if trust else None, bright)


def _answers(patterns: Array, columns: Sequence[slice], predict: ensemble.Predict) -> Iterator[tuple[int, Array]]:
    """The number of each window of a strip and the answers (members, h, w) to it."""
    size = max(1, BATCH_BYTES // patterns[:, columns[0]].nbytes)
    for first in range(0, len(columns), size):
        some = np.stack([patterns[:, column] for column in columns[first : first + size]])
        yield from enumerate(predict(some).swapaxes(0, 1), start=first)
