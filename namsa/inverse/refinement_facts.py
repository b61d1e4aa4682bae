"""The facts about a refinement, as a result's file holds them."""

from typing import NotRequired, TypedDict

import numpy as np

from namsa.base.arrays import Floats
from namsa.inverse.column_model import ColumnDensity
from namsa.inverse.unknowns import State
from namsa.physics.coherence import FWHM


class FittedNumbers(TypedDict):
    """The fitted lens, source, thickness, tilt and columns as a result's file holds them."""

    C10: float  # Å, as the following coefficients
    C12: float
    phi12: float  # azimuth, rad
    C21: float
    phi21: float
    source_size_angstrom: float  # full width at half maximum
    thickness_angstrom: float
    tilt_mrad: list[float]  # (y, x)
    scan_change: list[list[float]]  # affine change of the scan about its middle, `(2, 2)`
    displacement_angstrom: dict[str, float]  # rms thermal displacement, by atomic number
    amount: float  # electrons of the columns over those of the density
    atomic_columns: int
    pairs: int  # maxima of the density that are taken for two columns each
    column_yx_angstrom: list[list[float]]  # from the scan's first position
    column_electrons: list[float]


class RefinementFacts(FittedNumbers):
    """The facts about a refinement, as a result's file holds them.

    Residuals and divergences are those of the positions that are kept out.
    """

    steps: int  # that the result follows from; 0 where it is the density as it was
    steps_tried: int
    left_out_at_edges: list[int]  # positions (y, x)
    kept_out_residual_before: float  # after the fit of what all positions share
    kept_out_divergence_before: float
    independent_share: float  # of the pixels
    # absent without a fit of columns
    kept_out_residual: NotRequired[float]
    kept_out_divergence: NotRequired[float]
    gain_of_columns: NotRequired[float]
    taken: NotRequired[float]  # mean share of the columns' change that is taken


def fitted_numbers(columns: ColumnDensity, state: State, edges_angstrom: Floats) -> FittedNumbers:
    """Returns the fitted numbers as a result's file holds them: Å, rad, mrad.

    Columns' places begin at the scan's first position.
    """
    microscope = state.microscope
    c10, c12_x, c12_y, c21_x, c21_y = microscope.lens.tolist()
    displacements = {}
    for atomic_number, squared in zip(columns.numbers, state.columns.displacements, strict=True):
        displacements[str(atomic_number)] = float(np.sqrt(squared))
    return {
        "C10": c10,
        "C12": float(np.hypot(c12_x, c12_y)),
        "phi12": float(np.arctan2(c12_y, c12_x) / 2),
        "C21": float(np.hypot(c21_x, c21_y)),
        "phi21": float(np.arctan2(c21_y, c21_x)),
        "source_size_angstrom": float(FWHM * np.sqrt(max(microscope.source, 0.0))),
        "thickness_angstrom": microscope.thickness,
        "tilt_mrad": (1e3 * microscope.tilt).tolist(),
        "scan_change": microscope.scan_change.tolist(),
        "displacement_angstrom": displacements,
        "amount": float(state.columns.electrons.sum() / columns.electrons.sum()),
        "atomic_columns": len(columns.electrons),
        "pairs": columns.pairs,
        "column_yx_angstrom": np.round(state.columns.yx + edges_angstrom, 4).tolist(),
        "column_electrons": np.round(state.columns.electrons, 3).tolist(),
    }
