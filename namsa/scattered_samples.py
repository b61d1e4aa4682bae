"""Samples of a specimen whose scattering of plane waves is known: any number of stacks of patterns.

`namsa.scatter` makes the `Scattering`, and `Scattering.simulate` adds its waves up to patterns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from namsa.base.arrays import Array, Booleans, Floats, Integers
from namsa.base.errors import InputError, issue_warnings
from namsa.base.notebook_progress import notebook_bar
from namsa.base.pixels import UNITS, PixelGrid
from namsa.config.instrument import Detector, Scan
from namsa.config.response import Plasmons
from namsa.engines import dispatch, prism, raster
from namsa.engines.exposure import Exposure, expose
from namsa.engines.interface import ProgressCallback
from namsa.engines.prism import ScatteringMatrix
from namsa.physics import optics
from namsa.physics.backend import to_host
from namsa.physics.grid import Grid
from namsa.samples.sample import Sample
from namsa.sampling.slicing import Image, Slicing, requirement_of
from namsa.setup import checks, provenance
from namsa.setup.scan import probe_positions
from namsa.setup.settings import SimulationSettings, settings_of


def no_progress(stage: str, done: int, total: int) -> None:
    """Reports no progress."""


@dataclass(frozen=True, repr=False)
class Scattering:
    """Scattering of plane waves by a specimen, up to each of its depths. Made by `scatter`.

    Attributes:
        slicing: The specimen, how it is sliced and the engine that scattered it.
        max_angle_mrad: Largest angle of a plane wave with the axis, mrad.
        max_detected_mrad: Largest angle along y and x that detectors may record, mrad; `None`: the
            band limit.
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
        thinnest = self.thicknesses_angstrom[0]
        thickest = self.thicknesses_angstrom[-1]
        if len(self.depths) == 1:
            depths = f"{thinnest:.4g} Å"
        else:
            depths = f"{len(self.depths)} depths, {thinnest:.4g} to {thickest:.4g} Å"
        beams = len(self.matrices[0][0].beams)
        ny, nx = self.grid.shape
        return (
            f"{depths}; {beams} plane waves within {self.max_angle_mrad:g} mrad, grid of "
            f"{ny}×{nx} pixels"
        )

    def __repr__(self) -> str:
        return f"<Scattering: {self._summary}>"

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows: the same line, and the projected potential and
        density.
        """
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

    def simulate(
        self,
        depth: int = -1,
        *,
        semiangle_mrad: float,
        scan: Scan | tuple[int, int] | None = None,
        positions_angstrom: npt.ArrayLike | None = None,
        aberrations: Mapping[str, float] | None = None,
        aperture_edge: optics.ApertureEdge = "intensity",
        beam_tilt_mrad: tuple[float, float] = (0.0, 0.0),
        source_size_angstrom: float = 0.0,
        source_points: int | None = None,
        focal_spread_angstrom: float = 0.0,
        focal_points: int | None = None,
        detector: Detector | None = None,
        plasmons: Plasmons | None = None,
        scan_shape: tuple[int, int] | None = None,
        seed: int = 0,
        on_progress: ProgressCallback | None = None,
    ) -> Sample:
        """Simulates a stack of patterns.

        Args:
            depth: Number of the depth, from 0; -1 is the whole specimen.
            semiangle_mrad: Semi-angle of convergence, mrad. As the other arguments from here on,
                that of `namsa.simulate`; `seed` is that of the detector's noise.
            on_progress: As that of `namsa.simulate`.

        Returns:
            The sample that `namsa.simulate` returns for the specimen up to this depth, to rounding.

        Raises:
            InputError: If the probe has plane waves, or the detector pixels, beyond those of the
                scattering.
        """
        arguments = dict(locals())  # by name, of which these three are no settings
        del arguments["self"], arguments["depth"], arguments["on_progress"]
        arguments["energy_ev"] = self.slicing.settings.microscope.energy_ev
        exposed = self.plan(depth, settings_of(arguments))
        issue_warnings(exposed.warnings, exposed.notes, stacklevel=2)  # they point at the caller
        with notebook_bar(on_progress) as report:
            return exposed.run(report)

    @threadpool_limits.wrap(limits=1, user_api="blas")  # as in `namsa.simulate`
    def plan(self, depth: int, settings: SimulationSettings) -> "ExposurePlan":
        """Checks a stack of patterns, without any work.

        Args:
            depth: Number of the depth, from 0; -1 is the whole specimen.
            settings: Lens, source, detector, probe positions and the seed of the noise. The rest
                is that of the scattering.

        Raises:
            InputError: As `simulate`.
        """
        settings = self._settings_with(settings)
        probes = probe_positions(settings, self.grid.extent_angstrom)
        settings = replace(settings, scan_shape=probes.scan_shape)
        axes = raster.axes(probes.positions, probes.scan_shape) if settings.detector else None
        average = self._source_average(axes, settings)
        one_probe = settings
        if average:
            microscope = settings.microscope.model_copy(update={"source_points": 1})
            one_probe = replace(settings, microscope=microscope)
        thickness = self.thicknesses_angstrom[depth]
        exposure = expose(
            one_probe,
            self.grid,
            self.slicing.slice_thicknesses_angstrom,
            thickness,
            probes,
            self.slicing.xp,
        )
        setup = exposure.setup
        reuse = prism.choose(
            "prism",
            self.depths[depth],
            probes.positions,
            len(setup.modes),
            exposure.beams,
            setup.fresnel,
            setup.binning,
        )
        assert reuse
        self._check_covers(reuse)
        texts = checks.warning_texts(
            self.grid,
            setup.beam,
            thickness,
            self.slicing.equal_slices_angstrom,
            settings.detector,
            probes.positions,
        )
        if settings.simulation.propagator == "paraxial":
            reach_mrad = requirement_of(settings, self.grid.extent_angstrom).reach_mrad
            texts += checks.paraxial_doubts(setup.beam.wavelength, thickness, reach_mrad)
        inaccuracy = self.slicing.inaccuracy()
        if inaccuracy:
            texts.append(inaccuracy)
        precision = np.dtype(settings.simulation.precision)
        checks.check_memory(len(probes.positions), exposure.pattern_shape, precision.itemsize)
        return ExposurePlan(
            scattering=self,
            depth=depth,
            settings=settings,
            exposure=exposure,
            reuse=reuse,
            axes=axes,
            average=average,
            warnings=tuple(texts),
        )

    def _settings_with(self, exposure: SimulationSettings) -> SimulationSettings:
        """Returns the settings of the scattering with lens, detector, probes and seed of others."""
        scattered = self.slicing.settings
        of_specimen = {
            "energy_ev": scattered.microscope.energy_ev,
            "specimen_tilt_mrad": scattered.microscope.specimen_tilt_mrad,
        }
        return replace(
            scattered,
            microscope=exposure.microscope.model_copy(update=of_specimen),
            plasmons=exposure.plasmons,
            detector=exposure.detector,
            scan=exposure.scan,
            positions_angstrom=exposure.positions_angstrom,
            scan_shape=exposure.scan_shape,
            seed=exposure.seed,
        )

    def _source_average(
        self, axes: tuple[Floats, Floats] | None, settings: SimulationSettings
    ) -> raster.SourceAverage | None:
        """Returns the average over the source if an even raster takes fewer probes than the
        source's own points.
        """
        microscope = settings.microscope
        size = microscope.source_size_angstrom
        if not (axes and size and np.isfinite(size) and microscope.source_points is None):
            return None
        beam = optics.BeamSettings(
            microscope.energy_ev, microscope.semiangle_mrad, {}, microscope.beam_tilt_mrad
        )
        beams = optics.aperture(self.grid, beam) != 0
        return raster.source_average(self.grid, beams, *axes, size)

    def _check_covers(self, reuse: prism.PlaneWaveReuse) -> None:
        """Raises InputError if a plane wave or a pixel is not in the matrices."""
        matrix = self.matrices[0][0]
        self._check_within("max_angle_mrad", self.max_angle_mrad, reuse.beams, matrix.beams)
        self._check_within("max_detected_mrad", self.max_detected_mrad, reuse.pixels, matrix.pixels)

    def _check_within(
        self, name: str, limit_mrad: float | None, needed: Booleans, present: Integers
    ) -> None:
        """Raises InputError if a frequency is needed, (ny, nx), that is not among flat indices."""
        missing = np.setdiff1d(np.flatnonzero(needed), present)
        if not len(missing):
            return
        ky, kx = self.grid.frequencies()
        y, x = np.unravel_index(missing, self.grid.shape)
        wavelength = optics.wavelength_angstrom(self.slicing.settings.microscope.energy_ev)
        angle = 1e3 * wavelength * float(np.hypot(ky[y, 0], kx[0, x]).max())
        raise InputError(
            f"{name} is {limit_mrad}, and these patterns need waves up to {angle:.4g} mrad: "
            "scatter with a larger one"
        )


@dataclass(frozen=True)
class ExposurePlan:
    """A stack of patterns of a scattering, whose arguments are checked."""

    scattering: Scattering
    depth: int  # number of the depth; -1 is the last
    settings: SimulationSettings
    exposure: Exposure  # the probes and the detector
    reuse: prism.PlaneWaveReuse  # the plane waves and pixels that the patterns need
    # Rows (sy,) and columns (sx,) of an even raster on a detector, Å; `None` if it is none.
    axes: tuple[Floats, Floats] | None
    average: raster.SourceAverage | None  # over the source, if the raster takes fewer probes so
    # About results that may mislead. The sample has them and those of the scattering.
    warnings: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings that the sample does not have."""
        return (self.exposure.note,) if self.exposure.note else ()

    @threadpool_limits.wrap(limits=1, user_api="blas")  # as in `namsa.simulate`
    def run(self, on_progress: ProgressCallback = no_progress) -> Sample:
        """Adds up the patterns, and returns their sample."""
        scattering = self.scattering
        slicing = scattering.slicing
        exposure = self.exposure
        configurations = len(scattering.matrices)
        arguments = provenance.serialise(
            self.settings, slicing.grid, slicing.bonding_description, of_scattering=True
        )
        described = provenance.describe(
            arguments,
            slicing.grid,
            wavelength=exposure.setup.beam.wavelength,
            atoms=slicing.atom_counts,
            positions=exposure.positions,
            thickness_angstrom=scattering.thicknesses_angstrom[self.depth],
            slices=scattering.depths[self.depth],
            coherent_probes=len(exposure.setup.modes),
            backend=slicing.xp.__name__,
            warnings=(*slicing.warnings, *self.warnings),
        )
        return Sample(
            exposure.finish(self._sum_patterns(on_progress), configurations=configurations),
            scattering.densities[self.depth],
            scattering.projected_potentials[self.depth],
            described,
        )

    def _sum_patterns(self, on_progress: ProgressCallback) -> Array:
        """Returns the patterns (n, dy, dx), summed over the thermal configurations."""
        scattering = self.scattering
        setup = self.exposure.setup
        matrices = [of_depths[self.depth] for of_depths in scattering.matrices]
        if self.axes and setup.binning:
            return _raster_patterns(matrices, setup, self.axes, self.average, on_progress)
        positions = self.exposure.positions
        precision = np.dtype(self.settings.simulation.precision)
        patterns = np.zeros((len(positions), *self.exposure.pattern_shape), precision)
        for configuration, matrix in enumerate(matrices):
            needed = matrix.part(self.reuse.beams, self.reuse.pixels)
            engine = prism.PrismEngine(scattering.grid, needed, self.reuse.batch)
            on_part = dispatch.part_of(on_progress, configuration, len(matrices))
            dispatch.add_patterns(patterns, positions, setup, engine, on_part)
        return patterns


def _raster_patterns(
    matrices: Sequence[ScatteringMatrix],
    setup: dispatch.OpticalSetup,
    axes: tuple[Floats, Floats],
    average: raster.SourceAverage | None,
    on_progress: ProgressCallback,
) -> Array:
    """Returns the patterns (n, dy, dx) of a raster on the host, summed over thermal
    configurations.
    """
    y, x = (average.y, average.x) if average else axes
    probes = []
    for mode in setup.modes:
        shift_y, shift_x = mode.shift
        probes.append(raster.RasterProbe(setup.lens(mode), y + shift_y, x + shift_x))
    assert setup.binning
    total: Array | float = 0.0
    for configuration, matrix in enumerate(matrices):
        on_pixels = partial(dispatch.part_of(on_progress, configuration, len(matrices)), "probes")
        total = total + raster.sum_patterns(matrix, setup.grid, probes, setup.binning, on_pixels)
    return to_host(raster.at_scan(total, average))
