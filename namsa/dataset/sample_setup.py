"""The setup of a sample's simulation before any atom is placed: derived once, from
(configuration, entry).

The simulation of a sample (`simulate_entry`), the estimate of its time and size (`workload`) and
the cost by which ranks share a dataset (`entries`) follow from the same supercell, grid, positions
and microscope.
"""

import math
from dataclasses import dataclass, replace

import ase
import numpy as np

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.memory import check_memory_for
from namsa.base.provenance_values import DOSES
from namsa.base.text import plural
from namsa.config.instrument import Microscope
from namsa.config.simulation import SimulationConfig
from namsa.config.specimen import Specimen
from namsa.config.variation import VariedValues
from namsa.crystals.kinds.draws import Draws
from namsa.crystals.kinds.specimen import cells_of_kind, fill_specimen
from namsa.crystals.material import Material
from namsa.crystals.orient import CellFit, RectangularCells, find_rectangular_cells, fit_to_size
from namsa.crystals.sites import occupancies, random_occupations
from namsa.crystals.supercell import Supercell, fill_cell
from namsa.dataset.entry import Entry, seed_of_kind
from namsa.dataset.sample_grid import (
    equal_thickness,
    layer_plan,
    requirement,
    simulation_grid,
    slices_of_sample,
)
from namsa.io.charge_density import ChargeDensity
from namsa.physics import coherence
from namsa.physics.coherence import Mode
from namsa.physics.grid import Grid
from namsa.physics.optics import wavelength_angstrom
from namsa.physics.slice_plan import SlicePlan
from namsa.sampling.choice import choose_configurations
from namsa.setup import scan
from namsa.setup.settings import SimulationSettings

_LENS_BYTES = 64  # per pixel of the grid: complex and real arrays in double precision
# per element of a matrix from the grid to a detector that is as large, with its factors
_MATRIX_BYTES = 32
_POSITION_BYTES = 100  # per position, with its copies

_OCCUPATIONS = 4  # index of the random stream among those of a seed


@dataclass(frozen=True)
class SampleSetup:
    """The geometry and the microscope of one sample."""

    # The configuration with the values of the microscope and the dose that are this entry's own,
    # and the number of thermal configurations that was chosen for it.
    config: SimulationConfig
    material: Material  # the crystal
    entry: Entry  # the sample in the manifest
    # the sides, strain and number of atoms of the supercell, from which the sample is cut
    fit: CellFit
    slices: int  # slices of the sample
    # Thickness of the sample, Å: a whole number of the crystal's periods, or of the slices of a
    # specimen that several samples are cut from.
    thickness_angstrom: float
    grid: Grid  # the simulation's grid across the beam
    # (y, x) coordinates of the scan's rows and columns, shapes (sy,) and (sx,), Å. `None` if
    # positions were read from a file.
    scan_axes: tuple[Floats, Floats] | None
    positions_angstrom: Floats  # probe positions (n, 2) as (y, x), Å
    # the supercell with its atoms, if the grid or the slices were chosen for them
    filled: Supercell | None = None

    def description(self) -> str:
        """Returns the thickness, made and asked, and the crystal's period and strain, for
        people.
        """
        return (
            f"{self.thickness_angstrom:.2f} Å thick ({self.entry.thickness_angstrom:g} Å "
            f"requested), period {self.fit.period_angstrom:.2f} Å, strain {self.fit.strain:.2%}"
        )

    def warnings(self) -> list[str]:
        """Returns warnings of a thickness and a strain that differ much from what was asked."""
        return self.fit.warnings(self.entry.thickness_angstrom, self.thickness_angstrom)

    def supercell(self) -> Supercell:
        """Returns the supercell with its atoms, without thermal displacements."""
        return self.filled or _fill(self.config, self.material, self.entry, self.fit)

    def snapshots(self, supercell: Supercell, seed: int) -> list[ase.Atoms]:
        """Returns the states of the specimen whose patterns are averaged; one if there is nothing
        to average.
        """
        frames = [fill_cell(frame, self.fit).atoms for frame in self.material.snapshots]
        if not frames:
            frames = [supercell.atoms]
        if not snapshots_per_frame(self.config, self.material):
            return frames
        count = self.config.specimen.random_occupations or 1
        seeds = np.random.default_rng([seed, _OCCUPATIONS])
        snapshots = []
        for frame in frames:
            snapshots += random_occupations(frame, count, int(seeds.integers(2**63)))
        return snapshots

    def coherent_modes(self) -> list[Mode]:
        """Returns the coherent probes of each position, as `namsa.simulate` derives them."""
        microscope = self.config.microscope
        wavelength = wavelength_angstrom(self.config.microscope.energy_ev)
        source_points = microscope.source_points
        # A scan that resolves how patterns change with position is averaged over the source
        # afterwards.
        if source_points is None and coherence.resolved_scan_shape(
            self.config.scan.shape,
            self.positions_angstrom,
            self.grid,
            wavelength,
            microscope.semiangle_mrad,
        ):
            source_points = 1
        return coherent_modes(microscope, source_points)


