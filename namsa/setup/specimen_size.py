"""The specimen of a simulation: as it is, or a crystal that is oriented and repeated to the size
that the probe and the detector need.
"""

import numpy as np

from namsa.base.errors import InputError
from namsa.crystals.crystal_source import SpecimenSource
from namsa.crystals.specimen_source import (
    SpecimenAtoms,
    SpecimenOrientation,
    oriented_specimen,
    specimen_of,
)
from namsa.physics import optics
from namsa.setup import checks
from namsa.setup.settings import SimulationSettings

LATERAL_ANGSTROM = 15.0  # smallest extent of a supercell
_SPACE = 1.1  # room for the probe, by its diameter


def specimen_of_settings(
    source: SpecimenSource,
    settings: SimulationSettings,
    zone_axis: tuple[int, int, int] | None,
    thickness_angstrom: float | None,
    lateral_angstrom: tuple[float, float] | None,
) -> SpecimenAtoms:
    """Returns the specimen that `namsa.simulate` is asked for.

    Args:
        source: The specimen, or the crystal that it is made of.
        zone_axis: Direction [uvw] along the beam; `None` without a thickness takes `source` as it
            is.
        thickness_angstrom: Thickness of the supercell, Å.
        lateral_angstrom: Smallest extent (y, x) of the supercell, Å; by default that of
            `needed_lateral_angstrom`.

    Raises:
        InputError: If a size is given without what it belongs to, or there is no such specimen.
    """
    if zone_axis is None and thickness_angstrom is None:
        if lateral_angstrom is not None:
            raise InputError(
                f"lateral_angstrom is {lateral_angstrom}, without zone_axis and "
                "thickness_angstrom: give these, or leave it out to simulate the atoms as they are"
            )
        return specimen_of(source)
    if thickness_angstrom is None:
        raise InputError(
            f"zone_axis is {zone_axis}, without thickness_angstrom: give the thickness of the "
            "supercell in Å"
        )
    if not isinstance(thickness_angstrom, (int, float, np.integer, np.floating)):
        raise InputError(f"thickness_angstrom is {thickness_angstrom!r}: give a number, in Å")
    if lateral_angstrom is None:
        side = needed_lateral_angstrom(settings, thickness_angstrom)
        lateral_angstrom = (side, side)
    return oriented_specimen(
        source, SpecimenOrientation(zone_axis or (0, 0, 1), thickness_angstrom, lateral_angstrom)
    )


def needed_lateral_angstrom(settings: SimulationSettings, thickness_angstrom: float) -> float:
    """Returns the extent of a cell that holds the probe and resolves the detector's pixels, Å.

    Args:
        thickness_angstrom: Thickness of the specimen, Å, over which the probe spreads.

    Raises:
        InputError: If a setting of the microscope is out of its range.
    """
    microscope = settings.microscope
    checks.check_ranges(energy_ev=microscope.energy_ev, semiangle_mrad=microscope.semiangle_mrad)
    optics.check_aberrations(microscope.aberrations)
    beam = optics.BeamSettings(
        microscope.energy_ev, microscope.semiangle_mrad, microscope.aberrations
    )
    side = LATERAL_ANGSTROM
    if microscope.semiangle_mrad > 1e3 * beam.wavelength / LATERAL_ANGSTROM:
        side = max(side, _SPACE * optics.probe_diameter_angstrom(beam, thickness_angstrom))
    if settings.detector and settings.detector.pixel_mrad:
        side = max(side, 1e3 * beam.wavelength / settings.detector.pixel_mrad)
    return float(np.ceil(side * 100) / 100)
