"""The error of chosen pixels and slices, measured on a few probes of the specimen itself.

The models of `namsa.sampling.resolution` choose pixels and slices. Here the choice is tried on a
few probes, of which one is on the strongest column, with the lens and the tilts of the simulation,
coherent, in one configuration of the atoms. Pixels are compared with those half and a third as
large, slices with those of layers that may share one half and a third as far apart, each with the
other as it is chosen: errors of both add up as differences of patterns. Where the errors exceed the
accuracy, of all patterns, or twice the accuracy, of the worst one, pixels or slices are made
smaller until they do not.

The reference is the finer of the two; how much the two differ says how good it is.

The measurement may take `SHARE` of the operations of the simulation, or those of a moment. Of
simulations of few patterns it is smaller, down to two probes, or is left out; then the model stands
for it.
"""

import math
from dataclasses import dataclass, replace

import ase
import numpy as np

from namsa.base.arrays import Booleans, Floats
from namsa.base.memory import available_memory_bytes
from namsa.crystals.displacements import displace_atoms
from namsa.engines import dispatch, prism
from namsa.engines.exposure import expose
from namsa.physics import optics, potential, specimen
from namsa.physics.grid import Grid, fast_shape
from namsa.physics.slice_plan import SlicePlan
from namsa.sampling import resolution
from namsa.sampling.evidence import WORST, Measurement, PatternErrors, errors_of
from namsa.sampling.slicing import Slicing
from namsa.setup.scan import ProbePositions
from namsa.setup.settings import SimulationSettings

# Of the operations of the simulation that the measurement may take. Those of its large waves are
# slower: it takes up to 15 % of the time.
SHARE = 0.07
# Operations that it may take of scans of many patterns: about half a second of a core.
_FREE_OPERATIONS = 1e10
_MANY_PATTERNS = 500
MOST_PROBES = 6
FEWEST_PROBES = 2
_FINER = ((2, 3), (2,))  # times, of the references; the second if the first take too long
# Operations as slow as one of the propagation: of transmissions, and of all else per pixel.
_SLICE_COST = 3.0
_PIXEL_COST = 3000.0
_LEAST_FINER = 1.9  # times, of the last reference than pixels that were made smaller
_ROUNDS = 4  # in which pixels or slices are made smaller
_AIM = 0.8  # of the accuracy, for what is made smaller
_BYTES_PER_PIXEL = 200  # of a reference with its transmissions on finer pixels
# Of a sequence that fills the cell evenly: powers of 1/1.3247, the plastic number.
_STEPS = (0.7548776662, 0.5698402910)


def probes_of(
    atoms: ase.Atoms,
    extent_angstrom: tuple[float, float],
    count: int,
    positions: Floats | None = None,
) -> Floats:
    """Returns positions (n, 2): one on the strongest column, and others evenly over a scan, Å.

    Args:
        positions: Positions (m, 2) of the scan; by default the whole cell.
    """
    if not len(atoms):
        return np.array([extent_angstrom]) / 2
    strongest = resolution.strongest_column(specimen.atom_list(atoms), extent_angstrom)
    steps = np.outer(np.arange(count), _STEPS) % 1
    if positions is None:
        return np.asarray((strongest + steps * extent_angstrom) % extent_angstrom)
    others = positions[(steps[1:, 0] * len(positions)).astype(int)]
    return np.concatenate([[strongest], others])


@dataclass(frozen=True)
class Trial:
    """A few probes of a specimen, with any pixels and slices."""

    slicing: Slicing  # the specimen, and what was chosen for it
    positions: Floats  # of the probes, (n, 2) as (y, x), Å
    reach_mrad: float  # angle with the axis within which patterns are compared, mrad

    def patterns(self, grid: Grid, plan: SlicePlan) -> Floats:
        """Returns the patterns within `reach_mrad`, (n, pixels), the same pixels for any grid."""
        slicing = self.slicing
        settings = _coherent(slicing)
        thicknesses = plan.distinct_thicknesses()[0]
        exposure = expose(
            settings,
            grid,
            thicknesses.tolist(),
            slicing.thickness_angstrom,
            ProbePositions(self.positions, None),
            slicing.xp,
        )
        atoms = slicing.snapshots[0]
        phonons = slicing.settings.frozen_phonons
        if phonons:
            rng = np.random.default_rng(slicing.settings.seed)
            atoms = displace_atoms(atoms, phonons.displacement_angstrom(), rng)
        sliced = specimen.build(
            atoms,
            grid,
            slicing.cuts(plan),
            optics.interaction_constant(settings.microscope.energy_ev),
            settings.simulation.form_factors,
            slicing.dtype,
            slicing.xp,
            projection=settings.simulation.projection,
            bonding=slicing.bonding,
        )
        engine = dispatch.make_engine(exposure.setup, sliced.slices)
        patterns = np.zeros((len(self.positions), *grid.shape), slicing.dtype.type(0).real.dtype)
        dispatch.add_patterns(patterns, self.positions, exposure.setup, engine)
        return patterns[:, self._within_reach(grid)].astype(np.float64)

    def _within_reach(self, grid: Grid) -> Booleans:
        """Returns which pixels are compared, (ny, nx), zero frequency in the centre."""
        wavelength = optics.wavelength_angstrom(self.slicing.settings.microscope.energy_ev)
        ky, kx = grid.frequencies()
        return np.fft.fftshift(1e3 * wavelength * np.hypot(ky, kx) < self.reach_mrad)


