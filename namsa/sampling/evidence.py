"""Evidence of the error of chosen pixels and slices: the measurement that a sample carries."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Floats

WORST = 2.0  # accuracies that the worst pattern may be wrong by


class PatternErrors(NamedTuple):
    """Distance of patterns from others."""

    error: float  # relative L2 difference of all patterns
    worst_pattern: float  # the largest one of a single pattern


@dataclass(frozen=True)
class Measurement:
    """The errors of pixels and slices that were tried on the specimen."""

    error: float  # relative L2 error of all patterns of the probes
    worst_pattern: float  # of the pattern that is the most wrong
    probes: int  # patterns that were compared
    pixel_angstrom: float  # pixel that was tried last and is used, Å
    slices: int  # of the first snapshot
    reference_pixels_angstrom: tuple[float, ...]  # of the references, Å; the last is compared with
    reference_slices: tuple[int, ...]  # the same of slices; none if no layers share a slice
    # Relative L2 difference of the two references of the pixels, and of those of the slices.
    references_differ: float
    raised: int  # how often pixels or slices were made smaller

    def holds(self, accuracy: float) -> bool:
        """Returns whether the errors are within an accuracy."""
        return self.error <= accuracy and self.worst_pattern <= WORST * accuracy

    def as_dict(self) -> dict[str, object]:
        """Returns the measurement as JSON types, for the provenance."""
        values = dict(vars(self))
        for name in ("reference_pixels_angstrom", "reference_slices"):
            values[name] = list(values[name])
        return {"basis": "measured", **values}


def errors_of(patterns: Floats, expected: Floats) -> PatternErrors:
    """Returns the errors of patterns (n, pixels)."""
    differences = np.linalg.norm(patterns - expected, axis=1)
    norms = np.linalg.norm(expected, axis=1)
    return PatternErrors(
        float(np.linalg.norm(differences) / np.linalg.norm(norms)),
        float((differences / norms).max()),
    )
