"""The counts that the time and the memory of a simulation follow from."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from namsa.engines import prism
from namsa.physics.backend import Backend
from namsa.physics.grid import Grid


@dataclass(frozen=True)
class SimulationCounts:
    """The counts of one specimen's simulation."""

    grid: Grid  # the grid across the beam
    work: prism.Work  # counts of slices, probes and plane waves
    configurations: int  # thermal configurations
    distinct_slices: int  # slices whose transmission is computed
    atoms: int  # atoms in the supercell
    elements: int  # elements in the crystal
    heaviest: int  # the crystal's largest atomic number
    precision: Literal["float32", "float64"]  # precision of waves and patterns
    backend: Backend  # the requested array module
    pattern_shape: tuple[int, int]  # pixels (dy, dx) of a pattern

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The waves' complex type."""
        return np.result_type(self.precision, np.complex64)
