"""From entries of a manifest to samples: setup, simulation, density target, provenance.

The samples of a specimen have in common what `prepare_samples` computes: with the method `scatter`, how the specimen
scatters plane waves up to each of the samples' thicknesses.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.crystals.supercell import Supercell
from namsa.dataset.entry import Entry, seed_of
from namsa.dataset.labels import LABEL_NAMES, label_map
from namsa.dataset.sample_grid import layer_plan, recorded_mrad, slices_of_sample
from namsa.dataset.sample_setup import (
    SampleSetup,
    fit_supercell,
    focal_spread_angstrom,
    make_sample_setup,
    numerical_settings,
    with_varied_values,
)
from namsa.engines.interface import MemorySink, PatternSink, ProgressCallback
from namsa.errors import warn_of_sample
from namsa.io.charge_density import ChargeDensity
from namsa.physics import density_target
from namsa.physics import detector as detectors
from namsa.physics.grid import Grid
from namsa.physics.optics import BeamSettings, is_parallel, probe_limit, wavelength_angstrom
from namsa.sample import Sample
from namsa.scattering import scatter
from namsa.simulation import simulate

SimulateSample = Callable[[Entry], Sample]


def _nothing(stage: str, done: int, total: int) -> None:
    """Reports no progress."""


def prepare_samples(
    config: SimulationConfig,
    material: Material,
    # All of the specimen's samples that can be built, also those that are not simulated: the last digits of a sample
    # depend on them.
    entries: Sequence[Entry],
    on_progress: ProgressCallback = _nothing,  # called as `on_progress(stage, done, total)`
    charge_density: ChargeDensity | None = None,  # that of the crystal, as `namsa.simulate` takes it
    judged: bool = False,  # whether the accuracy judges numerical settings that are given
) -> SimulateSample:
    """Returns what simulates the samples of one specimen; what they have in common is computed here.

    Returns:
        A function of one of `entries`.

    Raises:
        InputError: If the specimen cannot be built, or does not go with the microscope.
        OutOfMemoryError: If its scattering matrices do not fit into memory.
    """
    if config.simulation.method != "scatter":
        return partial(
            simulate_entry, config, material, on_progress=on_progress, charge_density=charge_density, judged=judged
        )
    fit = fit_supercell(config, material, entries[0])
    setup = make_sample_setup(config, material, entries[0], fit)
    supercell = setup.supercell()
    specimen, seed = entries[0].specimen, seed_of(config.seed, entries[0].specimen)
    snapshots, max_angle = setup.snapshots(supercell, seed), _largest_angle_mrad(config, entries, setup.grid)
    plan = layer_plan(config, snapshots, max_angle) if config.simulation.follows_layers else None
    thickness_of = dict(slices_of_sample(config, fit, entry.thickness_angstrom, plan) for entry in entries)
    depths = sorted(thickness_of)
    scattering = scatter(
        snapshots,
        energy_ev=setup.config.microscope.energy_ev,
        max_angle_mrad=max_angle,
        max_detected_mrad=_reach_mrad(setup),
        reach_mrad=recorded_mrad(config, fit.lengths_angstrom),
        thicknesses_angstrom=[thickness_of[depth] for depth in depths],
        frozen_phonons=setup.config.specimen.frozen_phonons,
        specimen_tilt_mrad=setup.config.microscope.specimen_tilt_mrad,
        seed=seed,
        charge_density=charge_density,
        on_progress=on_progress,
        **numerical_settings(setup, judged),
    )
    samples_hash = config.samples_hash()
    described = {"specimen": specimen, "thickness_angstrom": fit.lengths_angstrom[2], "depths": depths, "seed": seed}

    @threadpool_limits.wrap(limits=1, user_api="blas")
    def cut(entry: Entry) -> Sample:
        own = make_sample_setup(config, material, entry, fit, supercell=setup.filled, plan=plan)
        arguments = _exposure(own, entry.seed) | {"on_progress": on_progress}
        sample = scattering.simulate(depths.index(own.slices), **arguments)
        sample.provenance["warnings"] += _warn(own)
        return _complete(own, supercell, entry, sample, samples_hash, scattering=described)

    return cut


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `simulate`
def simulate_entry(
    config: SimulationConfig,
    material: Material,
    entry: Entry,
    on_progress: ProgressCallback = _nothing,  # called as `on_progress(stage, done, total)`
    sink: PatternSink | None = None,  # takes the patterns, as in `namsa.simulate`; `None` returns them
    charge_density: ChargeDensity | None = None,  # that of the crystal, as `namsa.simulate` takes it
    judged: bool = False,  # whether the accuracy judges numerical settings that are given
) -> Sample:
    """Simulates the sample that `entry` describes. Its bits depend on the configuration and the entry alone.

    With the method `scatter` they depend on the specimen's other samples too, and equal those of a dataset to rounding.

    Returns:
        The sample with the density target, and provenance that names the entry.

    Raises:
        InputError: If the crystal, grid, probe and detector do not go together.
    """
    if config.simulation.method == "scatter":
        sample = prepare_samples(config, material, [entry], on_progress, charge_density, judged)(entry)
        return _moved(sample, sink, config.scan.shape) if sink else sample
    setup = make_sample_setup(config, material, entry)
    texts = _warn(setup)
    supercell = setup.supercell()
    sample = simulate(
        setup.snapshots(supercell, entry.seed),
        energy_ev=setup.config.microscope.energy_ev,
        frozen_phonons=setup.config.specimen.frozen_phonons,
        method=config.simulation.method,
        specimen_tilt_mrad=setup.config.microscope.specimen_tilt_mrad,
        depth_bins=config.target.depth_bins,
        charge_density=charge_density,
        sink=sink,
        on_progress=on_progress,
        **numerical_settings(setup, judged),
        **_exposure(setup, entry.seed),
    )
    sample.provenance["warnings"] += texts
    return _complete(setup, supercell, entry, sample, config.samples_hash())


class _Checked(Exception):
    """Ends a simulation whose arguments are checked."""


class _Unused(MemorySink):
    """A sink that wants no patterns."""

    def begin(self, *_: object, **__: object) -> int:
        raise _Checked


def check_entry(
    config: SimulationConfig,
    material: Material,
    entry: Entry,
    charge_density: ChargeDensity | None = None,
    judged: bool = False,
) -> None:
    """Raises what `simulate_entry` would raise before it begins to work, and warns as it does. Atoms are placed."""
    simulation = config.simulation.model_copy(update={"method": "prism"})
    alone = config if config.simulation.method != "scatter" else config.model_copy(update={"simulation": simulation})
    with suppress(_Checked):
        simulate_entry(alone, material, entry, sink=_Unused(), charge_density=charge_density, judged=judged)


def _warn(setup: SampleSetup) -> list[str]:
    """Warns of a thickness and a strain that differ much from what was asked, and returns the texts."""
    texts = setup.fit.warnings(setup.entry.thickness_angstrom, setup.thickness_angstrom)
    for text in texts:
        warn_of_sample(text, stacklevel=4)
    return texts


def _complete(
    setup: SampleSetup, supercell: Supercell, entry: Entry, sample: Sample, config_hash: str, **more: Any
) -> Sample:
    """Returns a sample with its density target, and provenance that names the entry and has `more`."""
    material = setup.material
    target, target_provenance = _density_target(setup)
    density, by_depth = target(sample.density), None
    if sample.density_by_depth is not None:
        by_depth = np.stack([target(part) for part in sample.density_by_depth])
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
        "config_hash": config_hash,
        **more,
        **target_provenance,
    }
    if setup.config.simulation.sampling_angstrom == "auto":
        provenance["accuracy"] = setup.config.simulation.accuracy
    if entry.varied:
        provenance["varied"] = entry.varied
    if entry.kind != "crystal":
        provenance |= {"kind": entry.kind, "kind_parameters": supercell.parameters, "atoms": len(supercell.atoms)}
    if setup.material.partner:
        provenance |= {"partner": setup.material.partner.name, "partner_source": setup.material.partner.source}
    labels = None
    if entry.kind in LABEL_NAMES:
        labels = label_map(supercell.atoms, setup.grid, *_axes_of_density(setup))
        provenance["label_names"] = list(LABEL_NAMES[entry.kind])
    return replace(sample, density=density, provenance=provenance, labels=labels, density_by_depth=by_depth)


def _exposure(setup: SampleSetup, seed: int) -> dict[str, Any]:
    """Returns the arguments of a simulation that follow from the probes, the detector and its noise."""
    config, microscope = setup.config, setup.config.microscope
    return {
        "positions_angstrom": setup.positions_angstrom,
        "scan_shape": config.scan.shape,
        "semiangle_mrad": microscope.semiangle_mrad,
        "aberrations": microscope.aberrations,
        "beam_tilt_mrad": microscope.beam_tilt_mrad,
        "source_size_angstrom": microscope.source_size_angstrom,
        "source_points": microscope.source_points,
        "focal_spread_angstrom": focal_spread_angstrom(microscope),
        "focal_points": microscope.focal_points,
        "detector": config.detector,
        "plasmons": config.specimen.plasmons,
        "seed": seed,
    }


def _largest_angle_mrad(config: SimulationConfig, entries: Sequence[Entry], grid: Grid) -> float:
    """Returns the largest angle of a plane wave of the samples with the axis, mrad."""
    # The aperture's soft edge is a reciprocal pixel wide along its own radius, and a tilt moves it to other directions.
    pitch = [1e3 * wavelength_angstrom(config.microscope.energy_ev) / extent for extent in grid.extent_angstrom]
    edge = 0.5 * (max(pitch) - min(pitch))
    angles = []
    for microscope in (with_varied_values(config, entry).microscope for entry in entries):
        tilt = float(np.hypot(*microscope.beam_tilt_mrad))
        angles.append(microscope.semiangle_mrad + (tilt + edge if tilt else 0.0))
    return max(angles)


def _reach_mrad(setup: SampleSetup) -> float | None:
    """Returns the largest angle along y or x at which a reciprocal pixel lies on the detector; `None` without one."""
    if setup.config.detector is None:
        return None
    wavelength = wavelength_angstrom(setup.config.microscope.energy_ev)
    rows = detectors.pixels(setup.grid, wavelength, setup.config.detector)
    reach = max(max(-row.edge, row.edge + row.count) * row.size_mrad for row in rows)
    return reach + 0.5e3 * wavelength / min(setup.grid.extent_angstrom)


def _moved(sample: Sample, sink: PatternSink, scan_shape: tuple[int, int] | None) -> Sample:
    """Gives the patterns of a sample to a sink, and returns the rest."""
    patterns = sample.cbed
    identity = hashlib.sha256(patterns.tobytes()).hexdigest()
    count, rows_of_pattern, columns = patterns.shape
    sink.begin((count, rows_of_pattern, columns), patterns.dtype, scan_shape, count, identity)
    for rows in sink.pending(0):
        sink.write(rows, patterns[rows], 1)
    return replace(sample, cbed=sink.patterns())


def _axes_of_density(setup: SampleSetup) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns the rows and columns of the density, Å."""
    if setup.config.target.at == "scan" and setup.scan_axes:
        return setup.scan_axes
    y, x = (np.arange(size) * step for size, step in zip(setup.grid.shape, setup.grid.sampling_angstrom, strict=True))
    return y, x


