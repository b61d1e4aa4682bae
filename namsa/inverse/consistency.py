"""How well a reconstructed density explains the patterns that it was made from: simulate it and compare.

    residual(density, patterns, experiment, thickness_angstrom, transfer,
             *, positions_angstrom=None, extent_angstrom=None) -> (score, map)

The score is R = Σ|√I_sim − √I| / Σ√I over the pixels of all positions whose probe meets nothing but known density, the
map the same for each position. 0 is perfect. It is no error of the density in e/Å²: how far it can be trusted is
measured by `scripts/bench/trust.py` and written in docs/benchmarks/reconstruction.md.

A projected density is simulated as equal slices of the potential that `namsa.inverse.mott_bethe` makes of it, with the
experiment's own microscope and detector. What is not known of the specimen limits the score from below, also for the
true density: the order of atoms along the beam, the potential beyond the density's band, the elements. A target on the
scan is continued beyond the scan's edges by reflection.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from namsa.config.simulation import SimulationConfig
from namsa.dataset import scan
from namsa.dataset.simulate_entry import focal_spread_angstrom
from namsa.engines import dispatch as diffract
from namsa.errors import InputError
from namsa.inverse.mott_bethe import Transfer
from namsa.physics import coherence, optics, potential
from namsa.physics import density_target as target
from namsa.physics import detector as detectors
from namsa.physics.grid import Grid, fast_shape

Array = npt.NDArray[np.float64]

SEAM_ANGSTROM = 2.0  # beyond the probes' reach, where the continued density fades to its mean
FITTED_PROBES = 144  # that the potential's scale is fitted to
_SPREADS = 2.5  # of the scale's prior: how far the fit may go


@dataclass(frozen=True)
class Scene:
    """Where the simulation of an experiment takes place.

    grid: the periodic cell; positions: (n, 2), Å in it; inside: (n,), whether a probe meets nothing but known density
    raster: (rows, columns) in Å of a density that is known at the scan's positions, None for one on the grid
    """

    grid: Grid
    positions: Array
    inside: npt.NDArray[np.bool_]
    raster: tuple[Array, Array] | None = None

    def on_grid(self, density: npt.NDArray[Any]) -> Array:
        """A density, reflected at the scan's edges where the cell goes on, and fading to its mean at the cell's."""
        known = np.asarray(density, np.float64)
        if self.raster is None:
            return known
        axes = [np.arange(n) * d for n, d in zip(self.grid.shape, self.grid.sampling_angstrom, strict=True)]
        steps = [line[1] - line[0] for line in self.raster]
        even = np.pad(known, [(0, n) for n in known.shape], "symmetric")
        period = Grid((even.shape[0], even.shape[1]), (even.shape[0] * steps[0], even.shape[1] * steps[1]))
        y, x = (axis - line[0] for axis, line in zip(axes, self.raster, strict=True))
        continued = target.at_positions(np.fft.fft2(even), period, y, x)
        fades = []
        for axis, line, step, extent in zip(axes, self.raster, steps, self.grid.extent_angstrom, strict=True):
            away = np.maximum(line[0] - axis, axis - line[-1]) - step / 2  # from the scan's outer edge
            outside = max((extent - (line[-1] - line[0]) - step) / 2, step)
            fades.append(np.cos(np.pi / 2 * np.clip(2 * away / outside - 1, 0, 1)) ** 2)
        mean = float(known.mean())
        return mean + np.multiply.outer(*fades) * (continued - mean)

    def on_target(self, field: npt.ArrayLike) -> Array:
        """What lies at the density's own pixels of a field on the grid."""
        values = np.asarray(field, np.float64)
        return values if self.raster is None else target.at_positions(np.fft.fft2(values), self.grid, *self.raster)


class Consistency(NamedTuple):
    """score: R; map: R at each position, (sy, sx); empty: R of an empty specimen; scale: of the transfer, as fitted."""

    score: float
    map: Array
    empty: float
    scale: float


def residual(
    density: npt.NDArray[Any],
    patterns: npt.ArrayLike,
    experiment: SimulationConfig,
    thickness_angstrom: float,
    transfer: Transfer,
    *,
    positions_angstrom: npt.ArrayLike | None = None,
    extent_angstrom: tuple[float, float] | None = None,
) -> tuple[float, Array]:
    """(R, its map over the scan's positions (sy, sx)) of a reconstruction.

    density: (sy, sx) at the scan's positions or (ny, nx) on the simulation's grid, as `experiment.target.at` says, e/Å²
    patterns: (sy·sx, dy, dx) or (sy, sx, dy, dx), fractions of the beam
    positions_angstrom, extent_angstrom: (n, 2) and (y, x), of a density on a grid; not needed where the scan fills it

    Raises InputError for shapes that do not fit and for an experiment whose geometry is not fixed.
    """
    where = scene(experiment, thickness_angstrom, np.shape(density), positions_angstrom, extent_angstrom)
    found = check(density, patterns, experiment, thickness_angstrom, transfer, where)
    return found.score, found.map


