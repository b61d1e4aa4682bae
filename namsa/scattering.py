"""`scatter`: one propagation of a specimen for all its thicknesses, probe positions and settings of
the lens.

The scattering matrix of a specimen (see `namsa.engines.prism`) does not depend on the lens. The
waves that build it up pass every depth on their way. `scatter` therefore propagates the plane waves
within an angle once, and keeps their waves at each depth. From these, `Scattering.simulate` adds up
any number of stacks of patterns:

    scattering = namsa.scatter(
        atoms, energy_ev=200e3, max_angle_mrad=25, thicknesses_angstrom=[20, 50, 100]
    )
    sample = scattering.simulate(1, semiangle_mrad=20, aberrations={"C10": -50}, scan=(16, 16))

What changes the waves inside of the specimen needs a scattering of its own: its atoms, its tilt,
the beam's energy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from namsa.base.errors import issue_warnings
from namsa.base.memory import check_memory_for
from namsa.base.notebook_progress import notebook_bar
from namsa.config.bounds import DEFAULT_ACCURACY
from namsa.config.numerics import PropagatorName
from namsa.config.specimen import FrozenPhonons
from namsa.crystals.crystal_source import SpecimenSource
from namsa.crystals.specimen_source import specimen_of
from namsa.engines import dispatch, prism
from namsa.engines.dispatch import EngineName
from namsa.engines.expected_time import time_note
from namsa.engines.interface import ProgressCallback
from namsa.io.charge_density import ChargeDensity
from namsa.physics import optics
from namsa.physics.backend import Backend
from namsa.physics.form_factors import Table
from namsa.physics.potential import Slices
from namsa.physics.specimen import Projection
from namsa.sampling.slicing import Slicing, plan_slices
from namsa.sampling.snapshots import Snapshots
from namsa.scattered_samples import Scattering, no_progress
from namsa.setup import checks
from namsa.setup.settings import SimulationSettings, settings_of


def scatter(
    atoms: SpecimenSource,
    *,
    energy_ev: float,
    max_angle_mrad: float,
    sampling: float | None = None,
    grid_shape: tuple[int, int] | None = None,
    thicknesses_angstrom: Sequence[float] | None = None,
    max_detected_mrad: float | None = None,
    slice_thickness_angstrom: float | None = None,
    accuracy: float | None = DEFAULT_ACCURACY,
    reach_mrad: float | None = None,
    band_fraction: float | None = None,
    form_factors: Table = "lobato",
    frozen_phonons: FrozenPhonons | None = None,
    precision: Literal["float32", "float64"] = "float32",
    backend: Backend = "auto",
    engine: EngineName = "auto",
    seed: int = 0,
    specimen_tilt_mrad: tuple[float, float] = (0.0, 0.0),
    projection: Projection = "infinite",
    propagator: PropagatorName = "paraxial",
    charge_density: ChargeDensity | None = None,
    on_progress: ProgressCallback | None = None,
) -> Scattering:
    """Propagates the plane waves within an angle through a specimen, once for all its thicknesses
    and all lenses.

    Args:
        atoms: The specimen, as in `namsa.simulate`. Its cell is the thickest of the specimens.
        energy_ev: Electron energy, eV.
        max_angle_mrad: Largest angle of a plane wave with the axis, mrad: the largest sum of a
            semi-angle and a tilt of the beam that will be asked for.
        sampling: Largest size of a pixel, Å, along y and x. By default as `accuracy` needs.
        grid_shape: Pixels (ny, nx) over the cell, in place of `sampling`.
        thicknesses_angstrom: Thicknesses, Å, each rounded to a whole number of slices. By default
            that of the cell.
        max_detected_mrad: Largest angle along y and x that detectors will record, mrad. By default
            all that the grid holds; less takes less memory.
        reach_mrad: Largest angle along y and x that `accuracy` is for, mrad; by default
            `max_detected_mrad`.
        slice_thickness_angstrom: As the other arguments, that of `namsa.simulate`; `seed` is that
            of the thermal displacements.
        on_progress: Called as `on_progress(stage, done, total)`. Default: a bar in a notebook,
            if the call takes long, and else nothing.

    Raises:
        InputError: Before any work, if the arguments cannot be simulated.
        OutOfMemoryError: If the matrices do not fit into memory.

    Example:
        >>> scattering = namsa.scatter(
        ...     cell.atoms,
        ...     energy_ev=200e3,
        ...     max_angle_mrad=20,
        ...     accuracy=0.1,
        ...     thicknesses_angstrom=[5, 10],
        ... )
        >>> type(scattering).__name__
        'Scattering'
    """
    arguments = dict(locals())  # by name, of which these five are no settings
    del arguments["atoms"], arguments["on_progress"], arguments["thicknesses_angstrom"]
    del arguments["max_angle_mrad"], arguments["max_detected_mrad"]
    plan = plan_scattering(
        specimen_of(atoms).atoms,
        settings_of(arguments),
        max_angle_mrad=max_angle_mrad,
        max_detected_mrad=max_detected_mrad,
        thicknesses_angstrom=thicknesses_angstrom,
    )
    # They point at the caller.
    issue_warnings(plan.slicing.warnings, plan.time_notes(), stacklevel=2)
    with notebook_bar(on_progress) as report:
        return plan.run(report)


@dataclass(frozen=True)
class ScatteringPlan:
    """A scattering whose arguments are checked, before any work."""

    slicing: Slicing  # the specimen, its pixels, slices and thermal configurations
    max_angle_mrad: float  # largest angle of a plane wave with the axis, mrad
    max_detected_mrad: float | None  # largest angle along y and x of the waves that are kept, mrad
    depths: tuple[tuple[int, ...], ...]  # numbers of slices of each snapshot up to each depth
    setup: dispatch.OpticalSetup  # the propagators and the engine
    reuse: prism.PlaneWaveReuse  # the plane waves, and the pixels of the waves that are kept

    @threadpool_limits.wrap(limits=1, user_api="blas")  # as in `namsa.simulate`
    def time_notes(self) -> tuple[str, ...]:
        """Returns how long the scattering will take, in a line; nothing of a short one."""
        slicing = self.slicing
        no_positions = np.zeros((1, 2))
        work = prism.count_work(
            slicing.slices, no_positions, 1, self.reuse.beams, self.reuse.pixels
        )
        counts = slicing.counts(work, slicing.grid.shape)
        engine = slicing.settings.simulation.engine
        note = time_note(counts, "scatter", engine, slicing.xp is np)
        return (note,) if note else ()

    @threadpool_limits.wrap(limits=1, user_api="blas")  # as in `namsa.simulate`
    def run(self, on_progress: ProgressCallback = no_progress) -> Scattering:
        """Propagates the plane waves through all thermal configurations."""
        setup = self.setup
        matrices = []

        def propagate(configuration: int, slices: Slices, on_part: ProgressCallback) -> None:
            plane_waves = setup.implementation.plane_waves(setup.grid, slices, setup.propagators)
            on_beams = partial(on_part, "plane waves")
            of_depths = prism.scattering_matrices(
                plane_waves,
                setup.fresnel,
                self.reuse,
                self.depths[self.slicing.snapshot_of(configuration)],
                on_beams,
            )
            matrices.append(tuple(of_depths))

        fields = self.slicing.average(propagate, on_progress, depths=self.depths)
        return Scattering(
            slicing=self.slicing,
            max_angle_mrad=self.max_angle_mrad,
            max_detected_mrad=self.max_detected_mrad,
            depths=self.depths[0],
            matrices=tuple(matrices),
            densities=fields.densities,
            projected_potentials=fields.projected_potentials,
        )


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `namsa.simulate`
def plan_scattering(
    atoms: Snapshots,
    settings: SimulationSettings,
    *,
    max_angle_mrad: float,
    max_detected_mrad: float | None = None,
    thicknesses_angstrom: Sequence[float] | None = None,
) -> ScatteringPlan:
    """Checks a scattering and makes its choices, without any work.

    Args:
        atoms: The specimen. As the other arguments, that of `scatter`.
        settings: Energy and tilt of the specimen, numerical settings, thermal displacements and
            their seed. Of the rest the scattering does not depend.

    Raises:
        InputError: If it cannot be done so.
        OutOfMemoryError: If the matrices do not fit into memory.
    """
    microscope = settings.microscope.model_copy(update={"semiangle_mrad": max_angle_mrad})
    settings = replace(
        settings,
        microscope=microscope,
        simulation=settings.simulation.model_copy(update={"method": "prism"}),
        reach_mrad=settings.reach_mrad or max_detected_mrad,
        detector=None,
    )
    slicing = plan_slices(atoms, settings)
    checks.check_ranges(semiangle_mrad=max_angle_mrad)
    grid = slicing.grid
    depths = slicing.depths(thicknesses_angstrom)
    beam = optics.BeamSettings(
        microscope.energy_ev, max_angle_mrad, {}, (0.0, 0.0), microscope.specimen_tilt_mrad
    )
    setup = dispatch.optical_setup(
        grid,
        beam,
        [],
        slicing.slice_thicknesses_angstrom,
        None,
        precision=settings.simulation.precision,
        xp=slicing.xp,
        engine=settings.simulation.engine,
        propagation=settings.simulation.propagator,
    )
    pixels = prism.detected_pixels(setup.fresnel)
    if max_detected_mrad is not None:
        largest_frequency = 1e-3 * max_detected_mrad / beam.wavelength
        ky, kx = grid.frequencies()
        pixels &= (np.abs(ky) <= largest_frequency) & (np.abs(kx) <= largest_frequency)
    beams = optics.aperture(grid, beam) != 0
    _check_matrices_fit(slicing, len(depths[0]), int(beams.sum()), int(pixels.sum()))
    chosen = slicing.settings.simulation.model_copy(update={"engine": setup.implementation.name})
    return ScatteringPlan(
        slicing=replace(slicing, settings=replace(slicing.settings, simulation=chosen)),
        max_angle_mrad=max_angle_mrad,
        max_detected_mrad=max_detected_mrad,
        depths=depths,
        setup=setup,
        reuse=prism.PlaneWaveReuse(beams, pixels, 1),
    )


def _check_matrices_fit(slicing: Slicing, depths: int, beams: int, pixels: int) -> None:
    """Raises OutOfMemoryError if the scattering matrices of all configurations do not fit.

    Args:
        depths: Number of depths.
        beams: Number of plane waves.
        pixels: Number of pixels of the waves that are kept.
    """
    matrix_bytes = float(beams * pixels * slicing.dtype.itemsize)
    check_memory_for(
        matrix_bytes * depths * slicing.configurations,
        f"{beams} plane waves at {pixels} pixels, {depths} depths and {slicing.configurations} "
        "configurations",
        "use a smaller max_detected_mrad, fewer thicknesses or fewer configurations",
    )
