"""The error of a simulation's pixels and slices: a few probes, compared with finer ones.

There are two references, with pixels half and a third as large, with the whole Nyquist frequency as
their band (`namsa.physics.grid.Grid`), and slices that follow the layers of atoms, of which at most
those half and a third as far apart share one; with the finite projection, slices half and a third
as thick. Errors are those against the finer one, and how much the two differ says how good it is.
Thermal displacements are the same in all. Of several snapshots, the first and the one with the
fewest slices are compared. How much the patterns of a few thermal configurations (or snapshots)
differ says what statistical error the mean over all of them has.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import ase
import numpy as np
import numpy.typing as npt

from namsa.base.errors import issue_warnings
from namsa.base.pixels import pattern_grid
from namsa.base.text import plural
from namsa.config.bounds import DEFAULT_ACCURACY
from namsa.config.instrument import Detector
from namsa.config.specimen import FrozenPhonons
from namsa.crystals.crystal_source import SpecimenSource
from namsa.crystals.sites import check_atoms
from namsa.crystals.specimen_source import specimen_of
from namsa.physics import specimen
from namsa.physics.grid import Grid
from namsa.samples.sample import Sample
from namsa.sampling.evidence import errors_of
from namsa.sampling.measurement import probes_of
from namsa.sampling.slicing import Slicing, Snapshots, plan_slices
from namsa.setup import checks
from namsa.setup.settings import SimulationSettings, settings_of
from namsa.simulation import plan_simulation

RINGS = 5  # between the axis and the largest angle of interest
PROBES = 4
_FINER = (2, 3)  # times, of the references
_CONFIGURATIONS = 4  # from which the statistical error follows, within about a fifth


class RingError(NamedTuple):
    """The error of the intensity in a ring."""

    inner_mrad: float  # inner angle, mrad
    outer_mrad: float  # outer angle, mrad
    error: float  # relative difference of the probes' mean intensity
    fraction: float  # the intensity itself, as a fraction of the beam


@dataclass(frozen=True)
class Convergence:
    """How far a simulation is from three times the resolution.

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

    def as_dict(self) -> dict[str, Any]:
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


