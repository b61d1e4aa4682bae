"""The uncertainty of a refined density.

It has the error of the network's density and that of the columns, each by its weight, and a part of
the difference of both. The error of a column is the fit's: the inverse of the objective's
curvature, with the prior; and of the model: the elements of a column are not known, and potentials
of one number of electrons differ between elements.
"""

from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Floats
from namsa.base.pixels import PixelGrid
from namsa.inverse.column_model import ColumnDensity, ColumnValues
from namsa.inverse.scan_fit import Compared, ScanFit
from namsa.inverse.unknowns import POSITION_ANGSTROM

MODEL_ERROR = 0.06  # of the electrons of a column: elements, places along the beam
DISAGREEMENT = 0.5  # of the difference of both densities
CORRELATION = 0.7  # of the errors of both


class ColumnDeviations(NamedTuple):
    """Standard deviations of fitted columns."""

    yx: Floats  # along each axis, `(n, 2)`, Å
    electrons: Floats  # relative, `(n,)`


def column_errors(fit: ScanFit, state: Compared) -> ColumnDeviations:
    """Returns the errors of the columns of a fit: of its curvature, with the priors."""
    unknowns = fit.unknowns
    vector = state.state.vector
    point = fit.patterns(fit.coarse, vector, fit.every_position)
    curvature = fit.curvature(vector, point, state.state.divergence)
    by_places, by_electrons = unknowns.column_curvature(curvature, fit.coarse.columns.inside)
    return ColumnDeviations(
        POSITION_ANGSTROM / np.sqrt(by_places + 1),
        np.hypot(unknowns.log_electrons / np.sqrt(by_electrons + 1), MODEL_ERROR),
    )


def refined_error(
    density: Floats,  # the network's, `(sy, sx)`, e/Å²
    uncertainty: Floats,  # of it
    fitted: Floats,  # that of the columns
    weight: Floats,  # of the latter
    columns: ColumnDensity,
    values: ColumnValues,
    errors: ColumnDeviations,
    pixels: PixelGrid,  # of the density, Å from the first position that is used
) -> Floats:
    """Returns one standard deviation of the error of a refined density, `(sy, sx)`, e/Å²."""
    rows, row_columns = np.meshgrid(*pixels.coordinates(density.shape), indexing="ij")
    places = np.stack([rows.ravel(), row_columns.ravel()], axis=-1)
    of_fit = np.sqrt(_column_variance(columns, values, errors, places)).reshape(density.shape)
    of_network = (1 - weight) * uncertainty
    taken = weight * of_fit
    variance = of_network**2 + taken**2 + 2 * CORRELATION * of_network * taken
    return np.sqrt(variance + (DISAGREEMENT * weight * (fitted - density)) ** 2)


def _column_variance(
    columns: ColumnDensity, values: ColumnValues, errors: ColumnDeviations, places: Floats
) -> Floats:
    """Returns the variance of the columns' density at places `(m, 2)`, `(m,)`."""
    by_electrons = errors.electrons * values.electrons
    squares = values._replace(electrons=by_electrons)
    total = columns.squared_density(places, squares)
    for axis in range(2):
        step = np.zeros(2)
        step[axis] = float(np.mean(errors.yx[:, axis]))
        change = columns.density(places + step, values) - columns.density(places - step, values)
        total += (change / 2) ** 2
    return total
