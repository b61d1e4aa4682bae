"""The error of a simulation's pixels and slices: a few probes, compared with twice the resolution.

The reference has pixels half as large with the whole Nyquist frequency as its band (`namsa.physics.grid.Grid`), and
slices that follow the layers of atoms, of which at most those half as far apart share one; with the finite projection,
slices half as thick. Thermal displacements are the same in both. How much the patterns of a few thermal configurations
(or snapshots) differ says what statistical error the mean over all of them has.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ase
import numpy as np
import numpy.typing as npt

from namsa import checks
from namsa.config.bounds import DEFAULT_ACCURACY
from namsa.config.instrument import Detector, FrozenPhonons
from namsa.crystals.sites import check_atoms, wrap_along_beam
from namsa.physics import sampling, specimen
from namsa.physics.grid import fast_shape
from namsa.pixels import pattern_grid
from namsa.sample import Sample
from namsa.simulation import simulate
from namsa.slicing import Snapshots, reach_of, thermal_deviation, with_number
from namsa.text import plural

RINGS = 5  # between the axis and the largest angle of interest
PROBES = 6
_CONFIGURATIONS = 4  # from which the statistical error follows, within about a fifth
# Of a sequence that fills the cell evenly: powers of 1/1.3247, the plastic number.
_STEPS = (0.7548776662, 0.5698402910)


class RingError(NamedTuple):
    """The error of the intensity in a ring."""

    inner_mrad: float  # inner angle, mrad
    outer_mrad: float  # outer angle, mrad
    error: float  # relative difference of the probes' mean intensity
    fraction: float  # the intensity itself, as a fraction of the beam


@dataclass(frozen=True)
class Convergence:
    """How far a simulation is from twice the resolution.

    Attributes:
        accuracy: The error that was asked for.
        error: Relative L2 difference of all patterns within `reach_mrad`.
        rings: Errors by ring.
        lost: Fraction of the beam that scatters beyond the band limit.
        lost_in_reference: The same of the reference.
        reach_mrad: Largest angle that is compared, mrad.
        pixel_angstrom: Pixel of the simulation, Å.
        slices: Number of slices.
        reference_pixel_angstrom: Pixel of the reference, Å.
        reference_slices: Number of slices of the reference.
        advice: The pixel that accuracy would choose, Å.
        configurations: Number of thermal configurations, of all snapshots, over which the patterns are averaged.
        statistical_error: Relative L2 error that their mean has because they are random; 0 without any.
    """

    accuracy: float
    error: float
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
    def fault(self) -> str | None:
        """What exceeds the accuracy, with the remedy; `None` if nothing does."""
        return "; ".join(filter(None, (self._numerical_fault, self._statistical_fault))) or None

    @property
    def _statistical_fault(self) -> str | None:
        if self.statistical_error <= self.accuracy:
            return None
        needed = math.ceil(self.configurations * (self.statistical_error / self.accuracy) ** 2)
        return (
            f"patterns have, of {plural(self.configurations, 'configuration')} of the atoms, a statistical error of "
            f"{self.statistical_error:.1%}; accuracy is {self.accuracy:.1%}, which takes about {needed}"
        )

    @property
    def _numerical_fault(self) -> str | None:
        ring, faults = self.worst_ring, []
        if self.error > self.accuracy:
            faults.append(f"patterns within {self.reach_mrad:.0f} mrad have a relative error of {self.error:.1%}")
        if abs(ring.error) > 10 * self.accuracy:
            faults.append(
                f"the intensity in {ring.inner_mrad:.0f} to {ring.outer_mrad:.0f} mrad is wrong by {ring.error:+.0%}"
            )
        if not faults:
            return None
        return (
            f"{' and '.join(faults)}, with pixels of {self.pixel_angstrom:.3f} Å and {self.slices} slices; accuracy is "
            f"{self.accuracy:.1%}: let pixels (to {self.advice:.3f} Å) and slices be chosen, or if they are, ask for a "
            "smaller accuracy"
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns all values as JSON types."""
        return vars(self) | {"rings": [ring._asdict() for ring in self.rings], "fault": self.fault}


