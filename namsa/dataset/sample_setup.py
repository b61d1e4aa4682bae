"""What a sample's simulation needs to know before any atom is placed: derived once, from (configuration, entry).

The simulation of a sample (`simulate_entry`), the estimate of its time and size (`workload`) and the cost by which
ranks share a dataset (`entries`) follow from the same supercell, grid, positions and microscope.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from namsa.config.bounds import LARGEST_EXTENT
from namsa.config.instrument import Microscope, Simulation, Specimen
from namsa.config.simulation import SimulationConfig
from namsa.config.variation import VariedValues
from namsa.crystals.material import Material
from namsa.crystals.orient import CellFit, fit_cell
from namsa.crystals.supercell import Supercell, fill_cell
from namsa.dataset import scan
from namsa.dataset.entry import Entry
from namsa.errors import InputError
from namsa.memory import check_memory_for
from namsa.physics import coherence
from namsa.physics.coherence import Mode
from namsa.physics.grid import Grid, fast_shape
from namsa.physics.optics import wavelength_angstrom
from namsa.text import plural

Floats = npt.NDArray[np.float64]

_LENS_BYTES = 64  # per pixel of the grid: complex and real arrays in double precision
_MATRIX_BYTES = 32  # per element of a matrix from the grid to a detector that is as large, with its factors
_POSITION_BYTES = 100  # per position, with its copies

_DOSES = ("electrons_per_pattern", "dose_electrons_per_angstrom2")


@dataclass(frozen=True)
class SampleSetup:
    """The geometry and the microscope of one sample.

    Attributes:
        config: The configuration with the values of the microscope and the dose that are this entry's own.
        material: The crystal.
        fit: The supercell's sides, strain and number of atoms.
        grid: The simulation's grid across the beam.
        scan_axes: (y, x) coordinates of the scan's rows and columns, shapes (sy,) and (sx,), Å. `None` if positions
            were read from a file.
        positions_angstrom: Probe positions (n, 2) as (y, x), Å.
    """

    config: SimulationConfig
    material: Material
    fit: CellFit
    grid: Grid
    scan_axes: tuple[Floats, Floats] | None
    positions_angstrom: Floats

    @property
    def thickness_angstrom(self) -> float:
        """The supercell's thickness, a whole number of the crystal's periods."""
        return self.fit.lengths_angstrom[2]

    def supercell(self) -> Supercell:
        """Returns the supercell with its atoms, without thermal displacements."""
        return fill_cell(self.material.atoms, self.fit)

    def coherent_modes(self) -> list[Mode]:
        """Returns the coherent probes of each position, as `namsa.simulate` derives them."""
        microscope, wavelength = self.config.microscope, wavelength_angstrom(self.config.microscope.energy_ev)
        source_points = microscope.source_points
        # A scan that resolves how patterns change with position is averaged over the source afterwards.
        if source_points is None and coherence.resolved_scan_shape(
            self.config.scan.shape, self.positions_angstrom, self.grid, wavelength, microscope.semiangle_mrad
        ):
            source_points = 1
        return coherent_modes(microscope, source_points)


def make_sample_setup(config: SimulationConfig, material: Material, entry: Entry) -> SampleSetup:
    """Returns what the simulation of `entry` starts from. No atom is placed.

    Args:
        config: The configuration of the dataset.
        material: The entry's crystal.
        entry: The sample.

    Raises:
        InputError: If no supercell can be built, the file with the scan's positions cannot be read, or optics,
            detector and positions need more memory than is available.
    """
    fit = fit_supercell(config.specimen, material, entry)
    grid = simulation_grid(config.simulation, fit.lengths_angstrom)
    _check_memory(config, grid)
    if config.scan.file:
        axes, positions = None, scan.read(config.scan.file)
    else:
        axes = scan.positions(config.scan, grid.extent_angstrom, np.random.default_rng([entry.seed, 1]))
        positions = scan.raster(*axes)
    return SampleSetup(with_varied_values(config, entry), material, fit, grid, axes, positions)


def _check_memory(config: SimulationConfig, grid: Grid) -> None:
    """Raises OutOfMemoryError if the lens, the detector's matrices or the positions alone do not fit."""
    ny, nx = grid.shape
    detector = _MATRIX_BYTES * (ny**2 + nx**2) if config.detector else 0
    check_memory_for(
        _LENS_BYTES * ny * nx + detector,
        f"the lens on a grid of {ny}×{nx} pixels",
        "use larger pixels or a smaller cell",
    )
    count = math.prod(config.scan.shape or (1,))
    check_memory_for(_POSITION_BYTES * count, plural(count, "position"), "use a smaller scan.shape")


