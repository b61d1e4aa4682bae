"""From strips of patterns to images: predicts every window of the scan and blends the predictions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from namsa.arrays import Array
from namsa.errors import InputError
from namsa.text import plural

from ..experiment.conditions import Conditions
from . import ensemble, tiles, weights
from .aberrations import AberrationsOfScan, LearntAberrations
from .familiarity import (
    UNFAMILIAR,
    Familiarity,
    PatternStatistics,
    is_outside,
    read_familiarity,
    window_features,
)
from .models import Model
from .orientation import HALF_TURN, orientation_facts, orientation_line, turned_by_half
from .reading import AddNote
from .resampling import ResamplingPlan, in_bright_disk
from .scans import nonnegative_patterns
from .trust import WindowSimulation, contrast_line, error_over_contrast

BATCH_BYTES = 128 * 2**20  # windows that the network is given at once
TURNED = 4  # windows along each axis of the scan, at most and no more than half, that are predicted twice
MARGIN = 1 / 8  # of a window's side: the network sees most of the padding beyond the window's edge there


@dataclass(frozen=True)
class BlendedImages:
    """Images of the whole scan."""

    density: Array  # e/Å²
    # Standard deviation of the predictions with that of their predicted errors, calibrated if the model is, e/Å².
    # `None` if there is one prediction per window and no predicted error.
    uncertainty: Array | None
    # Familiarity (`train.apply.familiarity`) of the windows that a position lies in. `None` if not measured.
    familiarity: Array | None
    flagged: float | None  # fraction of the windows that are not familiar; `None` if not measured
    trust: Array | None  # trust (`train.apply.trust`) in the window that a position lies in; `None` if not measured
    bright_field: Array  # fraction of the beam in the bright disk
    # Density of each bin along the beam, `(bins, ny, nx)`, e/Å². `None` of a projected density.
    by_depth: Array | None = None
    # What the patterns of the whole scan show (`train.apply.aberrations`). `None` before the last strip, or if they
    # show nothing.
    aberrations: dict[str, Any] | None = None
    # What the patterns of the whole scan say of the detector's orientation (`train.apply.orientation`). `None` before
    # the last strip.
    orientation: dict[str, Any] | None = None

    @property
    def error_over_contrast(self) -> float | None:
        """As in `train.apply.trust`; `None` without uncertainty or without contrast."""
        return None if self.uncertainty is None else error_over_contrast(self.density, self.uncertainty)


@dataclass(frozen=True)
class ScanNetwork:
    """A network that is ready to predict the windows of a scan."""

    predict: ensemble.Predict  # predicts densities from windows
    members: int  # number of predictions per window
    has_uncertainty: bool  # whether predictions differ, or have errors of their own
    predicted_weight: float  # weight of the variances that predictions have of their own
    uncertainty_factor: float  # from the standard deviation to the uncertainty; 1 for a model that is not calibrated
    familiarity: Familiarity | None  # what the network has learnt; `None` if it was not measured
    conditions: Conditions  # what the network was trained on
    window: tuple[int, int]  # positions of a window, (y, x)
    multiple: int  # windows begin at multiples of this many positions
    image_shape: tuple[int, int]  # shape of a predicted image
    learnt: LearntAberrations  # aberrations that the network has learnt
    half_turn_valid: bool  # whether the detector turned by half a turn has the same pixels
    # Whether the only window is the whole scan and the image is not on its positions (layout detector).
    whole_scan: bool
    bins_shape: tuple[int, ...] = ()  # `(n,)` if the network predicts n bins along the beam


def prepare_network(
    model: Model, plan: ResamplingPlan, passes: int | None, note: AddNote, thickness_angstrom: float | None = None
) -> ScanNetwork:
    """Loads a network for a scan.

    Args:
        passes: Predictions with dropout per symmetry; see `train.apply.ensemble.choose_views`.

    Raises:
        InputError: If the scan is too small or, for layout detector, does not have the trained number of positions.
    """
    whole_scan = model.experiment.training.inputs.layout == "detector"
    window, multiple = _window(plan.scan_shape, model, whole_scan)
    image_shape = model.conditions.detector_shape if whole_scan else window
    views = ensemble.choose_views(model, window, plan.step_angstrom, passes)
    familiarity = read_familiarity(model.folder)
    network = weights.load_network(model, image_shape)
    predict = ensemble.ensemble_predictor(network, model, views, with_maps=familiarity is not None)
    note(
        f"{model.name}: windows of {window[0]}×{window[1]} positions, {plural(views.members, 'prediction')} of each: "
        f"{len(views.symmetries)} by symmetry"
        + (f", times {views.passes} with dropout" if views.passes else ", without dropout")
    )
    return ScanNetwork(
        predict=predict,
        members=views.members,
        has_uncertainty=views.members > 1 or model.predicts_its_error,
        predicted_weight=model.calibration.predicted_weight or 1.0,
        uncertainty_factor=model.calibration.uncertainty_factor or 1.0,
        familiarity=familiarity,
        conditions=model.conditions,
        window=window,
        multiple=multiple,
        image_shape=image_shape,
        learnt=LearntAberrations.of(model.experiment, thickness_angstrom),
        half_turn_valid=HALF_TURN in views.symmetries,
        whole_scan=whole_scan,
        bins_shape=model.experiment.bins_shape(),
    )


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
    multiple = 2**model.network.pools
    if model.experiment.training.inputs.layout == "depth" and (scan[0] < trained[0] or scan[1] < trained[1]):
        raise InputError(
            f"{model.name} refocuses windows of {trained[0]}×{trained[1]} positions (layout depth), and the scan has "
            f"{scan[0]}×{scan[1]}: use a network of layout scan"
        )
    y, x = (tiles.window_side(n, size, multiple) for n, size in zip(scan, trained, strict=True))
    return (y, x), multiple


class ScanImages:
    """The images of a scan, which grow strip by strip.

    Trust is measured in as few windows as cover the scan.

    Attributes:
        rows: Rows of the network's positions of each strip of windows.
        strips: Number of strips that were added.
        densities: What was predicted.
        bins: The densities by depth that were predicted; `None` of a projected density.
        scores: Trust of the windows.
        familiar: Familiarity of the windows.
        counts: Number of windows that are not familiar, and of all.
        distances: Of some windows from the training data, as told and with the detector turned by half a turn,
            `(n, 2)`; NaN of those that were not added.
        aberrations: What the patterns show of the probe's aberrations.
        bright_field: Fraction of the beam in the bright disk; NaN where no strip was added or a pattern is lost.
        intensity: Sums of the negative intensity, as a positive number, and of all.
    """

    def __init__(
        self,
        plan: ResamplingPlan,
        network: ScanNetwork,
        simulation: WindowSimulation | None,
    ) -> None:
        """Starts with no strip.

        Args:
            simulation: Simulation of a window, by which trust is measured. `None` measures none.
        """
        self._network, self._simulation = network, simulation
        self.plan, scan = plan, plan.scan_shape
        self.rows, self._columns = (
            tiles.window_slices(n, side, network.multiple) for n, side in zip(scan, network.window, strict=True)
        )
        self._scored = {(y, x) for y in tiles.covering_subset(self.rows) for x in tiles.covering_subset(self._columns)}
        self._shape = network.image_shape if network.whole_scan else scan
        self._margin = 0 if network.whole_scan else int(MARGIN * min(network.window))
        self.densities, self.scores = tiles.Blend(self._shape, self._margin), tiles.Blend(self._shape, 0)
        bins = network.bins_shape
        self.bins = tiles.Blend(self._shape, self._margin, bins) if bins else None
        self.familiar, self.counts = tiles.Blend(self._shape, self._margin), np.zeros(2)
        self._statistics = PatternStatistics.of(network.window, network.conditions) if network.familiarity else None
        windows = len(self.rows), len(self._columns)
        most = min(TURNED, max(1, windows[0] // 2)), min(TURNED, max(1, windows[1] // 2))
        self._turned = tiles.spread_windows(windows, most) if network.half_turn_valid else {}
        self.distances = np.full((len(self._turned) if self._statistics else 0, 2), np.nan)
        self.aberrations = AberrationsOfScan(network.learnt, network.conditions, network.window, windows)
        self.bright_field = np.full(scan, np.nan, np.float32)
        self.intensity = np.zeros(2)
        self.strips = 0
        self._disk = in_bright_disk(network.conditions)

    def add(self, strip: Array) -> None:
        """Predicts the windows of the next strip.

        Args:
            strip: Patterns of its rows, `(rows, positions along x, network's pixels)`, fractions of the beam.

        Raises:
            InputError: If too much of the intensity is negative.
        """
        row, columns, simulation = self.rows[self.strips], self._columns, self._simulation
        patterns = nonnegative_patterns(strip, self._network.conditions.detector_shape, self.intensity)
        self.bright_field[row] = strip[..., self._disk].sum(axis=-1)
        for x, window_patterns, prediction in _predictions(patterns, columns, self._network.predict):
            predictions = prediction.density
            self.aberrations.add(self.strips, x, window_patterns)
            whole = (slice(0, self._shape[0]), slice(0, self._shape[1]))
            place = whole if self._network.whole_scan else (row, columns[x])
            variance = prediction.variance
            self.densities.add(
                place, predictions, None if variance is None else self._network.predicted_weight * variance
            )
            if self.bins and prediction.by_depth is not None:
                self.bins.add(place, prediction.by_depth)
            if self._network.familiarity and self._statistics:
                features = window_features(self._statistics, window_patterns[None], prediction.maps)
                (familiarity,) = self._network.familiarity.familiarity(features)
                if (number := self._turned.get((self.strips, x))) is not None:
                    turned = turned_by_half(window_patterns[None])
                    of_turned = window_features(self._statistics, turned, self._network.predict(turned).maps)
                    both = np.concatenate([features, of_turned])
                    self.distances[number] = self._network.familiarity.distance(both)
                self.familiar.add(place, np.full(predictions.shape[1:], familiarity)[None])
                self.counts += familiarity < UNFAMILIAR, 1
            if simulation and (self.strips, x) in self._scored:
                self._add_trust(place, predictions.mean(axis=0), window_patterns, simulation)
        self.strips += 1

    def trust_in(self, density: Array, bands: Iterator[Array], simulation: WindowSimulation) -> Array:
        """Returns the trust in a density of the whole scan, as of those that are predicted.

        Args:
            density: `(ny, nx)`, e/Å²; NaN where a pattern is lost.
            bands: As for `predict_images`.
        """
        known = np.where(np.isnan(density), np.nanmean(density), density)
        for y, strip in enumerate(tiles.strips(bands, self.plan.along_y, self.rows)):
            patterns = nonnegative_patterns(strip, self._network.conditions.detector_shape, np.zeros(2))
            for x, column in enumerate(self._columns):
                if (y, x) in self._scored:
                    place = self.rows[y], column
                    self._add_trust(place, known[place], patterns[:, column], simulation)
        return np.where(np.isnan(density), np.nan, self.scores.mean())

    def _add_trust(
        self, place: tuple[slice, slice], density: Array, patterns: Array, simulation: WindowSimulation
    ) -> None:
        trust = simulation.trust(density, patterns)
        self.scores.add(place, np.full(density.shape, trust)[None])

    @property
    def rows_done(self) -> int:
        """Number of the density's first rows that no later strip changes."""
        if self.strips == len(self.rows):
            return self._shape[0]
        return self.rows[self.strips].start + self._margin if self.strips else 0

    def blended(self) -> BlendedImages:
        """Returns the images; NaN where nothing was predicted, and where a pattern is lost."""
        network = self._network
        uncertainty = network.uncertainty_factor * self.densities.deviation() if network.has_uncertainty else None
        familiarity = self.familiar.mean() if self._statistics else None
        flagged = float(self.counts[0] / self.counts[1]) if self.counts[1] else None
        trust = self.scores.mean() if self._simulation else None
        bins = self.bins.mean() if self.bins else None
        density = self.densities.mean()
        if not network.whole_scan:
            for image in (density, uncertainty, familiarity, trust, bins):
                if image is not None:
                    image[..., np.isnan(self.bright_field)] = np.nan
        images = BlendedImages(density, uncertainty, familiarity, flagged, trust, self.bright_field.copy(), bins)
        if self.strips < len(self.rows):
            return images
        found = self.aberrations
        measured = found.measure()
        orientation = orientation_facts(found.overlaps, found.transforms, found.learnt, measured, self.distances)
        return replace(images, aberrations=found.facts(measured), orientation=orientation)