def _density_target(setup: SampleSetup) -> tuple[Callable[[npt.NDArray[Any]], npt.NDArray[Any]], dict[str, Any]]:
    """Returns what band-limits a density, on the grid or at the scan's positions, and its part of the provenance."""
    config, grid, axes = setup.config, setup.grid, setup.scan_axes
    microscope = config.microscope
    beam = BeamSettings(microscope.energy_ev, microscope.semiangle_mrad, {})
    max_q = config.target.max_q_per_angstrom or (
        grid.band_limit if is_parallel(grid, beam) else probe_limit(beam.energy_ev, beam.semiangle_mrad)
    )
    at_scan = axes if config.target.at == "scan" else None
    if at_scan:
        step = [float(axis[1] - axis[0]) if len(axis) > 1 else 0.0 for axis in at_scan]
        origin = [float(axis[0]) for axis in at_scan]
    else:
        step, origin = list(grid.sampling_angstrom), [0.0, 0.0]

    def target(density: npt.NDArray[Any]) -> npt.NDArray[Any]:
        coefficients = density_target.band_limited(density.astype(np.float64), grid, max_q)
        if at_scan:
            return density_target.at_positions(coefficients, grid, *at_scan).astype(density.dtype)
        return density_target.on_grid(coefficients).astype(density.dtype)

    return target, {
        "density_sampling_angstrom": step,
        "density_origin_angstrom": origin,
        "density_max_q_per_angstrom": max_q,
    }
