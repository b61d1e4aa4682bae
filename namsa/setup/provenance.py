"""The provenance of a sample: the arguments of its simulation and the resulting geometry, as JSON
types.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import ase
import numpy as np
from pydantic import BaseModel

from namsa.base.arrays import Floats
from namsa.base.provenance_values import Provenance
from namsa.base.version import __version__
from namsa.crystals.sites import SITE_ARRAYS
from namsa.physics.detector import sampling_and_origin
from namsa.physics.grid import CONVENTIONAL_BAND, Grid
from namsa.physics.response import read_mtf
from namsa.setup.settings import SimulationSettings

_OPTIONAL = ("plasmons", "response", "charge_density", "reach_mrad")
_SOFTWARE = {"namsa": __version__, **{name: version(name) for name in ("numpy", "scipy")}}

# The arguments of a simulation in the order in which samples have them.
_ORDER = (
    "energy_ev",
    "semiangle_mrad",
    "grid_shape",
    "slice_thickness_angstrom",
    "accuracy",
    "reach_mrad",
    "band_fraction",
    "aberrations",
    "aperture_edge",
    "form_factors",
    "frozen_phonons",
    "precision",
    "engine",
    "method",
    "seed",
    "detector",
    "plasmons",
    "beam_tilt_mrad",
    "specimen_tilt_mrad",
    "source_size_angstrom",
    "source_points",
    "focal_spread_angstrom",
    "focal_points",
    "projection",
    "propagator",
    "interpolation",
    "charge_density",
    "depth_bins",
    "scan_shape",
)
# Samples of one scattering have those of the scattering first.
_ORDER_OF_SCATTERING = (
    "energy_ev",
    "grid_shape",
    "slice_thickness_angstrom",
    "accuracy",
    "reach_mrad",
    "band_fraction",
    "form_factors",
    "frozen_phonons",
    "precision",
    "engine",
    "specimen_tilt_mrad",
    "projection",
    "propagator",
    "charge_density",
    "semiangle_mrad",
    "aberrations",
    "aperture_edge",
    "beam_tilt_mrad",
    "source_size_angstrom",
    "source_points",
    "focal_spread_angstrom",
    "focal_points",
    "detector",
    "plasmons",
    "scan_shape",
    "seed",
    "method",
)


def serialise(
    settings: SimulationSettings,
    grid: Grid,
    bonding: Mapping[str, object] | None,
    *,
    of_scattering: bool = False,
) -> Provenance:
    """Returns the description of a simulation by the names of the arguments of `namsa.simulate`.

    What the program chose is in it where it did, and what has its default in all older samples is
    left out.

    Args:
        settings: The simulation, with the engine, the method and the number of thermal
            configurations that were chosen.
        grid: The pixels that were chosen.
        bonding: The description of the charge density, if there is one.
        of_scattering: Whether the sample is one of a `namsa.Scattering`.
    """
    simulation = settings.simulation
    values = vars(settings.microscope) | vars(simulation) | vars(settings)
    values["grid_shape"] = grid.shape
    values["band_fraction"] = grid.band
    values["charge_density"] = bonding
    if simulation.slice_thickness_angstrom == "auto":
        values["slice_thickness_angstrom"] = None
    if not settings.judged:
        values["accuracy"] = None
    absent = set()
    if simulation.sampling_angstrom != "auto":
        absent.add("accuracy")
    if grid.band == CONVENTIONAL_BAND:
        absent.add("band_fraction")
    if simulation.propagator == "paraxial":
        absent.add("propagator")
    if simulation.interpolation == 1:
        absent.add("interpolation")
    if settings.depth_bins == 1:
        absent.add("depth_bins")
    order = _ORDER_OF_SCATTERING if of_scattering else _ORDER
    return {name: values[name] for name in order if name not in absent}


def describe(
    settings: Provenance,  # what `serialise` returns
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
    # What is known of the error of chosen pixels and slices; `None` of given ones.
    evidence: Mapping[str, object] | None = None,
) -> Provenance:
    """Returns the provenance of a sample."""
    pitch, origin = sampling_and_origin(grid, wavelength, settings["detector"])
    provenance = _given(plain(settings)) | {
        "grid_shape": list(grid.shape),
        "extent_angstrom": list(grid.extent_angstrom),
        "thickness_angstrom": thickness_angstrom,
        "slice_thickness_angstrom": thickness_angstrom / slices,
        "slices": slices,
    }
    if settings["slice_thickness_angstrom"] is None:
        provenance["slices_follow_layers"] = True
    if evidence is not None:
        provenance["accuracy_evidence"] = dict(evidence)
    return provenance | {
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


def fingerprint(
    settings: Provenance, snapshots: Sequence[ase.Atoms], positions: Floats, backend: str
) -> str:
    """Returns a digest of everything that the bits of a simulation's patterns depend on.

    Of a file of the detector's modulation transfer it is the numbers that count.

    Args:
        snapshots: The specimen, with the thermal amplitudes of its atoms.
        positions: Probe positions (n, 2) as (y, x), Å.
    """
    text = json.dumps([_given(plain(settings)), backend, _SOFTWARE], sort_keys=True)
    digest = hashlib.sha256(text.encode())
    arrays = [positions]
    response = settings["detector"].response if settings["detector"] else None
    if response and response.mtf_file:
        arrays += read_mtf(response.mtf_file)
    for atoms in snapshots:
        arrays += [np.asarray(atoms.cell), atoms.positions, atoms.numbers]
        for name in SITE_ARRAYS:
            arrays.append(atoms.arrays.get(name, np.zeros(0)))
    for array in arrays:
        digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _given(values: Provenance) -> Provenance:
    """Returns settings without those of `_OPTIONAL` that are not given.

    Samples that were made before these settings came have none of them either.
    """
    given = dict(values)
    for name in _OPTIONAL:
        if name in given and given[name] is None:
            del given[name]
    return given


def plain(value: object) -> Any:
    """Returns a value as JSON types."""
    if isinstance(value, BaseModel):
        return _given(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value
