"""The fit of columns and microscope to the patterns of a scan, or of the middle of it.

The steps are those of a coarse model, to whose patterns the difference of finer ones at the first
step is added. What is compared at the end has the difference at the state itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid
from namsa.inverse.column_model import ColumnPotential
from namsa.inverse.model_error import independent_share
from namsa.inverse.scan_model import (
    DARK,
    Misfit,
    ScanModel,
    divergences,
    position_divergences,
    scan_model,
)
from namsa.inverse.unknowns import Unknowns
from namsa.physics import optics
from namsa.physics.form_factors import Table

SLICE_ANGSTROM = 10.0  # of the coarse model
DIFFERENCE = 0.01  # of finite differences, in units of the priors' standard deviations
FIRST = 0.6  # length of the first step, in units of Newton's
# stops after so many steps of less than this relative gain at the positions kept out
PATIENCE = 4
GAIN = 0.002
EVERY = 4  # of rows and columns, one: positions at which the curvature is estimated
FIRST_SHARE = 0.02  # of the numbers that count as independent, before it is known
FITTED_ORDERS = ("10", "12", "21")  # of aberrations; the others stay


@dataclass(frozen=True)
class KnownScan:
    """Known properties of a scan."""

    # Energy, semiangle, and the aberrations that the fit begins with: C10 at the entrance.
    beam: optics.BeamSettings
    detector: PixelGrid  # its pixels, mrad
    step_angstrom: tuple[float, float]  # between positions, (y, x)
    thickness_angstrom: float
    composition: Mapping[int, float]  # number of atoms of each atomic number
    max_q: float  # where the window of the density ends, 1/Å
    form_factors: Table = "lobato"
    thickness_error: float = 0.03  # relative standard deviation

    @property
    def reach_angstrom(self) -> float:
        """Distance that a probe's intensity reaches from its middle, at any depth."""
        return optics.probe_diameter_angstrom(self.beam, self.thickness_angstrom) / 2


class MeasuredPatterns(NamedTuple):
    """The patterns of a raster of positions, and what they are used for."""

    patterns: Array  # `(sy, sx, dy, dx)`, fractions of the beam, float32; 0 where one is lost
    recorded: Array  # whether there is a pattern, `(sy, sx)`
    used: Array  # whether the fit may use the position, `(sy, sx)`; the others are kept out

    @property
    def fitted(self) -> Array:
        """Positions that the fit uses and whose patterns are not dark, `(sy, sx)`."""
        return np.asarray(self.used & self.patterns.any(axis=(2, 3)))

    def without_edges(self, margins: tuple[int, int]) -> "MeasuredPatterns":
        """Returns the middle of the raster, without so many positions (y, x) at each edge."""
        rows, columns = (
            slice(margin, length - margin)
            for margin, length in zip(margins, self.used.shape, strict=True)
        )
        return MeasuredPatterns(
            self.patterns[rows, columns], self.recorded[rows, columns], self.used[rows, columns]
        )


class FittedState(NamedTuple):
    """A state of a fit."""

    vector: Floats  # of the `Unknowns`
    divergence: float  # as `used` of `Divergences`
    kept_out: float  # as of `Divergences`
    residual: float  # the same
    steps: int  # before it


class Compared(NamedTuple):
    """A state beside all patterns of a fit."""

    state: FittedState
    by_position: Floats  # divergence of each position's pattern, `(sy, sx)`; 0 where one is lost
    share: float  # of the numbers that count as independent (`namsa.inverse.model_error`)


@dataclass(frozen=True)
class ModelOfPatterns:
    """A model of patterns, and the potential of the columns on its grid."""

    scan: ScanModel
    columns: ColumnPotential