def snapshots_per_frame(config: SimulationConfig, material: Material) -> int:
    """Returns how many random occupations are drawn; 0 for none, as of a crystal whose sites are
    all full.
    """
    is_mixed = (occupancies(material.atoms) < 1).any()
    if material.partner:
        is_mixed |= (occupancies(material.partner.atoms) < 1).any()
    if not is_mixed:
        return 0
    return config.specimen.random_occupations or 0


def make_sample_setup(
    config: SimulationConfig,
    material: Material,
    entry: Entry,
    fit: CellFit | None = None,  # what `fit_supercell` returns; `None` calls it
    *,
    supercell: Supercell | None = None,  # what `SampleSetup.supercell` returns, if it is known
    # The slices of the specimen, if they are known; by default those that follow its layers, if
    # they do.
    plan: SlicePlan | None = None,
) -> SampleSetup:
    """Returns what the simulation of `entry` starts from. Atoms are placed only if grid or slices
    are chosen for them.

    Raises:
        InputError: If no supercell can be built, the file with the scan's positions cannot be read,
            or optics, detector and positions need more memory than is available.
    """
    if material.snapshots and entry.kind != "crystal":
        raise InputError(
            f"{material.source} is a trajectory, whose snapshots are simulated as they are: leave "
            f"specimen.kinds {entry.kind} out"
        )
    fit = fit or fit_supercell(config, material, entry)
    settings = config.simulation
    varied = with_varied_values(config, entry)
    phonons = varied.specimen.frozen_phonons
    chooses_phonons = phonons is not None and phonons.configurations == "auto"
    if supercell is None and (
        settings.sampling_angstrom == "auto" or settings.follows_layers or chooses_phonons
    ):
        supercell = _fill(config, material, entry, fit)
    if plan is None and settings.follows_layers and supercell:
        plan = layer_plan(config, supercell.atoms)
    slices, thickness = slices_of_sample(config, fit, entry.thickness_angstrom, plan)
    grid = simulation_grid(config, fit.lengths_angstrom, supercell.atoms if supercell else None)
    _check_memory(config, grid)
    if config.scan.file:
        axes = None
        positions = scan.read(config.scan.file)
    else:
        axes = scan.positions(
            config.scan, grid.extent_angstrom, np.random.default_rng([entry.seed, 1])
        )
        positions = scan.raster(*axes)
    if phonons and chooses_phonons and supercell:
        snapshots = max(1, len(material.snapshots)) * max(1, snapshots_per_frame(config, material))
        required = requirement(config, fit.lengths_angstrom)
        thermal = choose_configurations(required, phonons, supercell.atoms, snapshots)
        specimen = varied.specimen.model_copy(update={"frozen_phonons": thermal.frozen_phonons})
        varied = varied.model_copy(update={"specimen": specimen})
    return SampleSetup(
        varied, material, entry, fit, slices, thickness, grid, axes, positions, supercell
    )


def _check_memory(config: SimulationConfig, grid: Grid) -> None:
    """Raises OutOfMemoryError if the lens, the detector's matrices or the positions alone do not
    fit.
    """
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
    """Returns the supercell of `entry` with its atoms at rest. Raises InputError if none can be
    built.
    """
    fit = fit_supercell(config, material, entry)
    supercell = _fill(config, material, entry, fit)
    depth = fit.lengths_angstrom[2]
    plan = layer_plan(config, supercell.atoms)
    slices, thickness = slices_of_sample(config, fit, entry.thickness_angstrom, plan)
    if thickness == depth:
        return supercell
    thinner = supercell.atoms[plan.slice_of_atom < slices]
    thinner.cell[2, 2] = thickness
    return replace(supercell, atoms=thinner)


def _fill(config: SimulationConfig, material: Material, entry: Entry, fit: CellFit) -> Supercell:
    """Returns the filled supercell: the crystal, or what its specimen's kind makes of it."""
    if entry.kind == "crystal":
        return fill_cell(material.atoms, fit)
    return fill_specimen(
        material.atoms,
        entry.kind,
        fit,
        entry.zone_axis,
        config.specimen.max_strain,
        Draws(seed_of_kind(config.seed, entry.specimen)),
        material.partner.atoms if material.partner else None,
    )


