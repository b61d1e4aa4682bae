"""The provenance of a sample: the arguments of its simulation and the resulting geometry, as JSON types."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import ase
import numpy as np
from pydantic import BaseModel

from namsa.arrays import Floats
from namsa.crystals.sites import SITE_ARRAYS
from namsa.physics.detector import sampling_and_origin
from namsa.physics.grid import Grid
from namsa.physics.response import read_mtf
from namsa.version import __version__

_OPTIONAL = ("plasmons", "response", "charge_density")
_SOFTWARE = {"namsa": __version__, **{name: version(name) for name in ("numpy", "scipy")}}


def describe(
    # The settings by the names of the arguments of `namsa.simulate`, with the engine and method that were chosen.
    # Samples have them in this order.
    settings: Mapping[str, Any],
    grid: Grid,
    *,
    wavelength: float,  # electron wavelength, Å
    atoms: Mapping[str, int],  # number of atoms, and of snapshots if there are several, by name
    positions: Floats,  # probe positions (n, 2) as (y, x), Å
    thickness_angstrom: float,  # thickness of the specimen, Å
    slices: int,
    coherent_probes: int,  # coherent probes per position
    backend: str,  # name of the array module
    warnings: Sequence[str],  # the texts of the warnings
) -> dict[str, Any]:
    """Returns the provenance of a sample."""
    pitch, origin = sampling_and_origin(grid, wavelength, settings["detector"])
    return _given(_plain(settings)) | {
        "grid_shape": list(grid.shape),
        "extent_angstrom": list(grid.extent_angstrom),
        "thickness_angstrom": thickness_angstrom,
        "slice_thickness_angstrom": thickness_angstrom / slices,
        "slices": slices,
        **({} if settings.get("slice_thickness_angstrom") else {"slices_follow_layers": True}),
        **atoms,
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


def fingerprint(settings: Mapping[str, Any], snapshots: Sequence[ase.Atoms], positions: Floats, backend: str) -> str:
    """Returns a digest of everything that the bits of a simulation's patterns depend on.

    Of a file of the detector's modulation transfer it is the numbers that count.

    Args:
        snapshots: The specimen, with the thermal amplitudes of its atoms.
        positions: Probe positions (n, 2) as (y, x), Å.
    """
    text = json.dumps([_given(_plain(settings)), backend, _SOFTWARE], sort_keys=True)
    digest = hashlib.sha256(text.encode())
    response = settings["detector"].response if settings.get("detector") else None
    arrays = [positions, *(read_mtf(response.mtf_file) if response and response.mtf_file else ())]
    for atoms in snapshots:
        arrays += [np.asarray(atoms.cell), atoms.positions, atoms.numbers]
        arrays += [atoms.arrays.get(name, np.zeros(0)) for name in SITE_ARRAYS]
    for array in arrays:
        digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Returns settings without those of `_OPTIONAL` that are not given: the provenance is as it was before them."""
    return {name: value for name, value in values.items() if not (name in _OPTIONAL and value is None)}


def _plain(value: Any) -> Any:
    """Returns a value as JSON types."""
    if isinstance(value, BaseModel):
        return _given(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
