"""A sample: patterns with the density and potential of their specimen, and where they come from."""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt


@dataclass(frozen=True)
class Sample:
    """A (patterns, density) pair with its provenance; all arrays on the host.

    cbed: (n, dy, dx), the fraction of the incident beam in each pixel, zero frequency in the centre
    density: (ty, tx), projected electron density, e/Å²
    projected_potential: (ny, nx), V·Å
    provenance: everything needed to make the sample again, JSON types only
    """

    cbed: npt.NDArray[Any]
    density: npt.NDArray[Any]
    projected_potential: npt.NDArray[Any]
    provenance: dict[str, Any]
