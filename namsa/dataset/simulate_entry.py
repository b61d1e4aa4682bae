"""One entry of a manifest to one sample: supercell, scan, simulation, detector, target."""

from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from namsa.config.instrument import Microscope, Specimen
from namsa.config.simulation import SimulationConfig
from namsa.config.variation import Varied
from namsa.crystals.orient import Fit, fit_cell
from namsa.crystals.select import Material
from namsa.crystals.supercell import Supercell, filled
from namsa.dataset import scan
from namsa.dataset.manifest import Entry
from namsa.engines.dispatch import Progress
from namsa.physics import coherence
from namsa.physics import density_target as target
from namsa.physics.grid import Grid, fast_shape
from namsa.physics.optics import wavelength_angstrom
from namsa.sample import Sample
from namsa.simulate import simulate


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `simulate`
def simulate_entry(
    config: SimulationConfig,
    material: Material,
    entry: Entry,
    on_progress: Progress = lambda stage, done, total: None,
) -> Sample:
    """The sample that `entry` describes; its bits depend on the configuration and the entry alone.

    Raises InputError where the crystal, grid, probe and detector do not go together.
    """
    cell = specimen(config, material, entry)
    lx, ly, lz = (float(length) for length in cell.atoms.cell.lengths())
    own = with_own_microscope(config, entry)
    settings, microscope = own.simulation, own.microscope
    shape = settings.grid_shape or fast_shape((ly, lx), settings.sampling_angstrom or 0.0)
    grid = Grid(shape, (ly, lx))
    if config.scan.file:
        axes, positions = None, scan.read(config.scan.file)
    else:
        axes = scan.positions(config.scan, grid.extent_angstrom, np.random.default_rng([entry.seed, 1]))
        positions = scan.raster(*axes)

    sample = simulate(
        cell.atoms,
        energy_ev=microscope.energy_ev,
        semiangle_mrad=microscope.semiangle_mrad,
        grid_shape=shape,
        positions_angstrom=positions,
        slice_thickness_angstrom=settings.slice_thickness_angstrom,
        aberrations=microscope.aberrations,
        form_factors=settings.form_factors,
        frozen_phonons=config.specimen.frozen_phonons,
        precision=settings.precision,
        backend=settings.backend,
        engine=settings.engine,
        method=settings.method,
        seed=entry.seed,
        detector=own.detector,
        beam_tilt_mrad=microscope.beam_tilt_mrad,
        specimen_tilt_mrad=microscope.specimen_tilt_mrad,
        source_size_angstrom=microscope.source_size_angstrom,
        source_points=microscope.source_points,
        focal_spread_angstrom=focal_spread_angstrom(microscope),
        focal_points=microscope.focal_points,
        projection=settings.projection,
        scan_shape=config.scan.shape,
        on_progress=on_progress,
    )

    probe_limit = 2e-3 * microscope.semiangle_mrad / wavelength_angstrom(microscope.energy_ev)
    max_q = config.target.max_q_per_angstrom or probe_limit
    coefficients = target.band_limited(sample.density.astype(np.float64), grid, max_q)
    if config.target.at == "scan" and axes:
        density = target.at_positions(coefficients, grid, *axes)
        step = [float(axis[1] - axis[0]) if len(axis) > 1 else 0.0 for axis in axes]
        origin = [float(axis[0]) for axis in axes]
    else:
        density, step, origin = target.on_grid(coefficients), list(grid.sampling_angstrom), [0.0, 0.0]

    provenance = sample.provenance | {
        "id": entry.id,
        "material": entry.material,
        "formula": entry.formula,
        "space_group": entry.space_group,
        "source": material.source,
        "source_kind": material.kind,
        "zone_axis": list(entry.zone_axis),
        "wanted_thickness_angstrom": entry.thickness_angstrom,
        "thickness_angstrom": lz,
        "strain": cell.strain,
        "split": entry.split,
        "config_hash": config.samples_hash(),
        "density_sampling_angstrom": step,
        "density_origin_angstrom": origin,
        "density_max_q_per_angstrom": max_q,
    }
    if entry.varied:
        provenance["varied"] = entry.varied
    return replace(sample, density=density.astype(sample.density.dtype), provenance=provenance)


def specimen(config: SimulationConfig, material: Material, entry: Entry) -> Supercell:
    """The supercell that `entry` describes, cold. Raises InputError where none can be built."""
    return filled(material.atoms, fit_of(config.specimen, material, entry))


def fit_of(wanted: Specimen, material: Material, entry: Entry) -> Fit:
    """The same before it has atoms: sides, strain, how many atoms there will be."""
    return fit_cell(
        material.atoms,
        entry.zone_axis,
        wanted.lateral_angstrom,
        entry.thickness_angstrom,
        wanted.max_strain,
        wanted.max_atoms,
    )


def with_own_microscope(config: SimulationConfig, entry: Entry) -> SimulationConfig:
    """`config` with the values of the microscope that are this entry's own."""
    varied = dict(entry.varied)
    if not varied:
        return config
    names = ("electrons_per_pattern", "dose_electrons_per_angstrom2")
    dose: Varied = {name: varied.pop(name) for name in names if name in varied}
    if "defocus_angstrom" in varied:
        varied["aberrations"] = config.microscope.aberrations | {"C10": -varied.pop("defocus_angstrom")}
    detector = config.detector.model_copy(update=dose) if config.detector else None
    return config.model_copy(update={"microscope": config.microscope.model_copy(update=varied), "detector": detector})


def focal_spread_angstrom(microscope: Microscope) -> float:
    if microscope.chromatic_aberration_mm and microscope.energy_spread_ev:
        return coherence.focal_spread_angstrom(
            microscope.energy_ev, microscope.chromatic_aberration_mm, microscope.energy_spread_ev
        )
    return microscope.focal_spread_angstrom
