"""From strips of patterns to images: predicts every window of the scan and blends the predictions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError
from namsa.text import plural
from train.experiment.conditions import Conditions
from train.reconstruction import ensemble, tiles
from train.reconstruction.models import Model
from train.reconstruction.reading import AddNote
from train.reconstruction.resampling import ResamplingPlan, in_bright_disk
from train.reconstruction.trust import WindowSimulation

Array = npt.NDArray[Any]

BATCH_BYTES = 128 * 2**20  # windows that the network is given at once
NEGATIVE = 0.01  # fraction of the intensity that a subtracted dark level may leave negative
MARGIN = 1 / 8  # of a window's side: the network sees most of the padding beyond the window's edge there


@dataclass(frozen=True)
class BlendedImages:
    """Images of the whole scan.

    Attributes:
        density: e/Å².
        uncertainty: Standard deviation of the predictions, e/Å². `None` if there is one prediction per window.
        trust: Trust (`train.reconstruction.trust`) in the window that a position lies in. `None` if not measured.
        bright_field: Fraction of the beam in the bright disk.
    """

    density: Array
    uncertainty: Array | None
    trust: Array | None
    bright_field: Array


@dataclass(frozen=True)
class ScanNetwork:
    """A network that is ready to predict the windows of a scan.

    Attributes:
        predict: Predicts densities from windows.
        members: Number of predictions per window.
        conditions: What the network was trained on.
        window: Positions of a window, (y, x).
        multiple: Windows begin at multiples of this many positions.
        image_shape: Shape of a predicted image.
        whole_scan: Whether the only window is the whole scan and the image is not on its positions (layout detector).
    """

    predict: ensemble.Predict
    members: int
    conditions: Conditions
    window: tuple[int, int]
    multiple: int
    image_shape: tuple[int, int]
    whole_scan: bool


def prepare_network(model: Model, plan: ResamplingPlan, passes: int | None, note: AddNote) -> ScanNetwork:
    """Loads a network for a scan.

    Args:
        model: The trained network.
        plan: How the scan is resampled.
        passes: Predictions with dropout per symmetry; see `train.reconstruction.ensemble.choose_views`.
        note: Called with a line about the result.

    Raises:
        InputError: If the scan is too small or, for layout detector, does not have the trained number of positions.
    """
    whole_scan = model.experiment.training.inputs.layout == "detector"
    window, multiple = _window(plan.scan_shape, model, whole_scan)
    image_shape = model.conditions.detector_shape if whole_scan else window
    views = ensemble.choose_views(model, window, plan.step_angstrom, passes)
    predict = ensemble.ensemble_predictor(ensemble.load_network(model, image_shape), model, views)
    note(
        f"{model.name}: windows of {window[0]}×{window[1]} positions, {plural(views.members, 'prediction')} of each: "
        f"{len(views.symmetries)} by symmetry"
        + (f", times {views.passes} with dropout" if views.passes else ", without dropout")
    )
    return ScanNetwork(predict, views.members, model.conditions, window, multiple, image_shape, whole_scan)


def _window(scan: tuple[int, int], model: Model, whole_scan: bool) -> tuple[tuple[int, int], int]:
    """Returns the positions of a window, and the multiple of positions at which windows begin."""
    trained = model.conditions.scan_shape
    if whole_scan:
        if scan != trained:
            raise InputError(
                f"{model.name} takes exactly {trained[0]}×{trained[1]} positions at once (layout detector), not "
                f"{scan[0]}×{scan[1]}: use a network of layout scan"
            )
        return scan, 1
    multiple = 2**model.experiment.network.pools
    y, x = (tiles.window_side(n, size, multiple) for n, size in zip(scan, trained, strict=True))
    return (y, x), multiple


def predict_images(
    bands: Iterator[Array],
    plan: ResamplingPlan,
    network: ScanNetwork,
    simulation: WindowSimulation | None,
    refine_steps: int,
    note: AddNote,
) -> BlendedImages:
    """Predicts the images of a scan from all its windows.

    All windows are refined, if any; trust is measured in as few as cover the scan.

    Args:
        bands: The scan's rows, from `train.reconstruction.reading.read_bands`.
        plan: How the scan is resampled.
        network: The network.
        simulation: Simulation of a window, by which trust is measured. `None` measures none.
        refine_steps: Steps of refinement per window; above 0 they need a simulation.
        note: Called with a line about negative intensities.

    Raises:
        InputError: If too much of the intensity is negative.
    """
    scan, detector = plan.scan_shape, network.conditions.detector_shape
    rows, columns = (
        tiles.window_slices(n, side, network.multiple) for n, side in zip(scan, network.window, strict=True)
    )
    scored = {(y, x) for y in tiles.covering_subset(rows) for x in tiles.covering_subset(columns)}
    shape = network.image_shape if network.whole_scan else scan
    margin = 0 if network.whole_scan else int(MARGIN * min(network.window))
    densities, scores = tiles.Blend(shape, margin), tiles.Blend(shape, 0)
    disk, bright_field = in_bright_disk(network.conditions), np.zeros(scan, np.float32)
    negative = total = 0.0
    for y, (row, strip) in enumerate(zip(rows, tiles.strips(bands, plan.along_y, rows), strict=True)):
        negative -= float(strip[strip < 0].sum(dtype=np.float64))
        total += float(strip.sum(dtype=np.float64))
        if negative > NEGATIVE * total:
            raise InputError(
                f"more than {100 * NEGATIVE:g} % of the intensity is negative: subtract no more than the dark level"
            )
        bright_field[row] = strip[..., disk].sum(axis=-1)
        patterns = np.maximum(strip, 0).reshape(*strip.shape[:2], *detector)
        for x, predictions in _predictions(patterns, columns, network.predict):
            place = (slice(0, shape[0]), slice(0, shape[1])) if network.whole_scan else (row, columns[x])
            window_patterns = patterns[:, columns[x]]
            if simulation and refine_steps:
                estimate = predictions.mean(axis=0)
                refined = simulation.refined(estimate, window_patterns, refine_steps)
                predictions = predictions + (refined - estimate)  # noqa: PLW2901 - the spread stays the network's
            densities.add(place, predictions)
            if simulation and (y, x) in scored:
                trust = simulation.trust(predictions.mean(axis=0), window_patterns)
                scores.add(place, np.full(predictions.shape[1:], trust)[None])
    if negative:
        note(f"negative intensities, {100 * negative / total:.2g} % of all, counted as none")
    deviation = densities.deviation() if network.members > 1 else None
    return BlendedImages(densities.mean(), deviation, scores.mean() if simulation else None, bright_field)


def _predictions(patterns: Array, columns: Sequence[slice], predict: ensemble.Predict) -> Iterator[tuple[int, Array]]:
    """Yields the index of each window of a strip and its predictions `(members, h, w)`."""
    size = max(1, BATCH_BYTES // patterns[:, columns[0]].nbytes)
    for first in range(0, len(columns), size):
        batch = np.stack([patterns[:, column] for column in columns[first : first + size]])
        yield from enumerate(predict(batch).swapaxes(0, 1), start=first)
