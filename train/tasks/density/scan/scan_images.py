"""The images of a scan, which grow as its strips of windows are predicted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError

from ....apply import tiles
from ....apply.resampling import ResamplingPlan, in_bright_disk
from ....apply.scans import nonnegative_patterns
from ..trust.aberrations import AberrationsOfScan
from ..trust.consistency import WindowSimulation, error_over_contrast
from ..trust.familiarity import UNFAMILIAR, PatternStatistics, window_features
from ..trust.intensities import MOMENTS, IntensityFacts, add_moments, intensity_facts
from ..trust.orientation import OrientationFacts, orientation_facts, turned_by_half
from .ensemble import Predict, Prediction
from .scan_network import ScanNetwork

# Windows along each axis of the scan, at most and no more than half, that are predicted with the
# detector turned by half a turn, too.
TURNED = 4


@dataclass(frozen=True)
class BlendedImages:
    """Images of the whole scan."""

    density: Array  # e/Å²
    # Standard deviation of the predictions with that of their predicted errors, calibrated if the
    # model is, e/Å². `None` if there is one prediction per window and no predicted error.
    uncertainty: Array | None
    # Familiarity (`train.tasks.density.trust.familiarity`) of the windows that a position lies in.
    # `None` if not measured.
    familiarity: Array | None
    flagged: float | None  # fraction of the windows that are not familiar; `None` if not measured
    # Trust (`train.tasks.density.trust.consistency`) in the window that a position lies in. `None`
    # if not measured.
    trust: Array | None
    bright_field: Array  # fraction of the beam in the bright disk
    # Density of each bin along the beam, `(bins, ny, nx)`, e/Å². `None` of a projected density.
    by_depth: Array | None = None
    # What the patterns of the whole scan show (`train.tasks.density.trust.aberrations`). `None`
    # before the last strip, or if they show nothing.
    aberrations: dict[str, float] | None = None
    # What the patterns of the whole scan say of the detector's orientation
    # (`train.tasks.density.trust.orientation`). `None` before the last strip.
    orientation: OrientationFacts | None = None
    # How sums and largest pixels of the patterns vary (`train.tasks.density.trust.intensities`).
    # `None` before the last strip.
    intensities: IntensityFacts | None = None

    @property
    def error_over_contrast(self) -> float | None:
        """As in `train.tasks.density.trust.consistency`; `None` without uncertainty or without
        contrast.
        """
        if self.uncertainty is None:
            return None
        return error_over_contrast(self.density, self.uncertainty)


# Takes the number of windows that were predicted, and that of all.
OnWindow = Callable[[int, int], object]


class PredictedWindow(NamedTuple):
    """A window of a strip, with what is predicted of it."""

    row: int  # number of its strip
    column: int  # number of the window in its strip
    place: tuple[slice, slice]  # its pixels in the images, (y, x)
    patterns: Array  # `(h, w, dy, dx)`, fractions of the beam
    prediction: Prediction  # without the axis of the windows


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
        distances: Of some windows from the training data, in the stated orientation of the detector
            and turned by half a turn, `(n, 2)`; NaN of those that were not added.
        aberrations: What the patterns show of the probe's aberrations.
        bright_field: Fraction of the beam in the bright disk; NaN where no strip was added or a
            pattern is lost.
        moments: Of sums and largest pixels of the patterns.
        intensity: Sums of the negative intensity, as a positive number, and of all.
    """

    def __init__(
        self,
        plan: ResamplingPlan,
        network: ScanNetwork,
        simulation: WindowSimulation | None,
        on_window: OnWindow = lambda done, total: None,
    ) -> None:
        """Starts with no strip.

        Args:
            plan: How the scan is brought to the network's positions.
            network: The network.
            simulation: Simulation of a window, by which trust is measured. `None` measures none.
            on_window: Is called after each window.
        """
        self.plan = plan
        self._on_window = on_window
        self._network = network
        self._simulation = simulation
        scan = plan.scan_shape
        height, width = network.window
        self.rows = tiles.window_slices(scan[0], height, network.multiple)
        self._columns = tiles.window_slices(scan[1], width, network.multiple)
        self._scored_rows = set(tiles.covering_subset(self.rows))
        self._scored_columns = set(tiles.covering_subset(self._columns))
        if network.whole_scan:
            self._shape = network.image_shape
            self._margin = 0
        else:
            self._shape = scan
            self._margin = int(tiles.MARGIN * min(network.window))
        self.densities = tiles.Blend(self._shape, self._margin)
        self.scores = tiles.Blend(self._shape, 0)
        self.familiar = tiles.Blend(self._shape, self._margin)
        self.bins: tiles.Blend | None = None
        if network.bins_shape:
            self.bins = tiles.Blend(self._shape, self._margin, network.bins_shape)
        self.counts = np.zeros(2)
        self._statistics: PatternStatistics | None = None
        if network.familiarity:
            self._statistics = PatternStatistics.of(network.window, network.conditions)
        windows = (len(self.rows), len(self._columns))
        self._turned = _turned_windows(windows) if network.half_turn_valid else {}
        self.distances = np.full((len(self._turned) if self._statistics else 0, 2), np.nan)
        self.aberrations = AberrationsOfScan(
            network.learnt, network.conditions, network.window, windows
        )
        self.bright_field = np.full(scan, np.nan, np.float32)
        self.moments = np.zeros(MOMENTS)
        self.intensity = np.zeros(2)
        self.strips = 0
        self._disk = in_bright_disk(network.conditions)

    def add(self, strip: Array) -> None:
        """Predicts the windows of the next strip.

        Args:
            strip: Patterns of its rows, `(rows, positions along x, network's pixels)`, fractions of
                the beam.

        Raises:
            InputError: If too much of the intensity is negative, or a prediction is not finite.
        """
        rows = self.rows[self.strips]
        detector = self._network.conditions.detector_shape
        patterns = nonnegative_patterns(strip, detector, self.intensity)
        add_moments(self.moments, strip)
        self.bright_field[rows] = strip[..., self._disk].sum(axis=-1)
        for window in self._predicted(patterns):
            _check_finite(window.prediction, rows)
            self.aberrations.add(window.row, window.column, window.patterns)
            self._add_density(window)
            self._add_familiarity(window)
            if self._is_scored(window.row, window.column):
                mean = window.prediction.density.mean(axis=0)
                self._add_trust(window.place, mean, window.patterns, self._simulation)
            done = window.row * len(self._columns) + window.column + 1
            self._on_window(done, len(self.rows) * len(self._columns))
        self.strips += 1

    def _predicted(self, patterns: Array) -> Iterator[PredictedWindow]:
        """Yields the windows of the next strip with their predictions.

        Args:
            patterns: `(rows, positions along x, dy, dx)`, fractions of the beam.
        """
        row = self.strips
        for column, of_window, prediction in _predictions(
            patterns, self._columns, self._network.predict
        ):
            place = (self.rows[row], self._columns[column])
            if self._network.whole_scan:
                place = (slice(0, self._shape[0]), slice(0, self._shape[1]))
            yield PredictedWindow(row, column, place, of_window, prediction)

    def _add_density(self, window: PredictedWindow) -> None:
        """Adds the densities of a window to the images."""
        prediction = window.prediction
        variance = prediction.variance
        if variance is not None:
            variance = self._network.predicted_weight * variance
        self.densities.add(window.place, prediction.density, variance)
        if self.bins and prediction.by_depth is not None:
            self.bins.add(window.place, prediction.by_depth)

    def _add_familiarity(self, window: PredictedWindow) -> None:
        """Adds the familiarity of a window to the images, if it is measured."""
        learnt = self._network.familiarity
        if learnt is None or self._statistics is None:
            return
        patterns = window.patterns[None]
        features = window_features(self._statistics, patterns, window.prediction.maps)
        (familiarity,) = learnt.familiarity(features)
        index = self._turned.get((window.row, window.column))
        if index is not None:
            both = np.concatenate([features, self._turned_features(patterns)])
            self.distances[index] = learnt.distance(both)
        shape = window.prediction.density.shape[1:]
        self.familiar.add(window.place, np.full(shape, familiarity)[None])
        self.counts += familiarity < UNFAMILIAR, 1

    def _turned_features(self, patterns: Array) -> Array:
        """Returns the features of windows, `(n, h, w, dy, dx)`, with the detector turned by half a
        turn.
        """
        assert self._statistics
        turned = turned_by_half(patterns)
        return window_features(self._statistics, turned, self._network.predict(turned).maps)

    def trust_in(
        self, density: Array, bands: Iterator[Array], simulation: WindowSimulation
    ) -> Array:
        """Returns the trust in a density of the whole scan, as of those that are predicted.

        Args:
            density: `(ny, nx)`, e/Å²; NaN where a pattern is lost.
            bands: As for `train.tasks.density.scan.windows.predict_images`.
            simulation: Simulation of a window.
        """
        known = np.where(np.isnan(density), np.nanmean(density), density)
        detector = self._network.conditions.detector_shape
        for y, strip in enumerate(tiles.strips(bands, self.plan.along_y, self.rows)):
            patterns = nonnegative_patterns(strip, detector, np.zeros(2))
            for x, columns in enumerate(self._columns):
                if y in self._scored_rows and x in self._scored_columns:
                    place = (self.rows[y], columns)
                    self._add_trust(place, known[place], patterns[:, columns], simulation)
        return np.where(np.isnan(density), np.nan, self.scores.mean())

    def _is_scored(self, row: int, column: int) -> bool:
        """Returns whether the trust in a window is measured."""
        if self._simulation is None:
            return False
        return row in self._scored_rows and column in self._scored_columns

    def _add_trust(
        self,
        place: tuple[slice, slice],
        density: Array,
        patterns: Array,
        simulation: WindowSimulation | None,
    ) -> None:
        """Adds the trust in the density of a window, `(h, w)`, e/Å²."""
        assert simulation
        trust = simulation.trust(density, patterns)
        self.scores.add(place, np.full(density.shape, trust)[None])

    @property
    def rows_done(self) -> int:
        """Number of the density's first rows that no later strip changes."""
        if self.strips == len(self.rows):
            return self._shape[0]
        if self.strips == 0:
            return 0
        return self.rows[self.strips].start + self._margin

    def blended(self) -> BlendedImages:
        """Returns the images; NaN where nothing was predicted, and where a pattern is lost."""
        network = self._network
        uncertainty = None
        if network.has_uncertainty:
            uncertainty = network.uncertainty_factor * self.densities.deviation()
        flagged = None
        if self.counts[1]:
            flagged = float(self.counts[0] / self.counts[1])
        images = BlendedImages(
            density=self.densities.mean(),
            uncertainty=uncertainty,
            familiarity=self.familiar.mean() if self._statistics else None,
            flagged=flagged,
            trust=self.scores.mean() if self._simulation else None,
            bright_field=self.bright_field.copy(),
            by_depth=self.bins.mean() if self.bins else None,
        )
        if not network.whole_scan:
            _mask(images, np.isnan(self.bright_field))
        if self.strips < len(self.rows):
            return images
        shown = self.aberrations
        measured = shown.measure()
        orientation = orientation_facts(
            shown.overlaps, shown.transforms, shown.learnt, measured, self.distances
        )
        return replace(
            images,
            aberrations=shown.facts(measured),
            orientation=orientation,
            intensities=intensity_facts(self.moments),
        )


