"""The choice of pixels, slices and thermal configurations, for simulations and datasets alike.

Each is given in the section `simulation` (and `frozen_phonons`) of a configuration, or "auto"
leaves it to the accuracy. The models of the errors are in `namsa.sampling.resolution` and
`namsa.sampling.thermal_average`.
"""

from typing import NamedTuple

import ase
import numpy as np

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.config.bounds import DEFAULT_ACCURACY, LARGEST_EXTENT
from namsa.config.instrument import Detector
from namsa.config.numerics import Simulation
from namsa.config.specimen import FrozenPhonons
from namsa.crystals.displacements import amplitudes
from namsa.physics import detector as detectors
from namsa.physics import slice_plan, specimen
from namsa.physics.grid import CONVENTIONAL_BAND, Grid, fast_shape
from namsa.physics.optics import wavelength_angstrom
from namsa.physics.potential import AtomList
from namsa.physics.slice_plan import SlicePlan
from namsa.sampling import resolution, thermal_average
from namsa.sampling.resolution import ColumnStrength, Illumination

# Thickness of the slices of the finite projection that nuclei are in, for an accuracy of 1 %: of a
# probe on a column of gold, 0.3 Å are wrong by 9 %.
_FINITE_SLICE_ANGSTROM = 0.01
# Their thickness goes by this power of how many times finer slices are: the error falls slower than
# that of layers which share a slice, and thinner slices about the nuclei are only a few more.
_FINITE_POWER = 2
# Of crystals whose atoms are not placed yet, for estimates.
_USUAL_PIXEL_ANGSTROM = 0.08
_USUAL_SLICE_ANGSTROM = 1.8
_USUAL_FINITE_EXTENTS = 0.5  # thickness of slices of the finite projection


class Requirement(NamedTuple):
    """Conditions for which pixels, slices and thermal configurations are chosen."""

    energy_ev: float  # electron energy, eV
    largest_angle_mrad: float  # largest angle of a plane wave of the probe with the axis, mrad
    # Largest angle along y and x that is recorded, mrad; `None`: `resolution.DEFAULT_REACH_MRAD`.
    recorded_mrad: float | None
    accuracy: float  # relative L2 error of all patterns
    beam_tilt_mrad: float = 0.0  # tilt of the beam, which is part of the largest angle, mrad
    specimen_tilt_mrad: tuple[float, float] = (0.0, 0.0)  # tilt (y, x) of the specimen, mrad
    divides_atoms: bool = False  # whether slices are thinner than atoms

    @property
    def reach_mrad(self) -> float:
        """Largest angle of interest along y and x, mrad."""
        return resolution.reach_of_interest(self.recorded_mrad, self.largest_angle_mrad)

    @property
    def beam(self) -> Illumination:
        """The beam, as pixels and slices depend on it."""
        return Illumination(
            self.energy_ev,
            self.largest_angle_mrad - self.beam_tilt_mrad,
            self.beam_tilt_mrad,
            float(np.hypot(*self.specimen_tilt_mrad)),
        )

    @property
    def layer_extent_angstrom(self) -> float:
        """Largest distance along the beam of atoms that may share a slice, Å."""
        return resolution.layer_extent(self.beam, self.reach_mrad, self.accuracy)

    def columns(self, atoms: AtomList, extent_angstrom: tuple[float, float]) -> ColumnStrength:
        """Returns how strongly atoms scatter in a cell of sides (y, x), Å."""
        return resolution.measure_columns(atoms, extent_angstrom, self.specimen_tilt_mrad)

    def pixel_angstrom(self, columns: ColumnStrength) -> float:
        """Returns the largest pixel that suffices, Å, if the band is the Nyquist frequency."""
        pixel = resolution.largest_pixel(columns, self.beam, self.reach_mrad, self.accuracy)
        return pixel / self._pixel_factor(columns)

    def expected_error(self, columns: ColumnStrength, grid: Grid) -> float:
        """Returns the relative L2 error that patterns on a grid are expected to have."""
        factor = self._pixel_factor(columns)
        return resolution.expected_error(columns, self.beam, grid, factor)

    def _pixel_factor(self, columns: ColumnStrength) -> float:
        """Returns how many times as small as with slices of whole atoms pixels must be."""
        if not self.divides_atoms:
            return 1.0
        return resolution.divided_atoms_factor(columns, self.beam)


def recorded_mrad(
    detector: Detector | None, extent_angstrom: tuple[float, float], energy_ev: float
) -> float | None:
    """Returns the largest angle along y and x that is recorded, mrad; `None` if nothing limits it.

    Args:
        extent_angstrom: Sides (y, x) of the cell, whose reciprocal pixels a detector may count in.
    """
    if detector is None:
        return None
    return detectors.reach_mrad(detector, extent_angstrom, wavelength_angstrom(energy_ev))


