"""The provenance of a sample: the arguments of its simulation and the resulting geometry, as JSON types."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import ase
import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from namsa.crystals.sites import occupancies
from namsa.physics.detector import sampling_and_origin
from namsa.physics.grid import Grid
from namsa.physics.optics import wavelength_angstrom

_SOFTWARE = {name: version(name) for name in ("namsa", "numpy", "scipy")}
_DESCRIBED_SEPARATELY = ("atoms", "positions_angstrom", "backend", "sink", "on_progress")


def describe(
    arguments: Mapping[str, Any],
    grid: Grid,
    *,
    positions: npt.NDArray[np.float64],
    thickness_angstrom: float,
    slices: int,
    coherent_probes: int,
    backend: str,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Returns the provenance of a sample.

    Args:
        arguments: The arguments of `namsa.simulate` by name, with the engine and method that were chosen.
        grid: The sampling of the waves.
        positions: Probe positions (n, 2) as (y, x), Å.
        thickness_angstrom: Thickness of the specimen, Å.
        slices: Number of slices.
        coherent_probes: Coherent probes per position.
        backend: Name of the array module.
        warnings: The texts of the warnings.
    """
    wavelength = wavelength_angstrom(arguments["energy_ev"])
    pitch, origin = sampling_and_origin(grid, wavelength, arguments["detector"])
    return _settings(arguments) | {
        "grid_shape": list(grid.shape),
        "extent_angstrom": list(grid.extent_angstrom),
        "thickness_angstrom": thickness_angstrom,
        "slice_thickness_angstrom": thickness_angstrom / slices,
        "slices": slices,
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


def fingerprint(arguments: Mapping[str, Any], positions: npt.NDArray[np.float64], backend: str) -> str:
    """Returns a digest of everything that the bits of a simulation's patterns depend on.

    Args:
        arguments: The arguments of `namsa.simulate` by name, with the engine and method that were chosen.
        positions: Probe positions (n, 2) as (y, x), Å.
        backend: Name of the array module.
    """
    atoms: ase.Atoms = arguments["atoms"]
    text = json.dumps([_settings(arguments), backend, _SOFTWARE], sort_keys=True)
    digest = hashlib.sha256(text.encode())
    for array in (positions, np.asarray(atoms.cell), atoms.positions, atoms.numbers, occupancies(atoms)):
        digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that a provenance lists as they are, as JSON types."""
    return {name: _plain(value) for name, value in arguments.items() if name not in _DESCRIBED_SEPARATELY}


def _plain(value: Any) -> Any:
    """Returns a value as JSON types."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
