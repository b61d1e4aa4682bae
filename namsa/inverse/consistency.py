"""Scores how well a reconstructed density explains the patterns that it was made from: simulates and compares.

    residual(density, patterns, experiment, thickness_angstrom, transfer,
             *, positions_angstrom=None, extent_angstrom=None) -> (score, map)
    kept_out(density, patterns, simulation, transfer, used) -> (score of the used patterns, score of the others)

The score is R = Σ|√I_sim − √I| / Σ√I over the pixels of all positions whose probe stays within the known density. The
map holds the same for each position. 0 is perfect. The score is not an error of the density in e/Å²:
docs/benchmarks/reconstruction.md says how far it can be trusted.

A projected density is converted to a potential (`namsa.inverse.mott_bethe`) and simulated as equal slices of it, with
the experiment's own microscope and detector. What is unknown about the specimen limits the score from below, even for
the true density: the order of the atoms along the beam, the potential beyond the density's band, the elements. A
density on the scan is continued beyond the scan's edges by reflection.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from namsa import scan
from namsa.arrays import Floats
from namsa.config.simulation import SimulationConfig
from namsa.dataset.sample_setup import coherent_modes
from namsa.engines import dispatch
from namsa.errors import InputError
from namsa.inverse.mott_bethe import DensityToPotential
from namsa.physics import density_target, optics, potential, slice_plan
from namsa.physics import detector as detectors
from namsa.physics.grid import Grid, fast_shape

SEAM_ANGSTROM = 2.0  # beyond the probes' reach: the continued density fades to its mean there
FITTED_PROBES = 144  # positions that the potential's scale is fitted to
_SPREADS = 2.5  # range of the fitted scale, in spreads of its prior


@dataclass(frozen=True)
class ScanSimulation:
    """The simulation of a scan over a specimen of which only a density is known."""

    experiment: SimulationConfig  # microscope, detector, scan and settings of the simulation
    thickness_angstrom: float  # thickness of the specimen, Å
    grid: Grid  # the periodic cell
    positions: Floats  # probe positions in the cell, `(n, 2)` as (y, x), Å
    inside: npt.NDArray[np.bool_]  # whether each probe stays within the known density, `(n,)`
    # Rows and columns of the density in the cell, Å, if it is known at the scan's positions. `None` if it is known on
    # the grid.
    raster: tuple[Floats, Floats] | None = None

    @property
    def slice_count(self) -> int:
        """Number of equal slices."""
        given = self.experiment.simulation.slice_thickness_angstrom
        return slice_plan.slice_count(self.thickness_angstrom, 2.0 if given == "auto" else given)

    def on_grid(self, density: npt.NDArray[Any]) -> Floats:
        """Returns a density on the grid, `(ny, nx)`, e/Å².

        Beyond the scan's edges the density is continued by reflection; towards the cell's edges it fades to its mean.

        Args:
            density: At the scan's positions or on the grid, e/Å².
        """
        known = np.asarray(density, np.float64)
        if self.raster is None:
            return known
        axes = [np.arange(n) * d for n, d in zip(self.grid.shape, self.grid.sampling_angstrom, strict=True)]
        steps = [line[1] - line[0] for line in self.raster]
        even = np.pad(known, [(0, n) for n in known.shape], "symmetric")
        period = Grid((even.shape[0], even.shape[1]), (even.shape[0] * steps[0], even.shape[1] * steps[1]))
        y, x = (axis - line[0] for axis, line in zip(axes, self.raster, strict=True))
        continued = density_target.at_positions(np.fft.fft2(even), period, y, x)
        fades = []
        for axis, line, step, extent in zip(axes, self.raster, steps, self.grid.extent_angstrom, strict=True):
            distance = np.maximum(line[0] - axis, axis - line[-1]) - step / 2  # from the scan's outer edge
            outside = max((extent - (line[-1] - line[0]) - step) / 2, step)
            fades.append(np.cos(np.pi / 2 * np.clip(2 * distance / outside - 1, 0, 1)) ** 2)
        mean = float(known.mean())
        return mean + np.multiply.outer(*fades) * (continued - mean)


class Consistency(NamedTuple):
    """How well a density explains its patterns."""

    score: float  # r over the positions whose probe stays within the known density
    map: Floats  # r of each position, `(sy, sx)`
    empty: float  # r of an empty specimen
    scale: float  # fitted scale of the potential


def residual(
    # `(sy, sx)` at the scan's positions or `(ny, nx)` on the simulation's grid, as `experiment.target.at` says, e/Å².
    density: npt.NDArray[Any],
    patterns: npt.ArrayLike,  # `(sy·sx, dy, dx)` or `(sy, sx, dy, dx)`, fractions of the beam
    experiment: SimulationConfig,  # microscope, detector, scan and settings of the simulation
    thickness_angstrom: float,  # thickness of the specimen, Å
    transfer: DensityToPotential,  # conversion from density to potential
    *,
    # Probe positions `(n, 2)` as (y, x), Å, for a density on the grid. Not needed if the scan fills the cell.
    positions_angstrom: npt.ArrayLike | None = None,
    extent_angstrom: tuple[float, float] | None = None,  # size (y, x) of the cell, Å, likewise
) -> tuple[float, Floats]:
    """Returns the score of a reconstruction and its map: R, and R of each position, `(sy, sx)`.

    Raises:
        InputError: If shapes do not agree, or if the experiment does not fix its geometry.
    """
    simulation = scan_simulation(experiment, thickness_angstrom, np.shape(density), positions_angstrom, extent_angstrom)
    result = check(density, patterns, simulation, transfer)
    return result.score, result.map


def check(
    density: npt.NDArray[Any], patterns: npt.ArrayLike, simulation: ScanSimulation, transfer: DensityToPotential
) -> Consistency:
    """Scores a density as `residual` does. The potential's scale is fitted as far as the transfer leaves it open.

    Raises:
        InputError: If shapes do not agree.
    """
    measured = _stack(patterns, len(simulation.positions))
    continued = simulation.on_grid(density)
    if continued.shape != simulation.grid.shape:
        raise InputError(f"the density has shape {np.shape(density)}, the experiment asks for {simulation.grid.shape}")
    v = transfer.potential(continued, simulation.grid)
    expected = transfer.expected_scale(density, simulation.thickness_angstrom)
    scale = fit_scale(v, expected, transfer.scale_spread, measured, simulation)
    simulated = simulate(scale * v, simulation)
    empty = simulate(0 * v, simulation)
    shape = simulation.experiment.scan.shape or (1, len(measured))
    map_ = np.reshape(misfit(simulated, measured, axis=(1, 2)), shape)
    inner, truth, vacuum = (part[simulation.inside] for part in (simulated, measured, empty))
    return Consistency(float(misfit(inner, truth)), map_, float(misfit(vacuum, truth)), float(scale))


def kept_out(
    density: npt.NDArray[Any],
    patterns: npt.ArrayLike,  # of all positions, as for `residual`; NaN where a pattern is lost
    simulation: ScanSimulation,
    transfer: DensityToPotential,
    used: npt.NDArray[np.bool_],  # positions whose patterns the density was made from, of the scan's shape or `(n,)`
) -> tuple[float, float]:
    """Returns the mean R of the patterns that a density was made from, and that of the others.

    The potential's scale is fitted to the former alone.
    """
    measured = _stack(patterns, len(simulation.positions))
    known = simulation.inside & np.isfinite(measured).all(axis=(1, 2))
    own = replace(simulation, inside=known & np.ravel(used))
    found = check(density, measured, own, transfer).map.ravel()
    return float(found[own.inside].mean()), float(found[known & ~own.inside].mean())


def fit_scale(
    projected_potential: Floats,  # `(ny, nx)`, V·Å
    expected: float,
    spread: float,  # rms of the logarithm of the scale. If 0, `expected` is returned
    measured: npt.NDArray[Any],  # patterns of all positions, `(n, dy, dx)`
    simulation: ScanSimulation,  # experiment, thickness and geometry
) -> float:
    """Fits the scale of a potential: lowest R at some of the positions, within `_SPREADS` of the expected scale."""
    if spread == 0:
        return expected
    chosen = np.flatnonzero(simulation.inside)
    chosen = chosen[np.linspace(0, len(chosen) - 1, min(len(chosen), FITTED_PROBES)).astype(int)]
    part = replace(simulation, positions=simulation.positions[chosen])

    def score(log_scale: float) -> float:
        return float(misfit(simulate(np.exp(log_scale) * projected_potential, part), measured[chosen]))

    middle, reach = np.log(expected), _SPREADS * spread
    fitted = minimize_scalar(score, bounds=(middle - reach, middle + reach), method="bounded", options={"xatol": 0.03})
    return float(np.exp(fitted.x))


def scan_simulation(
    experiment: SimulationConfig,
    thickness_angstrom: float,
    density_shape: tuple[int, ...],
    positions_angstrom: npt.ArrayLike | None = None,
    extent_angstrom: tuple[float, float] | None = None,
) -> ScanSimulation:
    """Returns the simulation of a scan over a density. See `residual` for the arguments.

    A density at the scan's positions gets a periodic cell with a margin, so that no probe within the density reaches
    the cell's edge.

    Raises:
        InputError: If the thickness is not positive, or if the geometry is not fixed or does not fit the density.
    """
    if not thickness_angstrom > 0:
        raise InputError(f"the specimen's thickness is {thickness_angstrom} Å; it must be above 0")
    steps, shape = experiment.scan.step_angstrom, experiment.scan.shape
    if experiment.target.at == "grid":
        return _on_own_grid(experiment, thickness_angstrom, density_shape, positions_angstrom, extent_angstrom)
    if steps is None and extent_angstrom and shape:
        steps = (extent_angstrom[0] / shape[0], extent_angstrom[1] / shape[1])
    detector = experiment.detector
    if shape is None or min(shape) < 2 or steps is None or detector is None or detector.pixel_mrad is None:
        raise InputError("a score on the scan needs scan.shape, scan.step_angstrom and detector.pixel_mrad")
    if density_shape != shape:
        raise InputError(f"the density has shape {density_shape}, the scan {shape}: give a density at its positions")
    m, wavelength = experiment.microscope, optics.wavelength_angstrom(experiment.microscope.energy_ev)
    beam = optics.BeamSettings(m.energy_ev, m.semiangle_mrad, m.aberrations)
    reach = optics.probe_diameter_angstrom(beam, thickness_angstrom) / 2
    window = [n * step for n, step in zip(shape, steps, strict=True)]
    extent = extent_angstrom
    if extent is None or any(whole < part for whole, part in zip(extent, window, strict=True)):
        margin = 2 * (reach + SEAM_ANGSTROM)
        extent = (window[0] + margin, window[1] + margin)
    sides = detector.shape or (0, 0)
    # 1.25: the aperture's soft edge
    angle = max(m.semiangle_mrad * 1.25, *(n * detector.pixel_mrad / 2 for n in sides))
    finest, pixel = wavelength / (3.01e-3 * angle), experiment.simulation.sampling_angstrom
    # A density has no frequencies that need the pixels of a simulation of atoms.
    grid = Grid(fast_shape(extent, min(pixel, finest) if isinstance(pixel, float) else finest), extent)
    rows, columns = (
        (whole - part + step) / 2 + step * np.arange(n)
        for whole, part, step, n in zip(extent, window, steps, shape, strict=True)
    )
    deep_enough = []  # along each axis: whether a probe stays within the scan
    for n, step in zip(shape, steps, strict=True):
        depth = (np.minimum(np.arange(n), np.arange(n)[::-1]) + 0.5) * step
        deep_enough.append(depth >= min(reach, depth.max()))
    inside = np.logical_and.outer(*deep_enough).ravel()
    return ScanSimulation(experiment, thickness_angstrom, grid, scan.raster(rows, columns), inside, (rows, columns))


def simulate(projected_potential: Floats, simulation: ScanSimulation) -> npt.NDArray[np.float32]:
    """Simulates the patterns of a projected potential that is cut into equal slices.

    Args:
        projected_potential: `(ny, nx)`, V·Å.
        simulation: Experiment, thickness and geometry.

    Returns:
        Patterns, `(n, dy, dx)`, fractions of the beam.
    """
    experiment, grid, count = simulation.experiment, simulation.grid, simulation.slice_count
    slice_thickness = simulation.thickness_angstrom / count
    setup = optical_setup(experiment, grid, slice_thickness)
    sigma = optics.interaction_constant(experiment.microscope.energy_ev)
    t = potential.transmission(projected_potential / count, sigma, grid.antialias(), np.complex64)
    slices = potential.Slices.equally_thick([t], np.zeros(count, np.int64), slice_thickness)
    wavelength = optics.wavelength_angstrom(experiment.microscope.energy_ev)
    shape = tuple(row.count for row in detectors.pixels(grid, wavelength, experiment.detector))
    cbed = np.zeros((len(simulation.positions), *shape), np.float32)
    dispatch.add_patterns(cbed, simulation.positions, setup, dispatch.make_engine(setup, slices))
    return cbed


def optical_setup(experiment: SimulationConfig, grid: Grid, slice_thickness_angstrom: float) -> dispatch.OpticalSetup:
    """Returns the experiment's probes, propagator and detector, in single precision on the host."""
    m = experiment.microscope
    modes = coherent_modes(m, m.source_points)
    beam = optics.BeamSettings(m.energy_ev, m.semiangle_mrad, m.aberrations, m.beam_tilt_mrad, m.specimen_tilt_mrad)
    return dispatch.optical_setup(grid, beam, modes, [slice_thickness_angstrom], experiment.detector)


