"""The counts that decide a sample's time, memory and disk. They follow from the configuration
alone.

The method is chosen by these counts (`prism.pays`), never by measured rates, so that a sample's
last digits are the same on every machine.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from namsa.base.memory import check_memory_for
from namsa.base.text import plural
from namsa.config.simulation import SimulationConfig
from namsa.crystals.kinds.specimen import most_atoms
from namsa.crystals.material import Material
from namsa.crystals.supercell import fill_cell
from namsa.dataset.entry import Entry
from namsa.dataset.sample_grid import equal_thickness, largest_angle_mrad, layer_plan
from namsa.dataset.sample_setup import (
    SampleSetup,
    coherent_modes,
    fit_supercell,
    make_sample_setup,
    samples_per_specimen,
    snapshots_per_frame,
)
from namsa.engines import prism, raster
from namsa.engines.counts import SimulationCounts
from namsa.physics import detector as detectors
from namsa.physics import optics, potential, slice_plan
from namsa.physics.backend import available_cores
from namsa.physics.specimen import atom_list, building_bytes, building_threads
from namsa.sampling.choice import number_of_configurations

Method = Literal["multislice", "prism", "scatter"]

_HEADER_BYTES = 2600  # of a record
_PAGE_BYTES = 4096  # of LMDB
_HDF5_BYTES = 20_000  # structure of a file
_HDF5_POSITION_BYTES = 50  # of a position, which is stored twice, once as text


@dataclass(frozen=True)
class Workload(SimulationCounts):
    """The counts of one sample's simulation."""

    id: str  # the sample's id
    density_shape: tuple[int, int]  # pixels (ty, tx) of the density target
    depth_bins: int  # bins of the density by depth, which is not stored if there is one
    stored_dtype: Literal["float16", "float32"]  # type of the patterns in a record
    # the method of the configuration
    requested_method: Literal["auto", "multislice", "prism", "scatter"]
    specimen: str  # its thickness, made and asked, period and strain
    # Samples that are cut from the specimen, which share its plane waves; 1 if the specimen is the
    # sample.
    samples: int = 1
    # thicknesses of these samples, at most; the scattering matrices of all are in memory
    depths: int = 1

    @property
    def method(self) -> Method:
        """The method that the simulation will use."""
        if self.requested_method != "auto":
            return self.requested_method
        if prism.pays(self.work, self.dtype.itemsize):
            return "prism"
        return "multislice"


def count_workload(config: SimulationConfig, material: Material, entry: Entry) -> Workload:
    """Counts what the simulation of `entry`, of its smallest supercell, does. Raises InputError as
    that does.
    """
    setup = make_sample_setup(config, material, entry)
    config = setup.config
    settings = setup.config.simulation
    grid = setup.grid
    pattern_rows, pattern_columns = detectors.pixels(
        grid, optics.wavelength_angstrom(config.microscope.energy_ev), config.detector
    )
    work = _count_work(setup)
    phonons = config.specimen.frozen_phonons
    snapshots = max(1, len(material.snapshots)) * max(1, snapshots_per_frame(config, material))
    samples = samples_per_specimen(config)
    scan_shape = config.scan.shape if config.target.at == "scan" else None
    return Workload(
        id=entry.id,
        grid=grid,
        work=work,
        configurations=snapshots * number_of_configurations(phonons),
        distinct_slices=work.slices
        if snapshots > 1
        else _distinct_slices(config, material, entry, work.slices),
        atoms=most_atoms(setup.fit, entry.kind),
        elements=_elements(material, entry),
        heaviest=max(_numbers(material), default=0),
        precision=settings.precision,
        backend=settings.backend,
        pattern_shape=(pattern_rows.count, pattern_columns.count),
        density_shape=scan_shape or grid.shape,
        depth_bins=config.target.depth_bins,
        stored_dtype=config.data.dtype,
        requested_method=settings.method,
        specimen=setup.description(),
        samples=samples,
        depths=min(samples, work.slices),
    )


