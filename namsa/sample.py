"""A sample: diffraction patterns, the density and potential of their specimen, and their provenance."""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt


@dataclass(frozen=True)
class Sample:
    """One pair of diffraction patterns and projected density, with its provenance. All arrays are NumPy arrays.

    Attributes:
        cbed: Fraction of the incident beam in each detector pixel, `(n, dy, dx)`, zero frequency in the centre.
        density: Projected electron density, `(ty, tx)`, e/Å².
        projected_potential: Projected potential, `(ny, nx)`, V·Å.
        provenance: Everything that is needed to simulate the sample again, in JSON types.
    """

    cbed: npt.NDArray[Any]
    density: npt.NDArray[Any]
    projected_potential: npt.NDArray[Any]
    provenance: dict[str, Any]