def predict_images(
    bands: Iterator[Array],  # the scan's rows, from `train.apply.reading.read_bands`
    images: ScanImages,  # before the first strip
    note: AddNote,
    observers: Sequence[Callable[[slice, Array], None]] = (),  # are given the rows of each strip, and the strip
) -> BlendedImages:
    """Predicts the images of a scan from all windows. Raises InputError if too much of the intensity is negative."""
    for rows, strip in zip(images.rows, tiles.strips(bands, images.plan.along_y, images.rows), strict=True):
        images.add(strip)
        for observe in observers:
            observe(rows, strip)
    blended = images.blended()
    note_findings(images, blended, note)
    return blended


def note_findings(images: ScanImages, blended: BlendedImages, note: AddNote) -> None:
    """Adds lines about negative intensities, aberrations, orientation, familiarity and contrast, after all strips."""
    negative, total = images.intensity
    if negative:
        note(f"negative intensities, {100 * negative / total:.2g} % of all, counted as none")
    note(images.aberrations.line(blended.aberrations))
    if contradicted := orientation_line(blended.orientation):
        note(contradicted)
    flagged, windows = images.counts
    if windows:
        note(familiarity_note(flagged / windows))
    if unresolved := contrast_line(blended.error_over_contrast or 0.0):
        note(unresolved)


def familiarity_note(flagged: float) -> str:
    """Returns the line about familiarity, by the fraction of the windows that are not familiar."""
    if is_outside(flagged):
        return (
            f"familiarity: this scan lies outside of what the network learnt: {100 * flagged:.0f} % of its windows do "
            "not look like the training data. Do not rely on its density or uncertainty; check the calibration"
        )
    return f"familiarity: {100 * (1 - flagged):.0f} % of the windows look like the training data"


def _predictions(
    patterns: Array, columns: Sequence[slice], predict: ensemble.Predict
) -> Iterator[tuple[int, Array, ensemble.Prediction]]:
    """Yields the index of each window of a strip, its patterns, and its prediction, without the axis of the windows.

    The maps keep it, `(1, 2·maps)`.
    """
    size = max(1, BATCH_BYTES // patterns[:, columns[0]].nbytes)
    for first in range(0, len(columns), size):
        batch = np.stack([patterns[:, column] for column in columns[first : first + size]])
        yield from zip(range(first, first + len(batch)), batch, predict(batch).of_each(), strict=True)
