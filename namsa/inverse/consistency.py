"""Scores how well a reconstructed density explains the patterns that it was made from.

    simulation = scan_simulation(experiment, thickness_angstrom, density.shape)
    check(density, patterns, simulation, transfer) -> score, map, score of an empty specimen, scale
    kept_out(density, patterns, simulation, transfer, used) -> score of the used patterns, score of
    the others

The score is R = Σ|√I_sim − √I| / Σ√I over the pixels of all positions whose probe stays within the
known density. The map holds the same for each position. 0 is perfect. The score is not an error of
the density in e/Å²: docs/benchmarks/reconstruction.md says how far it can be trusted.

A projected density is converted to a potential (`namsa.inverse.mott_bethe`) and simulated as equal
slices of it, with the experiment's own microscope and detector. What is unknown about the specimen
limits the score from below, even for the true density: the order of the atoms along the beam, the
potential beyond the density's band, the elements. A density on the scan is continued beyond the
scan's edges by reflection.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.config.simulation import SimulationConfig
from namsa.dataset.sample_setup import coherent_modes
from namsa.engines import dispatch
from namsa.inverse.mott_bethe import DensityToPotential
from namsa.physics import density_target, optics, potential, slice_plan
from namsa.physics import detector as detectors
from namsa.physics.grid import Grid, fast_shape
from namsa.setup import scan

SEAM_ANGSTROM = 2.0  # beyond the probes' reach: the continued density fades to its mean there
FITTED_PROBES = 144  # positions that the potential's scale is fitted to
SOFT_EDGE = 1.25  # where the aperture's soft edge ends, in units of the semiangle
_SPREADS = 2.5  # range of the fitted scale, in spreads of its prior


@dataclass(frozen=True)
class ScanSimulation:
    """The simulation of a scan over a specimen of which only a density is known."""

    experiment: SimulationConfig  # microscope, detector, scan and settings of the simulation
    thickness_angstrom: float  # thickness of the specimen, Å
    grid: Grid  # the periodic cell
    positions: Floats  # probe positions in the cell, `(n, 2)` as (y, x), Å
    inside: npt.NDArray[np.bool_]  # whether each probe stays within the known density, `(n,)`
    # Rows and columns of the density in the cell, Å, if it is known at the scan's positions. `None`
    # if it is known on the grid.
    raster: tuple[Floats, Floats] | None = None

    @property
    def slice_count(self) -> int:
        """Number of equal slices."""
        given = self.experiment.simulation.slice_thickness_angstrom
        return slice_plan.slice_count(self.thickness_angstrom, 2.0 if given == "auto" else given)

    def on_grid(self, density: Array) -> Floats:
        """Returns a density on the grid, `(ny, nx)`, e/Å².

        Beyond the scan's edges the density is continued by reflection; towards the cell's edges it
        fades to its mean.

        Args:
            density: At the scan's positions or on the grid, e/Å².
        """
        known = np.asarray(density, np.float64)
        if self.raster is None:
            return known
        rows, columns = self.raster
        even = np.pad(known, [(0, length) for length in known.shape], "symmetric")
        step_y = rows[1] - rows[0]
        step_x = columns[1] - columns[0]
        extent = (even.shape[0] * step_y, even.shape[1] * step_x)
        period = Grid((even.shape[0], even.shape[1]), extent)
        y, x = (
            np.arange(length) * sampling
            for length, sampling in zip(self.grid.shape, self.grid.sampling_angstrom, strict=True)
        )
        continued = density_target.at_positions(
            np.fft.fft2(even), period, y - rows[0], x - columns[0]
        )
        fade_y = _fade(y, rows, self.grid.extent_angstrom[0])
        fade_x = _fade(x, columns, self.grid.extent_angstrom[1])
        mean = float(known.mean())
        return mean + np.multiply.outer(fade_y, fade_x) * (continued - mean)


def _fade(axis: Floats, positions: Floats, extent: float) -> Floats:
    """Returns weights that are 1 over the scan and fall to 0 towards the cell's edges.

    Args:
        axis: Pixels of the cell along the axis, Å.
        positions: Of the scan along it, Å.
        extent: Length of the cell along it, Å.
    """
    step = positions[1] - positions[0]
    # from the scan's outer edge
    distance = np.maximum(positions[0] - axis, axis - positions[-1]) - step / 2
    outside = max((extent - (positions[-1] - positions[0]) - step) / 2, step)
    return np.cos(np.pi / 2 * np.clip(2 * distance / outside - 1, 0, 1)) ** 2


class Consistency(NamedTuple):
    """Agreement of a density with its patterns."""

    score: float  # r over the positions whose probe stays within the known density
    map: Floats  # r of each position, `(sy, sx)`
    empty: float  # r of an empty specimen
    scale: float  # fitted scale of the potential


def check(
    # `(sy, sx)` at the scan's positions or `(ny, nx)` on the simulation's grid, as
    # `experiment.target.at` says, e/Å²
    density: Array,
    patterns: npt.ArrayLike,  # `(sy·sx, dy, dx)` or `(sy, sx, dy, dx)`, fractions of the beam
    simulation: ScanSimulation,
    transfer: DensityToPotential,  # conversion from density to potential
) -> Consistency:
    """Scores a density. The potential's scale is fitted as far as the transfer leaves it open.

    Raises:
        InputError: If shapes do not agree.
    """
    measured = _stack(patterns, len(simulation.positions))
    continued = simulation.on_grid(density)
    if continued.shape != simulation.grid.shape:
        raise InputError(
            f"the density has shape {np.shape(density)}, the experiment asks for "
            f"{simulation.grid.shape}"
        )
    projected = transfer.potential(continued, simulation.grid)
    expected = transfer.expected_scale(density, simulation.thickness_angstrom)
    scale = fit_scale(projected, expected, transfer.scale_spread, measured, simulation)
    simulated = simulate(scale * projected, simulation)
    vacuum = simulate(0 * projected, simulation)
    shape = simulation.experiment.scan.shape or (1, len(measured))
    inside = simulation.inside
    return Consistency(
        score=float(misfit(simulated[inside], measured[inside])),
        map=np.reshape(misfit(simulated, measured, axis=(1, 2)), shape),
        empty=float(misfit(vacuum[inside], measured[inside])),
        scale=float(scale),
    )


def kept_out(
    density: Array,
    patterns: npt.ArrayLike,  # of all positions, as for `check`; NaN where a pattern is lost
    simulation: ScanSimulation,
    transfer: DensityToPotential,
    # positions whose patterns the density was made from, of the scan's shape or `(n,)`
    used: npt.NDArray[np.bool_],
) -> tuple[float, float]:
    """Returns the mean R of the patterns that a density was made from, and that of the others.

    The potential's scale is fitted to the former alone.
    """
    measured = _stack(patterns, len(simulation.positions))
    known = simulation.inside & np.isfinite(measured).all(axis=(1, 2))
    used_inside = known & np.ravel(used)
    of_used = replace(simulation, inside=used_inside)
    scores = check(density, measured, of_used, transfer).map.ravel()
    return float(scores[used_inside].mean()), float(scores[known & ~used_inside].mean())


def fit_scale(
    projected_potential: Floats,  # `(ny, nx)`, V·Å
    expected: float,
    spread: float,  # rms of the logarithm of the scale. If 0, `expected` is returned
    measured: Array,  # patterns of all positions, `(n, dy, dx)`
    simulation: ScanSimulation,  # experiment, thickness and geometry
) -> float:
    """Fits the scale of a potential: lowest R at some of the positions.

    It stays within `_SPREADS` of the expected scale.
    """
    if spread == 0:
        return expected
    chosen = np.flatnonzero(simulation.inside)
    chosen = chosen[np.linspace(0, len(chosen) - 1, min(len(chosen), FITTED_PROBES)).astype(int)]
    at_chosen = replace(simulation, positions=simulation.positions[chosen])

    def score(log_scale: float) -> float:
        simulated = simulate(np.exp(log_scale) * projected_potential, at_chosen)
        return float(misfit(simulated, measured[chosen]))

    middle = np.log(expected)
    reach = _SPREADS * spread
    fitted = minimize_scalar(
        score, bounds=(middle - reach, middle + reach), method="bounded", options={"xatol": 0.03}
    )
    return float(np.exp(fitted.x))


def scan_simulation(
    experiment: SimulationConfig,  # microscope, detector, scan and settings of the simulation
    thickness_angstrom: float,  # thickness of the specimen, Å
    density_shape: tuple[int, ...],
    # Probe positions `(n, 2)` as (y, x), Å, for a density on the grid. Not needed if the scan fills
    # the cell.
    positions_angstrom: npt.ArrayLike | None = None,
    extent_angstrom: tuple[float, float] | None = None,  # size (y, x) of the cell, Å, likewise
) -> ScanSimulation:
    """Returns the simulation of a scan over a density.

    A density at the scan's positions gets a periodic cell with a margin, so that no probe within
    the density reaches the cell's edge.

    Raises:
        InputError: If the thickness is not positive, or if the geometry is not fixed or does not
            fit the density.
    """
    if not thickness_angstrom > 0:
        raise InputError(f"the specimen's thickness is {thickness_angstrom} Å; it must be above 0")
    if experiment.target.at == "grid":
        return _on_own_grid(
            experiment, thickness_angstrom, density_shape, positions_angstrom, extent_angstrom
        )
    shape, steps = _raster(experiment, extent_angstrom)
    if density_shape != shape:
        raise InputError(
            f"the density has shape {density_shape}, the scan {shape}: give a density at its "
            "positions"
        )
    microscope = experiment.microscope
    beam = optics.BeamSettings(
        microscope.energy_ev, microscope.semiangle_mrad, microscope.aberrations
    )
    reach = optics.probe_diameter_angstrom(beam, thickness_angstrom) / 2
    window = (shape[0] * steps[0], shape[1] * steps[1])
    extent = extent_angstrom
    if extent is None or extent[0] < window[0] or extent[1] < window[1]:
        margin = 2 * (reach + SEAM_ANGSTROM)
        extent = (window[0] + margin, window[1] + margin)
    grid = Grid(fast_shape(extent, _pixel_angstrom(experiment)), extent)
    rows, columns = (
        (length - scanned + step) / 2 + step * np.arange(n)
        for length, scanned, step, n in zip(extent, window, steps, shape, strict=True)
    )
    deep_enough = []  # along each axis: whether a probe stays within the scan
    for n, step in zip(shape, steps, strict=True):
        depth = (np.minimum(np.arange(n), np.arange(n)[::-1]) + 0.5) * step
        deep_enough.append(depth >= min(reach, depth.max()))
    inside = np.logical_and.outer(*deep_enough).ravel()
    return ScanSimulation(
        experiment, thickness_angstrom, grid, scan.raster(rows, columns), inside, (rows, columns)
    )


def _raster(
    experiment: SimulationConfig, extent_angstrom: tuple[float, float] | None
) -> tuple[tuple[int, int], tuple[float, float]]:
    """Returns number and steps (y, x) of the scan's positions.

    Raises:
        InputError: If the experiment does not fix them, or not the detector's pixels.
    """
    shape = experiment.scan.shape
    steps = experiment.scan.step_angstrom
    detector = experiment.detector
    if steps is None and extent_angstrom and shape:
        steps = (extent_angstrom[0] / shape[0], extent_angstrom[1] / shape[1])
    has_raster = shape is not None and min(shape) >= 2 and steps is not None
    has_pixels = detector is not None and detector.pixel_mrad is not None
    if not has_raster or not has_pixels:
        raise InputError(
            "a score on the scan needs scan.shape, scan.step_angstrom and detector.pixel_mrad"
        )
    assert shape is not None
    assert steps is not None
    return shape, steps


def _pixel_angstrom(experiment: SimulationConfig) -> float:
    """Returns the pixels that the detector and the aperture need at most, Å.

    A density has no frequencies that need the pixels of a simulation of atoms.
    """
    microscope = experiment.microscope
    detector = experiment.detector
    assert detector is not None
    assert detector.pixel_mrad is not None
    sides = detector.shape or (0, 0)
    farthest = max(length * detector.pixel_mrad / 2 for length in sides)
    angle = max(SOFT_EDGE * microscope.semiangle_mrad, farthest)
    finest = optics.wavelength_angstrom(microscope.energy_ev) / (3.01e-3 * angle)
    given = experiment.simulation.sampling_angstrom
    return min(given, finest) if isinstance(given, float) else finest


def simulate(projected_potential: Floats, simulation: ScanSimulation) -> npt.NDArray[np.float32]:
    """Simulates the patterns of a projected potential that is cut into equal slices.

    Args:
        projected_potential: `(ny, nx)`, V·Å.
        simulation: Experiment, thickness and geometry.

    Returns:
        Patterns, `(n, dy, dx)`, fractions of the beam.
    """
    experiment = simulation.experiment
    grid = simulation.grid
    count = simulation.slice_count
    slice_thickness = simulation.thickness_angstrom / count
    setup = optical_setup(experiment, grid, slice_thickness)
    sigma = optics.interaction_constant(experiment.microscope.energy_ev)
    transmission = potential.transmission(
        projected_potential / count, sigma, grid.antialias(), np.complex64
    )
    slices = potential.Slices.equally_thick(
        [transmission], np.zeros(count, np.int64), slice_thickness
    )
    wavelength = optics.wavelength_angstrom(experiment.microscope.energy_ev)
    shape = tuple(row.count for row in detectors.pixels(grid, wavelength, experiment.detector))
    cbed = np.zeros((len(simulation.positions), *shape), np.float32)
    dispatch.add_patterns(cbed, simulation.positions, setup, dispatch.make_engine(setup, slices))
    return cbed


def optical_setup(
    experiment: SimulationConfig, grid: Grid, slice_thickness_angstrom: float
) -> dispatch.OpticalSetup:
    """Returns the experiment's probes, propagator and detector, in single precision on the host."""
    microscope = experiment.microscope
    modes = coherent_modes(microscope, microscope.source_points)
    beam = optics.BeamSettings(
        microscope.energy_ev,
        microscope.semiangle_mrad,
        microscope.aberrations,
        microscope.beam_tilt_mrad,
        microscope.specimen_tilt_mrad,
    )
    return dispatch.optical_setup(
        grid,
        beam,
        modes,
        [slice_thickness_angstrom],
        experiment.detector,
        propagation=experiment.simulation.propagator,
    )


