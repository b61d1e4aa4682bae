"""The error of a simulation's pixels and slices: a few probes, compared with finer ones.

There are two references (`namsa.sampling.trial`), with pixels half and a third as large, with the
whole Nyquist frequency as their band (`namsa.physics.grid.Grid`), and slices that follow the layers
of atoms, of which at most those half and a third as far apart share one; with the finite
projection, slices half and a third as thick. Errors are those against the finer one, and how much
the two differ says how good it is. Probes are coherent, with the lens and the tilts of the
simulation. Thermal displacements are the same in all. Of several snapshots, the first and the one
with the fewest slices are compared. How much the patterns of a few thermal configurations (or
snapshots) differ says what statistical error the mean over all of them has.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from namsa.base.arrays import Floats
from namsa.base.errors import issue_warnings
from namsa.base.text import plural
from namsa.config.bounds import DEFAULT_ACCURACY
from namsa.config.instrument import Detector
from namsa.config.specimen import FrozenPhonons
from namsa.crystals.crystal_source import SpecimenSource
from namsa.crystals.specimen_source import specimen_of
from namsa.physics import specimen
from namsa.sampling.evidence import errors_of
from namsa.sampling.slicing import Slicing, plan_slices
from namsa.sampling.snapshots import Snapshots
from namsa.sampling.trial import FINER, References, Trial, probes_of
from namsa.setup.scan import probe_positions
from namsa.setup.settings import SimulationSettings, settings_of

RINGS = 5  # between the axis and the largest angle of interest
PROBES = 4
_CONFIGURATIONS = 4  # from which the statistical error follows, within about a fifth


class RingError(NamedTuple):
    """The error of the intensity in a ring."""

    inner_mrad: float  # inner angle, mrad
    outer_mrad: float  # outer angle, mrad
    error: float  # relative difference of the probes' mean intensity
    fraction: float  # the intensity itself, as a fraction of the beam


@dataclass(frozen=True)
class Convergence:
    """Difference of a simulation from one of three times the resolution.

    Attributes:
        accuracy: The error that was asked for.
        error: Relative L2 difference of all patterns within `reach_mrad`.
        worst_pattern: That of the pattern that is the most wrong.
        reference_error: Relative L2 difference of the references, of twice and three times the
            resolution.
        rings: Errors by ring.
        lost: Fraction of the beam that scatters beyond the band limit.
        lost_in_reference: The same of the reference.
        reach_mrad: Largest angle that is compared, mrad.
        pixel_angstrom: Pixel of the simulation, Å.
        slices: Number of slices.
        reference_pixel_angstrom: Pixel of the reference, Å.
        reference_slices: Number of slices of the reference.
        advice: The pixel that accuracy would choose, Å.
        configurations: Number of thermal configurations, of all snapshots, over which the patterns
            are averaged.
        statistical_error: Relative L2 error that their mean has because they are random; 0 without
            any.
    """

    accuracy: float
    error: float
    worst_pattern: float
    reference_error: float
    rings: tuple[RingError, ...]
    lost: float
    lost_in_reference: float
    reach_mrad: float
    pixel_angstrom: float
    slices: int
    reference_pixel_angstrom: float
    reference_slices: int
    advice: float
    configurations: int
    statistical_error: float

    @property
    def worst_ring(self) -> RingError:
        """The ring with the largest error."""
        return max(self.rings, key=lambda ring: abs(ring.error))

    @property
    def problem(self) -> str | None:
        """The errors that exceed the accuracy, with the remedy; `None` if none does."""
        problems = [self._numerical_problem, self._statistical_problem]
        return "; ".join(problem for problem in problems if problem) or None

    @property
    def _statistical_problem(self) -> str | None:
        if self.statistical_error <= self.accuracy:
            return None
        needed = math.ceil(self.configurations * (self.statistical_error / self.accuracy) ** 2)
        return (
            f"patterns have, of {plural(self.configurations, 'configuration')} of the atoms, a "
            f"statistical error of {self.statistical_error:.1%}; accuracy is {self.accuracy:.1%}, "
            f"which takes about {needed}"
        )

    @property
    def _numerical_problem(self) -> str | None:
        ring = self.worst_ring
        problems = []
        if self.error > self.accuracy:
            problems.append(
                f"patterns within {self.reach_mrad:.0f} mrad have a relative error of "
                f"{self.error:.1%}"
            )
        if self.worst_pattern > 2 * self.accuracy:
            problems.append(f"one of them has {self.worst_pattern:.1%}")
        if abs(ring.error) > 10 * self.accuracy:
            problems.append(
                f"the intensity in {ring.inner_mrad:.0f} to {ring.outer_mrad:.0f} mrad is wrong by "
                f"{ring.error:+.0%}"
            )
        if not problems:
            return None
        return (
            f"{' and '.join(problems)}, with pixels of {self.pixel_angstrom:.3f} Å and "
            f"{self.slices} slices; accuracy is {self.accuracy:.1%}: "
            f"let pixels (to {self.advice:.3f} Å) and slices be chosen, or if they are, "
            "ask for a smaller accuracy"
        )

    def as_dict(self) -> dict[str, object]:
        """Returns all values as JSON types."""
        rings = [ring._asdict() for ring in self.rings]
        return vars(self) | {"rings": rings, "problem": self.problem}


def check_convergence(
    atoms: SpecimenSource,
    *,
    energy_ev: float,
    semiangle_mrad: float,
    positions_angstrom: npt.ArrayLike | None = None,
    detector: Detector | None = None,
    accuracy: float = DEFAULT_ACCURACY,
    frozen_phonons: FrozenPhonons | None = None,
    seed: int = 0,
    **settings: Any,
) -> Convergence:
    """Compares a few probes with twice and three times the resolution.

    Args:
        atoms: The specimen; of several snapshots, the first one and that with the fewest
            slices are compared. As the other
            arguments, that of `namsa.simulate`.
        energy_ev: Electron energy, eV.
        semiangle_mrad: Semi-angle of convergence, mrad.
        positions_angstrom: Probe positions (n, 2) as (y, x), Å. By default `PROBES`, one on the
            strongest column and the others evenly over the cell.
        detector: The detector, which says how far patterns reach; its pixels are not used.
        accuracy: The error to compare with, which pixels and slices are chosen for if they are not
            given.
        frozen_phonons: Thermal displacements, of which one configuration is compared.
        seed: Seed of the thermal displacements.
        settings: Other arguments of `namsa.simulate`, as `grid_shape`.

    Returns:
        The errors.

    Raises:
        InputError: As `namsa.simulate`.
        OutOfMemoryError: If the reference does not fit into memory.

    Example:
        >>> found = namsa.check_convergence(
        ...     cell.atoms,
        ...     energy_ev=200e3,
        ...     semiangle_mrad=20,
        ...     positions_angstrom=[(0.0, 0.0)],
        ...     detector=namsa.Detector(max_angle_mrad=40),
        ...     accuracy=0.1,
        ... )
        >>> bool(found.error < 0.1)
        True
    """
    arguments = dict(locals()) | settings  # by name, of which these two are no settings
    del arguments["atoms"], arguments["settings"]
    return compare_with_reference(specimen_of(atoms).atoms, settings_of(arguments))


@threadpool_limits.wrap(limits=1, user_api="blas")  # as `namsa.simulate`
def compare_with_reference(atoms: Snapshots, settings: SimulationSettings) -> Convergence:
    """Compares a few probes of a simulation with finer ones; see `check_convergence`."""
    slicing = plan_slices(atoms, settings)
    issue_warnings(slicing.warnings, stacklevel=4)  # the caller of `check_convergence`
    extent = slicing.extent_angstrom
    if settings.positions_angstrom is None:
        positions = probes_of(slicing.snapshots[0], extent, PROBES)
    else:
        positions = probe_positions(settings, extent).positions
    trial = Trial(slicing, positions, slicing.required.reach_mrad)
    compared = [_compare(replace(trial, snapshot=snapshot)) for snapshot in _of_interest(slicing)]
    by_draw = [trial.compared(compared[0].patterns)]
    by_draw += _other_draws(trial)
    return _result(trial, compared, _deviation(by_draw))


class _Compared(NamedTuple):
    """The patterns of a snapshot and those of its references."""

    patterns: Floats  # whole ones, (n, ny, nx)
    references: tuple[Floats, ...]  # whole ones, (n, my, mx); the finest last
    reference_pixel_angstrom: float  # of the finest, Å
    reference_slices: int  # of the finest


def _of_interest(slicing: Slicing) -> list[int]:
    """Returns the numbers of the snapshots that are compared: the first, and that with the fewest
    slices.
    """
    fewest = min(range(len(slicing.plans)), key=lambda index: slicing.plans[index].count)
    return sorted({0, fewest})


def _compare(trial: Trial) -> _Compared:
    """Simulates the probes of a trial as they are, and with both references."""
    slicing = trial.slicing
    references = References.of(slicing)
    references.check_memory()
    finer = replace(trial, slicing=slicing.following_layers())
    patterns = trial.whole_patterns(slicing.grid, slicing.plans[trial.snapshot])
    plans = [finer.slicing.finer_plan(times, trial.snapshot) for times in FINER]
    comparisons = []
    for grid, plan in zip(references.grids, plans, strict=True):
        comparisons.append(finer.whole_patterns(grid, plan))
    pixel = max(references.grids[-1].sampling_angstrom)
    return _Compared(patterns, tuple(comparisons), pixel, plans[-1].count)


def _other_draws(trial: Trial) -> list[Floats]:
    """Returns the patterns that are compared, of other snapshots and random displacements."""
    slicing = trial.slicing
    snapshots = len(slicing.snapshots)
    if not slicing.settings.frozen_phonons and snapshots == 1:
        return []
    patterns = []
    for draw in range(1, min(_CONFIGURATIONS, max(2, slicing.configurations))):
        snapshot = draw * snapshots // _CONFIGURATIONS
        drawn = replace(trial, snapshot=snapshot, draw=draw)
        patterns.append(drawn.patterns(slicing.grid, slicing.plans[snapshot]))
    return patterns


def _result(trial: Trial, compared: Sequence[_Compared], deviation: float) -> Convergence:
    """Returns the errors of the patterns that were compared."""
    slicing = trial.slicing
    required = slicing.required
    first_comparison = compared[0]
    patterns = np.concatenate([trial.compared(comparison.patterns) for comparison in compared])
    finer = []
    for index in range(len(FINER)):
        of_snapshots = [trial.compared(comparison.references[index]) for comparison in compared]
        finer.append(np.concatenate(of_snapshots))
    expected = finer[-1]
    errors = errors_of(patterns, expected)
    columns = required.columns(specimen.atom_list(slicing.snapshots[0]), slicing.extent_angstrom)
    return Convergence(
        accuracy=required.accuracy,
        error=errors.error,
        worst_pattern=errors.worst_pattern,
        reference_error=errors_of(finer[0], expected).error,
        rings=tuple(_ring_errors(patterns, expected, trial.angles_mrad(), trial.reach_mrad)),
        lost=_lost(first_comparison.patterns),
        lost_in_reference=_lost(first_comparison.references[-1]),
        reach_mrad=trial.reach_mrad,
        pixel_angstrom=max(slicing.grid.sampling_angstrom),
        slices=slicing.slices,
        reference_pixel_angstrom=first_comparison.reference_pixel_angstrom,
        reference_slices=first_comparison.reference_slices,
        advice=required.pixel_angstrom(columns),
        configurations=slicing.configurations,
        statistical_error=deviation / slicing.configurations**0.5,
    )


def _ring_errors(
    patterns: Floats,  # (n, pixels)
    expected: Floats,  # (n, pixels)
    angle: Floats,  # of each pixel with the axis, (pixels,), mrad
    reach_mrad: float,
) -> Iterator[RingError]:
    """Yields the error of each ring that has pixels, and intensity in the reference.

    Of a coarse grid, the references do not reach all rings either.
    """
    for inner, outer in itertools.pairwise(np.linspace(0, reach_mrad, RINGS + 1).tolist()):
        ring = (angle >= inner) & (angle < outer)
        if not ring.any():
            continue
        intensity = float(patterns[:, ring].sum()) / len(patterns)
        expected_intensity = float(expected[:, ring].sum()) / len(expected)
        if expected_intensity:
            error = intensity / expected_intensity - 1
            yield RingError(inner, outer, error, expected_intensity)


def _lost(patterns: Floats) -> float:
    """Returns the fraction of the beam that scatters beyond the band limit."""
    return float(1 - patterns.sum() / len(patterns))


def _deviation(patterns: Sequence[Floats]) -> float:
    """Returns the relative rms deviation of one configuration's patterns from the mean of very
    many; 0 of one alone.
    """
    if len(patterns) == 1:
        return 0.0
    drawn = np.array(patterns)
    variance = drawn.var(axis=0, ddof=1).sum()
    mean_square = (drawn.mean(axis=0) ** 2).sum() - variance / len(drawn)
    return float(np.sqrt(variance / mean_square))