def choose_grid(
    required: Requirement,
    simulation: Simulation,
    extent_angstrom: tuple[float, float],
    columns: ColumnStrength | None,
    band_fraction: float | None = None,
) -> Grid:
    """Returns the pixels across the beam, as given or as the accuracy needs.

    Args:
        extent_angstrom: Sides (y, x) of the cell, Å.
        columns: How strongly the specimen scatters. `None`, before its atoms are placed, takes
            pixels of a usual size where the accuracy would choose them.
        band_fraction: The band limit as a fraction of the Nyquist frequency. By default 2/3 of
            pixels that are given, and 1 of those that are chosen.

    Raises:
        InputError: If there are too few or too many pixels.
    """
    if simulation.grid_shape is not None:
        ny, nx = simulation.grid_shape
        _check_pixels((ny, nx))
        return Grid((int(ny), int(nx)), extent_angstrom, band_fraction or CONVENTIONAL_BAND)
    if simulation.sampling_angstrom == "auto":
        pixel = _USUAL_PIXEL_ANGSTROM if columns is None else required.pixel_angstrom(columns)
        band = 1.0
    else:
        assert simulation.sampling_angstrom is not None
        pixel = simulation.sampling_angstrom
        band = CONVENTIONAL_BAND
    shape = fast_shape(extent_angstrom, pixel, simulation.interpolation)
    if max(shape) > LARGEST_EXTENT:
        ly, lx = extent_angstrom
        needs = ""
        remedy = "use larger pixels or a smaller cell"
        if simulation.sampling_angstrom == "auto":
            needs = (
                f", which an accuracy of {required.accuracy:.2%} within {required.reach_mrad:.4g} "
                "mrad needs,"
            )
            remedy = "use a smaller cell or a smaller detector, or give the pixels (sampling)"
        raise InputError(
            f"pixels of {pixel:g} Å{needs} make a grid of {shape[0]}×{shape[1]} over "
            f"{ly:.4g}×{lx:.4g} Å; {remedy}, for {LARGEST_EXTENT} pixels or fewer along each axis"
        )
    _check_pixels(shape)
    return Grid(shape, extent_angstrom, band_fraction or band)


def choose_slices(
    required: Requirement,
    simulation: Simulation,
    z: Floats,
    depth_angstrom: float,
    finer: float = 1.0,
) -> SlicePlan:
    """Returns where a specimen is cut: at its layers of atoms, or into equal slices.

    Args:
        z: Heights of the atoms at rest (n,), Å.
        depth_angstrom: Thickness of the specimen, Å.
        finer: How many times chosen slices are thinner than the accuracy needs.

    Raises:
        InputError: If there are too many slices.
    """
    extent = required.layer_extent_angstrom / finer
    if simulation.divides_atoms:
        tight = min(1.0, required.accuracy / DEFAULT_ACCURACY)
        thinnest = _FINITE_SLICE_ANGSTROM * tight / finer**_FINITE_POWER
        return slice_plan.centred_slices(z, depth_angstrom, extent, thinnest)
    if simulation.follows_layers:
        return slice_plan.layer_slices(z, depth_angstrom, extent)
    return slice_plan.equal_slices(z, depth_angstrom, equal_thickness(required, simulation))


def equal_thickness(required: Requirement, simulation: Simulation) -> float:
    """Returns the largest thickness of equal slices, Å, as given or as the accuracy needs.

    Where slices follow layers that are not known yet, it is a usual distance of layers.
    """
    if simulation.slice_thickness_angstrom != "auto":
        return simulation.slice_thickness_angstrom
    if simulation.projection == "infinite":
        return _USUAL_SLICE_ANGSTROM
    return _USUAL_FINITE_EXTENTS * required.layer_extent_angstrom


class ThermalChoice(NamedTuple):
    """Thermal displacements with the number of their configurations."""

    frozen_phonons: FrozenPhonons | None
    statistical_error: float  # relative L2 error of the mean over them, which are random


def choose_configurations(
    required: Requirement, phonons: FrozenPhonons | None, atoms: ase.Atoms, snapshots: int
) -> ThermalChoice:
    """Returns displacements with the number of configurations of each snapshot, as given or "auto".

    Args:
        atoms: The specimen, or the first of its snapshots.
        snapshots: Number of snapshots, each of which is displaced as often.

    Raises:
        InputError: If an atom has no displacement, or the accuracy needs too many configurations.
    """
    if phonons is None:
        return ThermalChoice(None, 0.0)
    deviation = thermal_deviation(atoms, phonons, required.energy_ev, required.largest_angle_mrad)
    if phonons.configurations == "auto":
        needed = thermal_average.configurations_for(deviation, required.accuracy)
        phonons = phonons.model_copy(update={"configurations": -(-needed // snapshots)})
    count = number_of_configurations(phonons) * snapshots
    return ThermalChoice(phonons, deviation / count**0.5)


def thermal_deviation(
    atoms: ase.Atoms, phonons: FrozenPhonons, energy_ev: float, semiangle_mrad: float
) -> float:
    """Returns the relative rms deviation of one configuration's patterns from their mean.

    Raises:
        InputError: If an atom has no displacement.
    """
    rms = amplitudes(atoms, phonons.displacement_angstrom())
    lx, ly, _ = (float(length) for length in atoms.cell.lengths())
    return thermal_average.relative_deviation(
        specimen.atom_list(atoms), rms, (ly, lx), energy_ev, semiangle_mrad
    )


def number_of_configurations(phonons: FrozenPhonons | None) -> int:
    """Returns the number of thermal configurations of each snapshot, which is chosen already."""
    if phonons is None:
        return 1
    assert phonons.configurations != "auto"
    return phonons.configurations


def _check_pixels(shape: tuple[int, int]) -> None:
    """Raises InputError if a grid has too few or too many pixels (ny, nx)."""
    if min(shape) < 2:
        raise InputError(
            f"grid_shape is {tuple(shape)}; give two pixels (y, x) or more along each axis"
        )
    if max(shape) > LARGEST_EXTENT:
        raise InputError(
            f"grid_shape is {tuple(shape)}; give {LARGEST_EXTENT} pixels or fewer along each axis"
        )
