"""What a sample says of itself: every argument it was made with, and the geometry that follows; JSON types only."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from namsa.config.instrument import Detector
from namsa.physics.detector import sampling_and_origin
from namsa.physics.grid import Grid

_SOFTWARE = {name: version(name) for name in ("namsa", "numpy", "scipy")}
_TOLD_OTHERWISE = ("atoms", "positions_angstrom", "backend", "on_progress")


def describe(
    arguments: Mapping[str, Any],
    grid: Grid,
    wavelength: float,
    detector: Detector | None,
    positions: npt.NDArray[np.float64],
    thickness_angstrom: float,
    n_slices: int,
    coherent_probes: int,
    backend: str,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The provenance of what `namsa.simulate` made of its `arguments`, by name."""
    pitch, origin = sampling_and_origin(grid, wavelength, detector)
    settings = {name: _plain(value) for name, value in arguments.items() if name not in _TOLD_OTHERWISE}
    return settings | {
        "grid_shape": list(grid.shape),
        "extent_angstrom": list(grid.extent_angstrom),
        "thickness_angstrom": thickness_angstrom,
        "slice_thickness_angstrom": thickness_angstrom / n_slices,
        "slices": n_slices,
        "atoms": len(arguments["atoms"]),
        "coherent_probes": coherent_probes,
        "positions_angstrom": positions.tolist(),
        "detector_sampling_mrad": list(pitch),
        "detector_origin_mrad": list(origin),
        "density_sampling_angstrom": list(grid.sampling_angstrom),
        "density_origin_angstrom": [0.0, 0.0],
        "backend": backend,
        "warnings": list(warnings),
        "software": dict(_SOFTWARE),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
