"""`simulate`: from atoms to diffraction patterns and the specimen's projected electron density.

A simulation is a plan, which checks everything and does no work, then its run.
"""

from collections.abc import Mapping
from typing import Literal

import numpy.typing as npt

from namsa.base.errors import issue_warnings
from namsa.base.notebook_progress import notebook_bar
from namsa.config.bounds import DEFAULT_ACCURACY
from namsa.config.instrument import Detector, Scan
from namsa.config.numerics import PropagatorName
from namsa.config.response import Plasmons
from namsa.config.specimen import FrozenPhonons
from namsa.crystals.crystal_source import SpecimenSource
from namsa.engines.dispatch import EngineName
from namsa.engines.interface import PatternSink, ProgressCallback
from namsa.engines.prism import MethodName
from namsa.io.charge_density import ChargeDensity
from namsa.physics.backend import Backend
from namsa.physics.form_factors import Table
from namsa.physics.optics import ApertureEdge
from namsa.physics.specimen import Projection
from namsa.samples.sample import Sample
from namsa.setup.settings import settings_of
from namsa.setup.specimen_size import specimen_of_settings
from namsa.simulation_plan import plan_simulation


def simulate(
    atoms: SpecimenSource,
    *,
    energy_ev: float,
    semiangle_mrad: float,
    zone_axis: tuple[int, int, int] | None = None,
    thickness_angstrom: float | None = None,
    lateral_angstrom: tuple[float, float] | None = None,
    scan: Scan | tuple[int, int] | None = None,
    sampling: float | None = None,
    grid_shape: tuple[int, int] | None = None,
    positions_angstrom: npt.ArrayLike | None = None,
    slice_thickness_angstrom: float | None = None,
    accuracy: float | None = DEFAULT_ACCURACY,
    band_fraction: float | None = None,
    reach_mrad: float | None = None,
    aberrations: Mapping[str, float] | None = None,
    aperture_edge: ApertureEdge = "intensity",
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
    propagator: PropagatorName = "paraxial",
    interpolation: int = 1,
    charge_density: ChargeDensity | None = None,
    depth_bins: int = 1,
    waves: bool = False,
    scan_shape: tuple[int, int] | None = None,
    sink: PatternSink | None = None,
    on_progress: ProgressCallback | None = None,
) -> Sample:
    """Simulates 4D-STEM patterns, with the specimen's projected density and potential.

    Args:
        atoms: The specimen: an orthogonal cell that is periodic across the beam, which comes along
            +z. Atoms outside of it along z wrap if `atoms.pbc[2]`; else they stay, up to 1 Å.
            `atoms.arrays["occupancy"]` holds occupancies, if there are any. Of a sequence of
            snapshots of one cell, patterns, density and potential are averaged. A material, or the
            path of a file that `namsa.read_crystal` reads, stands for its atoms.
        energy_ev: Electron energy, eV.
        semiangle_mrad: Semi-angle of convergence, mrad.
        zone_axis: Direction [uvw] of the crystal `atoms` that lies along the beam: the specimen is
            then a supercell of it, as `namsa.make_supercell` makes it. By default (0, 0, 1) if
            there is a thickness; with neither, `atoms` are the specimen.
        thickness_angstrom: Thickness of that supercell, Å, rounded to whole periods.
        lateral_angstrom: Smallest extent (y, x) of that supercell, Å. By default
            `LATERAL_ANGSTROM`, and as much as the probe spreads to and the detector's pixels need.
        scan: Where the probe is: rows and columns (sy, sx) of a raster that fills the cell evenly,
            or a `namsa.Scan` with step and origin. By default it fills the cell in steps of λ/4α or
            less for a semi-angle α, which sample the intensity of the probe.
        sampling: Largest size of a pixel, Å, along y and x. By default as `accuracy` needs.
        grid_shape: Pixels (ny, nx) over the cell, in place of `sampling`.
        positions_angstrom: Probe positions (n, 2) as (y, x) from the cell's origin, Å, in place of
            `scan`. Positions outside the cell wrap.
        slice_thickness_angstrom: Largest thickness of a slice, Å; all slices are equally thick. By
            default slices begin at the layers of atoms, of which some share a slice if the detector
            cannot tell (see `namsa.physics.slice_plan`); with the finite projection they are thin
            about the layers, and thicker between them.
        accuracy: Relative L2 error of all patterns within `reach_mrad` that pixels and slices are
            chosen for (`namsa.sampling.resolution`); that of any ring is ten times as large. A grid
            that is given is judged by it. `None` does not judge, and chooses for 0.01.
        band_fraction: The band limit as a fraction of the Nyquist frequency. By default 2/3, as
            other programs have it, for a grid that is given, and 1 for one that is chosen; see
            `namsa.physics.grid.Grid`.
        reach_mrad: Largest angle along y and x that `accuracy` is for, mrad. By default the
            detector's, or 100 mrad without one.
        aberrations: Krivanek coefficients, Å and rad; C10 = −defocus.
        aperture_edge: What falls linearly over the reciprocal pixel of the aperture's edge:
            "intensity", so that the disk has the solid angle of `semiangle_mrad`, or "amplitude",
            as abTEM has it.
        form_factors: Table of atomic form factors, "lobato" or "kirkland".
        frozen_phonons: Thermal displacements, drawn from `seed`. Patterns, density and potential
            are averaged over its configurations of each snapshot. `None` leaves the atoms where
            they are.
        precision: "float32" or "float64" for waves and results.
        backend: "cpu", "cupy", or "auto" for a GPU if CuPy finds one.
        engine: "plain" supports every grid, "fused" those without prime factors beyond 7; they
            agree to rounding. "auto" chooses "fused" on a CPU if it supports the grid.
        method: "multislice" propagates every probe. "prism" adds the probes up from plane waves;
            the two agree to rounding. "auto" chooses "prism" if it costs less
            (`namsa.engines.prism.pays`).
        seed: Seed of the thermal displacements and of the detector's noise.
        detector: The detector. `None` leaves the patterns on the reciprocal grid, (n, ny, nx).
        plasmons: Inelastic scattering by plasmons, which broadens the patterns
            (`namsa.physics.response`). `None` leaves it out.
        beam_tilt_mrad: Tilt (y, x) of the beam, mrad; see `namsa.physics.optics.lens`.
        specimen_tilt_mrad: Tilt (y, x) of the specimen, mrad; see
            `namsa.physics.optics.specimen_tilt`.
        source_size_angstrom: FWHM of the Gaussian source at the specimen, Å;
            `namsa.physics.coherence` says its cost.
        source_points: Probes along each axis that sample the source. By default as many as the
            tolerance needs.
        focal_spread_angstrom: Rms of the Gaussian spread of defocus, Å; `namsa.physics.coherence`
            says its cost.
        focal_points: Probes that sample the focal spread. By default as many as the tolerance
            needs.
        projection: "infinite" puts an atom into the slice of its nucleus. "finite" shares it among
            the slices that it reaches; see `namsa.physics.finite`.
        propagator: "paraxial" is Fresnel's propagator; "exact" holds at any angle, at the same cost
            (`namsa.engines.multislice`).
        interpolation: PRISM with every n-th plane wave along each axis, approximate for n above 1:
            exit waves are cut to 1/n of the cell's sides (`namsa.engines.interpolated_prism`).
        charge_density: All electrons of a cell that `atoms` repeats, as of DFT
            (`namsa.read_charge_density`). What bonds change is added to the independent atoms of
            each slice (`namsa.physics.bonding`) and to the density, and does not move with them
            thermally.
        depth_bins: Number of equal bins along the beam for which the sample has the density too, if
            more than 1.
        waves: Whether the sample has the exit waves, too: `sample.waves`, complex, (m, n, ny, nx).
            They take memory, and the plain engine.
        scan_shape: Rows and columns (sy, sx) if `positions_angstrom` are a raster, x fastest.
        sink: Takes the patterns batch by batch, so that they need not fit into memory: a
            `namsa.StackFile`. A source that is averaged over the whole scan makes one batch of it.
            `None` returns the patterns.
        on_progress: Called as `on_progress(stage, done, total)`. Default: a bar in a notebook,
            if the call takes long, and else nothing.

    Returns:
        A `Sample` of patterns (n, dy, dx) as fractions of the beam, none if a sink has taken them,
        density (ny, nx) in e/Å², projected potential (ny, nx) in V·Å, and provenance, which names
        the engine and the method that were used. With `depth_bins` it has the density by depth too,
        (depth_bins, ny, nx).

    Raises:
        InputError: Before any work, if the arguments cannot be simulated.

    Warns:
        SimulationWarning: If the result may mislead; see `namsa.setup.checks`. Before a simulation
            of more than a minute, how long it will take.

    Example:
        >>> sample = namsa.simulate(
        ...     cell.atoms, energy_ev=200e3, semiangle_mrad=20, scan=(4, 5), accuracy=0.1
        ... )
        >>> sample.stack.shape[:2]
        (4, 5)
        >>> bool(0.9 < sample.cbed.sum(axis=(1, 2)).min() <= 1)
        True
    """
    arguments = dict(locals())  # by name, of which these six are no settings
    del arguments["atoms"], arguments["sink"], arguments["on_progress"]
    del arguments["zone_axis"], arguments["thickness_angstrom"], arguments["lateral_angstrom"]
    settings = settings_of(arguments)
    specimen = specimen_of_settings(
        atoms, settings, zone_axis, thickness_angstrom, lateral_angstrom
    )
    plan = plan_simulation(specimen.atoms, settings)
    issue_warnings((), plan.time_notes(), stacklevel=2)  # it points at the caller
    plan = plan.measured()
    issue_warnings(plan.warnings, plan.notes, stacklevel=2)
    with notebook_bar(on_progress) as report:
        sample = plan.run(sink, report)
    sample.provenance.update(specimen.described)
    return sample
