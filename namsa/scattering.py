"""`scatter`: one propagation of a specimen for all its thicknesses, probe positions and settings of the lens.

The scattering matrix of a specimen (see `namsa.engines.prism`) does not depend on the lens. The waves that build it up
pass every depth on their way. `scatter` therefore propagates the plane waves within an angle once, and keeps their
waves at each depth. From these, `Scattering.simulate` adds up any number of stacks of patterns:

    scattering = namsa.scatter(atoms, energy_ev=200e3, max_angle_mrad=25, thicknesses_angstrom=[20, 50, 100], ...)
    sample = scattering.simulate(1, semiangle_mrad=20, aberrations={"C10": -50}, positions_angstrom=..., ...)

What changes the waves inside of the specimen needs a scattering of its own: its atoms, its tilt, the beam's energy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import ase
import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from namsa import checks, provenance
from namsa.config.bounds import DEFAULT_ACCURACY
from namsa.config.instrument import Detector, FrozenPhonons, Scan
from namsa.config.response import Plasmons
from namsa.engines import dispatch, prism, raster
from namsa.engines.dispatch import EngineName
from namsa.engines.interface import ProgressCallback
from namsa.engines.prism import ScatteringMatrix
from namsa.errors import InputError
from namsa.exposure import ExposureSettings, expose
from namsa.io.charge_density import ChargeDensity
from namsa.memory import check_memory_for
from namsa.physics import optics
from namsa.physics.backend import Backend, to_host
from namsa.physics.form_factors import Table
from namsa.physics.grid import Grid
from namsa.physics.potential import Slices
from namsa.physics.specimen import Projection
from namsa.pixels import UNITS, PixelGrid
from namsa.sample import Sample
from namsa.scan import probe_positions
from namsa.slicing import Image, Slicing, SlicingSettings, given_shape, plan_slices


@dataclass(frozen=True, repr=False)
class Scattering:
    """How a specimen scatters plane waves, up to each of its depths. Made by `scatter`.

    Attributes:
        slicing: The specimen, how it is sliced and the engine that scattered it.
        max_angle_mrad: Largest angle of a plane wave with the axis, mrad.
        max_detected_mrad: Largest angle along y and x that detectors may record, mrad; `None`: the band limit.
        depths: Number of slices up to each depth.
        matrices: For every configuration of the atoms, the scattering matrix of each depth.
        densities: Projected electron density up to each depth, (depths, ny, nx), e/Å².
        projected_potentials: Projected potential up to each depth, (depths, ny, nx), V·Å.
    """

    slicing: Slicing
    max_angle_mrad: float
    max_detected_mrad: float | None
    depths: tuple[int, ...]
    matrices: tuple[tuple[ScatteringMatrix, ...], ...]
    densities: Image
    projected_potentials: Image

    @property
    def _summary(self) -> str:
        """Thicknesses, pixels and plane waves."""
        first, last = self.thicknesses_angstrom[0], self.thicknesses_angstrom[-1]
        depths = (
            f"{first:.4g} Å" if len(self.depths) == 1 else f"{len(self.depths)} depths, {first:.4g} to {last:.4g} Å"
        )
        matrix, (ny, nx) = self.matrices[0][0], self.grid.shape
        return (
            f"{depths}; {len(matrix.beams)} plane waves within {self.max_angle_mrad:g} mrad, grid of {ny}×{nx} pixels"
        )

    def __repr__(self) -> str:
        return f"<Scattering: {self._summary}>"

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows: the same line, and the projected potential and density."""
        from namsa.figures.notebook import described_html  # Matplotlib is loaded where it is needed
        from namsa.figures.page_images import PageImage

        pixels = PixelGrid(self.grid.sampling_angstrom, (0.0, 0.0))
        images = [
            (PageImage(title, units, stack[-1], pixels), "Å")
            for title, units, stack in (
                ("Electron density", UNITS["density"], self.densities),
                ("Projected potential", UNITS["projected_potential"], self.projected_potentials),
            )
        ]
        return described_html("Scattering", self._summary, images, ())

    @property
    def grid(self) -> Grid:
        """The sampling of the waves."""
        return self.slicing.grid

    @property
    def thicknesses_angstrom(self) -> tuple[float, ...]:
        """The thickness of the specimen up to each depth, Å."""
        return tuple(float(self.slicing.plan.ends_angstrom[depth - 1]) for depth in self.depths)

    @threadpool_limits.wrap(limits=1, user_api="blas")  # as in `namsa.simulate`
    def simulate(
        self,
        depth: int = -1,
        *,
        semiangle_mrad: float,
        scan: Scan | tuple[int, int] | None = None,
        positions_angstrom: npt.ArrayLike | None = None,
        aberrations: Mapping[str, float] | None = None,
        beam_tilt_mrad: tuple[float, float] = (0.0, 0.0),
        source_size_angstrom: float = 0.0,
        source_points: int | None = None,
        focal_spread_angstrom: float = 0.0,
        focal_points: int | None = None,
        detector: Detector | None = None,
        plasmons: Plasmons | None = None,
        scan_shape: tuple[int, int] | None = None,
        seed: int = 0,
        on_progress: ProgressCallback = lambda stage, done, total: None,
    ) -> Sample:
        """Simulates a stack of patterns.

        Args:
            depth: Number of the depth, from 0; -1 is the whole specimen.
            semiangle_mrad: Semi-angle of convergence, mrad. As the other arguments from here on, that of
                `namsa.simulate`; `seed` is that of the detector's noise.

        Returns:
            The sample that `namsa.simulate` returns for the specimen up to this depth, to rounding.

        Raises:
            InputError: If the probe has plane waves, or the detector pixels, beyond those of the scattering.
        """
        positions, shape = probe_positions(
            scan,
            positions_angstrom,
            scan_shape,
            extent_angstrom=self.grid.extent_angstrom,
            energy_ev=self.slicing.settings.energy_ev,
            semiangle_mrad=semiangle_mrad,
            seed=seed,
        )
        settings = ExposureSettings(
            semiangle_mrad=semiangle_mrad,
            aberrations=dict(aberrations or {}),
            beam_tilt_mrad=beam_tilt_mrad,
            source_size_angstrom=source_size_angstrom,
            source_points=source_points,
            focal_spread_angstrom=focal_spread_angstrom,
            focal_points=focal_points,
            detector=detector,
            plasmons=plasmons,
            scan_shape=shape,
            seed=seed,
        )
        axes = raster.axes(positions, shape) if detector else None
        average = self._source_average(axes, settings)
        prepared = replace(settings, source_points=1) if average else settings
        exposure = expose(self.slicing, positions, prepared, self.thicknesses_angstrom[depth])
        setup, slices = exposure.setup, self.depths[depth]
        modes = len(setup.modes)
        reuse = prism.choose("prism", slices, positions, modes, exposure.beams, setup.fresnel, setup.binning)
        assert reuse
        self._check_covers(reuse)

        thickness, equal = self.thicknesses_angstrom[depth], self.slicing.equal_slices_angstrom
        warnings = self.slicing.warnings + checks.warn(
            self.grid, setup.beam, thickness, equal, detector, positions, self.slicing.fault
        )
        precision = np.dtype(self.slicing.settings.precision)
        checks.check_memory(len(positions), exposure.pattern_shape, precision.itemsize)
        own = [matrices[depth] for matrices in self.matrices]
        if axes and setup.binning:
            patterns = _raster_patterns(own, setup, axes, average, on_progress)
        else:
            patterns = np.zeros((len(positions), *exposure.pattern_shape), precision)
            for number, matrix in enumerate(own):
                engine = prism.PrismEngine(self.grid, matrix.part(reuse.beams, reuse.pixels), reuse.batch)
                on_part = dispatch.part_of(on_progress, number, len(own))
                dispatch.add_patterns(patterns, positions, setup, engine, on_part)
        described = provenance.describe(
            self.slicing.described_settings | vars(settings) | {"method": "prism"},
            self.grid,
            wavelength=setup.beam.wavelength,
            atoms=self.slicing.description,
            positions=positions,
            thickness_angstrom=thickness,
            slices=slices,
            coherent_probes=modes,
            backend=self.slicing.xp.__name__,
            warnings=warnings,
        )
        finished = exposure.finish(patterns, configurations=len(self.matrices))
        return Sample(finished, self.densities[depth], self.projected_potentials[depth], described)

    def _source_average(
        self, axes: tuple[raster.Floats, raster.Floats] | None, settings: ExposureSettings
    ) -> raster.SourceAverage | None:
        """Returns the average over the source if an even raster takes fewer probes than the source's own points."""
        size = settings.source_size_angstrom
        if not (axes and size and np.isfinite(size) and settings.source_points is None):
            return None
        energy_ev = self.slicing.settings.energy_ev
        beam = optics.BeamSettings(energy_ev, settings.semiangle_mrad, {}, settings.beam_tilt_mrad)
        beams = optics.aperture(self.grid, beam) != 0
        return raster.source_average(self.grid, beams, *axes, size)

    def _check_covers(self, reuse: prism.PlaneWaveReuse) -> None:
        """Raises InputError if a plane wave or a pixel is not in the matrices."""
        matrix = self.matrices[0][0]
        for name, limit, needed, own in (
            ("max_angle_mrad", self.max_angle_mrad, reuse.beams, matrix.beams),
            ("max_detected_mrad", self.max_detected_mrad, reuse.pixels, matrix.pixels),
        ):
            missing = np.setdiff1d(np.flatnonzero(needed), own)
            if len(missing):
                ky, kx = self.grid.frequencies()
                y, x = np.unravel_index(missing, self.grid.shape)
                wavelength = optics.wavelength_angstrom(self.slicing.settings.energy_ev)
                angle = 1e3 * wavelength * float(np.hypot(ky[y, 0], kx[0, x]).max())
                raise InputError(
                    f"{name} is {limit}, and these patterns need waves up to {angle:.4g} mrad: scatter "
                    "with a larger one"
                )


