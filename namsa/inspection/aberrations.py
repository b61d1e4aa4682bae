"""Aberrations of the probe from how the patterns of the bright disk vary along a scan.

The aberrations are those for which a weak phase object explains the largest share of the
variation's power in the overlaps of the disks (`namsa.inspection.disk_overlaps`),

    Σ_q (|Σ_k G B*|² / Σ_k |B|²) / Σ_q Σ_k |G|².

Parts of a scan are added up. The phase of the object is free at every q, so that a shift of the
probe is not known. Defoci of crystals repeat approximately: of aberrations that explain about as
much, the smallest are taken.

A thick specimen is not a weak phase object. C10 is that of its middle: C10 at the entrance plus
half the thickness. A tilt of the specimen looks like coma.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import optimize

from namsa.base.arrays import Array, Floats
from namsa.inspection.disk_overlaps import DiskOverlaps, OverlapModel
from namsa.physics.optics import wavelength_angstrom

TERMS = (
    {"C10": 1.0},
    {"C12": 1.0},
    {"C12": 1.0, "phi12": np.pi / 4},
    {"C21": 1.0},
    {"C21": 1.0, "phi21": np.pi / 2},
)
# of the fit: defocus, and defocus with astigmatism in eight directions, rad at the aperture's edge
STARTS = np.array(
    [(focus, 0, 0, 0, 0) for focus in np.arange(-40.5, 41, 1.5)]
    + [
        (focus, 6 * np.cos(turn), 6 * np.sin(turn), 0, 0)
        for focus in np.arange(-9, 10, 1.5)
        for turn in np.arange(8) * np.pi / 4
    ]
)
TRIED = 8  # of the starts
ALIKE = 0.92  # aberrations that explain this share of what the best ones explain are as likely
# at the aperture's edge, by which the focus of crystals may be wrong: limits are wider by it
FOCUS_ERROR_RAD = 1.0
LEAST_EXPLAINED = 0.05
# over the pixels of the disk: more than what aberrations explain of noise, which is up to 3
NOISE = 5.0
# of the disk, and at which it overlaps with itself
LEAST_PIXELS = 20
LEAST_FREQUENCIES = 20


class MeasuredAberrations(NamedTuple):
    """Aberrations of the probe that a scan shows."""

    # C10 of the middle of the specimen, C12 and C21 with their azimuths phi12 and phi21, Å and rad,
    # as in `namsa.physics.optics`.
    coefficients: dict[str, float]
    # Share of the power of the patterns' variation that they explain, from 0 to 1. It is low for
    # thick specimens and with few electrons.
    explained: float
    # Share of that which aberrations within limits explain, from 0 to 1. `None` without limits.
    within: float | None = None
    most: float = 0.0  # largest share that any aberrations explain, from 0 to 1


class AberrationLimits(NamedTuple):
    """Limits of the aberrations, Å."""

    c10: tuple[float, float]  # least and largest C10 of the middle of the specimen
    c12: float  # largest magnitude of each of the two components of C12
    c21: float  # the same of C21

    def bounds(self) -> Floats:
        """Returns the least and the largest coefficient of each of `TERMS`, `(terms, 2)`, Å."""
        sides = [(-largest, largest) for largest in (self.c12, self.c12, self.c21, self.c21)]
        return np.array([self.c10, *sides])

    def of_either_sign(self) -> "AberrationLimits":
        """Returns limits that hold for a detector turned by half a turn, too, which changes the
        signs.
        """
        largest = max(map(abs, self.c10))
        return self._replace(c10=(-largest, largest))


def measure_aberrations(
    overlaps: DiskOverlaps,  # the bright disk, for parts of the scan
    # Of the parts, `(parts, q, k)`, from `overlaps.transform`. Parts with values that are not
    # finite are left out.
    transforms: Array,
    # aberrations that are not measured, such as C30, Å and rad
    known: Mapping[str, float] | None = None,
    # Limits that the aberrations are compared with; those of C10 are widened by `FOCUS_ERROR_RAD`.
    limits: AberrationLimits | None = None,
) -> MeasuredAberrations | None:
    """Returns the aberrations that a scan shows.

    Returns:
        The aberrations. `None` if the disk has too few pixels or overlaps, or if hardly more of the
        variation is explained than of noise.
    """
    units = phase_units(overlaps)
    model = _model(overlaps, transforms, known, units)
    if model is None:
        return None
    fits = _fits(model, STARTS)
    most = max(explained for _, explained in fits)
    if most < _least_explained(overlaps):
        return None
    alike = [
        (float(np.abs(coefficients).sum()), coefficients, explained)
        for coefficients, explained in fits
        if explained >= ALIKE * most
    ]
    _, coefficients, explained = min(alike, key=lambda fit: fit[0])
    within = None
    if limits is not None:
        within = min(
            1.0, _most_within(model, limits, units, np.vstack([coefficients, STARTS])) / most
        )
    return MeasuredAberrations(_polar(coefficients * units), explained, within, min(1.0, most))


def explained_within(
    overlaps: DiskOverlaps, transforms: Array, known: Mapping[str, float], limits: AberrationLimits
) -> float:
    """Returns the largest share of the power of a scan's variation that aberrations within limits
    explain, from 0 to 1.

    It is 0 if that is hardly more than of noise. Arguments as for `measure_aberrations`.
    """
    units = phase_units(overlaps)
    model = _model(overlaps, transforms, known, units)
    most = 0.0 if model is None else _most_within(model, limits, units, STARTS)
    return min(1.0, most) if most >= _least_explained(overlaps) else 0.0


def _model(
    overlaps: DiskOverlaps, transforms: Array, known: Mapping[str, float] | None, units: Floats
) -> OverlapModel | None:
    """Returns what the aberrations are compared with; `None` if the disk has too few pixels or
    overlaps.
    """
    transforms = transforms[np.isfinite(transforms).all(axis=(1, 2))]
    pixels = overlaps.angles.shape[1]
    frequencies = overlaps.shifts.shape[1]
    if pixels < LEAST_PIXELS or frequencies < LEAST_FREQUENCIES or not transforms.any():
        return None
    return OverlapModel.of(overlaps, transforms, known or {}, TERMS, units)


def _least_explained(overlaps: DiskOverlaps) -> float:
    """Returns the share above which more of the variation is explained than of noise."""
    return max(LEAST_EXPLAINED, NOISE / overlaps.angles.shape[1])


def _fits(
    model: OverlapModel, starts: Floats, bounds: Floats | None = None
) -> list[tuple[Floats, float]]:
    """Returns aberrations that explain most near each of the best starts, and the shares that they
    explain.

    Args:
        starts: `(n, terms)`.
        bounds: Least and largest coefficient of each term, `(terms, 2)`. `None` has no bounds.
    """

    def loss(coefficients: Floats) -> tuple[float, Floats]:
        explained, slopes = model.explained_with_slopes(coefficients)
        return -explained, -slopes

    best = np.argsort([-model.explained(start) for start in starts], kind="stable")[:TRIED]
    limits = [(-np.inf, np.inf)] * len(TERMS)
    if bounds is not None:
        limits = [(float(low), float(high)) for low, high in bounds]
    fits = []
    for start in starts[best]:
        solution = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits)
        fits.append((solution.x, -float(solution.fun)))
    return fits


def _most_within(
    model: OverlapModel, limits: AberrationLimits, units: Floats, starts: Floats
) -> float:
    """Returns the largest share that aberrations within limits explain, those of C10 widened by
    `FOCUS_ERROR_RAD`.

    Args:
        units: Å that the model's coefficients are given in, `(terms,)`.
        starts: Of the fits, `(n, terms)`; those beyond the limits are moved to them.
    """
    bounds = limits.bounds() / units[:, None]
    bounds[0] += -FOCUS_ERROR_RAD, FOCUS_ERROR_RAD
    within = np.unique(np.clip(starts, *bounds.T), axis=0)
    return max(explained for _, explained in _fits(model, within, bounds))


def phase_units(overlaps: DiskOverlaps) -> Floats:
    """Returns the coefficient of each of `TERMS` whose phase at the aperture's edge is 1 rad,
    `(terms,)`, Å.
    """
    order = np.array([int(next(iter(term))[1]) + 1 for term in TERMS])
    return np.asarray(
        wavelength_angstrom(overlaps.energy_ev) * order / (2 * np.pi * overlaps.radius**order)
    )


def _polar(terms: Floats) -> dict[str, float]:
    """Returns coefficients and azimuths, as `namsa.physics.optics` has them, from those of `TERMS`,
    Å.
    """
    focus, *others = (float(term) for term in terms)
    astigmatism = complex(*others[:2])
    coma = complex(*others[2:])
    return {
        "C10": focus,
        "C12": abs(astigmatism),
        "phi12": float(np.angle(astigmatism)) / 2,
        "C21": abs(coma),
        "phi21": float(np.angle(coma)),
    }
