"""Aberrations that a scan shows, beside those that a network has learnt.

The scan's patterns say which aberrations the probe has (`namsa.inspection.aberrations`). A scan
lies outside of what a network has learnt if aberrations within the ranges of its training explain
less than `ALIKE` of what the best ones do, and if the difference is at least `LEAST_GAIN` of the
variation of the patterns. A limit for the coefficients themselves would be too strict for thick and
tilted specimens, whose coefficients are uncertain.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array
from namsa.config.simulation import SimulationConfig
from namsa.config.variation import magnitude
from namsa.inspection.aberrations import (
    ALIKE,
    AberrationLimits,
    MeasuredAberrations,
    measure_aberrations,
)
from namsa.inspection.disk_overlaps import DiskOverlaps

from ....apply.tiles import spread_windows
from ....experiment.conditions import Conditions, defocus_angstrom, thickness_angstrom

# settings of what is measured
MEASURED = frozenset({"defocus_angstrom", "C12_angstrom", "C21_angstrom"})
LEAST_GAIN = 0.03  # of the power of the patterns' variation
PARTS = 4  # windows along each axis of the scan, at most, that are looked at
LARGEST_BYTES = 2**26  # of what is kept of them


class LearntAberrations(NamedTuple):
    """The aberrations that a network has learnt."""

    limits: AberrationLimits  # of those that are measured
    known: dict[str, float]  # the others, Å and rad: the middle of their range

    @classmethod
    def of(
        cls, config: SimulationConfig, known_angstrom: float | None = None
    ) -> "LearntAberrations":
        """Returns the aberrations of the samples of a configuration.

        Args:
            known_angstrom: Thickness of the specimen, Å, to whose middle C10 refers; `None` allows
                for all that were learnt, which hides a wrong focus of as much as half of their
                range.
        """
        given = config.microscope.aberrations
        varied = config.varied_quantities()
        focus = defocus_angstrom(config)
        thickness = (known_angstrom,) if known_angstrom else thickness_angstrom(config)
        c10 = min(thickness) / 2 - max(focus), max(thickness) / 2 - min(focus)
        largest = []
        for name in ("C12_angstrom", "C21_angstrom"):
            fixed = abs(given.get(name[:3], 0.0))
            magnitudes = [magnitude(name, value) for value in varied.get(name, (fixed,))]
            largest.append(max(magnitudes))
        known = {}
        for name, value in given.items():
            if name[-2:] not in ("10", "12", "21"):
                known[name] = value
        if (c30 := varied.get("C30_angstrom")) is not None:
            known["C30"] = (min(c30) + max(c30)) / 2
        return cls(AberrationLimits(c10, *largest), known)

    def __str__(self) -> str:
        (low, high), c12, c21 = self.limits
        return (
            f"C10 {low:.0f} … {high:.0f} Å, C12 up to {c12:.0f} Å, C21 up to {c21:.0f} Å".replace(
                "-", "−"
            )
        )


class AberrationsOfScan:
    """The aberrations of a scan, which is looked at in windows.

    Attributes:
        learnt: What they are compared with.
        overlaps: The bright disk, for a window.
        transforms: Of the windows, `(parts, q, k)`, complex64; zero of those that were not added.
    """

    def __init__(
        self,
        learnt: LearntAberrations,  # what a network has learnt
        conditions: Conditions,  # scan step, detector, energy and semiangle of the patterns
        window: tuple[int, int],  # positions of a window, (y, x)
        windows: tuple[int, int],  # number of windows along (y, x)
    ) -> None:
        """Starts without patterns."""
        self.learnt = learnt
        self.overlaps = DiskOverlaps.of(
            window,
            conditions.scan_step_angstrom,
            conditions.detector_shape,
            conditions.detector_pixels,
            conditions.energy_ev,
            conditions.semiangle_mrad,
        )
        size = self.overlaps.shifts.shape[1], self.overlaps.angles.shape[1]
        count = min(PARTS, max(1, math.isqrt(LARGEST_BYTES // max(1, 8 * size[0] * size[1]))))
        self._numbers = spread_windows(windows, (count, count))
        self.transforms = np.zeros((len(self._numbers), *size), np.complex64)

    def add(self, row: int, column: int, patterns: Array) -> None:
        """Adds a window `(sy, sx, dy, dx)`, if it is looked at: `PARTS` along each axis, evenly
        spaced.
        """
        if (window_number := self._numbers.get((row, column))) is not None:
            self.transforms[window_number] = self.overlaps.transform(patterns)

    def measure(self) -> MeasuredAberrations | None:
        """Returns the aberrations of the windows that were added; `None` if their patterns show
        none.
        """
        return measure_aberrations(
            self.overlaps, self.transforms, self.learnt.known, self.learnt.limits
        )

    @staticmethod
    def facts(measured: MeasuredAberrations | None) -> dict[str, float] | None:
        """Returns aberrations as a result's file holds them: Å and rad, and two shares of
        `MeasuredAberrations`.
        """
        if measured is None:
            return None
        assert measured.within is not None  # `measure` has limits
        return {**measured.coefficients, "explained": measured.explained, "within": measured.within}

    def line(self, facts: Mapping[str, float] | None) -> str:
        """Returns the line about the aberrations."""
        if facts is None:
            return (
                "aberrations: not measured, for they explain hardly any of the patterns' "
                "variation along the scan"
            )
        c10, c12, c21 = (
            f"{round(facts[name])} Å".replace("-", "−") for name in ("C10", "C12", "C21")
        )
        text = f"aberrations: C10 {c10} of the specimen's middle, C12 {c12}, C21 {c21}"
        if is_beyond(facts):
            return (
                f"{text}. The network learnt {self.learnt}. Within these ranges, aberrations "
                f"explain only {100 * facts['within']:.0f} % of the variation that the measured "
                "ones explain. Do not rely on the density: correct the lens"
            )
        return f"{text}; the network learnt {self.learnt}"


def is_beyond(facts: Mapping[str, float] | None) -> bool:
    """Returns whether a scan lies outside by its aberrations, as `AberrationsOfScan.facts` has
    them.
    """
    return aberrations_score(facts) > 1


def aberrations_score(facts: Mapping[str, float] | None) -> float:
    """Returns a number that is above 1 if a scan lies outside by its aberrations."""
    if facts is None:
        return 0.0
    return shortfall_score(float(facts["within"]), float(facts["explained"]))


def shortfall_score(share: float, explained: float) -> float:
    """Returns a number that is above 1 if some aberrations explain clearly less than others: by
    both limits.

    The former explain a share of what the others do, and these a share of the power of the
    patterns' variation.
    """
    missing = 1.0 - share
    return min(missing / (1 - ALIKE), explained * missing / LEAST_GAIN)