def _raster_patterns(
    matrices: Sequence[ScatteringMatrix],
    setup: dispatch.OpticalSetup,
    axes: tuple[raster.Floats, raster.Floats],
    average: raster.SourceAverage | None,
    on_progress: ProgressCallback,
) -> npt.NDArray[Any]:
    """Returns the patterns (n, dy, dx) of a raster on the host, summed over thermal configurations."""
    y, x = (average.y, average.x) if average else axes
    probes = [raster.RasterProbe(setup.lens(m), y + m.shift[0], x + m.shift[1]) for m in setup.modes]
    assert setup.binning
    total: Any = 0
    for number, matrix in enumerate(matrices):
        on_pixels = partial(dispatch.part_of(on_progress, number, len(matrices)), "probes")
        total = total + raster.sum_patterns(matrix, setup.grid, probes, setup.binning, on_pixels)
    return to_host(raster.at_scan(total, average))


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `namsa.simulate`
def scatter(
    atoms: ase.Atoms | Sequence[ase.Atoms],
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
    charge_density: ChargeDensity | None = None,
    on_progress: ProgressCallback = lambda stage, done, total: None,
) -> Scattering:
    """Propagates the plane waves within an angle through a specimen, once for all its thicknesses and all lenses.

    Args:
        atoms: The specimen, as in `namsa.simulate`. Its cell is the thickest of the specimens.
        energy_ev: Electron energy, eV.
        max_angle_mrad: Largest angle of a plane wave with the axis, mrad: the largest sum of a semi-angle and a tilt of
            the beam that will be asked for.
        sampling: Largest size of a pixel, Å, along y and x. By default as `accuracy` needs.
        grid_shape: Pixels (ny, nx) over the cell, in place of `sampling`.
        thicknesses_angstrom: Thicknesses, Å, each rounded to a whole number of slices. By default that of the cell.
        max_detected_mrad: Largest angle along y and x that detectors will record, mrad. By default all that the grid
            holds; less takes less memory.
        reach_mrad: Largest angle along y and x that `accuracy` is for, mrad; by default `max_detected_mrad`.
        slice_thickness_angstrom: As the other arguments, that of `namsa.simulate`; `seed` is that of the thermal
            displacements.

    Raises:
        InputError: Before any work, if the arguments cannot be simulated.
        OutOfMemoryError: If the matrices do not fit into memory.
    """
    settings = SlicingSettings(
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
    reach = reach_mrad or max_detected_mrad
    slicing = plan_slices(atoms, settings, seed, backend, "prism", semiangle_mrad=max_angle_mrad, reach_mrad=reach)
    checks.check_ranges(semiangle_mrad=max_angle_mrad)
    grid, distances = slicing.grid, slicing.slice_thicknesses_angstrom
    depths = slicing.plan.depths(thicknesses_angstrom)
    beam = optics.BeamSettings(energy_ev, max_angle_mrad, {}, (0.0, 0.0), specimen_tilt_mrad)
    setup = dispatch.optical_setup(grid, beam, [], distances, None, precision=precision, xp=slicing.xp, engine=engine)
    pixels = prism.detected_pixels(setup.fresnel)
    if max_detected_mrad is not None:
        limit = 1e-3 * max_detected_mrad / beam.wavelength
        ky, kx = (np.abs(k) <= limit for k in grid.frequencies())
        pixels &= ky & kx
    beams = optics.aperture(grid, beam) != 0
    reuse = prism.PlaneWaveReuse(beams, pixels, 1)
    count, size = int(beams.sum()), int(pixels.sum())
    check_memory_for(
        float(count * size * slicing.dtype.itemsize) * len(depths) * slicing.configurations,
        f"{count} plane waves at {size} pixels, {len(depths)} depths and {slicing.configurations} configurations",
        "use a smaller max_detected_mrad, fewer thicknesses or fewer configurations",
    )

    matrices = []

    def propagate(configuration: int, slices: Slices, on_part: ProgressCallback) -> None:
        plane_waves = setup.implementation.plane_waves(grid, slices, setup.propagators)
        on_beams = partial(on_part, "plane waves")
        matrices.append(tuple(prism.scattering_matrices(plane_waves, setup.fresnel, reuse, depths, on_beams)))

    fields = slicing.average(propagate, on_progress, depths=depths)
    return Scattering(
        slicing=replace(slicing, settings=replace(settings, engine=setup.implementation.name)),
        max_angle_mrad=max_angle_mrad,
        max_detected_mrad=max_detected_mrad,
        depths=depths,
        matrices=tuple(matrices),
        densities=fields.densities,
        projected_potentials=fields.projected_potentials,
    )