def memory_bytes(workload: Workload, batch_bytes: int | None = None) -> int:
    """Returns the bytes of arrays at the peak: patterns, transmissions, building a slice, and each
    core's waves.

    Args:
        batch_bytes: Patterns in memory if they are written batch by batch. `None` holds all.
    """
    pixels = workload.grid.shape[0] * workload.grid.shape[1]
    item = workload.dtype.itemsize
    patterns = (
        workload.work.probes * workload.pattern_shape[0] * workload.pattern_shape[1] * item // 2
    )
    patterns = patterns if batch_bytes is None else min(patterns, batch_bytes)
    transmissions = workload.distinct_slices * pixels * item
    fine = workload.grid.refined(workload.heaviest).shape
    # Planes in double precision, half planes of factors, and the slices that are built at a time.
    build = 64 * pixels + 2 * math.prod(fine) * workload.elements
    build += building_threads(fine, workload.elements, item) * building_bytes(
        fine, workload.elements, item
    )
    per_core = 3 * max(2**20, pixels * item)
    matrix = 0
    if workload.method != "multislice":
        matrix = workload.work.beams * workload.work.pixels * item
        if workload.method == "scatter":
            matrix *= workload.depths * workload.configurations
        row = max(1, workload.work.probes // workload.work.rows)
        per_core = 2 * prism.batch_size(workload.grid.shape, item // 2, row) * pixels * item // 2
    return patterns + transmissions + build + available_cores() * per_core + matrix


def check_memory(workload: Workload, available_bytes: int, batch_bytes: int | None = None) -> None:
    """Raises OutOfMemoryError if `memory_bytes` of a sample's simulation exceed
    `available_bytes`.
    """
    (ny, nx), (dy, dx) = workload.grid.shape, workload.pattern_shape
    if workload.method == "scatter":
        fewer = "fewer thicknesses or samples of a specimen, fewer"
    else:
        fewer = "fewer"
    check_memory_for(
        memory_bytes(workload, batch_bytes),
        f"{workload.id}, {plural(workload.work.probes, 'pattern')} of {dy}×{dx} pixels on a grid "
        f"of {ny}×{nx}",
        f"use {fewer} positions, a smaller detector or grid, thicker slices or fewer ranks; "
        "--force tries it nevertheless",
        available_bytes,
    )


def record_bytes(workload: Workload) -> int:
    """Returns the size of a record in a shard: header, patterns, density, potential, positions, in
    whole pages.
    """
    (dy, dx), (ty, tx), (ny, nx) = (
        workload.pattern_shape,
        workload.density_shape,
        workload.grid.shape,
    )
    pattern_bytes = (
        {"float16": 2, "float32": 4}[workload.stored_dtype] * workload.work.probes * dy * dx
    )
    arrays = pattern_bytes + 4 * (_images(workload) * ty * tx + ny * nx) + 16 * workload.work.probes
    return -(-(_HEADER_BYTES + arrays) // _PAGE_BYTES) * _PAGE_BYTES


def _images(workload: Workload) -> int:
    """Returns the number of densities of a sample: the projected one, and those of more than one
    bin.
    """
    return 1 + (workload.depth_bins if workload.depth_bins > 1 else 0)


def hdf5_bytes(workload: Workload) -> int:
    """Returns the size of a sample as `namsa.io.hdf5` writes it: arrays in full precision,
    positions, provenance.
    """
    (dy, dx), (ty, tx), (ny, nx) = (
        workload.pattern_shape,
        workload.density_shape,
        workload.grid.shape,
    )
    numbers = workload.work.probes * dy * dx + _images(workload) * ty * tx + ny * nx
    return (
        numbers * workload.dtype.itemsize // 2
        + _HDF5_BYTES
        + _HDF5_POSITION_BYTES * workload.work.probes
    )


def _count_work(setup: SampleSetup) -> prism.Work:
    """Counts slices, probes, coherent modes and plane waves."""
    config = setup.config
    grid = setup.grid
    microscope = setup.config.microscope
    if config.simulation.method == "scatter":  # the plane waves of all samples
        beam = optics.BeamSettings(microscope.energy_ev, largest_angle_mrad(config), {})
    else:
        beam = optics.BeamSettings(
            microscope.energy_ev, microscope.semiangle_mrad, {}, microscope.beam_tilt_mrad
        )
    beams = optics.aperture(grid, beam) != 0
    coherent = _coherent_probes(setup, beams)
    if config.detector:
        binning = detectors.bin_matrices(grid, beam.wavelength, config.detector)
    else:
        binning = None
    n_slices = _slices_of_specimen(setup)
    pixels = prism.detected_pixels(grid.antialias(), binning)
    return prism.count_work(n_slices, setup.positions_angstrom, coherent, beams, pixels)


def _elements(material: Material, entry: Entry) -> int:
    """Returns a number of elements that the specimen does not exceed: glass and substitution add
    some.
    """
    return len(_numbers(material)) + {
        "substitution": 1,
        "doped_layer": 1,
        "amorphous": 2,
        "amorphous_layer": 2,
    }.get(entry.kind, 0)


def _numbers(material: Material) -> set[int]:
    """Returns the atomic numbers of a crystal and of what is put beside it."""
    crystals = [material, *([material.partner] if material.partner else [])]
    return {
        atomic_number for crystal in crystals for atomic_number in crystal.atoms.numbers.tolist()
    }


def _coherent_probes(setup: SampleSetup, beams: npt.NDArray[np.bool_]) -> int:
    """Returns the coherent probes per position; the points of an even raster per position if that
    is averaged.
    """
    config = setup.config
    microscope = setup.config.microscope
    positions = setup.positions_angstrom
    axes = raster.axes(positions, config.scan.shape)
    averages = (
        config.simulation.method == "scatter"
        and config.detector
        and microscope.source_points is None
    )
    if axes and averages and microscope.source_size_angstrom:
        average = raster.source_average(setup.grid, beams, *axes, microscope.source_size_angstrom)
        if average:
            points = -(-len(average.y) * len(average.x) // len(positions))
            return points * len(coherent_modes(microscope, source_points=1))
    return len(setup.coherent_modes())


def _slices_of_specimen(setup: SampleSetup) -> int:
    """Returns the number of slices of the supercell, of which a sample may be a part."""
    config = setup.config
    lengths = setup.fit.lengths_angstrom
    if config.simulation.follows_layers:
        return layer_plan(config, setup.supercell().atoms).count
    return slice_plan.slice_count(lengths[2], equal_thickness(config, lengths))


def _distinct_slices(
    config: SimulationConfig, material: Material, entry: Entry, n_slices: int
) -> int:
    """Returns all slices if atoms are displaced or replaced, else those of the smallest supercell,
    which is tiled.
    """
    if config.specimen.frozen_phonons or entry.kind != "crystal":
        return n_slices
    specimen = config.specimen.model_copy(update={"lateral_angstrom": (1e-3, 1e-3)})
    fit = fit_supercell(config.model_copy(update={"specimen": specimen}), material, entry)
    cell = fill_cell(material.atoms, fit).atoms
    depth = fit.lengths_angstrom[2]
    atoms = atom_list(cell)
    if config.simulation.follows_layers:
        plan = layer_plan(config, cell)
    else:
        plan = slice_plan.equal_slices(atoms.z, depth, depth / n_slices)
    return len(potential.distinct_slices(atoms, plan)[0])
