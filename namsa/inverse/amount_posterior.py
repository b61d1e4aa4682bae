"""The amounts that agree with measured rings, with a network's own amount and with what is known.

Thermal displacements and the tilt of the specimen change the rings as the amount does. Both are
unknown within limits: simulated once each, and taken as linear in their squares.
"""

from typing import NamedTuple

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from namsa.base.arrays import Floats
from namsa.inverse.cell_patterns import AMOUNTS
from namsa.inverse.rings import ATOMS_ERROR, Known

# of a ring's sum, relative: so that stated errors of the scale hold for the columns of networks
MODEL_ERROR = 0.1
NO_FORMULA_ERROR = 0.2  # the same, if the elements are not known
NETWORK_ERROR = 0.2  # rms of the logarithm of the amount that is expected of a network
# times the displacement: the change of the rings is taken as proportional to its square
MORE_VIBRATION = 1.3
LARGEST_DEVIATE = 2.0  # of the displacement, and of the square of the tilt
# points of the posterior
_DENSITIES = 61
_AMOUNTS = 61
_VIBRATIONS = 9
_TILTS = 7


class Moments(NamedTuple):
    """Means and standard deviations over the posterior."""

    log_scale: float
    log_scale_error: float
    log_thickness: float  # of Å
    log_thickness_error: float
    vibration_angstrom: float
    misfit: float  # rms of the logarithm of simulated over measured rings where they agree best


class AmountPosterior(NamedTuple):
    """Simulated rings, from which the amounts that agree with measured ones follow."""

    log_densities: Floats  # logarithm of the mean electron densities, `(c,)`
    table: Floats  # logarithm of the rings, `(c, amounts, rings)`
    by_vibration: Floats  # what `MORE_VIBRATION` adds to it, `(amounts, rings)`
    by_tilt: Floats  # what a tilt of one standard deviation adds to it, `(amounts, rings)`

    def moments(self, measured: Floats, mean_density: float, known: Known) -> Moments:
        """Returns means and deviations over the posterior.

        All arrays have the axes density, amount, vibration and tilt.

        Args:
            measured: Logarithm of the rings, `(rings,)`.
            mean_density: e/Å².
            known: Prior knowledge of the specimen.
        """
        log_amounts = np.log(AMOUNTS)
        density = np.linspace(self.log_densities[0], self.log_densities[-1], _DENSITIES)
        amount = np.linspace(log_amounts[0], log_amounts[-1], _AMOUNTS)
        deviate = np.linspace(-LARGEST_DEVIATE, LARGEST_DEVIATE, _VIBRATIONS)
        squared_tilt = np.linspace(0, LARGEST_DEVIATE, _TILTS)
        spread = known.vibration_error_angstrom * deviate
        vibration = np.maximum(known.vibration_angstrom + spread, 0)

        model = self._rings(density, amount, vibration / known.vibration_angstrom, squared_tilt)
        square = ((model - measured) ** 2).sum(axis=-1)
        model_error = MODEL_ERROR if known.composition else NO_FORMULA_ERROR
        penalty = square / model_error**2
        of_amount = (amount[:, None, None] / NETWORK_ERROR) ** 2
        penalty += of_amount + deviate[:, None] ** 2 + squared_tilt
        log_thickness = np.log(mean_density) + amount - density[:, None]
        penalty += (_prior_deviate(density, log_thickness, known) ** 2)[..., None, None]

        weight = np.exp((penalty.min() - penalty) / 2)
        weight /= weight.sum()
        of_amounts = weight.sum(axis=(0, 2, 3))
        of_both = weight.sum(axis=(2, 3))
        log_scale = float(of_amounts @ amount)
        mean_log_thickness = float((of_both * log_thickness).sum())
        return Moments(
            log_scale=log_scale,
            log_scale_error=float(np.sqrt(of_amounts @ (amount - log_scale) ** 2)),
            log_thickness=mean_log_thickness,
            log_thickness_error=float(
                np.sqrt((of_both * (log_thickness - mean_log_thickness) ** 2).sum())
            ),
            vibration_angstrom=float(weight.sum(axis=(0, 1, 3)) @ vibration),
            misfit=float(np.sqrt(square.ravel()[penalty.argmin()] / len(measured))),
        )

    def _rings(
        self, density: Floats, amount: Floats, relative_vibration: Floats, squared_tilt: Floats
    ) -> Floats:
        """Returns the logarithm of the rings: `(densities, amounts, vibrations, tilts, rings)`."""
        log_amounts = np.log(AMOUNTS)
        interpolator = RegularGridInterpolator((self.log_densities, log_amounts), self.table)
        points = np.stack(np.meshgrid(density, amount, indexing="ij"), axis=-1)
        rings = interpolator(points)[:, :, None, None]
        by_vibration = _interpolated(amount, log_amounts, self.by_vibration)[:, None, None]
        by_tilt = _interpolated(amount, log_amounts, self.by_tilt)[:, None, None]
        of_vibration = (relative_vibration**2 - 1) / (MORE_VIBRATION**2 - 1)
        return np.asarray(
            rings + of_vibration[:, None, None] * by_vibration + squared_tilt[:, None] * by_tilt
        )


def _interpolated(x: Floats, known_x: Floats, values: Floats) -> Floats:
    """Returns the columns of values, `(known_x, rings)`, at other places, `(x, rings)`."""
    return np.stack([np.interp(x, known_x, column) for column in values.T], axis=-1)


def _prior_deviate(log_density: Floats, log_thickness: Floats, known: Known) -> Floats:
    """Returns the distance from what is known of the specimen, in standard deviations.

    That is its thickness or, without it, the density of solids.

    Args:
        log_density: `(densities,)`.
        log_thickness: `(densities, amounts)`.
    """
    if known.thickness_angstrom:
        return (log_thickness - np.log(known.thickness_angstrom)) / known.thickness_error
    return (log_density[:, None] - np.log(known.electrons_per_angstrom3)) / ATOMS_ERROR
