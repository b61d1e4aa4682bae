"""The error of chosen pixels and slices, measured on a few probes of the specimen itself.

The models of `namsa.sampling.resolution` choose pixels and slices. Here the choice is tried on a
few probes, of which one is on the strongest column, with the lens and the tilts of the simulation,
coherent, in one configuration of the atoms. Pixels are compared with those half and a third as
large, slices with those of layers that may share one half and a third as far apart, each with the
other as it is chosen: errors of both add up as differences of patterns. Slices that divide atoms
need the smaller pixels the thinner they are: there pixels are compared with the thinnest ones.
Where the errors exceed the accuracy, of all patterns, or twice the accuracy, of the worst one,
pixels or slices are made smaller until they do not.

The reference is the finer of the two; how much the two differ says how good it is.

The measurement may take `SHARE` of the operations of the simulation; three probes may take those of
half a second. Where that is little it has fewer probes, down to two (one of a parallel beam), one
reference, or is left out; then the model stands for it.
"""

from dataclasses import replace
from typing import NamedTuple

from namsa.base.arrays import Floats
from namsa.physics import optics
from namsa.physics.grid import Grid, fast_shape
from namsa.physics.slice_plan import SlicePlan
from namsa.sampling.evidence import WORST, Measurement, PatternErrors, errors_of
from namsa.sampling.slicing import Slicing
from namsa.sampling.trial import FINER, References, Trial, finer_grid, probes_of

# Of the operations of the simulation that the measurement may take. Those of its large waves are
# slower: it takes up to 15 % of the time.
SHARE = 0.07
# Operations that a few probes may always take: about half a second of a core.
_FREE_OPERATIONS = 1e10
PROBES_IN_MOMENT = 3
MOST_PROBES = 6
_FINER = (FINER, FINER[:1])  # times, of the references; the second if the first take too long
_LEAST_FINER = 1.9  # times, of the last reference than pixels that were made smaller
_ROUNDS = 4  # in which pixels or slices are made smaller
_AIM = 0.8  # of the accuracy, for what is made smaller