def _on_own_grid(
    experiment: SimulationConfig,
    thickness_angstrom: float,
    shape: tuple[int, ...],
    positions_angstrom: npt.ArrayLike | None,
    extent_angstrom: tuple[float, float] | None,
) -> ScanSimulation:
    """Returns the simulation of a density that is known on the grid."""
    steps, scanned = experiment.scan.step_angstrom, experiment.scan.shape
    if extent_angstrom is None and steps and scanned:
        extent_angstrom = (steps[0] * scanned[0], steps[1] * scanned[1])
    if extent_angstrom is None or len(shape) != 2:
        raise InputError("a density on the simulation's grid needs extent_angstrom (y, x) for its score")
    if positions_angstrom is None and experiment.scan.origin_angstrom == "random":
        raise InputError("the scan's origin is random: give positions_angstrom (n, 2)")
    if positions_angstrom is None:
        rows = scan.positions(experiment.scan, extent_angstrom, np.random.default_rng(0))
        positions_angstrom = scan.raster(*rows)
    positions = np.asarray(positions_angstrom, np.float64)
    grid = Grid((shape[0], shape[1]), extent_angstrom)
    return ScanSimulation(experiment, thickness_angstrom, grid, positions, np.ones(len(positions), bool))


def _stack(patterns: npt.ArrayLike, count: int) -> npt.NDArray[np.float32]:
    """Returns patterns as a stack `(n, dy, dx)`."""
    stack = np.asarray(patterns, np.float32)
    stack = stack.reshape(-1, *stack.shape[-2:])
    if len(stack) != count:
        raise InputError(f"there are {len(stack)} patterns for {count} positions")
    return stack


def misfit(simulated: npt.NDArray[Any], measured: npt.NDArray[Any], axis: tuple[int, ...] | None = None) -> Floats:
    """Returns R = Σ|√I_sim − √I| / Σ√I.

    Args:
        simulated: Simulated patterns, `(..., dy, dx)`.
        axis: Axes to sum over; default all.
    """
    root_simulated, root_measured = np.sqrt(simulated), np.sqrt(measured)
    r: Floats = np.abs(root_simulated - root_measured).sum(axis) / root_measured.sum(axis)
    return r