class ScanFit:
    """The fit to a part of a scan, with models: coarse, of thinner slices, and of a wider box."""

    def __init__(
        self,
        known: KnownScan,
        unknowns: Unknowns,
        measured: MeasuredPatterns,  # of the part
        margins: tuple[int, int],  # positions (y, x) of the scan before the part
        share: float = FIRST_SHARE,  # of the numbers that count as independent
    ) -> None:
        self.unknowns = unknowns
        self.margins = margins
        self.measured = measured.patterns.reshape(-1, *measured.patterns.shape[2:])
        self.used = measured.used.ravel()
        self.recorded = measured.recorded.ravel()
        self.every_position = np.arange(len(self.measured))

        self._known = known
        self._start = np.multiply(margins, known.step_angstrom)
        self._scan_shape = (measured.used.shape[0], measured.used.shape[1])
        slices = max(1, round(known.thickness_angstrom / SLICE_ANGSTROM))
        self.coarse = self._model(slices)
        self.thinner = self._model(2 * slices)
        self.wider = self._model(slices, wider=1)

        disk_pixels = np.pi * known.beam.semiangle_mrad**2 / np.prod(known.detector.step)
        positions = (self.used & self.recorded).sum()
        # n of the objective
        self.numbers = max(1.0, share * float(positions * max(disk_pixels, 1.0)))

    def _model(self, slices: int, wider: int = 0) -> ModelOfPatterns:
        """Returns a model with so many slices, whose box is wider; see `scan_model`."""
        known = self._known
        fixed = {}
        for name, value in known.beam.aberrations.items():
            if not name.endswith(FITTED_ORDERS):
                fixed[name] = value
        scan = scan_model(
            optics.BeamSettings(known.beam.energy_ev, known.beam.semiangle_mrad, fixed),
            known.detector,
            (self.measured.shape[1], self.measured.shape[2]),
            self._scan_shape,
            known.step_angstrom,
            slices,
            known.reach_angstrom,
            wider,
        )
        columns = ColumnPotential(self.unknowns.columns, scan, self._start, known.form_factors)
        return ModelOfPatterns(scan, columns)

    def patterns(self, model: ModelOfPatterns, vector: Floats, positions: Array) -> Array:
        """Returns the patterns of a point source at some positions by their indices."""
        state = self.unknowns.state(vector)
        potential, _ = model.columns.potential(state.columns)
        return model.scan.patterns(potential, state.microscope, positions)

    def finer(self, vector: Floats) -> tuple[Array, Array]:
        """Returns the patterns of the coarse model, and what is to be added to them.

        The error of slices falls with the square of their thickness; so the limit is a third of the
        difference beyond half the thickness. The box changes patterns by the same in slices of
        either.
        """
        coarse = self.patterns(self.coarse, vector, self.every_position)
        thinner = self.patterns(self.thinner, vector, self.every_position)
        wider = self.patterns(self.wider, vector, self.every_position)
        return coarse, wider - coarse + 4 / 3 * (thinner - coarse)

    def compared(self, vector: Floats, steps: int) -> Compared:
        """Returns the state of a vector, with the finer patterns, and what it leaves of each."""
        coarse, added = self.finer(vector)
        simulated = self._blurred(vector, coarse + added)
        result = divergences(simulated, self.measured, self.used, self.recorded)
        by_position = position_divergences(simulated, self.measured) * self.recorded
        left = (self.measured - simulated) / np.sqrt(np.maximum(simulated, 0) + DARK)
        left *= self.recorded[:, None, None]
        share = independent_share(left.reshape(*self._scan_shape, *left.shape[1:]))
        state = FittedState(vector, result.used, result.kept_out, result.residual, steps)
        return Compared(state, by_position.reshape(self._scan_shape), share)

    def divergence_at(self, vector: Floats) -> float:
        """Returns the divergence of all patterns from the coarse model's."""
        all_used = np.ones(len(self.used), bool)
        coarse = self.patterns(self.coarse, vector, self.every_position)
        simulated = self._blurred(vector, coarse)
        return divergences(simulated, self.measured, all_used, self.recorded).used

    def _blurred(self, vector: Floats, point: Array) -> Array:
        """Returns patterns of a point source after the blur by the source."""
        source = self.unknowns.state(vector).microscope.source
        return self.coarse.scan.blurred(point, source)

    def objective(self, vector: Floats, added: Array) -> tuple[Misfit, float, Floats]:
        """Returns the misfit, the objective and its gradient.

        Args:
            added: What is added to the patterns of the coarse model.
        """
        state = self.unknowns.state(vector)
        potential, terms = self.coarse.columns.potential(state.columns)
        misfit = self.coarse.scan.misfit(
            potential, state.microscope, self.measured, self.used, self.recorded, added
        )
        by_columns = self.coarse.columns.gradient(misfit.by_potential, terms)
        slope = self.unknowns.gradient(state, by_columns, misfit.by_microscope)
        divergence = misfit.divergences.used
        value = self.numbers / 2 * np.log(divergence) + vector @ vector / 2
        return misfit, float(value), self.numbers / 2 / divergence * slope + vector

    def curvature(self, vector: Floats, point: Array, divergence: float) -> Floats:
        """Returns the curvature of the objective along `Unknowns.directions`.

        It is Gauss and Newton's approximation at one of 16 positions, and but for the source's own
        without the source.

        Args:
            point: Patterns of a point source by the coarse model, `(n, dy, dx)`.
            divergence: That of the vector, at the positions that are used.
        """
        scan = self.coarse.scan
        rows, columns = (abs(np.arange(n) - n // 2) % EVERY == 0 for n in scan.scan)
        positions = np.flatnonzero(np.outer(rows, columns))
        base = point[positions]
        changes = []
        for direction in self.unknowns.directions():
            moved = self.patterns(self.coarse, vector + DIFFERENCE * direction, positions)
            changes.append((moved - base) / DIFFERENCE)
        source = self.unknowns.state(vector).microscope.source
        by_source = scan.by_variance(point, source)[positions].astype(np.float64)
        changes[self.unknowns.source_direction] = by_source * self.unknowns.errors.source
        errors = np.sqrt(np.maximum(base, 0) + DARK).ravel()
        jacobian = np.stack(changes).reshape(len(changes), -1) / errors
        squares = (jacobian @ jacobian.T).astype(np.float64)
        return squares / base.sum() * self.numbers / 2 / divergence

    def descend(
        self,
        begin: Floats,
        steps: int,
        on_step: Callable[[int], None],
        shared_alone: bool = False,
    ) -> list[FittedState]:
        """Returns the states after 0, 1, ... steps of L-BFGS.

        Its coordinates are those in which the curvature is about one. It ends early if the patterns
        kept out agree no better.

        Args:
            begin: Vector of the unknowns before the first step.
            steps: At most.
            on_step: Called with the number of steps done.
            shared_alone: Whether columns and their amount stay as they are.
        """
        coarse, added = self.finer(begin)
        misfit, _, slope = self.objective(begin, added)
        states = [_state(begin, misfit, 0)]
        if not steps:
            return states
        curvature = self.curvature(begin, coarse, misfit.divergences.used)
        scales = self.unknowns.scales(curvature, self.coarse.columns.inside, shared_alone)
        # SciPy's first step has the length 1, along the gradient.
        scales = scales.times(FIRST * float(np.linalg.norm(scales.gradient(slope))))
        evaluated: dict[bytes, Misfit] = {}

        def objective(coordinates: Floats) -> tuple[float, Floats]:
            misfit, value, slope = self.objective(begin + scales.change(coordinates), added)
            evaluated[coordinates.tobytes()] = misfit
            return value, scales.gradient(slope)

        def after_step(coordinates: Floats) -> None:
            misfit = evaluated[coordinates.tobytes()]
            states.append(_state(begin + scales.change(coordinates), misfit, len(states)))
            on_step(len(states) - 1)
            if _stands_still(states):
                raise StopIteration  # ends the fit

        minimizer: Any = minimize
        minimizer(
            objective,
            np.zeros(len(begin)),
            jac=True,
            method="L-BFGS-B",
            bounds=scales.bounds(begin),
            callback=after_step,
            options={"maxiter": steps, "maxfun": 3 * steps, "maxcor": 20},
        )
        return states


def _state(vector: Floats, misfit: Misfit, steps: int) -> FittedState:
    """Returns a state of a descent."""
    result = misfit.divergences
    return FittedState(vector, result.used, result.kept_out, result.residual, steps)


def _stands_still(states: list[FittedState]) -> bool:
    """Whether the last steps have gained nothing at the positions kept out."""
    if len(states) <= PATIENCE:
        return False
    kept_out = [state.kept_out for state in states]
    return min(kept_out[-PATIENCE:]) > (1 - GAIN) * min(kept_out[:-PATIENCE])


def least_kept_out(states: list[FittedState]) -> FittedState:
    """Returns the state that explains the patterns kept out best."""
    return min(states, key=lambda state: state.kept_out)
