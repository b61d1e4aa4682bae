"""Two networks, of which one has learnt thicker specimens, see some windows of a scan
(`train.tasks.density.trust.thickness`).
"""

from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array

from ....apply import tiles, weights
from ....apply.models import MODELS, Model, load_model
from ....apply.scans import nonnegative_patterns
from ....experiment.conditions import Conditions, has_films_alone, thickness_angstrom
from ..trust.thickness import ThickerFacts, thicker_line
from .ensemble import Predict, Views, ensemble_predictor
from .preparation import Findings, Measure, Prepared

WINDOWS = 4  # along each axis of the scan, at most
ONE_VIEW = Views(symmetries=(0,), passes=0)  # is enough for a ratio


class Pair(NamedTuple):
    """Two networks for the same scans."""

    thin: Model
    thick: Model  # has learnt thicker specimens

    @property
    def multiple(self) -> int:
        """Number of positions of which the side of a window is a multiple."""
        return int(2 ** max(model.network.pools for model in self))


PAIRS = (("200kv-20mrad-reality", "200kv-20mrad-thick"),)  # that come with the package


def pair_for(model: Model, scan_shape: tuple[int, int]) -> Pair | None:
    """Returns two networks for the scan of a network, of which one has learnt thicker specimens
    than it; `None` if there are none, or if the scan is too small for them.
    """
    experiment = model.experiment
    in_windows = experiment.training.inputs.layout == "scan" and experiment.target.at == "scan"
    if not in_windows or has_films_alone(experiment):
        return None
    for names in PAIRS:
        if not all((MODELS / name).is_dir() for name in names):
            continue
        pair = Pair(*map(load_model, names))
        largest = max(thickness_angstrom(pair.thick.experiment))
        is_thicker = largest > max(thickness_angstrom(experiment))
        is_large = min(scan_shape) >= pair.multiple
        if is_thicker and is_large and _same_scans(model.conditions, pair.thick.conditions):
            return pair
    return None


def _same_scans(one: Conditions, other: Conditions) -> bool:
    """Returns whether two networks take the same patterns at the same positions."""
    compared = ("energy_ev", "semiangle_mrad", "scan_step_angstrom", "detector_shape", "pixel_mrad")
    return all(np.allclose(getattr(one, name), getattr(other, name)) for name in compared)


def is_thickness_known(prepared: Prepared) -> bool:
    """Returns whether the thickness was given or estimated, or is in the scan's file."""
    thickness = prepared.specimen.thickness_angstrom or prepared.scan.data.thickness_angstrom
    return thickness is not None


class ThickerComparison(Measure):
    """Comparison of the densities of two networks, in some windows of a scan."""

    def __init__(self, prepared: Prepared, pair: Pair) -> None:
        """Loads both networks."""
        super().__init__(prepared)
        self._pair = pair
        scan = prepared.scan.plan.scan_shape
        trained = pair.thick.conditions.scan_shape
        height = tiles.window_side(scan[0], trained[0], pair.multiple)
        width = tiles.window_side(scan[1], trained[1], pair.multiple)
        self._thin = _predictor(pair.thin, (height, width))
        self._thick = _predictor(pair.thick, (height, width))
        rows = tiles.window_slices(scan[0], height, pair.multiple)
        columns = tiles.window_slices(scan[1], width, pair.multiple)
        chosen = tiles.spread_windows((len(rows), len(columns)), (WINDOWS, WINDOWS))
        self._waiting = [(rows[row], columns[column]) for row, column in chosen]
        self._rows: dict[int, Array] = {}  # patterns of the scan's rows, while a window needs them
        self._products = 0.0  # Σ of both densities' product
        self._squares = 0.0  # Σ of the square of that of the thin network

    def see(self, rows: slice, strip: Array) -> None:
        if not self._waiting:
            return
        detector = self._pair.thick.conditions.detector_shape
        patterns = nonnegative_patterns(strip, detector, np.zeros(2))
        self._rows.update(zip(range(rows.start, rows.stop), patterns, strict=True))
        while self._waiting and self._waiting[0][0].stop <= rows.stop:
            y, x = self._waiting.pop(0)
            self._add(np.stack([self._rows[row][x] for row in range(y.start, y.stop)]))
        needed = self._waiting[0][0].start if self._waiting else rows.stop
        self._rows = {row: line for row, line in self._rows.items() if row >= needed}

    def _add(self, window: Array) -> None:
        """Adds a window, `(h, w, dy, dx)`, fractions of the beam."""
        thin = self._thin(window[None]).density.astype(np.float64)
        thick = self._thick(window[None]).density
        self._products += float((thin * thick).sum())
        self._squares += float((thin**2).sum())

    def after(self, findings: Findings) -> Findings:
        if not self._squares:
            return findings
        facts: ThickerFacts = {
            "network": self._pair.thick.name,
            "compared_with": self._pair.thin.name,
            "electrons_ratio": self._products / self._squares,
        }
        self.note(thicker_line(facts, self.scan.model.name))
        return findings._replace(facts={**findings.facts, "thicker": facts})


def _predictor(model: Model, window: tuple[int, int]) -> Predict:
    """Returns the function that predicts the density of windows in one view."""
    return ensemble_predictor(weights.load_network(model, window), model, ONE_VIEW)
