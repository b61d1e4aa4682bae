"""Rocking and precession: patterns of a beam that is tilted before the specimen and tilted back
behind it (descan).

A tilt moves the whole pattern by its angle. Descan moves it back: on a detector by sharing
intensities among its pixels, which is exact for any tilt, and without a detector by whole pixels of
the reciprocal grid, to which tilts are then rounded, as those of parallel beams are. Precession is
the mean of such patterns over tilts on a circle (Vincent & Midgley, Ultramicroscopy 53 (1994) 271).
Nothing else is approximated: each tilt is a simulation, and costs as much.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ase
import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError, SimulationWarning
from namsa.base.notebook_progress import notebook_bar
from namsa.config.bounds import DEFAULT_REACH_MRAD
from namsa.crystals.crystal_source import SpecimenSource
from namsa.engines import dispatch
from namsa.engines.exposure import expose
from namsa.engines.interface import ProgressCallback
from namsa.physics import detector as detectors
from namsa.physics import optics
from namsa.samples.sample import Sample
from namsa.sampling import choice
from namsa.sampling.snapshots import Snapshots
from namsa.setup.provenance import plain
from namsa.setup.scan import probe_positions
from namsa.setup.settings import SimulationSettings, settings_of
from namsa.setup.specimen_size import specimen_of_settings
from namsa.simulation_plan import SimulationPlan, plan_simulation

MOST_AZIMUTHS = 3600
_SIZES = ("zone_axis", "thickness_angstrom", "lateral_angstrom")


def precession(
    atoms: SpecimenSource,
    *,
    angle_mrad: float,
    azimuths: int = 36,
    on_progress: ProgressCallback | None = None,
    **settings: Any,
) -> Sample:
    """Simulates patterns of a precessed beam with descan.

    Args:
        atoms: The specimen, as in `namsa.simulate`.
        angle_mrad: Precession angle: the tilt of the beam, mrad.
        azimuths: Number of tilts on the circle, evenly from +x towards +y. Use more until patterns
            do not change; a thick crystal, and reflections at high angles, need more.
        on_progress: Called as `on_progress(stage, done, total)`. Default: a bar in a notebook,
            if the call takes long, and else nothing.
        settings: Other arguments of `namsa.simulate`; `beam_tilt_mrad`, `sink` and `waves` are
            none.

    Returns:
        A sample of the mean patterns, shifted back. Its provenance has `precession`.

    Raises:
        InputError: As `namsa.simulate`, or if the tilted patterns do not fit the grid.

    Example:
        >>> precessed = namsa.precession(
        ...     cell.atoms,
        ...     angle_mrad=5,
        ...     azimuths=4,
        ...     energy_ev=200e3,
        ...     semiangle_mrad=5,
        ...     scan=(1, 1),
        ...     accuracy=0.1,
        ...     detector=namsa.Detector(max_angle_mrad=25),
        ... )
        >>> precessed.provenance["precession"]
        {'angle_mrad': 5.0, 'azimuths': 4}
    """
    if not isinstance(azimuths, (int, np.integer)) or not 1 <= azimuths <= MOST_AZIMUTHS:
        raise InputError(f"azimuths is {azimuths!r}; give a whole number of 1 to {MOST_AZIMUTHS}")
    if not isinstance(angle_mrad, (int, float, np.integer, np.floating)):
        raise InputError(f"angle_mrad is {angle_mrad!r}; give a number, in mrad")
    turns = 2 * np.pi * np.arange(azimuths) / azimuths
    tilts = angle_mrad * np.stack([np.sin(turns), np.cos(turns)], axis=1)
    series = _plan_series(atoms, tilts, settings)
    total: Any = 0.0
    with notebook_bar(on_progress) as report:
        for index in range(azimuths):
            total = total + series.patterns(index, dispatch.part_of(report, index, azimuths))
    described: dict[str, object] = {
        "precession": {"angle_mrad": float(angle_mrad), "azimuths": azimuths}
    }
    return series.sample(total / azimuths, described)


def rocking(
    atoms: SpecimenSource,
    *,
    tilts_mrad: npt.ArrayLike,
    on_progress: ProgressCallback | None = None,
    **settings: Any,
) -> list[Sample]:
    """Simulates patterns of a series of beam tilts with descan, as for a rocking curve.

    Args:
        atoms: The specimen, as in `namsa.simulate`.
        tilts_mrad: Tilts (m, 2) of the beam as (y, x), mrad.
        on_progress: Called as `on_progress(stage, done, total)`. Default: a bar in a notebook,
            if the call takes long, and else nothing.
        settings: Other arguments of `namsa.simulate`; `beam_tilt_mrad`, `sink` and `waves` are
            none.

    Returns:
        One sample of patterns for each tilt, shifted back. Its provenance has
        `descanned_tilt_mrad`, the tilt that was made.

    Raises:
        InputError: As `namsa.simulate`, or if the tilted patterns do not fit the grid.

    Example:
        >>> samples = namsa.rocking(
        ...     cell.atoms,
        ...     tilts_mrad=[(0, 0), (0, 4)],
        ...     energy_ev=200e3,
        ...     semiangle_mrad=5,
        ...     scan=(1, 1),
        ...     accuracy=0.1,
        ...     detector=namsa.Detector(max_angle_mrad=25),
        ... )
        >>> [sample.provenance["descanned_tilt_mrad"][0] for sample in samples]
        [0.0, 0.0]
    """
    try:
        tilts = np.asarray(tilts_mrad, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"tilts_mrad is {tilts_mrad!r}; give finite tilts (y, x) of shape (m, 2)"
        ) from None
    if tilts.ndim != 2 or tilts.shape[1] != 2 or not len(tilts) or not np.isfinite(tilts).all():
        raise InputError(
            f"tilts_mrad has shape {tilts.shape}; give finite tilts (y, x) of shape (m, 2)"
        )
    series = _plan_series(atoms, tilts, settings)
    samples = []
    with notebook_bar(on_progress) as report:
        for index in range(len(tilts)):
            patterns = series.patterns(index, dispatch.part_of(report, index, len(tilts)))
            described = {"descanned_tilt_mrad": series.tilts_mrad[index].tolist()}
            samples.append(series.sample(patterns, described))
    return samples


@dataclass
class _TiltSeries:
    """Simulations that differ in the tilt of the beam, on one grid."""

    atoms: Snapshots
    settings: SimulationSettings  # with the pixels of all, and with the detector
    tilts_mrad: Floats  # tilts (m, 2) as (y, x) that are made, mrad
    plan: SimulationPlan  # of the largest tilt, without the detector
    described: dict[str, object]  # what the provenance has of the specimen
    tilted: Sample | None = None  # the last one that was simulated

    def patterns(self, index: int, on_progress: ProgressCallback) -> Array:
        """Returns the patterns (n, dy, dx) of a tilt, shifted back, without plasmons and noise."""
        tilt = self.tilts_mrad[index]
        plan = plan_simulation(self.atoms, _tilted(self.settings, tilt))
        self.tilted = plan.run(on_progress=on_progress)
        grid = self.plan.slicing.grid
        wavelength = self.plan.exposure.setup.beam.wavelength
        if self.settings.detector is None:
            pitch = 1e3 * wavelength / np.array(grid.extent_angstrom)
            return _moved(self.tilted.cbed, np.rint(tilt / pitch).astype(int))
        shift = (float(tilt[0]), float(tilt[1]))
        matrices = detectors.bin_matrices(grid, wavelength, self.settings.detector, shift)
        precision = self.tilted.cbed.dtype
        return detectors.bin_patterns(
            self.tilted.cbed, (matrices[0].astype(precision), matrices[1].astype(precision))
        )

    def sample(self, patterns: Array, described: dict[str, object]) -> Sample:
        """Returns the sample of patterns, as the detector counts them."""
        assert self.tilted is not None
        slicing = self.plan.slicing
        exposure = expose(
            self.settings,
            slicing.grid,
            slicing.slice_thicknesses_angstrom,
            slicing.thickness_angstrom,
            probe_positions(self.settings, slicing.grid.extent_angstrom),
            slicing.xp,
        )
        # the patterns of each tilt are averaged over the source already
        counted = replace(exposure, averaged_scan=None).finish(patterns, configurations=1)
        detector = self.settings.detector
        wavelength = exposure.setup.beam.wavelength
        pitch, origin = detectors.sampling_and_origin(slicing.grid, wavelength, detector)
        provenance = self.tilted.provenance | {
            "beam_tilt_mrad": [0.0, 0.0],
            "detector": plain(detector),
            "detector_sampling_mrad": list(pitch),
            "detector_origin_mrad": list(origin),
        }
        if self.settings.plasmons:
            provenance["plasmons"] = plain(self.settings.plasmons)
        provenance |= self.described | described
        return replace(self.tilted, cbed=counted, provenance=provenance)


def _plan_series(
    atoms: SpecimenSource, tilts_mrad: Floats, arguments: dict[str, Any]
) -> _TiltSeries:
    """Checks a series of tilts, and chooses the pixels that all of them have.

    Raises:
        InputError: If it cannot be simulated.
    """
    for name in ("beam_tilt_mrad", "sink", "waves"):
        if name in arguments:
            raise InputError(f"{name} is no argument of rocking and precession: leave it out")
    sizes = [arguments.get(name) for name in _SIZES]
    settings = settings_of({name: value for name, value in arguments.items() if name not in _SIZES})
    specimen = specimen_of_settings(atoms, settings, sizes[0], sizes[1], sizes[2])
    steepest = tilts_mrad[np.argmax(np.linalg.norm(tilts_mrad, axis=1))]
    settings = replace(settings, reach_mrad=_reach(settings, specimen.atoms, steepest))
    plan = plan_simulation(specimen.atoms, _tilted(settings, steepest))
    for text in plan.warnings:
        warnings.warn(text, SimulationWarning, stacklevel=3)  # at the caller of the series
    grid = plan.slicing.grid
    beam = plan.exposure.setup.beam
    pitch = 1e3 * beam.wavelength / np.array(grid.extent_angstrom)
    made = tilts_mrad
    if settings.detector is None or optics.is_parallel(grid, beam):
        made = np.rint(tilts_mrad / pitch) * pitch
        most = float(np.linalg.norm(made - tilts_mrad, axis=1).max())
        if most > 1e-3 * pitch.min():
            warnings.warn(
                f"tilts are rounded by up to {most:.3g} mrad to multiples of ({pitch[0]:.3g}, "
                f"{pitch[1]:.3g}) mrad, the pixels of the reciprocal grid: give a detector, or a "
                "larger cell",
                SimulationWarning,
                stacklevel=3,
            )
    if settings.detector is not None:
        _check_room(settings, plan, made)
    fixed = settings.simulation.model_copy(
        update={"grid_shape": grid.shape, "sampling_angstrom": None}
    )
    shared = replace(settings, simulation=fixed, band_fraction=grid.band, judged=False)
    return _TiltSeries(specimen.atoms, shared, made, plan, specimen.described)


def _tilted(
    settings: SimulationSettings, tilt_mrad: Sequence[float] | Floats
) -> SimulationSettings:
    """Returns the settings of one tilt, whose patterns stay on the reciprocal grid."""
    tilt = (float(tilt_mrad[0]), float(tilt_mrad[1]))
    microscope = settings.microscope.model_copy(update={"beam_tilt_mrad": tilt})
    return replace(settings, microscope=microscope, detector=None, plasmons=None)


def _reach(settings: SimulationSettings, atoms: Snapshots, tilt_mrad: Floats) -> float:
    """Returns the largest angle of interest before descan, mrad."""
    snapshot = atoms if isinstance(atoms, ase.Atoms) else atoms[0]
    lx, ly, _ = (float(length) for length in snapshot.cell.lengths())
    recorded = choice.recorded_mrad(settings.detector, (ly, lx), settings.microscope.energy_ev)
    reach = settings.reach_mrad or recorded or DEFAULT_REACH_MRAD
    return reach + float(np.linalg.norm(tilt_mrad))


def _check_room(settings: SimulationSettings, plan: SimulationPlan, tilts_mrad: Floats) -> None:
    """Raises InputError if the detector, moved by a tilt, reaches beyond the band limit."""
    grid = plan.slicing.grid
    wavelength = plan.exposure.setup.beam.wavelength
    limit = 1e3 * grid.band_limit * wavelength
    rows = detectors.pixels(grid, wavelength, settings.detector)
    for row, largest in zip(rows, np.abs(tilts_mrad).max(axis=0), strict=True):
        reach = -row.edge * row.size_mrad + largest
        if reach > limit + row.size_mrad:
            raise InputError(
                f"the detector, tilted by {largest:.4g} mrad, reaches {reach:.1f} mrad, beyond the "
                f"grid's band limit of {limit:.1f} mrad: use pixels of "
                f"{max(grid.sampling_angstrom) * limit / reach:.3f} Å or less, or a smaller "
                "detector"
            )


def _moved(patterns: Array, pixels: npt.NDArray[np.int64]) -> Array:
    """Returns patterns (n, ny, nx) moved by −pixels (y, x); what comes in from outside is 0."""
    moved = np.roll(patterns, (-int(pixels[0]), -int(pixels[1])), axis=(1, 2))
    for axis, count in enumerate(pixels.tolist(), start=1):
        length = patterns.shape[axis]
        outside = slice(length - count, length) if count > 0 else slice(0, -count)
        index = [slice(None)] * 3
        index[axis] = outside
        if count:
            moved[tuple(index)] = 0
    return moved
