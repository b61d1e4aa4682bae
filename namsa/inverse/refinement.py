"""Refines a density against the patterns: its columns of atoms, and the microscope that they were recorded with.

Columns are found in the density (`namsa.inverse.columns`). A maximum that is much longer than wide becomes two, and one
that is a little longer, if the patterns then agree better. What is fitted is the place and the number of electrons of
each column, the thermal displacement of each element, lens, source, thickness, tilt, and the affine change of the scan
(`namsa.inverse.column_model`, `namsa.inverse.scan_model`).

The patterns' divergence D is minimised as (n/2) log D with Gaussian priors: the size of the errors, of counting or of
the model, is not known. A pattern counts as as many numbers n as the bright disk has pixels. Every eighth position is
kept out. The result is the state that explains those best, that before the first step included.

The steps are those of a coarse model, to whose patterns the difference of finer ones at the first step is added. Half
of them are made in the middle of the scan, where what all positions share becomes known. What is compared at the end
has the difference at the state itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.optimize import minimize

from namsa.arrays import Array, Floats
from namsa.inverse.column_model import SOURCE, ColumnDensity, ColumnPotential, State, Unknowns
from namsa.inverse.scan_model import DARK, NAMES, VARIANCE, Misfit, ScanModel, divergences, scan_model
from namsa.physics import optics
from namsa.physics.coherence import FWHM
from namsa.physics.form_factors import Table
from namsa.pixels import PixelGrid

SLICE_ANGSTROM = 10.0  # of the coarse model
SMALLEST = 16  # positions of a part of a scan, along each axis
DIFFERENCE = 0.01  # of finite differences, in units of the priors' standard deviations
FIRST = 0.6  # length of the first step, in units of Newton's
KEPT_OUT = 8  # of so many positions, one
PATIENCE, GAIN = 4, 0.002  # stops after so many steps of less than this relative gain at the positions kept out
PAIRS_ANGSTROM = 0.45, 0.25  # least distances of two columns in a maximum: always, and if the patterns agree better
PAIR_GAIN = 0.01  # by this part of the divergence before the first step
MOST_LEFT = 0.5  # of a density's standard deviation: what columns may leave of it
_SMOOTH_ANGSTROM = 2.0  # over which what columns leave is compared with the uncertainty


@dataclass(frozen=True)
class Experiment:
    """What is known of a scan."""

    beam: optics.BeamSettings  # energy, semiangle, and the aberrations that the fit begins with: C10 at the entrance
    detector: PixelGrid  # its pixels, mrad
    step_angstrom: tuple[float, float]  # between positions, (y, x)
    thickness_angstrom: float
    composition: Mapping[int, float]  # number of atoms of each atomic number
    max_q: float  # where the window of the density ends, 1/Å
    form_factors: Table = "lobato"
    thickness_error: float = 0.03  # relative standard deviation


class Refined(NamedTuple):
    """A refined density."""

    density: Floats  # `(sy, sx)`, e/Å²
    facts: dict[str, Any]  # steps, residuals and the fitted microscope; JSON types


def refine(
    density: Floats,  # `(sy, sx)`, e/Å²
    uncertainty: Floats | None,  # one standard deviation of its error, in the same shape; `None` if it is not known
    patterns: Array,  # `(sy, sx, dy, dx)`, fractions of the beam; NaN where a pattern is lost
    known: Experiment,
    *,
    steps: int,  # at most
    on_step: Callable[[int, int], None] = lambda done, total: None,  # called with the steps done and their bound
) -> Refined | None:
    """Refines a density.

    Positions near the scan's edges, whose probes reach columns beyond it, are left out.

    Returns:
        `None` if the density does not consist of columns of atoms, or if all patterns are lost or dark.
    """
    focus = known.beam
    reach = optics.probe_diameter_angstrom(focus, known.thickness_angstrom) / 2
    margin = [min(int(np.ceil(reach / d)), n // 4) for d, n in zip(known.step_angstrom, density.shape, strict=True)]
    pixels = PixelGrid(known.step_angstrom, tuple(-np.multiply(margin, known.step_angstrom)))
    part = patterns[tuple(slice(m, n - m) for m, n in zip(margin, density.shape, strict=True))]
    recorded = np.isfinite(part).all(axis=(2, 3))
    measured = np.where(recorded[..., None, None], np.maximum(part, 0), 0).astype(np.float32)
    row, column = np.indices(recorded.shape)
    used = (3 * row + column) % KEPT_OUT != 0
    fitted = used & measured.any(axis=(2, 3))
    begins = [0 if n < SMALLEST else (n - max(n // 2, SMALLEST)) // 2 for n in row.shape]
    if not fitted[tuple(slice(begin, n - begin) for begin, n in zip(begins, row.shape, strict=True))].any():
        begins = [0, 0]  # nothing was recorded in the middle

    def window(unknowns: Unknowns, start: list[int]) -> _Window:
        return _Window(known, reach, unknowns, measured, used, recorded, start)

    columns, apart = (ColumnDensity(density, pixels, known.composition, known.max_q, least) for least in PAIRS_ANGSTROM)
    if not len(columns.yx) or not columns.left < MOST_LEFT or not fitted.any():
        return None
    middle = window(Unknowns(columns, _microscope(known), known.thickness_error), begins)
    if apart.pairs > columns.pairs:
        other = window(Unknowns(apart, _microscope(known), known.thickness_error), begins)
        middle = other if other.before() < (1 - PAIR_GAIN) * middle.before() else middle
    unknowns, columns = middle.unknowns, middle.unknowns.columns
    whole = window(unknowns, [0, 0])
    path = _fit(whole, middle, steps, on_step)
    best = min(path, key=_kept_out)
    state, before = unknowns.state(best.x), path[0]
    facts = {
        "steps": best.steps,
        "steps_tried": path[-1].steps,
        "left_out_at_edges": margin,
        "kept_out_residual_before": before.residual,
        "kept_out_residual": best.residual,
        "kept_out_divergence_before": before.kept_out,
        "kept_out_divergence": best.kept_out,
        **_described(columns, state, -np.array(pixels.origin)),
    }
    if best.steps == 0:
        return Refined(np.asarray(density, np.float64), facts)
    return Refined(_refined(density, uncertainty, columns, state, whole.models[0], known, margin), facts)


class _Reached(NamedTuple):
    """A state of a fit."""

    x: Floats  # as `Unknowns` has it
    kept_out: float  # as of `Misfit`
    residual: float
    steps: int  # before it


class _Window:
    """A part of a scan, in its middle, with models: coarse, of thinner slices, and of a wider box."""

    def __init__(
        self,
        known: Experiment,
        reach: float,  # of a probe, Å
        unknowns: Unknowns,
        measured: Array,  # of the whole scan, `(sy, sx, dy, dx)`
        used: Array,  # `(sy, sx)`
        recorded: Array,  # `(sy, sx)`
        start: list[int],  # position where the part begins, (y, x); it ends as far from the end
    ) -> None:
        inside = tuple(slice(begin, n - begin) for begin, n in zip(start, used.shape, strict=True))
        self.measured = measured[inside].reshape(-1, *measured.shape[2:])
        self.used, self.recorded, self.unknowns = used[inside].ravel(), recorded[inside].ravel(), unknowns
        scan, detector, beam = used[inside].shape, (measured.shape[2], measured.shape[3]), known.beam
        fixed = {name: value for name, value in beam.aberrations.items() if name[-2:] not in ("10", "12", "21")}
        beam = optics.BeamSettings(beam.energy_ev, beam.semiangle_mrad, fixed)
        slices = max(1, round(known.thickness_angstrom / SLICE_ANGSTROM))
        self.models = [
            scan_model(beam, known.detector, detector, (scan[0], scan[1]), known.step_angstrom, count, reach, wider)
            for count, wider in ((slices, 0), (2 * slices, 0), (slices, 1))
        ]
        place = np.multiply(start, known.step_angstrom)
        self.columns = [ColumnPotential(unknowns.columns, each, place, known.form_factors) for each in self.models]
        disk = np.pi * beam.semiangle_mrad**2 / np.prod(known.detector.step)
        self.numbers = float((self.used & self.recorded).sum() * max(disk, 1.0))

    def patterns(self, x: Floats, at: Array, model: int = 0) -> Array:
        """Returns the patterns of a point source at some positions, by one of the models."""
        state = self.unknowns.state(x)
        return self.models[model].patterns(self.columns[model].potential(*state[:3])[0], state.microscope, at)

    def finer(self, x: Floats) -> tuple[Array, Array]:
        """Returns the patterns of the coarse model, and what is to be added to them.

        The error of slices falls with the square of their thickness; so the limit is a third of the difference beyond
        half the thickness. The box changes patterns by the same in slices of either.
        """
        coarse, thinner, wider = (self.patterns(x, np.arange(len(self.measured)), model) for model in range(3))
        return coarse, wider - coarse + 4 / 3 * (thinner - coarse)

    def reached(self, x: Floats, point: Array, steps: int) -> _Reached:
        """Returns a state, with the patterns of a point source that it has."""
        _, kept_out, residual = self._divergences(x, point, self.used)
        return _Reached(x, kept_out, residual, steps)

    def before(self) -> float:
        """Returns the divergence of all patterns from those of the coarse model before the first step."""
        x, every = np.zeros(self.unknowns.size), np.ones(len(self.used), bool)
        return self._divergences(x, self.patterns(x, np.arange(len(self.measured))), every)[0]

    def _divergences(self, x: Floats, point: Array, used: Array) -> tuple[float, float, float]:
        """Returns the divergences from the patterns of a point source, once the state's source has blurred them."""
        simulated = self.models[0].blurred(point, self.unknowns.state(x).microscope[VARIANCE])
        return divergences(simulated, self.measured, used, self.recorded)

    def objective(self, x: Floats, added: Array) -> tuple[Misfit, float, Floats]:
        """Returns the misfit, the objective and its gradient."""
        state = self.unknowns.state(x)
        potential, kept = self.columns[0].potential(*state[:3])
        misfit = self.models[0].misfit(potential, state.microscope, self.measured, self.used, self.recorded, added)
        slope = self.unknowns.gradient(state, *self.columns[0].gradient(misfit.potential, kept), misfit.microscope)
        value = self.numbers / 2 * np.log(misfit.used) + x @ x / 2
        return misfit, float(value), self.numbers / 2 / misfit.used * slope + x

    def curvature(self, x: Floats, point: Array, misfit: Misfit) -> Floats:
        """Returns the curvature of the objective along `Unknowns.directions`, by Gauss and Newton's approximation.

        It is estimated at one of 16 positions, and but for the source's own without the source.
        """
        model, directions = self.models[0], self.unknowns.directions()
        rows, columns = (abs(np.arange(n) - n // 2) % 4 == 0 for n in model.scan)
        at = np.flatnonzero(np.outer(rows, columns))
        base = point[at]
        changes = [(self.patterns(x + DIFFERENCE * each, at) - base) / DIFFERENCE for each in directions]
        by_variance = model.by_variance(point, self.unknowns.state(x).microscope[VARIANCE])
        changes[-2] = by_variance[at] * self.unknowns.errors[VARIANCE]
        jacobian = np.stack(changes).reshape(len(changes), -1) / np.sqrt(np.maximum(base, 0) + DARK).ravel()
        return (jacobian @ jacobian.T).astype(np.float64) / base.sum() * self.numbers / 2 / misfit.used


def _fit(whole: _Window, middle: _Window, steps: int, on_step: Callable[[int, int], None]) -> list[_Reached]:
    """Returns the states before the first step, after those in the middle of the scan, and after those in all of it.

    What all positions share is known from few of them.
    """
    begin = np.zeros(whole.unknowns.size)
    before = whole.reached(begin, np.add(*whole.finer(begin)), 0)
    way = _descend(middle, begin, steps // 2, lambda count: on_step(count, steps))
    done, first = way[-1].steps, min(way, key=_kept_out).x
    way = _descend(whole, first, steps - steps // 2, lambda count: on_step(done + count, steps))
    last = min(way, key=_kept_out).x
    after = whole.reached(last, np.add(*whole.finer(last)), done + way[-1].steps)
    return [before, way[0]._replace(steps=done), after]


def _kept_out(reached: _Reached) -> float:
    """Returns the divergence of the patterns kept out."""
    return reached.kept_out


def _descend(window: _Window, begin: Floats, steps: int, on_step: Callable[[int], None]) -> list[_Reached]:
    """Returns the states after 0, 1, ... steps of L-BFGS in coordinates in which the curvature is about one."""
    point, added = window.finer(begin)
    first, _, slope = window.objective(begin, added)
    path, evaluated = [_Reached(begin, first.kept_out, first.residual, 0)], dict[bytes, Misfit]()
    if not steps:
        return path
    scales = window.unknowns.scales(window.curvature(begin, point, first), window.columns[0].inside)
    # SciPy's first step has the length 1, along the gradient.
    scales = scales.times(FIRST * float(np.linalg.norm(scales.back(slope))))

    def objective(u: Floats) -> tuple[float, Floats]:
        misfit, value, slope = window.objective(begin + scales.to(u), added)
        evaluated[u.tobytes()] = misfit
        return value, scales.back(slope)

    def after_step(u: Floats) -> None:
        misfit = evaluated[u.tobytes()]
        path.append(_Reached(begin + scales.to(u), misfit.kept_out, misfit.residual, len(path)))
        on_step(len(path) - 1)
        kept_out = [reached.kept_out for reached in path]
        if len(path) > PATIENCE and min(kept_out[-PATIENCE:]) > (1 - GAIN) * min(kept_out[:-PATIENCE]):
            raise StopIteration  # ends the fit

    minimizer: Any = minimize
    options = {"maxiter": steps, "maxfun": 3 * steps, "maxcor": 20}
    kind = {"method": "L-BFGS-B", "bounds": scales.bounds(begin), "callback": after_step, "options": options}
    minimizer(objective, np.zeros(len(begin)), jac=True, **kind)
    return path


def _microscope(known: Experiment) -> Floats:
    """Returns the numbers of the microscope that the fit begins with."""
    lens = known.beam.aberrations
    turned = [
        lens.get(name, 0.0) * turn(m * lens.get(f"phi{name[1:]}", 0.0))
        for name, m in (("C12", 2), ("C21", 1))
        for turn in (np.cos, np.sin)
    ]
    return np.array([lens.get("C10", 0.0), *turned, known.thickness_angstrom, *[0.0] * 6, SOURCE])


def _described(columns: ColumnDensity, state: State, margin: Floats) -> dict[str, Any]:
    """Returns the fitted numbers as a result's file holds them: Å, rad, mrad. Columns' places begin at the scan's."""
    values = dict(zip(NAMES, state.microscope.tolist(), strict=True))
    lens = {"C10": values["C10"]}
    for name, m in (("C12", 2), ("C21", 1)):
        x, y = values[f"{name}_x"], values[f"{name}_y"]
        lens |= {name: float(np.hypot(x, y)), f"phi{name[1:]}": float(np.arctan2(y, x) / m)}
    displacements = np.sqrt(state.displacements)
    return lens | {
        "source_size_angstrom": float(FWHM * np.sqrt(max(values["source"], 0.0))),
        "thickness_angstrom": values["thickness"],
        "tilt_mrad": [1e3 * values["tilt_y"], 1e3 * values["tilt_x"]],
        "scan_change": [[values["scan_yy"], values["scan_yx"]], [values["scan_xy"], values["scan_xx"]]],
        "displacement_angstrom": {str(z): float(u) for z, u in zip(columns.numbers, displacements, strict=True)},
        "amount": float(state.electrons.sum() / columns.electrons.sum()),
        "atomic_columns": len(columns.electrons),
        "pairs": columns.pairs,
        "column_yx_angstrom": np.round(state.yx + margin, 4).tolist(),
        "column_electrons": np.round(state.electrons, 3).tolist(),
    }


def _refined(
    density: Floats,
    uncertainty: Floats | None,
    columns: ColumnDensity,
    state: State,
    model: ScanModel,
    known: Experiment,
    margin: list[int],
) -> Floats:
    """Returns the density of the columns, and of what they left as much as exceeds the stated uncertainty."""
    places = np.stack(np.meshgrid(*(np.arange(n) for n in density.shape), indexing="ij"), axis=-1) - margin
    stated = places.reshape(-1, 2) * known.step_angstrom
    positions = model.moved(stated + model.first, state.microscope) - model.first
    found = columns.density(stated, columns.yx, columns.electrons, np.zeros(len(columns.numbers)))
    left, amount = density - found.reshape(density.shape), state.electrons.sum() / columns.electrons.sum()
    if uncertainty is not None:
        width = np.divide(_SMOOTH_ANGSTROM, known.step_angstrom)
        power, noise = (gaussian_filter(each**2, width, mode="reflect") for each in (left, uncertainty))
        left = left * np.clip(1 - noise / np.maximum(power, 1e-30), 0, 1)
    return columns.density(positions, *state[:3]).reshape(density.shape) + amount * left
