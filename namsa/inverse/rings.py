"""Rings of the mean pattern outside of the bright disk, and what is known of the specimen."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.config.instrument import Detector
from namsa.physics.optics import BeamSettings

RINGS = 4
# edges of the rings: detector pixels beyond the disk, and at most
INNER_PIXELS = 1.33
OUTER_SEMIANGLES = 2.6
LEAST_RATIO = 1.3  # of the outermost edge to the innermost
# number density of solids, rms of its logarithm
ATOMS_PER_ANGSTROM3 = 0.065
ATOMS_ERROR = 0.4
MIDDLE_ELEMENT = 18  # atomic number that stands for an unknown composition
LIGHTEST = 3
HEAVIEST = 92


@dataclass(frozen=True)
class Known:
    """Prior knowledge about a specimen."""

    # number of atoms of each atomic number; `None` if not known
    composition: Mapping[int, float] | None = None
    thickness_angstrom: float | None = None  # `None` if not known
    thickness_error: float = 0.05  # relative
    vibration_angstrom: float = 0.075  # rms thermal displacement along one axis
    vibration_error_angstrom: float = 0.02

    def elements(self, electrons_per_angstrom3: float) -> Mapping[int, float]:
        """Returns the composition.

        If it is not known, it is the element whose solid is expected to have a mean density.
        """
        if self.composition:
            return self.composition
        atomic_number = round(electrons_per_angstrom3 / ATOMS_PER_ANGSTROM3)
        return {min(max(atomic_number, LIGHTEST), HEAVIEST): 1.0}

    @property
    def electrons_per_angstrom3(self) -> float:
        """The mean electron density that is expected; without a composition, a middle one."""
        elements = self.composition or {MIDDLE_ELEMENT: 1.0}
        electrons = sum(atomic_number * count for atomic_number, count in elements.items())
        return ATOMS_PER_ANGSTROM3 * electrons / sum(elements.values())


NOTHING_KNOWN = Known()


@dataclass(frozen=True)
class RingMeasurement:
    """Conditions of recorded patterns, and the part that is compared."""

    beam: BeamSettings  # energy and semiangle
    detector: Detector  # with pixel_mrad and shape
    masks: Floats  # of the rings, from `ring_masks`
    max_q: float  # where the window of the density ends, 1/Å


def ring_edges(semiangle_mrad: float, pixel_mrad: float, reach_mrad: float) -> Floats:
    """Returns the edges of the rings, mrad.

    Raises:
        InputError: If the detector ends too near to the bright disk.
    """
    inner = semiangle_mrad + INNER_PIXELS * pixel_mrad
    outer = min(reach_mrad, OUTER_SEMIANGLES * semiangle_mrad)
    needed = LEAST_RATIO * inner
    if outer < needed:
        raise InputError(
            f"the detector reaches {reach_mrad:.1f} mrad, and the rings outside of the bright disk "
            f"begin at {inner:.1f} mrad: pacbed needs a detector of {needed:.1f} mrad or more"
        )
    return np.geomspace(inner, outer, RINGS + 1)


def ring_masks(pixels: PixelGrid, shape: tuple[int, int], edges: Floats) -> Floats:
    """Returns which pixels are in each ring, `(dy·dx, rings)`."""
    angle = pixels.distance(shape).ravel()
    masks = [(angle >= inner) & (angle < outer) for inner, outer in pairwise(edges)]
    return np.stack(masks, axis=-1).astype(float)