def check(
    density: npt.NDArray[Any],
    patterns: npt.ArrayLike,
    experiment: SimulationConfig,
    thickness_angstrom: float,
    transfer: Transfer,
    where: Scene,
) -> Consistency:
    """`residual`, with what goes into it. The scale is fitted within what the transfer leaves open."""
    measured = _stack(patterns, len(where.positions))
    grown = where.on_grid(density)
    if grown.shape != where.grid.shape:
        raise InputError(f"the density has shape {np.shape(density)}, the experiment asks for {where.grid.shape}")
    v = transfer.potential(grown, where.grid)
    expected = transfer.expected_scale(density, thickness_angstrom)
    scale = fit_scale(v, expected, transfer.scale_spread, measured, experiment, thickness_angstrom, where)
    simulated = simulate(scale * v, experiment, thickness_angstrom, where)
    empty = simulate(0 * v, experiment, thickness_angstrom, where)
    shape = experiment.scan.shape or (1, len(measured))
    each = misfit(simulated, measured, axis=(1, 2))
    parts = (part[where.inside] for part in (simulated, measured, empty))
    inner, truth, vacuum = parts
    return Consistency(float(misfit(inner, truth)), np.reshape(each, shape), float(misfit(vacuum, truth)), float(scale))


def fit_scale(
    projected_potential: Array,
    expected: float,
    spread: float,
    measured: npt.NDArray[Any],
    experiment: SimulationConfig,
    thickness_angstrom: float,
    where: Scene,
) -> float:
    """The scale of lowest R on some of the positions, within `_SPREADS` of what is expected."""
    if spread == 0:
        return expected
    chosen = np.flatnonzero(where.inside)
    chosen = chosen[np.linspace(0, len(chosen) - 1, min(len(chosen), FITTED_PROBES)).astype(int)]
    part = replace(where, positions=where.positions[chosen])

    def at(log_scale: float) -> float:
        simulated = simulate(np.exp(log_scale) * projected_potential, experiment, thickness_angstrom, part)
        return float(misfit(simulated, measured[chosen]))

    middle, reach = np.log(expected), _SPREADS * spread
    found = minimize_scalar(at, bounds=(middle - reach, middle + reach), method="bounded", options={"xatol": 0.03})
    return float(np.exp(found.x))


def estimate_thickness(
    density: npt.NDArray[Any],
    patterns: npt.ArrayLike,
    experiment: SimulationConfig,
    candidates_angstrom: npt.ArrayLike,
    transfer: Transfer,
) -> tuple[float, Array]:
    """(the candidate of lowest R, R of each): for a specimen whose thickness nobody knows."""
    scores = np.array(
        [residual(density, patterns, experiment, float(t), transfer)[0] for t in np.atleast_1d(candidates_angstrom)]
    )
    return float(np.atleast_1d(candidates_angstrom)[int(scores.argmin())]), scores