def _coherent(slicing: Slicing) -> SimulationSettings:
    """Returns the settings of coherent probes without a detector."""
    settings = slicing.settings
    microscope = settings.microscope.model_copy(
        update={"source_size_angstrom": 0.0, "focal_spread_angstrom": 0.0}
    )
    engine = settings.simulation.model_copy(update={"engine": "auto"})
    return replace(settings, microscope=microscope, simulation=engine, detector=None, plasmons=None)


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
    for times in _FINER:
        references = _References.of(slicing, times)
        allowed = SHARE * operations
        if len(positions) >= _MANY_PATTERNS:
            allowed = max(allowed, _FREE_OPERATIONS)
        limit = allowed - references.slice_operations(slicing)
        count = min(MOST_PROBES, int(limit // references.operations_per_probe(slicing)))
        if count >= FEWEST_PROBES and references.fit_into_memory():
            probes = probes_of(slicing.snapshots[0], extent, count, positions)
            trial = Trial(slicing, probes, slicing.required.reach_mrad)
            return _Search(trial, references).result()
    return slicing


@dataclass(frozen=True)
class _References:
    """The finer pixels and slices that a choice is compared with."""

    grids: tuple[Grid, ...]
    plans: tuple[SlicePlan, ...]  # none if no layers share a slice

    @classmethod
    def of(cls, slicing: Slicing, finer: tuple[int, ...]) -> "_References":
        """Returns those of a choice, which are finer by each of these factors."""
        grids = tuple(finer_grid(slicing.grid, times) for times in finer)
        plans = tuple(slicing.finer_plan(times) for times in finer)
        if plans[-1].count == slicing.plan.count:
            plans = ()
        return cls(grids, plans)

    def _tried(self, slicing: Slicing) -> list[tuple[Grid, SlicePlan]]:
        """Returns all pixels and slices that are simulated."""
        pixels = [(grid, slicing.plan) for grid in (slicing.grid, *self.grids)]
        return pixels + [(slicing.grid, plan) for plan in self.plans]

    def operations_per_probe(self, slicing: Slicing) -> float:
        """Returns the floating-point operations of one probe in all of them."""
        total = 0.0
        for grid, plan in self._tried(slicing):
            work = prism.Work(grid.shape, plan.count, 1, 1, 1, 1, 1, 1)
            total += prism.propagation_operations(work, 1)
        return total

    def slice_operations(self, slicing: Slicing) -> float:
        """Returns the operations of all of them that do not depend on the number of probes."""
        atoms = specimen.atom_list(slicing.snapshots[0])
        heaviest = int(atoms.numbers.max(initial=0))
        distinct, _ = potential.distinct_slices(atoms, slicing.plan)
        repeated = len(distinct) / slicing.plan.count
        atoms_summed = float(sum(len(members.z) for members in distinct))
        if slicing.settings.frozen_phonons:
            repeated = 1.0
            atoms_summed = float(len(atoms.z))
        total = 0.0
        for grid, plan in self._tried(slicing):
            pixels = math.prod(grid.refined(heaviest).shape)
            transforms = repeated * plan.count * (10 * math.log2(pixels) + 60)
            total += _SLICE_COST * pixels * (transforms + 2 * atoms_summed)
            total += _PIXEL_COST * math.prod(grid.shape)
        return total

    def fit_into_memory(self) -> bool:
        """Returns whether the finest pixels do."""
        return math.prod(self.grids[-1].shape) * _BYTES_PER_PIXEL < available_memory_bytes()


class _Search:
    """The search for pixels and slices that hold, from those that were chosen."""

    def __init__(self, trial: Trial, references: _References) -> None:
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
            plans = [trial.patterns(self._grid, finer) for finer in references.plans]
            self._by_slices = plans[-1]
            self._differ = max(self._differ, errors_of(plans[0], plans[-1]).error)

    def _compare_pixels(self, grids: tuple[Grid, ...]) -> None:
        """Simulates the probes with the pixels that are tried, and with finer ones."""
        plan = self._chosen.plan
        references = [self._trial.patterns(grid, plan) for grid in grids]
        self._finer_grids = grids
        self._by_pixels = references[-1]
        self._differ = errors_of(references[0], references[-1]).error
        self._made = self._trial.patterns(self._grid, plan)

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
                chosen.finer_plan(self._times, number) for number in range(len(chosen.snapshots))
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
        part = (_AIM / self._excess(self._errors())) ** 0.4
        pixel = max(self._grid.sampling_angstrom) * min(max(part, 0.6), 0.93)
        self._grid = replace(self._grid, shape=fast_shape(self._grid.extent_angstrom, pixel))
        finest = max(self._finer_grids[-1].sampling_angstrom)
        if max(self._grid.sampling_angstrom) < _LEAST_FINER * finest:
            times = _FINER[-2 if len(self._finer_grids) > 1 else -1]
            self._compare_pixels(tuple(finer_grid(self._grid, finer) for finer in times))
        else:
            self._made = self._trial.patterns(self._grid, self._chosen.plan)

    def _make_slices_thinner(self) -> None:
        self._times *= min(max(self._excess(self._errors()) / _AIM, 1.3), 3.0)
        plan = self._chosen.finer_plan(self._times)
        self._at_slices = self._trial.patterns(self._chosen.grid, plan)


def finer_grid(grid: Grid, times: int) -> Grid:
    """Returns a grid with pixels at most a part as large, and the whole Nyquist frequency.

    Its transmissions are on pixels that are finer than those of the choice, by less than its waves.
    """
    pixel = max(grid.sampling_angstrom) / times
    shape = fast_shape(grid.extent_angstrom, pixel)
    return Grid(shape, grid.extent_angstrom, 1.0, finer=2 if times > 2 else 3)