def _turned_windows(windows: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Returns the numbers of the windows that are predicted with a turned detector, by strip and
    column.

    Args:
        windows: Number of strips, and of windows in each.
    """
    rows = min(TURNED, max(1, windows[0] // 2))
    columns = min(TURNED, max(1, windows[1] // 2))
    return tiles.spread_windows(windows, (rows, columns))


def _check_finite(prediction: Prediction, rows: slice) -> None:
    """Raises InputError if what is predicted of a strip is not finite."""
    if not np.isfinite(prediction.density).all():
        raise InputError(
            f"the density predicted in rows {rows.start} to {rows.stop - 1} is not finite: their "
            "intensities are too large: --mask excludes bad pixels"
        )


def _mask(images: BlendedImages, lost: Array) -> None:
    """Sets images to NaN where a pattern is lost, `(ny, nx)`."""
    for image in (
        images.density,
        images.uncertainty,
        images.familiarity,
        images.trust,
        images.by_depth,
    ):
        if image is not None:
            image[..., lost] = np.nan


def _predictions(
    patterns: Array, columns: Sequence[slice], predict: Predict
) -> Iterator[tuple[int, Array, Prediction]]:
    """Yields the index of each window of a strip, its patterns, and its prediction, without the
    axis of the windows.

    The maps keep it, `(1, 2·maps)`.
    """
    size = max(1, tiles.BATCH_BYTES // patterns[:, columns[0]].nbytes)
    for start in range(0, len(columns), size):
        batch = np.stack([patterns[:, column] for column in columns[start : start + size]])
        yield from zip(
            range(start, start + len(batch)), batch, predict(batch).of_each(), strict=True
        )
