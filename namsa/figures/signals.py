"""What virtual detectors record at each probe position, for pictures of a sample."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from namsa import provenance_values
from namsa.arrays import Floats
from namsa.physics import virtual_detectors
from namsa.pixels import UNITS, PixelGrid, SampleArrays, array_axes, pattern_grid, sample_arrays

DARK_FIELD_FROM = 1.25  # semiangles; beyond the soft edge of the aperture


class Signal(NamedTuple):
    """One value per probe position."""

    title: str  # name with the angles
    units: str  # units of the values
    values: Floats  # `(n,)`


def check_drawable(sample: SampleArrays) -> None:
    """Raises InputError if the provenance does not describe the arrays, or if they hold numbers that are not finite."""
    provenance = sample.provenance
    provenance_values.check(provenance)
    arrays = sample_arrays(sample)
    array_axes(provenance, {name: array.shape for name, array in arrays.items()})
    for name, array in arrays.items():
        if not np.isfinite([array.min(), array.max()]).all():  # both are NaN if any number is
            raise provenance_values.fault(provenance, f"belongs to {name} with numbers that are not finite")


def sample_signals(sample: SampleArrays) -> list[Signal]:
    """Returns the dark field, the bright field and the deflection along y and x, in this order.

    The dark field is missing if the detector or the simulation's band limit ends before it.
    """
    provenance, cbed = sample.provenance, sample.cbed
    angles, semiangle_mrad = pattern_grid(provenance), provenance["semiangle_mrad"]
    dark = dark_field(cbed, angles, semiangle_mrad)
    deflection = virtual_detectors.centre_of_mass(cbed, angles)
    bright = virtual_detectors.bright_field(cbed, angles, semiangle_mrad)
    return [
        *([Signal(dark_field_title(semiangle_mrad), UNITS["cbed"], dark)] if dark is not None else []),
        Signal(f"Bright field < {semiangle_mrad:g} mrad", UNITS["cbed"], bright),
        Signal("Deflection y", "mrad", deflection[:, 0]),
        Signal("Deflection x", "mrad", deflection[:, 1]),
    ]


def dark_field_title(semiangle_mrad: float) -> str:
    """Returns the name of the dark field with its inner angle."""
    return f"Dark field > {DARK_FIELD_FROM * semiangle_mrad:g} mrad"


def dark_field(cbed: npt.NDArray[np.floating], angles: PixelGrid, semiangle_mrad: float) -> Floats | None:
    """Returns the fraction of the beam that is scattered beyond the disk and its soft edge.

    Args:
        cbed: Patterns `(n, dy, dx)`.
        angles: Their pixels, mrad.
        semiangle_mrad: Convergence semiangle, mrad.

    Returns:
        `(n,)`; `None` if the detector or the band limit ends before.
    """
    inner_mrad = DARK_FIELD_FROM * semiangle_mrad
    if min(angles.distance(cbed.shape[1:]).max(), angles.limit) <= inner_mrad:
        return None
    return virtual_detectors.annular(cbed, angles, inner_mrad, np.inf)


def example_probes(
    cbed: npt.NDArray[np.floating], angles: PixelGrid, semiangle_mrad: float, positions_angstrom: npt.ArrayLike
) -> tuple[int, ...]:
    """Returns the probes with the strongest, the median and the weakest dark field: on the heaviest column and off it.

    A crystal has many probes that are equal to a percent. Of those, the one nearest to the middle of the scan is taken.

    Args:
        cbed: Patterns `(n, dy, dx)`.
        angles: Their pixels, mrad.
        semiangle_mrad: Convergence semiangle, mrad.
        positions_angstrom: Probe positions `(n, 2)`, Å.

    Returns:
        Indices of one to three probes.
    """
    dark = dark_field(cbed, angles, semiangle_mrad)
    if dark is None:  # what the disk lacks has left the detector
        dark = 1 - virtual_detectors.bright_field(cbed, angles, semiangle_mrad)
    level = np.round(dark / (dark.max() or 1), 2)
    positions = np.asarray(positions_angstrom, float)
    off_middle = np.linalg.norm(positions - (positions.min(axis=0) + positions.max(axis=0)) / 2, axis=1)
    chosen = np.sort(level)[[-1, len(level) // 2, 0]]
    return tuple(dict.fromkeys(int(np.argmin(np.where(level == value, off_middle, np.inf))) for value in chosen))
