"""A second network, which has learnt thicker specimens, sees some windows of a scan
(`train.tasks.density.trust.thickness`).
"""

from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array

from ....apply import tiles
from ....apply.models import MODELS, Model, load_model
from ....apply.scans import nonnegative_patterns
from ....experiment.conditions import Conditions, has_films_alone, thickness_angstrom
from ..trust.thickness import ThickerFacts, thicker_line
from .preparation import Findings, Measure, Prepared
from .scan_network import prepare_network

NETWORKS = ("200kv-20mrad-thick",)  # that come with the package and have learnt thick specimens
WINDOWS = 4  # along each axis of the scan, at most


class SecondPrediction(NamedTuple):
    """What the network for thicker specimens predicts of a window."""

    place: tuple[slice, slice]  # its pixels in the scan's density, (y, x)
    density: Array  # `(h, w)`, e/Å²


def network_for_thicker(model: Model) -> Model | None:
    """Returns the network for the same scans that has learnt thicker specimens; `None` if there
    is none.
    """
    experiment = model.experiment
    in_windows = experiment.training.inputs.layout == "scan" and experiment.target.at == "scan"
    if not in_windows or has_films_alone(experiment):
        return None
    for name in NETWORKS:
        if not (MODELS / name / "config.yaml").is_file():
            continue
        other = load_model(name)
        thicker = max(thickness_angstrom(other.experiment)) > max(thickness_angstrom(experiment))
        if thicker and _same_scans(model.conditions, other.conditions):
            return other
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
    """Comparison of the density with that of a network for thicker specimens, in some windows."""

    def __init__(self, prepared: Prepared, other: Model) -> None:
        """Loads the network for thicker specimens."""
        super().__init__(prepared)
        plan = prepared.scan.plan
        self._other = other
        self._network = prepare_network(other, plan, None, lambda line: None)
        height, width = self._network.window
        rows = tiles.window_slices(plan.scan_shape[0], height, self._network.multiple)
        columns = tiles.window_slices(plan.scan_shape[1], width, self._network.multiple)
        chosen = tiles.spread_windows((len(rows), len(columns)), (WINDOWS, WINDOWS))
        self._waiting = [(rows[row], columns[column]) for row, column in chosen]
        self._rows: dict[int, Array] = {}  # patterns of the scan's rows, while a window needs them
        self._predicted: list[SecondPrediction] = []

    def see(self, rows: slice, strip: Array) -> None:
        detector = self._network.conditions.detector_shape
        patterns = nonnegative_patterns(strip, detector, np.zeros(2))
        self._rows.update(zip(range(rows.start, rows.stop), patterns, strict=True))
        while self._waiting and self._waiting[0][0].stop <= rows.stop:
            y, x = self._waiting.pop(0)
            window = np.stack([self._rows[row][x] for row in range(y.start, y.stop)])
            density = self._network.predict(window[None]).density[:, 0].mean(axis=0)
            self._predicted.append(SecondPrediction((y, x), density))
        needed = self._waiting[0][0].start if self._waiting else rows.stop
        self._rows = {row: line for row, line in self._rows.items() if row >= needed}

    def after(self, findings: Findings) -> Findings:
        products = 0.0
        squares = 0.0
        for place, density in self._predicted:
            own = findings.images.density[place].astype(np.float64)
            recorded = np.isfinite(own) & np.isfinite(density)
            products += float((own * density)[recorded].sum())
            squares += float((own**2)[recorded].sum())
        if not squares:
            return findings
        learnt = thickness_angstrom(self._other.experiment)
        facts: ThickerFacts = {
            "network": self._other.name,
            "learnt_angstrom": [min(learnt), max(learnt)],
            "electrons_ratio": products / squares,
        }
        self.note(thicker_line(facts, self.scan.model.name))
        return findings._replace(facts={**findings.facts, "thicker": facts})