def build_supercell(config: SimulationConfig, material: Material, entry: Entry) -> Supercell:
    """Returns the supercell of `entry` with its atoms, without thermal displacements.

    Raises:
        InputError: If none can be built.
    """
    return fill_cell(material.atoms, fit_supercell(config.specimen, material, entry))


def fit_supercell(specimen: Specimen, material: Material, entry: Entry) -> CellFit:
    """Returns the supercell of `entry` before it has atoms: sides, strain and number of atoms.

    Raises:
        InputError: If none can be built.
    """
    return fit_cell(
        material.atoms,
        zone_axis=entry.zone_axis,
        lateral_angstrom=specimen.lateral_angstrom,
        thickness_angstrom=entry.thickness_angstrom,
        max_strain=specimen.max_strain,
        max_atoms=specimen.max_atoms,
    )


def simulation_grid(simulation: Simulation, lengths_angstrom: tuple[float, float, float]) -> Grid:
    """Returns the grid across the beam of a supercell with sides (x, y, z), Å.

    Raises:
        InputError: If it has too many pixels.
    """
    lx, ly, _ = lengths_angstrom
    shape = simulation.grid_shape or fast_shape((ly, lx), simulation.sampling_angstrom or 0.0)
    if max(shape) > LARGEST_EXTENT:
        raise InputError(
            f"pixels of {simulation.sampling_angstrom:g} Å make a grid of {shape[0]}×{shape[1]} over {ly:.4g}×{lx:.4g} "
            f"Å; use larger pixels or a smaller cell, for {LARGEST_EXTENT} pixels or fewer along each axis"
        )
    return Grid(shape, (ly, lx))


def with_varied_values(config: SimulationConfig, entry: Entry) -> SimulationConfig:
    """Returns `config` with the values of the microscope and the dose that are this entry's own."""
    varied = dict(entry.varied)
    if not varied:
        return config
    dose: VariedValues = {name: varied.pop(name) for name in _DOSES if name in varied}
    aberrations = dict(config.microscope.aberrations)
    if "defocus_angstrom" in varied:
        aberrations["C10"] = -varied.pop("defocus_angstrom")
    for name, azimuth in (("C12", "phi12"), ("C21", "phi21")):
        if f"{name}_angstrom" in varied:
            aberrations[name], aberrations[azimuth] = varied.pop(f"{name}_angstrom")
    if "C30_angstrom" in varied:
        aberrations["C30"] = varied.pop("C30_angstrom")
    phonons = config.specimen.frozen_phonons
    if phonons and "rms_displacement_angstrom" in varied:
        rms = varied.pop("rms_displacement_angstrom")
        phonons = phonons.model_copy(update={"rms_angstrom": rms, "b_factor_angstrom2": None})
    microscope = config.microscope.model_copy(update=varied | {"aberrations": aberrations})
    specimen = config.specimen.model_copy(update={"frozen_phonons": phonons})
    detector = config.detector.model_copy(update=dose) if config.detector else None
    return config.model_copy(update={"microscope": microscope, "specimen": specimen, "detector": detector})


def coherent_modes(microscope: Microscope, source_points: int | None) -> list[Mode]:
    """Returns the coherent probes whose patterns, added by share, are those of the microscope's probe.

    Args:
        microscope: The microscope.
        source_points: Points per axis of the source. `None` takes as many as the coherence needs.
    """
    return coherence.modes(
        wavelength_angstrom(microscope.energy_ev),
        microscope.semiangle_mrad,
        microscope.source_size_angstrom,
        source_points,
        focal_spread_angstrom(microscope),
        microscope.focal_points,
    )


def focal_spread_angstrom(microscope: Microscope) -> float:
    """Returns the rms focal spread, Å: as given, or from C_c and the energy spread."""
    if microscope.chromatic_aberration_mm and microscope.energy_spread_ev:
        return coherence.focal_spread_angstrom(
            microscope.energy_ev, microscope.chromatic_aberration_mm, microscope.energy_spread_ev
        )
    return microscope.focal_spread_angstrom
