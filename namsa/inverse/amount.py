"""Amount of a density, and thickness of the specimen, by the mean pattern of its scan.

A network sees where atoms are; how many electrons they have it knows less well. The pattern that is
averaged over all positions (PACBED) says how strongly the specimen scatters. Columns of atoms are
made of the density (`namsa.inverse.columns`) and simulated over two numbers: the mean electron
density and the factor of the projected density, the amount. The thickness follows from both. What
is compared are sums over rings outside of the bright disk. The disk itself says little about the
amount, and depends on what the model leaves out. The result is the mean over what agrees with the
rings, with the network's own amount and with what is known (`namsa.inverse.amount_posterior`).
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid
from namsa.inverse.amount_posterior import MORE_VIBRATION, AmountPosterior, Moments
from namsa.inverse.cell_patterns import PLANE_WAVES, simulate
from namsa.inverse.repeating_cell import RepeatingCell, find_cells
from namsa.inverse.rings import NOTHING_KNOWN, Known, RingMeasurement

# mrad; of the specimen, to whose square the change of the rings is taken as proportional
TILT_MRAD = 4.0
DETERMINED = 0.15  # error of the amount's logarithm below which the rings determine it
# Errors of the amount by which it differs clearly from the given one, and errors of a thickness by
# which the rings contradict it. With these, no specimen of docs/benchmarks/reconstruction.md gets
# worse, and the crystals on carbon, whose film was counted as thickness, are recognised.
SIGNIFICANT = 1.5
CONTRADICTED = 1.7
DENSITIES = np.geomspace(0.45, 2.2, 5)  # in units of the expected one
DENSITIES_OF_THICKNESS = np.geomspace(0.55, 1.8, 5)  # the same for a known thickness


class Amount(NamedTuple):
    """The amount of a density. Errors are standard deviations."""

    scale: float  # true density over the given one
    scale_error: float  # relative
    thickness_angstrom: float
    thickness_error: float  # relative
    vibration_angstrom: float
    misfit: float  # rms of the logarithm of simulated over measured rings where they agree best
    left: float  # of `Columns`
    determined: bool  # whether the rings narrow the amount to `DETERMINED`
    # What the rings say of the thickness without the given one, Å, and its relative error. `None`
    # if none was given.
    thickness_of_rings_angstrom: float | None = None
    thickness_of_rings_error: float | None = None
    # Distance of the given thickness from that, in standard deviations of both.
    thickness_deviation: float = 0.0

    @property
    def contradicts_thickness(self) -> bool:
        """Whether the rings contradict the given thickness."""
        return abs(self.thickness_deviation) > CONTRADICTED

    @property
    def changes_density(self) -> bool:
        """Whether the density is to be scaled: the rings determine its amount, which is clearly
        another than the given one, and they do not contradict the given thickness.
        """
        if not self.determined or self.contradicts_thickness:
            return False
        return abs(math.log(self.scale)) > SIGNIFICANT * self.scale_error

    def facts(self) -> dict[str, object]:
        """Returns the numbers as a result's file holds them."""
        verdicts = {"scaled": self.changes_density, "contradicted": self.contradicts_thickness}
        return self._asdict() | verdicts

    def line(self) -> str:
        """Returns the line about the amount."""
        if self.contradicts_thickness:
            return (
                f"pacbed: the rings contradict the given thickness: without it they say "
                f"{self.thickness_of_rings_angstrom:.0f} Å, ± "
                f"{100 * (self.thickness_of_rings_error or 0):.0f} %. A support or an amorphous "
                "layer is no part of a crystal's thickness; formula and thickness may be wrong. "
                "The density is not scaled"
            )
        text = (
            f"pacbed: the density is {self.scale:.2f} times the network's, ± "
            f"{100 * self.scale_error:.0f} %, and the specimen {self.thickness_angstrom:.0f} Å "
            f"thick, ± {100 * self.thickness_error:.0f} %; rings agree to {100 * self.misfit:.0f} %"
        )
        if not self.determined:
            return f"{text}. The rings do not determine the amount: the density is not scaled"
        if not self.changes_density:
            return f"{text}. That is no clear difference: the density is not scaled"
        return text


def fit_amount(
    density: Array,  # `(sy, sx)`, e/Å², on the positions of the scan; NaN where it is not known
    rings: Array,  # sums of the patterns over the rings, `(sy, sx, rings)`, fractions of the beam
    pixels: PixelGrid,  # of both, Å
    measurement: RingMeasurement,
    known: Known = NOTHING_KNOWN,
) -> Amount:
    """Fits amount and thickness.

    Raises:
        InputError: If the scan is too small or has no columns.
    """
    cells = find_cells(
        np.asarray(density, np.float64), np.asarray(rings, np.float64), pixels, measurement, known
    )
    measured = np.log(np.mean([cell.rings for cell in cells], axis=0))
    mean_density = float(np.mean([cell.density for cell in cells]))
    expected = known.electrons_per_angstrom3 * DENSITIES
    if known.thickness_angstrom:
        expected = mean_density / known.thickness_angstrom * DENSITIES_OF_THICKNESS
    posterior = _simulated_posterior(cells, expected, measured, measurement, known)
    moments = posterior.moments(measured, mean_density, known)
    amount = _amount(moments, float(np.mean([cell.left for cell in cells])))
    if known.thickness_angstrom is None:
        return amount
    free = posterior.moments(measured, mean_density, replace(known, thickness_angstrom=None))
    deviation = np.log(known.thickness_angstrom) - free.log_thickness
    return amount._replace(
        thickness_of_rings_angstrom=float(np.exp(free.log_thickness)),
        thickness_of_rings_error=free.log_thickness_error,
        thickness_deviation=float(
            deviation / np.hypot(free.log_thickness_error, known.thickness_error)
        ),
    )


def _simulated_posterior(
    cells: list[RepeatingCell],
    electron_densities: Floats,  # e/Å³
    measured: Floats,  # logarithms of the rings
    measurement: RingMeasurement,
    known: Known,
) -> AmountPosterior:
    """Simulates the rings for some densities, and their change with vibration and tilt.

    The changes are those at the density that agrees best.
    """

    def log_rings(electron_density: float, vibration: float, tilt_mrad: float = 0.0) -> Floats:
        waves = -(-PLANE_WAVES // len(cells))
        of_cells = [
            simulate(cell, electron_density, known, measurement, vibration, tilt_mrad, waves)
            for cell in cells
        ]
        return np.asarray(np.log(np.mean(of_cells, axis=0)))

    vibration = known.vibration_angstrom
    table = np.stack([log_rings(density, vibration) for density in electron_densities])
    misfits = ((table - measured) ** 2).sum(axis=-1).min(axis=-1)
    nearest = int(np.argmin(misfits))
    vibrating = log_rings(electron_densities[nearest], MORE_VIBRATION * vibration)
    tilted = log_rings(electron_densities[nearest], vibration, TILT_MRAD)
    return AmountPosterior(
        np.log(electron_densities), table, vibrating - table[nearest], tilted - table[nearest]
    )


def _amount(moments: Moments, left: float) -> Amount:
    """Returns the amount of a posterior."""
    return Amount(
        scale=float(np.exp(moments.log_scale)),
        scale_error=moments.log_scale_error,
        thickness_angstrom=float(np.exp(moments.log_thickness)),
        thickness_error=moments.log_thickness_error,
        vibration_angstrom=moments.vibration_angstrom,
        misfit=moments.misfit,
        left=left,
        determined=moments.log_scale_error < DETERMINED,
    )