def compare_with_reference(atoms: Snapshots, settings: SimulationSettings) -> Convergence:
    """Compares a few probes of a simulation with finer ones; see `check_convergence`."""
    snapshots = (atoms,) if isinstance(atoms, ase.Atoms) else tuple(atoms)
    at_rest = snapshots[0]
    checks.check_ranges(accuracy=settings.simulation.accuracy)
    for snapshot in snapshots:
        check_atoms(snapshot)
    slicing = plan_slices(atoms, settings)
    required = slicing.required
    columns = required.columns(specimen.atom_list(slicing.snapshots[0]), slicing.extent_angstrom)
    compared = _settings_of_comparison(settings, at_rest, slicing.grid, required.reach_mrad)
    made = []
    references: list[list[Sample]] = [[] for _ in _FINER]
    for index in _snapshots_to_compare(slicing):
        made.append(_simulate(snapshots[index], compared))
        for samples, times in zip(references, _FINER, strict=True):
            finer = _finer_settings(compared, made[-1], times)
            samples.append(_simulate(snapshots[index], finer))

    drawn = made[:1]
    if settings.frozen_phonons or len(snapshots) > 1:
        for draw in range(1, min(_CONFIGURATIONS, max(2, slicing.configurations))):
            snapshot = snapshots[draw * len(snapshots) // _CONFIGURATIONS]
            drawn.append(_simulate(snapshot, replace(compared, seed=settings.seed + draw)))
    return _compare(
        made,
        references,
        drawn,
        required.reach_mrad,
        required.accuracy,
        required.pixel_angstrom(columns),
        slicing.configurations,
    )


def _snapshots_to_compare(slicing: Slicing) -> list[int]:
    """Returns the numbers of the snapshots that are compared: the first, and that with the fewest
    slices.
    """
    fewest = min(range(len(slicing.plans)), key=lambda index: slicing.plans[index].count)
    return sorted({0, fewest})


def _simulate(atoms: ase.Atoms, settings: SimulationSettings) -> Sample:
    """Returns the sample of a simulation, with its warnings issued."""
    plan = plan_simulation(atoms, settings)
    issue_warnings(plan.warnings, plan.notes, stacklevel=4)  # the caller of `check_convergence`
    return plan.run()


def _settings_of_comparison(
    settings: SimulationSettings, atoms: ase.Atoms, grid: Grid, reach_mrad: float
) -> SimulationSettings:
    """Returns the simulation of a few probes on the reciprocal grid, with one configuration.

    Its pixels and slices are those of `settings`, which are not judged.
    """
    positions = settings.positions_angstrom
    if positions is None:
        positions = probes_of(atoms, grid.extent_angstrom, PROBES)
    phonons = settings.frozen_phonons
    if phonons:
        phonons = phonons.model_copy(update={"configurations": 1})
    pixels = {"grid_shape": grid.shape, "sampling_angstrom": None}
    return replace(
        settings,
        simulation=settings.simulation.model_copy(update=pixels),
        judged=False,
        band_fraction=grid.band,
        reach_mrad=reach_mrad,
        frozen_phonons=phonons,
        detector=None,
        positions_angstrom=positions,
    )


def _finer_settings(settings: SimulationSettings, made: Sample, times: int) -> SimulationSettings:
    """Returns a simulation with pixels and slices smaller by a factor than those of a sample."""
    ny, nx = made.provenance["grid_shape"]
    resolved = {
        "grid_shape": (times * ny, times * nx),
        "slice_thickness_angstrom": "auto",
    }
    assert settings.reach_mrad
    return replace(
        settings,
        simulation=settings.simulation.model_copy(update=resolved),
        band_fraction=1.0,
        reach_mrad=settings.reach_mrad * times**0.5,
    )


def _compare(
    made: Sequence[Sample],  # of one configuration of each snapshot that is compared
    references: Sequence[Sequence[Sample]],  # of the same configurations, the finest last
    drawn: Sequence[Sample],  # of configurations that differ
    reach_mrad: float,
    accuracy: float,
    advice: float,
    configurations: int,
) -> Convergence:
    """Returns the errors of patterns on the reciprocal grid within an angle."""
    shape = made[0].cbed.shape[1:]
    angle = pattern_grid(made[0].provenance).distance(shape)
    inside = angle < reach_mrad
    patterns = np.concatenate([sample.cbed for sample in made]).astype(np.float64)
    finer = []
    for samples in references:
        central = [_centre(sample.cbed, shape) for sample in samples]
        finer.append(np.concatenate(central).astype(np.float64))
    expected = finer[-1]
    errors = errors_of(patterns[:, inside], expected[:, inside])
    deviation = _deviation([sample.cbed[:, inside] for sample in drawn])
    finest = references[-1][0]
    return Convergence(
        accuracy=accuracy,
        error=errors.error,
        worst_pattern=errors.worst_pattern,
        reference_error=errors_of(finer[0][:, inside], expected[:, inside]).error,
        rings=tuple(_ring_errors(patterns, expected, angle, reach_mrad)),
        lost=_lost(made[0]),
        lost_in_reference=_lost(finest),
        reach_mrad=reach_mrad,
        pixel_angstrom=max(made[0].provenance["density_sampling_angstrom"]),
        slices=made[0].provenance["slices"],
        reference_pixel_angstrom=max(finest.provenance["density_sampling_angstrom"]),
        reference_slices=finest.provenance["slices"],
        advice=advice,
        configurations=configurations,
        statistical_error=deviation / configurations**0.5,
    )


def _centre(patterns: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Returns the central pixels (n, ny, nx) of larger patterns."""
    top, left = (
        (large - small) // 2 for large, small in zip(patterns.shape[1:], shape, strict=True)
    )
    return patterns[:, top : top + shape[0], left : left + shape[1]]


def _ring_errors(
    patterns: npt.NDArray[np.float64],  # (n, ny, nx)
    expected: npt.NDArray[np.float64],  # (n, ny, nx)
    angle: npt.NDArray[np.float64],  # of each pixel with the axis, (ny, nx), mrad
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


def _lost(sample: Sample) -> float:
    """Returns the fraction of the beam that scatters beyond the band limit."""
    return float(1 - sample.cbed.sum(dtype=np.float64) / len(sample.cbed))


def _deviation(patterns: Sequence[npt.NDArray[Any]]) -> float:
    """Returns the relative rms deviation of one configuration's patterns from the mean of very
    many; 0 of one alone.
    """
    if len(patterns) == 1:
        return 0.0
    drawn = np.array(patterns, np.float64)
    variance = drawn.var(axis=0, ddof=1).sum()
    mean_square = (drawn.mean(axis=0) ** 2).sum() - variance / len(drawn)
    return float(np.sqrt(variance / mean_square))
