"""A calibration that was measured on a part of a scan, as that of the whole scan and detector."""

from dataclasses import replace

import numpy as np

from namsa.io.calibration_file import CalibratedQuantity, CalibrationFile
from namsa.io.part import Window

# Lengths on the detector, which are `binning` times as long in stored pixels.
LENGTHS = ("disk_radius_pixels", "centre_slope_pixels")


def of_stored_scan(calibration: CalibrationFile, window: Window) -> CalibrationFile:
    """Returns the calibration of the scan as it is stored.

    Args:
        calibration: What was measured on a part; its bad pixels are those that were found in it.
    """
    side = window.binning
    quantities = dict(calibration.quantities)
    for name in LENGTHS:
        if name in quantities:
            quantities[name] = _times(quantities[name], side)
    if "pixel_mrad" in quantities:
        quantities["pixel_mrad"] = _times(quantities["pixel_mrad"], 1 / side)
    if "centre_pixels" in quantities:
        centre = _times(quantities["centre_pixels"], side)
        y, x = window.stored_pixel_of(quantities["centre_pixels"].value)
        slope = quantities.get("centre_slope_pixels")
        if slope is not None:
            moved = np.array(slope.value) @ np.array(window.scan_shift)
            y -= float(moved[0])
            x -= float(moved[1])
        quantities["centre_pixels"] = replace(centre, value=(y, x))
    already = set(window.bad_pixels_of(window.stored_bad_pixels))
    further = [place for place in calibration.bad_pixels if place not in already]
    bad_pixels = {*window.stored_bad_pixels, *window.stored_bad_pixels_of(further)}
    note = (
        "measured on a part of the scan or the detector, or binned: optic axis, pixel and bad "
        "pixels are those of the whole detector as it is stored"
    )
    return replace(
        calibration,
        quantities=quantities,
        bad_pixels=tuple(sorted(bad_pixels)),
        notes=(*calibration.notes, note),
    )


def _times(quantity: CalibratedQuantity, factor: float) -> CalibratedQuantity:
    """Returns a quantity in other units."""

    def scaled(value: object) -> object:
        if value is None:
            return None
        product = np.asarray(value, float) * factor
        if product.ndim == 0:
            return float(product)
        if product.ndim == 1:
            return tuple(product.tolist())
        return tuple(tuple(row) for row in product.tolist())

    return replace(quantity, value=scaled(quantity.value), error=scaled(quantity.error))