def _on_own_grid(
    experiment: SimulationConfig,
    thickness_angstrom: float,
    shape: tuple[int, ...],
    positions_angstrom: npt.ArrayLike | None,
    extent_angstrom: tuple[float, float] | None,
) -> ScanSimulation:
    """Returns the simulation of a density that is known on the grid."""
    steps = experiment.scan.step_angstrom
    scanned = experiment.scan.shape
    if extent_angstrom is None and steps and scanned:
        extent_angstrom = (steps[0] * scanned[0], steps[1] * scanned[1])
    if extent_angstrom is None or len(shape) != 2:
        raise InputError(
            "a density on the simulation's grid needs extent_angstrom (y, x) for its score"
        )
    if positions_angstrom is None and experiment.scan.origin_angstrom == "random":
        raise InputError("the scan's origin is random: give positions_angstrom (n, 2)")
    if positions_angstrom is None:
        rows = scan.positions(experiment.scan, extent_angstrom, np.random.default_rng(0))
        positions_angstrom = scan.raster(*rows)
    positions = np.asarray(positions_angstrom, np.float64)
    grid = Grid((shape[0], shape[1]), extent_angstrom)
    return ScanSimulation(
        experiment, thickness_angstrom, grid, positions, np.ones(len(positions), bool)
    )


def _stack(patterns: npt.ArrayLike, count: int) -> npt.NDArray[np.float32]:
    """Returns patterns as a stack `(n, dy, dx)`."""
    stack = np.asarray(patterns, np.float32)
    stack = stack.reshape(-1, *stack.shape[-2:])
    if len(stack) != count:
        raise InputError(f"there are {len(stack)} patterns for {count} positions")
    return stack


def misfit(simulated: Array, measured: Array, axis: tuple[int, ...] | None = None) -> Floats:
    """Returns R = Σ|√I_sim − √I| / Σ√I.

    Args:
        simulated: Simulated patterns, `(..., dy, dx)`.
        axis: Axes to sum over; default all.
    """
    root_simulated = np.sqrt(simulated)
    root_measured = np.sqrt(measured)
    r: Floats = np.abs(root_simulated - root_measured).sum(axis) / root_measured.sum(axis)
    return r
