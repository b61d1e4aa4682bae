"""One entry of a manifest to one sample: setup, simulation, density target, provenance."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.crystals.supercell import Supercell
from namsa.dataset.entry import Entry
from namsa.dataset.sample_setup import SampleSetup, focal_spread_angstrom, make_sample_setup
from namsa.engines.interface import ProgressCallback
from namsa.engines.pattern_sink import PatternSink
from namsa.physics import density_target
from namsa.physics.optics import wavelength_angstrom
from namsa.sample import Sample
from namsa.simulate import simulate


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `simulate`
def simulate_entry(
    config: SimulationConfig,
    material: Material,
    entry: Entry,
    on_progress: ProgressCallback = lambda stage, done, total: None,
    sink: PatternSink | None = None,
) -> Sample:
    """Simulates the sample that `entry` describes. Its bits depend on the configuration and the entry alone.

    Args:
        config: The configuration of the dataset.
        material: The entry's crystal.
        entry: The sample to simulate.
        on_progress: Called as `on_progress(stage, done, total)`.
        sink: Takes the patterns, as in `namsa.simulate`. `None` returns them.

    Returns:
        The sample with the density target, and provenance that names the entry.

    Raises:
        InputError: If the crystal, grid, probe and detector do not go together.
    """
    setup = make_sample_setup(config, material, entry)
    supercell = setup.supercell()
    sample = _simulate(setup, supercell, entry.seed, on_progress, sink)
    density, target_provenance = _density_target(setup, sample)
    provenance = sample.provenance | {
        "id": entry.id,
        "material": entry.material,
        "formula": entry.formula,
        "space_group": entry.space_group,
        "source": material.source,
        "source_kind": material.kind,
        "zone_axis": list(entry.zone_axis),
        "wanted_thickness_angstrom": entry.thickness_angstrom,
        "thickness_angstrom": setup.thickness_angstrom,
        "strain": supercell.strain,
        "split": entry.split,
        "config_hash": config.samples_hash(),
        **target_provenance,
    }
    if entry.varied:
        provenance["varied"] = entry.varied
    return replace(sample, density=density.astype(sample.density.dtype), provenance=provenance)


def _simulate(
    setup: SampleSetup, supercell: Supercell, seed: int, on_progress: ProgressCallback, sink: PatternSink | None
) -> Sample:
    """Calls `namsa.simulate` with the values of the configuration."""
    config, microscope, settings = setup.config, setup.config.microscope, setup.config.simulation
    return simulate(
        supercell.atoms,
        energy_ev=microscope.energy_ev,
        semiangle_mrad=microscope.semiangle_mrad,
        grid_shape=setup.grid.shape,
        positions_angstrom=setup.positions_angstrom,
        slice_thickness_angstrom=settings.slice_thickness_angstrom,
        aberrations=microscope.aberrations,
        form_factors=settings.form_factors,
        frozen_phonons=config.specimen.frozen_phonons,
        precision=settings.precision,
        backend=settings.backend,
        engine=settings.engine,
        method=settings.method,
        seed=seed,
        detector=config.detector,
        beam_tilt_mrad=microscope.beam_tilt_mrad,
        specimen_tilt_mrad=microscope.specimen_tilt_mrad,
        source_size_angstrom=microscope.source_size_angstrom,
        source_points=microscope.source_points,
        focal_spread_angstrom=focal_spread_angstrom(microscope),
        focal_points=microscope.focal_points,
        projection=settings.projection,
        scan_shape=config.scan.shape,
        sink=sink,
        on_progress=on_progress,
    )


def _density_target(setup: SampleSetup, sample: Sample) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
    """Returns the band-limited density, on the grid or at the scan's positions, and its part of the provenance."""
    config, grid, axes = setup.config, setup.grid, setup.scan_axes
    microscope = config.microscope
    probe_limit = 2e-3 * microscope.semiangle_mrad / wavelength_angstrom(microscope.energy_ev)
    max_q = config.target.max_q_per_angstrom or probe_limit
    coefficients = density_target.band_limited(sample.density.astype(np.float64), grid, max_q)
    if config.target.at == "scan" and axes:
        density = density_target.at_positions(coefficients, grid, *axes)
        step = [float(axis[1] - axis[0]) if len(axis) > 1 else 0.0 for axis in axes]
        origin = [float(axis[0]) for axis in axes]
    else:
        density, step, origin = density_target.on_grid(coefficients), list(grid.sampling_angstrom), [0.0, 0.0]
    return density, {
        "density_sampling_angstrom": step,
        "density_origin_angstrom": origin,
        "density_max_q_per_angstrom": max_q,
    }