def measure(
    slicing: Slicing,
    positions: Floats,  # of the scan, (n, 2) as (y, x), Å
    operations: float,  # floating-point operations of the simulation's probes
) -> Slicing:
    """Tries the chosen pixels and slices, and makes them smaller until they hold.

    Returns:
        The specimen with the pixels and slices that hold, and what was found; as it is if pixels
        are given, or the simulation has too few patterns.
    """
    if not slicing.chooses_pixels or not len(slicing.snapshots[0]):
        return slicing
    extent = slicing.grid.extent_angstrom
    wanted = _probes_wanted(slicing)
    for times in _FINER:
        references = References.of(slicing, times)
        of_slices = references.slice_operations(slicing)
        per_probe = references.operations_per_probe(slicing)
        in_share = min(wanted.most, int((SHARE * operations - of_slices) // per_probe))
        in_moment = min(wanted.in_moment, int((_FREE_OPERATIONS - of_slices) // per_probe))
        count = max(in_share, in_moment)
        if count >= wanted.fewest and references.fit_into_memory():
            probes = probes_of(slicing.snapshots[0], extent, count, positions)
            trial = Trial(slicing, probes, slicing.required.reach_mrad)
            return _Search(trial, references).result()
    return slicing


class _ProbeCounts(NamedTuple):
    """Number of probes that a measurement may have."""

    fewest: int
    in_moment: int  # at most, beyond the share of the simulation
    most: int


def _probes_wanted(slicing: Slicing) -> _ProbeCounts:
    """Returns how many probes are tried: one of a parallel beam, whose patterns are all alike."""
    microscope = slicing.settings.microscope
    beam = optics.BeamSettings(microscope.energy_ev, microscope.semiangle_mrad, {})
    if optics.is_parallel(slicing.grid, beam):
        return _ProbeCounts(1, 1, 1)
    return _ProbeCounts(2, PROBES_IN_MOMENT, MOST_PROBES)


class _Search:
    """The search for pixels and slices that hold, from those that were chosen."""

    def __init__(self, trial: Trial, references: References) -> None:
        self._trial = trial
        self._references = references
        self._chosen = trial.slicing
        self._grid = trial.slicing.grid
        self._times = 1.0  # that layers of one slice are closer than chosen
        self._raised = 0
        self._made: Floats  # patterns of the pixels that are tried
        self._by_pixels: Floats  # those of the finest pixels
        self._finer_grids: tuple[Grid, ...]
        self._differ: float  # the relative difference of the references
        self._compare_pixels(references.grids)
        self._by_slices = self._made
        self._at_slices = self._made
        if references.plans:
            self._at_slices = self._with_slices(self._chosen.plan)
            plans = [self._with_slices(plan) for plan in references.plans]
            self._by_slices = plans[-1]
            self._differ = max(self._differ, errors_of(plans[0], plans[-1]).error)

    def _compare_pixels(self, grids: tuple[Grid, ...]) -> None:
        """Simulates the probes with the pixels that are tried, and with finer ones."""
        plan = self._references.plan_of_pixels
        references = [self._trial.patterns(grid, plan) for grid in grids]
        self._finer_grids = grids
        self._by_pixels = references[-1]
        self._differ = errors_of(references[0], references[-1]).error
        self._made = self._trial.patterns(self._grid, plan)

    def _with_slices(self, plan: SlicePlan) -> Floats:
        """Simulates the probes with the pixels that are tried, and with these slices."""
        if plan is self._references.plan_of_pixels:
            return self._made
        return self._trial.patterns(self._grid, plan)

    def result(self) -> Slicing:
        """Returns the specimen with what holds."""
        while self._excess(self._errors()) > 1 and self._raised < _ROUNDS:
            self._raised += 1
            pixels = errors_of(self._made, self._by_pixels).error
            slices = errors_of(self._at_slices, self._by_slices).error
            if pixels >= slices:
                self._make_pixels_smaller()
            else:
                self._make_slices_thinner()
        errors = self._errors()
        chosen = self._chosen
        plans = chosen.plans
        if self._times > 1:
            plans = tuple(
                chosen.finer_plan(self._times, index) for index in range(len(chosen.snapshots))
            )
        measurement = Measurement(
            error=errors.error,
            worst_pattern=errors.worst_pattern,
            probes=len(self._trial.positions),
            pixel_angstrom=max(self._grid.sampling_angstrom),
            slices=plans[0].count,
            reference_pixels_angstrom=tuple(
                max(grid.sampling_angstrom) for grid in self._finer_grids
            ),
            reference_slices=tuple(plan.count for plan in self._references.plans),
            references_differ=self._differ,
            raised=self._raised,
        )
        return replace(chosen, grid=self._grid, plans=plans, measurement=measurement)

    def _errors(self) -> PatternErrors:
        """Returns the errors of pixels and slices together."""
        wrong = (self._made - self._by_pixels) + (self._at_slices - self._by_slices)
        return errors_of(self._by_pixels + wrong, self._by_pixels)

    def _excess(self, errors: PatternErrors) -> float:
        """Returns how many times the errors are as large as they may be."""
        accuracy = self._chosen.settings.simulation.accuracy
        return max(errors.error, errors.worst_pattern / WORST) / accuracy

    def _make_pixels_smaller(self) -> None:
        factor = (_AIM / self._excess(self._errors())) ** 0.4
        pixel = max(self._grid.sampling_angstrom) * min(max(factor, 0.6), 0.93)
        multiple = self._chosen.settings.simulation.interpolation
        shape = fast_shape(self._grid.extent_angstrom, pixel, multiple)
        self._grid = replace(self._grid, shape=shape)
        finest = max(self._finer_grids[-1].sampling_angstrom)
        if max(self._grid.sampling_angstrom) < _LEAST_FINER * finest:
            times = _FINER[-2 if len(self._finer_grids) > 1 else -1]
            self._compare_pixels(tuple(finer_grid(self._grid, finer) for finer in times))
        else:
            self._made = self._trial.patterns(self._grid, self._references.plan_of_pixels)

    def _make_slices_thinner(self) -> None:
        self._times *= min(max(self._excess(self._errors()) / _AIM, 1.3), 3.0)
        plan = self._chosen.finer_plan(self._times)
        self._at_slices = self._trial.patterns(self._chosen.grid, plan)
