"""Shift of the bright disk over the scan: a plane fitted to the disk's centres in regions of the
scan.
"""

from dataclasses import dataclass

import numpy as np

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.inspection.disk import Disk, fit_disk
from namsa.inspection.survey import Survey


@dataclass(frozen=True)
class Descan:
    """Centre of the disk at scan position (i, j): c + P · (i − i₀, j − j₀), with i₀, j₀ the middle
    of the scan.
    """

    centre: Floats  # c, (y, x), pixels
    slope: Floats  # P, `(2, 2)`, detector (y, x) by scan (row, column), pixels per step
    centre_error: Floats  # standard error of c
    slope_error: Floats  # standard errors of P
    range_pixels: float  # largest distance between the disk's centres over the scan
    significance: float  # of the range, in standard errors


def fit_descan(
    survey: Survey, repaired: Floats, disk: Disk, scan_shape: tuple[int, int]
) -> Descan | None:
    """Fits the plane of the disk's centres in mean patterns `(ry, rx, dy, dx)`; `None` for too few
    regions or disks.
    """
    ry, rx = repaired.shape[:2]
    if min(ry, rx) < 3:
        return None
    try:
        fits = [
            fit_disk(repaired[row, column], start=disk) for row in range(ry) for column in range(rx)
        ]
    except InputError:
        return None
    centres = np.array([fit.centre for fit in fits])
    middle = (np.array(scan_shape) - 1) / 2
    places = survey.centres.reshape(-1, 2) - middle
    terms = np.column_stack([np.ones(len(places)), places])
    weights = np.ones(len(places))
    for _ in range(5):  # a region with an edge of the specimen counts less
        coefficients, *_ = np.linalg.lstsq(
            terms * weights[:, None], centres * weights[:, None], rcond=None
        )
        misfit = np.hypot(*(centres - terms @ coefficients).T)
        spread = 1.4826 * np.median(misfit) or 1.0
        weights = np.sqrt(1 / np.maximum(1, misfit / (2 * spread)))
    variance = (weights[:, None] ** 2 * (centres - terms @ coefficients) ** 2).sum(axis=0) / (
        len(places) - 3
    )
    inverse = np.linalg.inv((terms * weights[:, None] ** 2).T @ terms)
    errors = np.sqrt(np.outer(np.diag(inverse), variance))
    slope = coefficients[1:].T
    slope_error = errors[1:].T
    across = np.abs(slope) @ (np.array(scan_shape) - 1)
    across_error = np.sqrt(slope_error**2 @ (np.array(scan_shape) - 1.0) ** 2)
    return Descan(
        centre=coefficients[0],
        slope=slope,
        centre_error=np.hypot(errors[0], disk.errors[:2]),
        slope_error=slope_error,
        range_pixels=float(np.hypot(*across)),
        significance=float((across / np.maximum(across_error, 1e-12)).max()),
    )
