"""The amount of a reconstructed density by the mean pattern of its scan (`namsa.inverse.amount`)."""

from dataclasses import replace

import numpy as np
from ase.data import atomic_numbers

from namsa.arrays import Floats
from namsa.errors import InputError
from namsa.inverse import amount
from namsa.inverse.amount import Amount, Known, Measurement
from namsa.physics.optics import BeamSettings
from namsa.pixels import PixelGrid

from .models import Model
from .trust import KnownSpecimen
from .windows import BlendedImages


def ring_masks(model: Model) -> Floats:
    """Returns which network's pixels are in each ring, `(pixels, rings)`. Raises InputError if there can be none."""
    conditions, detector, target = model.conditions, model.experiment.detector, model.experiment.target
    if detector is None or detector.pixel_mrad is None or (target.at, target.kind) != ("scan", "density"):
        raise InputError(f"{model.name} has no detector.pixel_mrad or no density on the scan, which pacbed needs")
    edges = amount.ring_edges(conditions.semiangle_mrad, max(conditions.pixel_mrad), conditions.reach_mrad)
    return amount.ring_masks(conditions.detector_pixels, conditions.detector_shape, edges)


def fit_amount(
    images: BlendedImages,  # with ring sums
    pixels: PixelGrid,  # of the density, Å
    model: Model,
    specimen: KnownSpecimen,
) -> Amount:
    """Fits amount and thickness of a density. Raises InputError as `namsa.inverse.amount.fit_amount`."""
    conditions, detector = model.conditions, model.experiment.detector
    assert images.rings is not None
    assert detector
    beam = BeamSettings(conditions.energy_ev, conditions.semiangle_mrad, {})
    measurement = Measurement(beam, detector, ring_masks(model), model.max_q)
    return amount.fit_amount(images.density, images.rings, pixels, measurement, known_amount(specimen))


def scaled(images: BlendedImages, found: Amount) -> BlendedImages:
    """Returns the images with the amount that was found; as they are if the rings do not tell it."""
    if not found.told:
        return images
    factor, bins, uncertainty = np.float32(found.scale), images.by_depth, images.uncertainty
    return replace(
        images,
        density=factor * images.density,
        uncertainty=None if uncertainty is None else factor * uncertainty,
        by_depth=None if bins is None else factor * bins,
    )


def known_amount(specimen: KnownSpecimen) -> Known:
    """Returns what is known of a specimen before its amount is fitted."""
    elements, known = specimen.elements(), Known()
    if elements:
        known = replace(known, composition={atomic_numbers[symbol]: n for symbol, n in elements.items()})
    if specimen.vibration_angstrom is not None:
        known = replace(known, vibration_angstrom=specimen.vibration_angstrom, vibration_error_angstrom=0.005)
    if specimen.thickness_angstrom:
        error = max(known.thickness_error, specimen.thickness_error)
        known = replace(known, thickness_angstrom=specimen.thickness_angstrom, thickness_error=error)
    return known
