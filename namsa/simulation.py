"""`simulate`: from atoms to a stack of diffraction patterns and the specimen's projected electron density."""

from collections.abc import Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Literal

import ase
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from namsa import checks, provenance
from namsa.config.bounds import DEFAULT_ACCURACY
from namsa.config.instrument import Detector, FrozenPhonons, Scan
from namsa.config.response import Plasmons
from namsa.engines import dispatch, prism
from namsa.engines.dispatch import EngineName
from namsa.engines.interface import MemorySink, PatternSink, ProgressCallback
from namsa.engines.prism import MethodName
from namsa.exposure import ExposureSettings, expose
from namsa.io.charge_density import ChargeDensity
from namsa.physics.backend import Backend
from namsa.physics.form_factors import Table
from namsa.physics.potential import Slices
from namsa.physics.specimen import Projection
from namsa.sample import Sample
from namsa.scan import probe_positions
from namsa.slicing import SlicingSettings, given_shape, plan_slices, reach_of


# Threads compute slices and probes. More threads inside a product of small matrices would be slower, and the last bits
# of the product would depend on their number.
@threadpool_limits.wrap(limits=1, user_api="blas")
def simulate(
    atoms: ase.Atoms | Sequence[ase.Atoms],
    *,
    energy_ev: float,
    semiangle_mrad: float,
    scan: Scan | tuple[int, int] | None = None,
    sampling: float | None = None,
    grid_shape: tuple[int, int] | None = None,
    positions_angstrom: npt.ArrayLike | None = None,
    slice_thickness_angstrom: float | None = None,
    accuracy: float | None = DEFAULT_ACCURACY,
    band_fraction: float | None = None,
    reach_mrad: float | None = None,
    aberrations: Mapping[str, float] | None = None,
    form_factors: Table = "lobato",
    frozen_phonons: FrozenPhonons | None = None,
    precision: Literal["float32", "float64"] = "float32",
    backend: Backend = "auto",
    engine: EngineName = "auto",
    method: MethodName = "auto",
    seed: int = 0,
    detector: Detector | None = None,
    plasmons: Plasmons | None = None,
    beam_tilt_mrad: tuple[float, float] = (0.0, 0.0),
    specimen_tilt_mrad: tuple[float, float] = (0.0, 0.0),
    source_size_angstrom: float = 0.0,
    source_points: int | None = None,
    focal_spread_angstrom: float = 0.0,
    focal_points: int | None = None,
    projection: Projection = "infinite",
    charge_density: ChargeDensity | None = None,
    depth_bins: int = 1,
    scan_shape: tuple[int, int] | None = None,
    sink: PatternSink | None = None,
    on_progress: ProgressCallback = lambda stage, done, total: None,
) -> Sample:
    """Simulates 4D-STEM patterns by multislice, with the specimen's projected density and potential.

    Args:
        atoms: The specimen: an orthogonal cell that is periodic across the beam, which comes along +z. Atoms outside of
            it along z wrap if `atoms.pbc[2]`; else they stay, up to 1 Å. `atoms.arrays["occupancy"]` holds occupancies,
            if there are any. Of a sequence of snapshots of one cell, patterns, density and potential are averaged.
        energy_ev: Electron energy, eV.
        semiangle_mrad: Semi-angle of convergence, mrad.
        scan: Where the probe is: rows and columns (sy, sx) of a raster that fills the cell evenly, or a `namsa.Scan`
            with step and origin. By default it fills the cell in steps of λ/4α or less for a semi-angle α, which sample
            the intensity of the probe.
        sampling: Largest size of a pixel, Å, along y and x. By default as `accuracy` needs.
        grid_shape: Pixels (ny, nx) over the cell, in place of `sampling`.
        positions_angstrom: Probe positions (n, 2) as (y, x) from the cell's origin, Å, in place of `scan`. Positions
            outside the cell wrap.
        slice_thickness_angstrom: Largest thickness of a slice, Å; all slices are equally thick. By default slices
            begin at the layers of atoms, of which some share a slice if the detector cannot tell (see
            `namsa.physics.slice_plan`), or with the finite projection are as thick as such layers are apart.
        accuracy: Relative L2 error of all patterns within `reach_mrad` that pixels and slices are chosen for; that of
            any ring is ten times as large. `namsa.physics.sampling` says how. A grid that is given is judged by it.
            `None` does not judge, and chooses for 0.01.
        band_fraction: The band limit as a fraction of the Nyquist frequency. By default 2/3, as other programs have it,
            for a grid that is given, and 1 for one that is chosen; see `namsa.physics.grid.Grid`.
        reach_mrad: Largest angle along y and x that `accuracy` is for, mrad. By default the detector's, or 100 mrad
            without one.
        aberrations: Krivanek coefficients, Å and rad; C10 = −defocus.
        form_factors: Table of atomic form factors, "lobato" or "kirkland".
        frozen_phonons: Thermal displacements, drawn from `seed`. Patterns, density and potential are averaged over its
            configurations of each snapshot. `None` leaves the atoms where they are.
        precision: "float32" or "float64" for waves and results.
        backend: "cpu", "cupy", or "auto" for a GPU if CuPy finds one.
        engine: "plain" supports every grid, "fused" those without prime factors beyond 7; they agree to rounding.
            "auto" chooses "fused" on a CPU if it supports the grid.
        method: "multislice" propagates every probe. "prism" adds the probes up from plane waves; the two agree to
            rounding. "auto" chooses "prism" if it costs less (`namsa.engines.prism.pays`).
        seed: Seed of the thermal displacements and of the detector's noise.
        detector: The detector. `None` leaves the patterns on the reciprocal grid, (n, ny, nx).
        plasmons: Inelastic scattering by plasmons, which broadens the patterns (`namsa.physics.response`). `None`
            leaves it out.
        beam_tilt_mrad: Tilt (y, x) of the beam, mrad; see `namsa.physics.optics.lens`.
        specimen_tilt_mrad: Tilt (y, x) of the specimen, mrad; see `namsa.physics.optics.specimen_tilt`.
        source_size_angstrom: FWHM of the Gaussian source at the specimen, Å; `namsa.physics.coherence` says its cost.
        source_points: Probes along each axis that sample the source. By default as many as the tolerance needs.
        focal_spread_angstrom: Rms of the Gaussian spread of defocus, Å; `namsa.physics.coherence` says its cost.
        focal_points: Probes that sample the focal spread. By default as many as the tolerance needs.
        projection: "infinite" puts an atom into the slice of its nucleus. "finite" shares it among the slices that it
            reaches; see `namsa.physics.finite`.
        charge_density: All electrons of a cell that `atoms` repeats, as of DFT (`namsa.read_charge_density`). What
            bonds change is added to the independent atoms of each slice (`namsa.physics.bonding`) and to the density,
            and does not move with them thermally.
        depth_bins: Number of equal bins along the beam for which the sample has the density too, if more than 1.
        scan_shape: Rows and columns (sy, sx) if `positions_angstrom` are a raster, x fastest.
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
    checks.check_depth_bins(depth_bins)

    # ---- Geometry: the grid across the beam, the slices along it ----------------------------------------------------
    own = SlicingSettings(
        energy_ev=energy_ev,
        grid_shape=given_shape(atoms, grid_shape, sampling),
        slice_thickness_angstrom=slice_thickness_angstrom,
        accuracy=accuracy,
        band_fraction=band_fraction,
        form_factors=form_factors,
        frozen_phonons=frozen_phonons,
        precision=precision,
        engine=engine,
        specimen_tilt_mrad=specimen_tilt_mrad,
        projection=projection,
        charge_density=charge_density,
    )
    reach = reach_mrad or reach_of(atoms, detector, energy_ev)
    slicing = plan_slices(atoms, own, seed, backend, method, semiangle_mrad=semiangle_mrad, reach_mrad=reach)
    positions, raster = probe_positions(
        scan,
        positions_angstrom,
        scan_shape,
        extent_angstrom=slicing.grid.extent_angstrom,
        energy_ev=energy_ev,
        semiangle_mrad=semiangle_mrad,
        seed=seed,
    )

    # ---- Optics: coherent probes, the propagator, the detector ------------------------------------------------------
    lighting = ExposureSettings(
        semiangle_mrad=semiangle_mrad,
        aberrations=dict(aberrations or {}),
        beam_tilt_mrad=beam_tilt_mrad,
        source_size_angstrom=source_size_angstrom,
        source_points=source_points,
        focal_spread_angstrom=focal_spread_angstrom,
        focal_points=focal_points,
        detector=detector,
        plasmons=plasmons,
        scan_shape=raster,
        seed=seed,
    )
    exposure = expose(slicing, positions, lighting)
    setup, modes = exposure.setup, len(exposure.setup.modes)
    reuse = prism.choose(method, slicing.slices, positions, modes, exposure.beams, setup.fresnel, setup.binning)
    thickness, equal, fault = slicing.thickness_angstrom, slicing.equal_slices_angstrom, slicing.fault
    warnings = slicing.warnings + checks.warn(slicing.grid, setup.beam, thickness, equal, detector, positions, fault)
    settings = slicing.described_settings | vars(lighting)
    settings |= {"engine": setup.implementation.name, "method": "prism" if reuse else "multislice"}
    if depth_bins > 1:
        settings["depth_bins"] = depth_bins
    settings = {name: settings[name] for name in signature(simulate).parameters if name in settings}

    # ---- The patterns' place: an array, or a file that takes them batch by batch ------------------------------------
    sink = sink or MemorySink()
    multiple = len(positions) if exposure.averaged_scan else dispatch.batch_multiple(setup, reuse)
    identity = provenance.fingerprint(settings, slicing.snapshots, positions, slicing.xp.__name__)
    shape, real = (len(positions), *exposure.pattern_shape), np.dtype(precision)
    batch = sink.begin(shape, real, raster, multiple, identity)
    checks.check_memory(batch, exposure.pattern_shape, real.itemsize)

    # ---- For every configuration of the atoms: the specimen's slices, and the patterns of all probes -----------------
    finish = partial(exposure.finish, configurations=slicing.configurations)

    def scatter(configuration: int, slices: Slices, on_part: ProgressCallback) -> None:
        last = configuration == slicing.configurations - 1
        dispatch.fill(sink, configuration, positions, setup, slices, reuse, finish if last else None, on_part)

    fields = slicing.average(scatter, on_progress, depth_bins=depth_bins)
    described = provenance.describe(
        settings,
        slicing.grid,
        wavelength=setup.beam.wavelength,
        atoms=slicing.description,
        positions=positions,
        thickness_angstrom=thickness,
        slices=slicing.slices,
        coherent_probes=modes,
        backend=slicing.xp.__name__,
        warnings=warnings,
    )
    density, projected = fields.densities[-1], fields.projected_potentials[-1]
    return Sample(sink.patterns(), density, projected, described, density_by_depth=fields.density_by_depth)
