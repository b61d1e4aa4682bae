"""The description of one simulation: one frozen tree of the configuration's sections.

`namsa.simulate`, `namsa.scatter` and `namsa.check_convergence` make it of their keyword arguments,
a dataset of its configuration and an entry. Everything inside passes it on, and a sample's
provenance is its serialisation (`namsa.setup.provenance`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy.typing as npt

from namsa.base.errors import InputError
from namsa.config.instrument import Detector, Microscope, Scan
from namsa.config.numerics import Simulation
from namsa.config.response import Plasmons
from namsa.config.specimen import FrozenPhonons
from namsa.io.charge_density import ChargeDensity
from namsa.setup import checks


@dataclass(frozen=True)
class SimulationSettings:
    """Settings that decide a sample besides the atoms."""

    # Energy, lens, tilts and coherence. The rms focal spread is `focal_spread_angstrom`.
    microscope: Microscope
    simulation: Simulation  # numerical settings, of which "auto" leaves some to the program
    judged: bool = True  # whether the accuracy judges pixels and configurations that are given
    band_fraction: float | None = None  # band limit / Nyquist frequency; `None`: as the grid needs
    # Largest angle along y and x that the accuracy is for, mrad; `None`: that of the detector.
    reach_mrad: float | None = None
    frozen_phonons: FrozenPhonons | None = None
    plasmons: Plasmons | None = None
    charge_density: ChargeDensity | None = None
    detector: Detector | None = None  # `None` leaves the patterns on the reciprocal grid
    scan: Scan | tuple[int, int] | None = None  # the probe positions, or the next two
    positions_angstrom: npt.ArrayLike | None = None  # (n, 2) as (y, x), Å
    scan_shape: tuple[int, int] | None = None  # rows and columns, if the positions are a raster
    depth_bins: int = 1  # bins of the density along the beam
    waves: bool = False  # whether the sample has the exit waves
    seed: int = 0  # of thermal displacements and of the detector's noise


_OWN = {field.name for field in fields(SimulationSettings)} - {"microscope", "simulation"}
_NUMERICAL = {*Simulation.model_fields, "sampling"} - {"sampling_angstrom"}


def settings_of(arguments: Mapping[str, object]) -> SimulationSettings:
    """Sorts keyword arguments of `namsa.simulate` into the sections that they belong to.

    Values are taken as they are: `namsa.setup.checks` checks them where they are used, with
    messages that name the arguments.

    Args:
        arguments: Values by the names of the arguments; those that are absent have their defaults.

    Raises:
        InputError: If `grid_shape` and `sampling` both give the pixels.
        TypeError: If there is no such argument.
    """
    microscope: dict[str, Any] = {}
    numerical: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in Microscope.model_fields:
            microscope[name] = value
        elif name in _NUMERICAL:
            numerical[name] = value
        elif name in _OWN:
            others[name] = value
        else:
            raise TypeError(f"simulate() got an unexpected keyword argument {name!r}")
    microscope["aberrations"] = dict(microscope.get("aberrations") or {})
    return SimulationSettings(
        microscope=Microscope.model_construct(**microscope),
        simulation=_numerical_section(numerical),
        judged=arguments.get("accuracy", True) is not None,
        **others,
    )


def _numerical_section(arguments: dict[str, Any]) -> Simulation:
    """Returns the section of the numerical arguments, of which `None` means "auto"."""
    section = {name: value for name, value in arguments.items() if value is not None}
    sampling = section.pop("sampling", None)
    if sampling is not None:
        if "grid_shape" in section:
            raise InputError("grid_shape and sampling are mutually exclusive: give one of them")
        checks.check_ranges(sampling=sampling)
        section["sampling_angstrom"] = sampling
    elif "grid_shape" not in section:
        section["sampling_angstrom"] = "auto"
    section.setdefault("slice_thickness_angstrom", "auto")
    return Simulation.model_construct(**section)
