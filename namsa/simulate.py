"""One specimen to one sample: the simulator's story, from atoms to a stack of patterns and its electron density."""

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
from namsa.engines.prism import MethodName
from namsa.physics import coherence, optics, potential, specimen
from namsa.physics import detector as detectors
from namsa.physics.backend import Backend, resolve_backend, to_host
from namsa.physics.form_factors import Table
from namsa.physics.grid import Grid
from namsa.sample import Sample


# Threads take slices and probes. More of them inside a product of small matrices would be slower, and its last bits
# would depend on how many there are.
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
    scan_shape: tuple[int, int] | None = None,
    on_progress: ProgressCallback = lambda stage, done, total: None,
) -> Sample:
    """4D-STEM patterns of `atoms` by multislice, with the specimen's projected density and potential.

    atoms: orthogonal periodic cell, beam along +z; `atoms.arrays["occupancy"]` is honoured
    grid_shape: (ny, nx) pixels over the cell
    positions_angstrom: (n, 2) probe positions (y, x) from the cell's origin; they wrap
    aberrations: Krivanek's, Å and rad; C10 = −defocus
    frozen_phonons: patterns are averaged over its configurations, drawn from `seed`
    engine: "fused" for grids without prime factors beyond 7, "plain" for all, to the same result but for rounding;
        "auto" takes the fused one on a CPU where it can, and says which in the provenance
    method: "prism" adds every probe up from plane waves, to the same result; "auto" does where `prism.pays`.
        The provenance says which engine and method it was
    detector: none gives patterns on the reciprocal grid, (n, ny, nx); its noise is drawn from `seed`
    beam_tilt_mrad, specimen_tilt_mrad: (y, x); see `optics.lens` and `optics.specimen_tilt`
    source_size_angstrom, focal_spread_angstrom: FWHM and rms of Gaussians; see `coherence` for what they cost
    projection: of atoms to slices; "finite" shares an atom among the slices that it reaches, see `finite`
    scan_shape: (sy, sx) where the positions are a raster, x fastest

    Raises InputError, before any work, for what cannot be simulated; warns (`checks.SimulationWarning`) of what can
    and may mislead.
    """
    arguments = dict(locals())  # first of all: the provenance has them all, by name
    check_atoms(atoms)
    positions = checks.check_positions(positions_angstrom, scan_shape)
    checks.check_choices(grid_shape, slice_thickness_angstrom, precision, projection, engine, method)
    aberrations = arguments["aberrations"] = dict(aberrations or {})
    optics.check_aberrations(aberrations)
    xp, real = resolve_backend(backend), np.dtype(precision)
    dtype = np.result_type(real, np.complex64)

    # ---- Geometry: the grid across the beam, the slices along it ----------------------------------------------------
    lx, ly, lz = (float(length) for length in atoms.cell.lengths())
    grid = Grid((int(grid_shape[0]), int(grid_shape[1])), (ly, lx))
    n_slices = potential.slice_count(lz, slice_thickness_angstrom)
    wavelength, sigma = optics.wavelength_angstrom(energy_ev), optics.interaction_constant(energy_ev)

    # ---- Optics: coherent probes, the way through a slice, the detector ---------------------------------------------
    # A scan that resolves how patterns change with position holds its own average over the source.
    scan = coherence.resolved_scan_shape(scan_shape, positions, grid, wavelength, semiangle_mrad)
    scan = scan if source_points is None else None
    source_points = 1 if scan else source_points
    modes = coherence.modes(
        wavelength, semiangle_mrad, source_size_angstrom, source_points, focal_spread_angstrom, focal_points
    )
    beam = optics.BeamSettings(energy_ev, semiangle_mrad, aberrations, beam_tilt_mrad, specimen_tilt_mrad)
    beams = optics.aperture(grid, energy_ev, semiangle_mrad, beam_tilt_mrad) != 0
    setup = dispatch.optical_setup(
        grid, beam, modes, lz / n_slices, detector, precision=precision, xp=xp, engine=engine
    )
    reuse = prism.choose(method, n_slices, positions, len(modes), beams, setup.fresnel, setup.binning)
    arguments |= {"engine": setup.implementation.name, "method": "prism" if reuse else "multislice"}
    electrons = detectors.electrons_per_pattern(detector, positions, scan_shape)

    shape = tuple(row.count for row in detectors.pixels(grid, wavelength, detector))
    checks.check_memory(len(positions), shape, real.itemsize)
    notes = checks.warn(grid, energy_ev, semiangle_mrad, aberrations, lz, lz / n_slices, detector, positions)

    # ---- The specimen, once for every thermal configuration, and what every probe makes of it -----------------------
    configurations = frozen_phonons.configurations if frozen_phonons else 1
    rng = np.random.default_rng(seed)
    cbed, density, projected = np.zeros((len(positions), *shape), real), np.zeros(grid.shape), np.zeros(grid.shape)
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
            on_slice=partial(on_progress, "slices"),
        )
        on_part = dispatch.part_of(on_progress, configuration, configurations)
        dispatch.add_patterns(cbed, positions, setup, sliced.slices, reuse, on_part)
        density += to_host(sliced.density)
        projected += to_host(sliced.projected_potential)
    density, projected = density / configurations, projected / configurations
    if configurations > 1:
        cbed /= configurations

    # ---- The source's size and the electrons' noise -----------------------------------------------------------------
    if scan and source_size_angstrom:
        coherence.average_over_source(cbed, scan, grid.extent_angstrom, source_size_angstrom)
    if electrons is not None:
        cbed = detectors.add_poisson_noise(cbed, electrons, seed)

    described = provenance.describe(
        arguments, grid, wavelength, detector, positions, lz, n_slices, len(modes), xp.__name__, notes
    )
    return Sample(cbed, density.astype(real), projected.astype(real), described)