def check_convergence(
    atoms: Snapshots,
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
    """Compares a few probes with twice the resolution.

    Args:
        atoms: The specimen; of several snapshots, the first one is compared. As the other arguments, that of
            `namsa.simulate`.
        energy_ev: Electron energy, eV.
        semiangle_mrad: Semi-angle of convergence, mrad.
        positions_angstrom: Probe positions (n, 2) as (y, x), Å. By default `PROBES`, one on the strongest column
            and the others evenly over the cell.
        detector: The detector, which says how far patterns reach; its pixels are not used.
        accuracy: The error to compare with, which pixels and slices are chosen for if they are not given.
        frozen_phonons: Thermal displacements, of which one configuration is compared.
        seed: Seed of the thermal displacements.
        settings: Other arguments of `namsa.simulate`, as `grid_shape`.

    Returns:
        The errors.

    Raises:
        InputError: As `namsa.simulate`.
        OutOfMemoryError: If the reference does not fit into memory.
    """
    snapshots = (atoms,) if isinstance(atoms, ase.Atoms) else tuple(atoms)
    first = snapshots[0]
    reach = sampling.reach_of_interest(reach_of(first, detector, energy_ev), semiangle_mrad)
    checks.check_ranges(accuracy=accuracy)
    check_atoms(first)
    lx, ly, _ = (float(length) for length in first.cell.lengths())
    if positions_angstrom is None and not len(first):
        positions_angstrom = [(ly / 2, lx / 2)]
    elif positions_angstrom is None:
        strongest = sampling.strongest_column(specimen.atom_list(first), (ly, lx))
        positions_angstrom = (strongest + np.outer(np.arange(PROBES), _STEPS) % 1 * (ly, lx)) % (ly, lx)
    common: dict[str, Any] = {
        "energy_ev": energy_ev,
        "semiangle_mrad": semiangle_mrad,
        "positions_angstrom": positions_angstrom,
        "frozen_phonons": frozen_phonons and frozen_phonons.model_copy(update={"configurations": 1}),
    }
    advice = sampling.largest_pixel(
        sampling.measure_columns(specimen.atom_list(wrap_along_beam(first)), (ly, lx)), energy_ev, reach, accuracy
    )
    if settings.get("grid_shape") is None:  # as `simulate` chooses it, which without an accuracy judges nothing
        band = settings.get("band_fraction") or 1.0
        settings |= {"grid_shape": fast_shape((ly, lx), advice), "band_fraction": band}
    made = simulate(first, **common, seed=seed, accuracy=None, reach_mrad=reach, **settings)
    shape = made.provenance["grid_shape"]
    finer = settings | {
        "grid_shape": (2 * shape[0], 2 * shape[1]),
        "band_fraction": 1.0,
        "slice_thickness_angstrom": None,
        "accuracy": None,
    }
    if settings.get("projection") == "finite":
        finer["slice_thickness_angstrom"] = made.provenance["slice_thickness_angstrom"] / 2
    reference = simulate(first, **common, seed=seed, reach_mrad=reach * 2**0.5, **finer)
    configurations, patterns = len(snapshots), [made]
    if frozen_phonons:
        deviation = thermal_deviation(first, frozen_phonons, energy_ev, semiangle_mrad)
        number = with_number(frozen_phonons, deviation, accuracy, len(snapshots)).configurations
        configurations *= int(number)
    if frozen_phonons or len(snapshots) > 1:
        for draw in range(1, min(_CONFIGURATIONS, max(2, configurations))):
            other = snapshots[draw * len(snapshots) // _CONFIGURATIONS if len(snapshots) > 1 else 0]
            patterns.append(simulate(other, **common, seed=seed + draw, accuracy=None, reach_mrad=reach, **settings))
    return _compare(patterns, reference, reach, accuracy, advice, configurations)


def _compare(
    samples: Sequence[Sample],  # of one configuration of the atoms each; the first is compared with the reference
    reference: Sample,
    reach_mrad: float,
    accuracy: float,
    advice: float,
    configurations: int,
) -> Convergence:
    """Returns the errors of patterns on the reciprocal grid within an angle."""
    made = samples[0]
    (ny, nx), grid = made.cbed.shape[1:], pattern_grid(made.provenance)
    y, x = (slice((m - n) // 2, (m - n) // 2 + n) for m, n in zip(reference.cbed.shape[1:], (ny, nx), strict=True))
    found, wanted = made.cbed.astype(np.float64), reference.cbed[:, y, x].astype(np.float64)
    angle = grid.distance((ny, nx))
    inside = angle < reach_mrad
    error = np.linalg.norm((found - wanted)[:, inside]) / np.linalg.norm(wanted[:, inside])
    rings = []
    for inner, outer in itertools.pairwise(np.linspace(0, reach_mrad, RINGS + 1).tolist()):
        ring = (angle >= inner) & (angle < outer)
        if ring.any():
            here, there = (float(patterns[:, ring].sum()) / len(patterns) for patterns in (found, wanted))
            if there:  # of a coarse grid, twice the resolution does not reach all rings either
                rings.append(RingError(inner, outer, here / there - 1, there))
    (lost, pixel, slices), (reference_lost, reference_pixel, reference_slices) = (
        (
            float(1 - sample.cbed.sum(dtype=np.float64) / len(sample.cbed)),
            max(sample.provenance["density_sampling_angstrom"]),
            sample.provenance["slices"],
        )
        for sample in (made, reference)
    )
    return Convergence(
        accuracy=accuracy,
        error=float(error),
        rings=tuple(rings),
        lost=lost,
        lost_in_reference=reference_lost,
        reach_mrad=reach_mrad,
        pixel_angstrom=pixel,
        slices=slices,
        reference_pixel_angstrom=reference_pixel,
        reference_slices=reference_slices,
        advice=advice,
        configurations=configurations,
        statistical_error=_deviation([sample.cbed[:, inside] for sample in samples]) / configurations**0.5,
    )


def _deviation(patterns: Sequence[npt.NDArray[Any]]) -> float:
    """Returns the relative rms deviation of one configuration's patterns from the mean of very many; 0 of one alone."""
    if len(patterns) == 1:
        return 0.0
    drawn = np.array(patterns, np.float64)
    variance = drawn.var(axis=0, ddof=1).sum()
    mean_square = (drawn.mean(axis=0) ** 2).sum() - variance / len(drawn)
    return float(np.sqrt(variance / mean_square))
