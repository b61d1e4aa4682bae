"""The density of fitted columns, with what they left of the density that a fit began with."""

import numpy as np
from scipy.ndimage import gaussian_filter

from namsa.base.arrays import Floats
from namsa.inverse.column_model import ColumnDensity, ColumnValues
from namsa.inverse.scan_model import ScanModel
from namsa.inverse.unknowns import State

SMOOTH_ANGSTROM = 2.0  # over which what columns leave is compared with the uncertainty


def fitted_density(
    density: Floats,
    uncertainty: Floats | None,
    columns: ColumnDensity,  # as they were found
    state: State,
    scan: ScanModel,
    edges_angstrom: Floats,  # distance of the scan's first position from the first that is used
) -> Floats:
    """Returns the density of the columns, and of what they left as much as is significant.

    That is what exceeds the stated uncertainty.
    """
    rows, row_columns = np.indices(density.shape)
    indices = np.stack([rows, row_columns], axis=-1).reshape(-1, 2)
    stated = indices * np.array(scan.step_angstrom) - edges_angstrom
    positions = scan.moved(stated + scan.first, state.microscope) - scan.first

    still = np.zeros(len(columns.numbers))
    density_of_columns = columns.density(stated, ColumnValues(columns.yx, columns.electrons, still))
    left = density - density_of_columns.reshape(density.shape)
    if uncertainty is not None:
        left = left * _significance(left, uncertainty, scan.step_angstrom)
    amount = state.columns.electrons.sum() / columns.electrons.sum()
    return columns.density(positions, state.columns).reshape(density.shape) + amount * left


def _significance(image: Floats, uncertainty: Floats, step_angstrom: tuple[float, float]) -> Floats:
    """Returns the fraction of an image's power beyond that of its uncertainty, `(ny, nx)`."""
    width = np.divide(SMOOTH_ANGSTROM, step_angstrom)
    power = gaussian_filter(image**2, width, mode="reflect")
    noise = gaussian_filter(uncertainty**2, width, mode="reflect")
    return np.clip(1 - noise / np.maximum(power, 1e-30), 0, 1)
