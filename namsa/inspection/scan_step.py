"""The step of a scan from a lattice that shows in its images."""

from typing import NamedTuple

import ase
import numpy as np

from namsa.base.arrays import Pair
from namsa.crystals.symmetry import ZoneAxis
from namsa.inspection.lattice import StepFit, find_peaks, step_from_crystal, step_from_spacing
from namsa.inspection.virtual_images import VirtualImages
from namsa.io.calibration_file import CalibratedQuantity


class Lattice(NamedTuple):
    """The lattice that shows in a scan: of a crystal, along a zone axis if that is known, or one
    spacing.
    """

    crystal: ase.Atoms | None
    zone_axis: ZoneAxis | None
    spacing_angstrom: float | None


def step_quantity(
    images: VirtualImages, step: Pair | None, lattice: Lattice, notes: list[str]
) -> CalibratedQuantity | None:
    """Returns the step of the scan with its error, Å; `None` where it cannot be measured.

    Args:
        step: A first guess, Å, if there is one.
        notes: Gets a line about why there is none.
    """
    if lattice.crystal is None and lattice.spacing_angstrom is None:
        return None
    fit = _step_fit(images, step, lattice, notes)
    if fit is None or step is None:
        return None
    steps = np.asarray(step) * fit.factors
    errors = steps * fit.errors / fit.factors
    method = f"{fit.described}: {fit.peaks} of {fit.peaks_in_images} peaks in the images"
    return CalibratedQuantity(tuple(steps.tolist()), tuple(errors.tolist()), method)


def _step_fit(
    images: VirtualImages, step: tuple[float, float] | None, lattice: Lattice, notes: list[str]
) -> StepFit | None:
    """Returns the step of the scan from a lattice, or notes why there is none."""
    if step is None:
        notes.append("scan step: a lattice needs a first guess to 10 %: give --scan-step-angstrom")
        return None
    peaks = find_peaks(
        np.stack([images.bright, images.dark, *np.moveaxis(images.deflection, -1, 0)])
    )
    if lattice.crystal is not None:
        fit = step_from_crystal(peaks, step, lattice.crystal, lattice.zone_axis)
    else:
        fit = step_from_spacing(peaks, step, float(lattice.spacing_angstrom or 0))
    if fit is None:
        notes.append(
            f"scan step: none of {len(peaks)} peaks in the images' transforms fits the lattice "
            "within 12 %"
        )
    return fit