def settings_of_sample(
    setup: SampleSetup,
    seed: int,
    *,
    charge_density: ChargeDensity | None = None,
    judged: bool = False,
) -> SimulationSettings:
    """Returns the description of a sample's simulation.

    Args:
        seed: Seed of thermal displacements and of the detector's noise.
        charge_density: That of the crystal, as `namsa.simulate` takes it.
        judged: Whether the accuracy judges numerical settings that are given. Of a dataset, some
            samples are checked instead.
    """
    config = setup.config
    microscope = config.microscope
    simulation = config.simulation
    chosen: dict[str, object] = {"grid_shape": setup.grid.shape, "sampling_angstrom": None}
    if not simulation.follows_layers:
        thickness = equal_thickness(config, setup.fit.lengths_angstrom)
        chosen["slice_thickness_angstrom"] = thickness
    spread = {"focal_spread_angstrom": focal_spread_angstrom(microscope)}
    return SimulationSettings(
        microscope=microscope.model_copy(update=spread),
        simulation=simulation.model_copy(update=chosen),
        judged=judged,
        band_fraction=setup.grid.band,
        frozen_phonons=config.specimen.frozen_phonons,
        plasmons=config.specimen.plasmons,
        charge_density=charge_density,
        detector=config.detector,
        positions_angstrom=setup.positions_angstrom,
        scan_shape=config.scan.shape,
        depth_bins=config.target.depth_bins,
        seed=seed,
    )


def samples_per_specimen(config: SimulationConfig) -> int:
    """Returns how many samples are cut from each specimen; 1 unless the method is `scatter`."""
    if config.simulation.method != "scatter":
        return 1
    microscopes = config.variation.configurations_per_specimen() if config.variation else 1
    return len(config.specimen.thickness_angstrom) * microscopes


def fit_supercell(config: SimulationConfig, material: Material, entry: Entry) -> CellFit:
    """Returns sides, strain and atoms of the supercell that `entry` is cut from. Raises InputError
    if there is none.
    """
    specimen = config.specimen
    if not len(material.atoms):  # vacuum has no directions
        lx, ly, lz = material.atoms.cell.lengths().tolist()
        return CellFit(np.eye(3, dtype=np.int64), 0.0, (lx, ly, lz), 0)
    cells = find_rectangular_cells(material.atoms, entry.zone_axis, specimen.max_strain)
    cells = cells_of_kind(
        cells, material.atoms, entry.kind, Draws(seed_of_kind(config.seed, entry.specimen))
    )
    if config.simulation.method == "scatter":
        fit, _, reason = thickest_supercell(cells, specimen)
        if fit is None:
            raise InputError(reason or "")
        return fit
    return fit_to_size(
        cells, specimen.lateral_angstrom, entry.thickness_angstrom, specimen.max_atoms
    )


def thickest_supercell(
    cells: RectangularCells, specimen: Specimen
) -> tuple[CellFit | None, float, str | None]:
    """Returns the thickest supercell, the smallest thickness with too many atoms (or infinity), and
    the reason.

    A supercell that can be built at one thickness can be built at every smaller one. In most cases
    only the largest is tried.
    """
    too_thick = math.inf
    reason = None
    for thickness in sorted(set(specimen.thickness_angstrom), reverse=True):
        try:
            return (
                fit_to_size(cells, specimen.lateral_angstrom, thickness, specimen.max_atoms),
                too_thick,
                reason,
            )
        except InputError as error:
            too_thick = thickness
            reason = str(error)
    return None, too_thick, reason


def with_varied_values(config: SimulationConfig, entry: Entry) -> SimulationConfig:
    """Returns `config` with the values of the microscope and the dose that are this entry's own."""
    varied = dict(entry.varied)
    if not varied:
        return config
    dose: VariedValues = {name: varied.pop(name) for name in DOSES if name in varied}
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
    return config.model_copy(
        update={"microscope": microscope, "specimen": specimen, "detector": detector}
    )


def coherent_modes(microscope: Microscope, source_points: int | None) -> list[Mode]:
    """Returns the coherent probes whose patterns, added by share, are those of the microscope's
    probe.

    Args:
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
    """Returns the rms focal spread, Å: as given, or from C_c and what fluctuates."""
    if microscope.chromatic_aberration_mm:
        return coherence.focal_spread_angstrom(
            microscope.energy_ev,
            microscope.chromatic_aberration_mm,
            microscope.energy_spread_ev or 0.0,
            microscope.high_tension_ripple_ppm,
            microscope.lens_current_ripple_ppm,
        )
    return microscope.focal_spread_angstrom
