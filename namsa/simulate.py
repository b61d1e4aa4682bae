"""`simulate`: from atoms to a stack of diffraction patterns and the specimen's projected electron density."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import ase
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from namsa import checks, provenance
from namsa.config.instrument import Detector, FrozenPhonons
from namsa.crystals.sites import check_atoms, displace_atoms
from namsa.engines import dispatch, prism
from namsa.engines.dispatch import EngineName
from namsa.engines.interface import ProgressCallback
from namsa.engines.pattern_sink import MemorySink, PatternSink
from namsa.engines.prism import MethodName
from namsa.exposure import expose
from namsa.physics import optics, potential, specimen
from namsa.physics.backend import Backend, resolve_backend, to_host
from namsa.physics.form_factors import Table
from namsa.physics.grid import Grid
from namsa.sample import Sample


# Threads compute slices and probes. More threads inside a product of small matrices would be slower, and the last bits
# of the product would depend on their number.
@threadpool_limits.wrap(limits=1, user_api="blas")
def simulate(
    atoms: ase.Atoms,
    *,
    energy_ev: float,
    semiangle_mrad: float,
    grid_shape: tuple[int, int],
    positions_angstrom: npt.ArrayLike,
    slice_thickness_angstrom: float = 2.0,
    aberrations: Mapping[str, float] | None = None,
    form_factors: Table = "lobato",
    frozen_phonons: FrozenPhonons | None = None,
    precision: Literal["float32", "float64"] = "float32",
    backend: Backend = "auto",
    engine: EngineName = "auto",
    method: MethodName = "auto",
    seed: int = 0,
    detector: Detector | None = None,
    beam_tilt_mrad: tuple[float, float] = (0.0, 0.0),
    specimen_tilt_mrad: tuple[float, float] = (0.0, 0.0),
    source_size_angstrom: float = 0.0,
    source_points: int | None = None,
    focal_spread_angstrom: float = 0.0,
    focal_points: int | None = None,
    projection: specimen.Projection = "infinite",
    depth_bins: int = 1,
    scan_shape: tuple[int, int] | None = None,
    sink: PatternSink | None = None,
    on_progress: ProgressCallback = lambda stage, done, total: None,
) -> Sample:
    """Simulates 4D-STEM patterns by multislice, with the specimen's projected density and potential.

    Args:
        atoms: The specimen: an orthogonal periodic cell, with the beam along +z. `atoms.arrays["occupancy"]` holds
            occupancies, if there are any.
        energy_ev: Electron energy, eV.
        semiangle_mrad: Semi-angle of convergence, mrad.
        grid_shape: Pixels (ny, nx) over the cell.
        positions_angstrom: Probe positions (n, 2) as (y, x) from the cell's origin, Å. Positions outside the cell wrap.
        slice_thickness_angstrom: Largest thickness of a slice, Å. All slices are equally thick.
        aberrations: Krivanek coefficients, Å and rad; C10 = −defocus.
        form_factors: Table of atomic form factors, "lobato" or "kirkland".
        frozen_phonons: Thermal displacements, drawn from `seed`. Patterns, density and potential are averaged over its
            configurations. `None` leaves the atoms at rest.
        precision: "float32" or "float64" for waves and results.
        backend: "cpu", "cupy", or "auto" for a GPU if CuPy finds one.
        engine: "plain" supports every grid, "fused" those without prime factors beyond 7; they agree to rounding.
            "auto" chooses "fused" on a CPU if it supports the grid.
        method: "multislice" propagates every probe. "prism" adds the probes up from plane waves; the two agree to
            rounding. "auto" chooses "prism" if it costs less (`namsa.engines.prism.pays`).
        seed: Seed of the thermal displacements and of the detector's noise.
        detector: The detector. `None` leaves the patterns on the reciprocal grid, (n, ny, nx).
        beam_tilt_mrad: Tilt (y, x) of the beam, mrad; see `namsa.physics.optics.lens`.
        specimen_tilt_mrad: Tilt (y, x) of the specimen, mrad; see `namsa.physics.optics.specimen_tilt`.
        source_size_angstrom: FWHM of the Gaussian source at the specimen, Å; `namsa.physics.coherence` says its cost.
        source_points: Probes along each axis that sample the source. By default as many as the tolerance needs.
        focal_spread_angstrom: Rms of the Gaussian spread of defocus, Å; `namsa.physics.coherence` says its cost.
        focal_points: Probes that sample the focal spread. By default as many as the tolerance needs.
        projection: "infinite" puts an atom into the slice of its nucleus. "finite" shares it among the slices that it
            reaches; see `namsa.physics.finite`.
        depth_bins: Number of equal bins along the beam for which the sample has the density too, if more than 1.
        scan_shape: Rows and columns (sy, sx) if the positions are a raster, x fastest.
        sink: Takes the patterns batch by batch, so that they need not fit into memory: a `namsa.StackFile`. A source
            that is averaged over the whole scan makes one batch of it. `None` returns the patterns.
        on_progress: Called as `on_progress(stage, done, total)`.

    Returns:
        A `Sample` of patterns (n, dy, dx) as fractions of the beam, none if a sink has taken them, density (ny, nx) in
        e/Å², projected potential (ny, nx) in V·Å, and provenance, which names the engine and the method that were used.
        With `depth_bins` it has the density by depth too, (depth_bins, ny, nx).

    Raises:
        InputError: Before any work, if the arguments cannot be simulated.

    Warns:
        SimulationWarning: If the result may mislead; see `namsa.checks`.
    """
    arguments = dict(locals())  # before any other variable exists: the provenance holds all arguments by name
    check_atoms(atoms)
    positions = checks.check_positions(positions_angstrom, scan_shape)
    checks.check_choices(grid_shape, slice_thickness_angstrom, precision, projection, engine, method)
    checks.check_ranges(slice_thickness_angstrom=slice_thickness_angstrom)
    checks.check_depth_bins(depth_bins)
    if depth_bins == 1:
        del arguments["depth_bins"]  # the provenance of a projected density is as it was before there were bins
    aberrations = arguments["aberrations"] = dict(aberrations or {})
    xp, real = resolve_backend(backend), np.dtype(precision)
    dtype = np.result_type(real, np.complex64)

    # ---- Geometry: the grid across the beam, the slices along it ----------------------------------------------------
    lx, ly, lz = (float(length) for length in atoms.cell.lengths())
    grid = Grid((int(grid_shape[0]), int(grid_shape[1])), (ly, lx))
    n_slices = potential.slice_count(lz, slice_thickness_angstrom)
    sigma = optics.interaction_constant(energy_ev)

    # ---- Optics: coherent probes, the propagator, the detector ------------------------------------------------------
    exposure = expose(
        grid,
        lz / n_slices,
        positions,
        energy_ev=energy_ev,
        semiangle_mrad=semiangle_mrad,
        aberrations=aberrations,
        beam_tilt_mrad=beam_tilt_mrad,
        specimen_tilt_mrad=specimen_tilt_mrad,
        source_size_angstrom=source_size_angstrom,
        source_points=source_points,
        focal_spread_angstrom=focal_spread_angstrom,
        focal_points=focal_points,
        detector=detector,
        scan_shape=scan_shape,
        precision=precision,
        xp=xp,
        engine=engine,
        seed=seed,
    )
    setup = exposure.setup
    modes = len(setup.modes)
    reuse = prism.choose(method, n_slices, positions, modes, exposure.beams, setup.fresnel, setup.binning)
    arguments |= {"engine": setup.implementation.name, "method": "prism" if reuse else "multislice"}
    warnings = checks.warn(grid, setup.beam, lz, lz / n_slices, detector, positions)

    # ---- The patterns' place: an array, or a file that takes them batch by batch ------------------------------------
    sink = sink or MemorySink()
    multiple = len(positions) if exposure.averaged_scan else dispatch.batch_multiple(setup, reuse)
    identity = provenance.fingerprint(arguments, positions, xp.__name__)
    shape = (len(positions), *exposure.pattern_shape)
    batch = sink.begin(shape, real, scan_shape, multiple, identity)
    checks.check_memory(batch, exposure.pattern_shape, real.itemsize)

    # ---- For every thermal configuration: the specimen's slices, and the patterns of all probes ---------------------
    configurations = frozen_phonons.configurations if frozen_phonons else 1
    rng = np.random.default_rng(seed)
    density, projected = np.zeros(grid.shape), np.zeros(grid.shape)
    by_depth = np.zeros((depth_bins, *grid.shape)) if depth_bins > 1 else None
    finish = partial(exposure.finish, configurations=configurations)
    for configuration in range(configurations):
        thermal = displace_atoms(atoms, frozen_phonons.displacement_angstrom(), rng) if frozen_phonons else atoms
        sliced = specimen.build(
            thermal,
            grid,
            slice_thickness_angstrom,
            sigma,
            form_factors,
            dtype,
            xp,
            projection=projection,
            depth_bins=depth_bins,
            on_slice=partial(on_progress, "slices"),
        )
        on_part = dispatch.part_of(on_progress, configuration, configurations)
        last = configuration == configurations - 1
        dispatch.fill(sink, configuration, positions, setup, sliced.slices, reuse, finish if last else None, on_part)
        density += to_host(sliced.density)
        projected += to_host(sliced.projected_potential)
        if by_depth is not None:
            by_depth += to_host(sliced.density_by_depth) / configurations
    density, projected = density / configurations, projected / configurations
    described = provenance.describe(
        arguments,
        grid,
        positions=positions,
        thickness_angstrom=lz,
        slices=n_slices,
        coherent_probes=modes,
        backend=xp.__name__,
        warnings=warnings,
    )
    binned = None if by_depth is None else by_depth.astype(real)
    return Sample(sink.patterns(), density.astype(real), projected.astype(real), described, density_by_depth=binned)