def scene(
    experiment: SimulationConfig,
    thickness_angstrom: float,
    density_shape: tuple[int, ...],
    positions_angstrom: npt.ArrayLike | None = None,
    extent_angstrom: tuple[float, float] | None = None,
) -> Scene:
    """The cell that the experiment is simulated in, see `residual`."""
    if not thickness_angstrom > 0:
        raise InputError(f"the specimen's thickness is {thickness_angstrom} Å; it must be above 0")
    steps, shape = experiment.scan.step_angstrom, experiment.scan.shape
    if experiment.target.at == "grid":
        return _on_own_grid(experiment, density_shape, positions_angstrom, extent_angstrom)
    if steps is None and extent_angstrom and shape:
        steps = (extent_angstrom[0] / shape[0], extent_angstrom[1] / shape[1])
    detector = experiment.detector
    if shape is None or min(shape) < 2 or steps is None or detector is None or detector.pixel_mrad is None:
        raise InputError("a score on the scan needs scan.shape, scan.step_angstrom and detector.pixel_mrad")
    if density_shape != shape:
        raise InputError(f"the density has shape {density_shape}, the scan {shape}: give a density at its positions")
    m, wavelength = experiment.microscope, optics.wavelength_angstrom(experiment.microscope.energy_ev)
    reach = optics.probe_diameter_angstrom(m.energy_ev, m.semiangle_mrad, m.aberrations, thickness_angstrom) / 2
    window = [n * step for n, step in zip(shape, steps, strict=True)]
    extent = extent_angstrom
    if extent is None or any(whole < part for whole, part in zip(extent, window, strict=True)):
        margin = 2 * (reach + SEAM_ANGSTROM)
        extent = (window[0] + margin, window[1] + margin)
    sides = detector.shape or (0, 0)
    angle = max(
        m.semiangle_mrad * 1.25, *(n * detector.pixel_mrad / 2 for n in sides)
    )  # 1.25: the aperture's soft edge
    finest = wavelength / (3.01e-3 * angle)
    grid = Grid(fast_shape(extent, min(experiment.simulation.sampling_angstrom or finest, finest)), extent)
    rows, columns = (
        (whole - part + step) / 2 + step * np.arange(n)
        for whole, part, step, n in zip(extent, window, steps, shape, strict=True)
    )
    known = []
    for n, step in zip(shape, steps, strict=True):
        deep = (np.minimum(np.arange(n), np.arange(n)[::-1]) + 0.5) * step
        known.append(deep >= min(reach, deep.max()))
    inside = np.logical_and.outer(known[0], known[1]).ravel()
    return Scene(grid, scan.raster(rows, columns), inside, (rows, columns))


def simulate(
    projected_potential: Array, experiment: SimulationConfig, thickness_angstrom: float, where: Scene
) -> npt.NDArray[np.float32]:
    """Patterns (n, dy, dx) of a `projected_potential` (ny, nx) cut into equal slices."""
    count = potential.slice_count(thickness_angstrom, experiment.simulation.slice_thickness_angstrom)
    beam = beam_of(experiment, where.grid, thickness_angstrom / count)
    sigma = optics.interaction_constant(experiment.microscope.energy_ev)
    t = potential.transmission(projected_potential / count, sigma, where.grid.antialias(), np.complex64)
    slices = potential.Slices([t], np.zeros(count, np.int64), thickness_angstrom / count)
    wavelength = optics.wavelength_angstrom(experiment.microscope.energy_ev)
    shape = tuple(row.count for row in detectors.pixels(where.grid, wavelength, experiment.detector))
    cbed = np.zeros((len(where.positions), *shape), np.float32)
    diffract.add_patterns(cbed, where.positions, beam, slices, lambda stage, done, total: None)
    return cbed


def beam_of(experiment: SimulationConfig, grid: Grid, slice_thickness_angstrom: float) -> diffract.Optics:
    """The experiment's probes, the way through a slice and the detector, in single precision on the host."""
    m = experiment.microscope
    sizes = (m.source_size_angstrom, m.source_points, focal_spread_angstrom(m), m.focal_points)
    return diffract.beam(
        grid,
        coherence.modes(optics.wavelength_angstrom(m.energy_ev), m.semiangle_mrad, *sizes),
        m.energy_ev,
        m.semiangle_mrad,
        m.aberrations,
        slice_thickness_angstrom,
        experiment.detector,
        beam_tilt_mrad=m.beam_tilt_mrad,
        specimen_tilt_mrad=m.specimen_tilt_mrad,
    )


def _on_own_grid(
    experiment: SimulationConfig,
    shape: tuple[int, ...],
    positions_angstrom: npt.ArrayLike | None,
    extent_angstrom: tuple[float, float] | None,
) -> Scene:
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
    return Scene(Grid((shape[0], shape[1]), extent_angstrom), positions, np.ones(len(positions), bool))


def _stack(patterns: npt.ArrayLike, count: int) -> npt.NDArray[np.float32]:
    stack = np.asarray(patterns, np.float32)
    stack = stack.reshape(-1, *stack.shape[-2:])
    if len(stack) != count:
        raise InputError(f"there are {len(stack)} patterns for {count} positions")
    return stack


def misfit(simulated: npt.NDArray[Any], measured: npt.NDArray[Any], axis: tuple[int, ...] | None = None) -> Array:
    """R over all pixels, or over those along `axis`."""
    roots = np.sqrt(simulated), np.sqrt(measured)
    found: Array = np.abs(roots[0] - roots[1]).sum(axis) / roots[1].sum(axis)
    return found
